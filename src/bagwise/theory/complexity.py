"""Orders of growth that the paper states, of its method and of earlier ones."""

from __future__ import annotations

from bagwise.theory.guarantee import REGRET, SIZE
from bagwise.utils.parameters import check_parameters

SAMPLE_COMPLEXITY = {
    "ours, the truth in the class": "k/β rows (theorem 'erm_square')",
    "ours": "k/β² rows (theorem 'erm_square')",
    "EasyLLP": "k²/β² rows (Busa-Fekete et al., 2023)",
    "Li et al., the truth in the class": "k³/β rows (Li et al., 2024; labels without noise)",
}
"""Orders of growth by method, without constants and logarithms."""


def sample_complexity(size: int, regret: float) -> dict[str, float]:
    """Bags by order of growth alone: rows as in `SAMPLE_COMPLEXITY`, over k.

    Parameters
    ----------
    size : int
        Rows per bag k.
    regret : float
        Target β.

    Returns
    -------
    dict of str to float
        By method. Only ratios between sizes or regrets mean something.

    Examples
    --------
    >>> sample_complexity(64, 0.01)["EasyLLP"] / sample_complexity(8, 0.01)["EasyLLP"]
    8.0
    """
    check_parameters({"size": size, "regret": regret}, {"size": SIZE, "regret": REGRET})
    values = (1 / regret, 1 / regret**2, size / regret**2, size**2 / regret)
    return dict(zip(SAMPLE_COMPLEXITY, values, strict=True))
