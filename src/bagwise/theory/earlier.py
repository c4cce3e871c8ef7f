"""What the paper says of earlier methods, to compare orders of growth with."""

from __future__ import annotations

from bagwise.theory.guarantee import check_bags_of, check_regret

EARLIER = {
    "ours, the truth in the class": "k/β rows (theorem 'erm_square')",
    "ours": "k/β² rows (theorem 'erm_square')",
    "EasyLLP": "k²/β² rows (Busa-Fekete et al., 2023)",
    "Li et al., the truth in the class": "k³/β rows (Li et al., 2024; labels without noise)",
}
"""Orders of growth by method, without constants and logarithms."""


def growth(size: int, regret: float) -> dict[str, float]:
    """Bags by order of growth alone: rows as in `EARLIER`, over k. Only ratios between sizes or regrets mean something.

    >>> growth(64, 0.01)["EasyLLP"] / growth(8, 0.01)["EasyLLP"]
    8.0
    """
    check_bags_of(size, 0.5)
    check_regret(regret)
    values = (1 / regret, 1 / regret**2, size / regret**2, size**2 / regret)
    return dict(zip(EARLIER, values, strict=True))
