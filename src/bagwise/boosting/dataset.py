"""What LightGBM is given: its parameters, and the rows of bags, in memory or block by block from wherever they are.

LightGBM reads rows to replace each number by the number of its bin; what it keeps is one byte per number. After that
rows are read again only where two leaves of a tree moved them alike, to tell which is which. Over blocks it takes one
byte per number and about 100 bytes per row (with classes, about 60 more for each), or, while bins are found, five
megabytes per column; rows are read twice, and fits come one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import lightgbm as lgb
import numpy as np

from bagwise.bags import Bags
from bagwise.boosting.links import IDENTITY
from bagwise.data.rows import BagRows, in_one_piece, row_starts
from bagwise.utils.parameters import DEEPEST
from bagwise.utils.threads import threads_of
from bagwise.utils.typing import Floats, Integers

LIKELIHOOD, SQUARE = "likelihood", "square"


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """How trees are grown and their values solved; names as in LightGBM, and the scale they add up on (`links`).

    counts: whether labels are 0 and 1.  objective: what trees go down on (`objectives`).  effect_variance: τ² of
    effects of bags, for the likelihood.
    """

    learning_rate: float
    num_leaves: int
    min_child_samples: int
    colsample_bytree: float
    reg_lambda: float
    max_cat_to_onehot: int
    cat_smooth: float
    n_jobs: int
    extra_trees: bool = False
    link: str = IDENTITY
    counts: bool = False
    objective: str = SQUARE
    effect_variance: float | None = 0.0

    def for_lightgbm(self, seed: int, n_features: int) -> dict[str, Any]:
        """Parameters of a tree grower: one tree at a time, no shrinkage, no penalty; those are ours."""
        fewest = min(1.0, 4 / n_features)  # a tree of fewer features could not show how they act together
        return {
            "objective": "none",
            "learning_rate": 1.0,
            "num_leaves": self.num_leaves,
            "max_depth": DEEPEST,
            "min_data_in_leaf": self.min_child_samples,
            "min_sum_hessian_in_leaf": 0.0,
            "min_data_in_bin": 1,
            "feature_pre_filter": False,
            "extra_trees": self.extra_trees,
            "extra_seed": seed,
            "feature_fraction": max(self.colsample_bytree, fewest),
            # One category against the rest: groups of categories, sorted by a gradient this noisy, overfit.
            "max_cat_to_onehot": self.max_cat_to_onehot,
            "cat_l2": self.cat_smooth,
            "cat_smooth": self.cat_smooth,
            "seed": seed,
            "deterministic": True,
            "force_col_wise": True,  # a quarter quicker for trees of some of the features; no second copy of rows
            "num_threads": threads_of(self.n_jobs),
            "verbosity": -1,
        }


@dataclass(frozen=True, eq=False)
class Table:
    """What fits share.

    rows: as they are.  binned: as LightGBM holds them.  bags: of the rows, all that may be fitted to or held out.
    """

    rows: BagRows
    binned: lgb.Dataset
    bags: Bags

    @classmethod
    def of(cls, rows: BagRows, options: TreeOptions, categorical: Sequence[int], **others: Any) -> Table:
        """Find the bins.  others: parameters of LightGBM.

        Over blocks they are those of the same rows in memory: LightGBM draws the same rows to find them.
        """
        parameters = options.for_lightgbm(0, rows.shape[1]) | others
        X: Any = rows.block(0) if in_one_piece(rows) else None
        if X is None:
            X = in_blocks(rows, range(len(rows)))
            # What LightGBM draws from its seed to choose rows by; reading rows in parts, it would forget to.
            drawn = (214013 * parameters["seed"] + 2531011) % 2**32 // 2**16
            parameters["data_random_seed"] = drawn % 2**15 % (2**15 - 1)
        label = np.zeros(rows.shape[0], dtype=np.float32)  # never looked at: the gradients are ours
        binned = lgb.Dataset(X, label=label, categorical_feature=list(categorical), params=parameters)
        return cls(rows, binned.construct(), rows.bags)

    def blocks(self) -> Iterator[Floats]:
        """All rows, in order."""
        return (self.rows.block(number) for number in range(len(self.rows)))

    def take(self, numbers: Integers) -> Floats:
        """The chosen rows, in memory; a block is read once."""
        if in_one_piece(self.rows):
            return self.rows.block(0)[numbers]
        starts = row_starts(self.rows)
        owner = np.searchsorted(starts, numbers, side="right") - 1
        taken = np.empty((0, self.rows.shape[1]))
        for number in np.unique(owner).tolist():
            block, mine = self.rows.block(number), owner == number
            if not len(taken):
                taken = np.empty((len(numbers), self.rows.shape[1]), dtype=block.dtype)
            taken[mine] = block[numbers[mine] - starts[number]]
        return taken


def in_blocks(rows: BagRows, numbers: Sequence[int]) -> list[lgb.Sequence]:
    """The rows of some blocks, as LightGBM reads them one block after the other."""
    read, size = lru_cache(maxsize=1)(rows.block), np.diff(row_starts(rows))
    return [_Block(partial(read, number), int(size[number])) for number in numbers]


class _Block(lgb.Sequence):
    """A block as LightGBM asks for it: single rows, in double precision, to find bins; then all of it."""

    def __init__(self, read: Callable[[], Floats], n_rows: int) -> None:
        self.read, self.batch_size = read, n_rows

    def __len__(self) -> int:
        return self.batch_size

    def __getitem__(self, place: Any) -> Floats:
        found: Floats = self.read()[place]
        return found if isinstance(place, slice) else found.astype(np.float64)


def in_bags(X: Floats, bags: Bags) -> tuple[Floats, Bags]:
    """The rows in bags alone, since others say nothing, not even where to cut; bag after bag, as they are computed."""
    if np.array_equal(bags.order, np.arange(len(X))):
        return X, bags
    return X[bags.order], replace(bags, order=np.arange(bags.n_bagged), n_rows=bags.n_bagged)
