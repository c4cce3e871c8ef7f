"""Which leaf of a tree each row is in."""

import re
from collections.abc import Iterable

import lightgbm as lgb
import numpy as np

from bagwise.utils.typing import Floats, Integers

_TOGETHER, _ENOUGH = 2**16, 2**15  # rows to look at, and those that show which leaves there are
_CELLS, _BESIDE = 2**14, 2  # that steps fall into; those of different leaves lie farther apart


def leaves_of(booster: lgb.Booster, tree: int, step: Floats, most: int) -> Integers | None:
    """(n,) the leaf of each row, told by how much the tree moved it; None where two leaves moved rows about alike.

    It spares a walk of all rows through the tree, which takes as long as to grow it. Steps fall into cells of which
    each leaf has its own: to look a leaf up there is quicker than to search for it.

    most: leaves that a tree may have; where it seems to have fewer, they are counted.
    """
    least, farthest = float(step.min()), float(step.max())
    per = (_CELLS - 0.5) / (farthest - least) if farthest > least else 0.0
    shown = _cell(step[:: (every := -(-len(step) // _ENOUGH))], least, per)
    occupied = np.flatnonzero(np.bincount(shown, minlength=_CELLS))
    runs = np.count_nonzero(np.diff(occupied) > 1) + 1  # neighbours hold what rounding has set apart
    n_leaves = most if runs == most else count_leaves(booster, tree)
    values = np.array([booster.get_leaf_output(tree, number) for number in range(n_leaves)])
    rank = values.argsort().astype(np.int32)
    home = ((values[rank] - least) * per).astype(np.int64)
    edges = np.full(n_leaves + 1, _CELLS)  # from each to the next, cells are those of a leaf
    edges[0], edges[1:-1] = 0, (home[1:] + home[:-1]) // 2 + 1
    width = np.diff(np.minimum(np.maximum(edges, 0), _CELLS))  # there may be leaves with none of these rows
    nearest = home.repeat(width)[occupied]
    if (np.abs(nearest - occupied) > 1).any() or (home[1:] - home[:-1] <= _BESIDE).any():
        return None
    cells = rank.repeat(width)
    if every == 1:
        return cells.take(shown)
    leaf = np.empty(len(step), dtype=np.int32)
    for start in range(0, len(step), _TOGETHER):  # what is computed stays small
        np.take(cells, _cell(step[start : start + _TOGETHER], least, per), out=leaf[start : start + _TOGETHER])
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
