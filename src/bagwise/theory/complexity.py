"""Orders of growth that the paper states, of its method and of earlier ones."""

from __future__ import annotations

from bagwise.theory.guarantee import REGRET, SIZE
from bagwise.utils.parameters import check_parameters


def sample_complexity(size: int, regret: float) -> dict[str, float]:
    """Bags that methods need, by order of growth alone, without constants and logarithms.

    In rows, which are k times as many: ours k/β², or k/β where the truth is in the class (theorem 'erm_square');
    EasyLLP k²/β² (Busa-Fekete et al., 2023); Li et al. (2024) k³/β, where the truth is in the class and labels have no
    noise.

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
    return {
        "ours, the truth in the class": 1 / regret,
        "ours": 1 / regret**2,
        "EasyLLP": size / regret**2,
        "Li et al., the truth in the class": size**2 / regret,
    }
