"""Bags held out in turn."""

from dataclasses import dataclass

import numpy as np

from bagwise.utils.typing import Integers

ENOUGH = 512
"""Held-out bags at which a risk is known well enough: the loss of one bag scatters by about its own size."""


@dataclass(frozen=True, eq=False)
class Fold:
    """Bags to learn from and bags held out.

    Attributes
    ----------
    train, held_out : array of int
        Numbers of the bags.
    """

    train: Integers
    held_out: Integers


def folds_of(n_bags: int, cv: int, rng: np.random.Generator, *, enough: int = ENOUGH) -> list[Fold]:
    """Random folds of bags, held out in turn until `enough` bags have been, or all.

    Parameters
    ----------
    n_bags : int
        How many bags there are. Where they are fewer than 4, there are no folds.
    cv : int
        How many folds to cut them into; no more than leave two bags in each.
    rng : Generator
        Draws the folds.
    enough : int
        Bags held out at which no further fold is made.

    Returns
    -------
    list of Fold

    Examples
    --------
    >>> [len(fold.held_out) for fold in folds_of(100, 5, np.random.default_rng(0))]
    [20, 20, 20, 20, 20]
    >>> [len(fold.held_out) for fold in folds_of(10_000, 5, np.random.default_rng(0))]
    [2000]
    """
    if n_bags < 4:
        return []
    number = min(cv, n_bags // 2)
    fold = rng.permutation(n_bags) % number
    used = min(number, -(-enough * number // n_bags))
    return [Fold(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(used)]
