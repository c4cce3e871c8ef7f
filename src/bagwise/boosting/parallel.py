"""Several fits to one table side by side: LightGBM works outside Python's lock, so threads share it without copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TypeVar

import joblib
import numpy as np

from bagwise.boosting.dataset import Table, TreeOptions, comes_alone
from bagwise.boosting.trees import Boosted, boost, targets
from bagwise.boosting.tuning import Path
from bagwise.data.rows import BagRows
from bagwise.folds import Fold

Result = TypeVar("Result")

_ONE_THREAD = 200_000  # numbers in a table below which threads wait for each other longer than they work


@dataclass(frozen=True, eq=False)
class Job:
    """One fit.  fold: what to fit to and what to watch, and after how many trees without gain to stop; None: all."""

    table: Table
    options: TreeOptions
    n_trees: int
    seed: int
    fold: Fold | None = None
    patience: int = 0

    def fit(self, n_jobs: int) -> Boosted:
        """The fit, by `n_jobs` threads."""
        table, fold, options = self.table, self.fold, replace(self.options, n_jobs=n_jobs)
        model = boost(
            table,
            table.bags if fold is None else table.bags.take(fold.train),
            options,
            n_trees=self.n_trees,
            seed=self.seed,
            watch=None if fold is None else table.bags.take(fold.held_out),
            patience=self.patience,
        )
        if comes_alone(table.rows):
            model.release()
        return model

    def path(self, n_jobs: int) -> Path:
        """What the fit says, tree by tree, about bags it did not see; p and E[h] come from those it saw."""
        assert self.fold is not None
        fit, watch = self.fit(n_jobs), self.table.bags.take(self.fold.held_out)
        target = targets(watch, fit.prior)
        empty = np.empty((*target.shape, 0))
        return Path(np.stack(fit.deviations, axis=2) if fit.deviations else empty, target, watch.noise_per_row)


def side_by_side(
    calls: Sequence[Callable[[int], Result]], rows: BagRows, n_jobs: int, told: Callable[[int], None] | None = None
) -> list[Result]:
    """The results of calls that take a number of threads; together they use `n_jobs`, 0 or −1 for all.

    told: called with how many are finished, in the order of `calls`, each time one more is.
    """
    threads = n_jobs if n_jobs > 0 else 1 if np.prod(rows.shape) < _ONE_THREAD else joblib.cpu_count()
    at_once = 1 if comes_alone(rows) else min(threads, len(calls))
    run = joblib.Parallel(n_jobs=at_once, prefer="threads", return_as="generator")
    # Each in a copy of this thread's context, where the limit of time is known: made now, as joblib's own threads ask.
    tasks = [joblib.delayed(copy_context().run)(call, threads // at_once) for call in calls]
    results = []
    for result in run(tasks):
        results.append(result)
        if told is not None:
            told(len(results))
    return results
