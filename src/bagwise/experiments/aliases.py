"""The paper's names of losses, which stored results carry, and the library's names for the same."""

from __future__ import annotations

PAPER_LOSSES: dict[str, str] = {
    "ours": "debiased_square",
    "li": "li_square",
    "vanilla_sq": "matching_square",
    "vanilla_ce": "matching_cross_entropy",
    "easyllp": "easyllp",
    "easyllp_square": "easyllp_square",
    "centred_log": "centred_log",
    "centred_square": "centred_square",
    "count_likelihood": "count_likelihood",
    "label_generation": "label_generation",
}
"""Keys of `bagwise.losses.LOSSES` by the names that experiments use."""


def library_loss(name: str) -> str:
    """The key of `bagwise.losses.LOSSES` for a loss as experiments call it."""
    return PAPER_LOSSES[name]
