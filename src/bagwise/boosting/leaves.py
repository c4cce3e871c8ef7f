"""Which leaf of a tree each row is in."""

import re
from collections.abc import Iterable
from functools import lru_cache

import lightgbm as lgb
import numpy as np

from bagwise.utils.typing import Floats, Integers

_TOGETHER = 2**20  # rows to look at
_CELLS, _BESIDE = 2**14, 2  # that steps fall into; those of different leaves lie farther apart


def leaves_of(booster: lgb.Booster, tree: int, step: Floats, most: int) -> Integers | None:
    """(n,) the leaf of each row, told by how much the tree moved it; None where two leaves moved rows about alike.

    It spares a walk of all rows through the tree, which takes as long as to grow it. Steps fall into cells of which
    each leaf has its own: to look a leaf up there is quicker than to search for it.

    most: leaves that a tree may have; where it seems to have fewer, they are counted.
    """
    least, farthest = float(step.min()), float(step.max())
    per = (_CELLS - 0.5) / (farthest - least) if farthest > least else 0.0
    pieces = [
        step[start : start + _TOGETHER] for start in range(0, len(step), _TOGETHER)
    ]  # what is computed stays small
    cell_of = lru_cache(maxsize=1)(lambda number: _cell(pieces[number], least, per))
    occupied = np.flatnonzero(sum(np.bincount(cell_of(number), minlength=_CELLS) for number in range(len(pieces))))
    first = np.concatenate([[True], np.diff(occupied) > 1])  # neighbours hold what rounding has set apart
    n_leaves = most if np.count_nonzero(first) == most else count_leaves(booster, tree)
    values = np.array([booster.get_leaf_output(tree, number) for number in range(n_leaves)])
    rank = np.argsort(values).astype(np.int32)
    home = ((values[rank] - least) * per).astype(np.int64)
    # Of each run of cells, the leaf; in some there may be none of these rows.
    owner = np.clip(np.searchsorted(home, occupied[first] - 1), 0, n_leaves - 1)
    if (np.abs(home[owner] - occupied[first]) > 1).any() or (np.diff(home) <= _BESIDE).any():
        return None
    cells, leaf = np.zeros(_CELLS, dtype=np.int32), np.empty(len(step), dtype=np.int32)
    cells[occupied] = rank[owner[np.cumsum(first) - 1]]
    for number in range(len(pieces)):
        np.take(cells, cell_of(number), out=leaf[number * _TOGETHER :][: len(pieces[number])])
    return leaf


def count_leaves(booster: lgb.Booster, tree: int) -> int:
    """Leaves of one tree."""
    found = re.search(
        r"^num_leaves=(\d+)$", booster.model_to_string(start_iteration=tree, num_iteration=1), re.MULTILINE
    )
    assert found is not None
    return int(found[1])


def _cell(step: Floats, least: float, per: float) -> Integers:
    """(n,) the cell that each step falls into."""
    place = step - least
    place *= per
    return place.astype(np.intp)


def predicted_leaves(booster: lgb.Booster, tree: int, blocks: Iterable[Floats], n_jobs: int) -> Integers:
    """(n,) the leaf of each row, by a walk through the tree."""
    how = {"pred_leaf": True, "start_iteration": tree, "num_iteration": 1, "num_threads": n_jobs}
    return np.concatenate([np.ravel(booster.predict(block, **how)).astype(np.int32) for block in blocks])
