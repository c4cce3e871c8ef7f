"""Bags held out in turn."""

from dataclasses import dataclass

import numpy as np

from bagwise.bags.overlap import Shared
from bagwise.utils.typing import Integers

_ENOUGH_PARTS = 2  # that hang together, in each fold
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


def folds_of(
    n_bags: int, cv: int, rng: np.random.Generator, *, enough: int = ENOUGH, shared: Shared | None = None
) -> list[Fold]:
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
    shared : Shared, optional
        Which bags have rows in common: no bag to learn from then shares a row with one that is held out. Where all
        bags hang together, bags of the finest grouping are held out in turn, and bags that share rows with them say
        nothing meanwhile.

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
    if shared is not None:
        return _folds_apart(shared, cv, rng, enough)
    number = min(cv, n_bags // 2)
    fold = rng.permutation(n_bags) % number
    used = min(number, -(-enough * number // n_bags))
    return [Fold(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(used)]


def _folds_apart(shared: Shared, cv: int, rng: np.random.Generator, enough: int) -> list[Fold]:
    """Folds of which none shares a row with what is learned from meanwhile."""
    _, component = np.unique(shared.components(), return_inverse=True)
    if (parts := int(component.max()) + 1) >= _ENOUGH_PARTS * cv:
        found = folds_of(parts, cv, rng, enough=parts)
        chosen = [(np.flatnonzero(np.isin(component, fold.held_out)), fold) for fold in found]
        folds = [Fold(np.flatnonzero(np.isin(component, fold.train)), held) for held, fold in chosen]
    else:
        finest = np.flatnonzero(shared.table == np.argmax(np.bincount(shared.table)))
        held_out = [finest[fold.held_out] for fold in folds_of(len(finest), cv, rng, enough=len(finest))]
        folds = [Fold(np.flatnonzero(shared.apart_from(held)), held) for held in held_out]
    folds = [fold for fold in folds if len(fold.train) > 1 and len(fold.held_out)]
    total = np.cumsum([len(fold.held_out) for fold in folds])
    return folds[: int(np.searchsorted(total, enough)) + 1]
