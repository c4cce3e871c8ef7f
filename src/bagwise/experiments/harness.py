"""What experiments share: runs and their seeds, work in several processes, completing what a store lacks."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from bagwise.bags import Bags, aggregate, random_bags
from bagwise.experiments.config import fingerprint, provenance
from bagwise.experiments.store import Store
from bagwise.utils.typing import Floats, Integers

Progress = Callable[[int, int, str], None]
"""Called with the runs done, their number and what comes now."""

LIBRARIES = ("scikit-learn", "lightgbm", "torch")
"""Whose versions every run carries, besides those that every table does."""


@dataclass(frozen=True, kw_only=True)
class Run(ABC):
    """One method on one partition of a data set into bags: all that the result depends on, as frozen fields.

    Subclasses name the fields; names, order and values make the key, by which stored results are found again.
    """

    kind: ClassVar[str] = "Run"
    if TYPE_CHECKING:  # every subclass has these, among others, in an order of its own
        dataset: str
        size: int
        method: str
        random_state: int

    @property
    @abstractmethod
    def draw(self) -> int:
        """Which partition of the data set it is."""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)

    @cached_property
    def key(self) -> str:
        """Hash of all fields."""
        return fingerprint(self)

    @cached_property
    def origin(self) -> dict[str, str]:
        """The fields as JSON, their hash and the versions of libraries."""
        return provenance(self, *LIBRARIES)

    def seed(self, number: int) -> int:
        """Seeds that do not depend on the method: 0 for the partition, 1 for what the method draws, 2 for the fold."""
        key = (self.draw, self.size, number)
        return int(np.random.SeedSequence(self.random_state, spawn_key=key).generate_state(1)[0] >> 1)

    def bags_of(self, y: Integers) -> Bags:
        """The partition: random bags of the training rows, with the means of their labels."""
        ids = random_bags(len(y), self.size, random_state=self.seed(0))
        return Bags.from_rows(aggregate(y, ids), ids)


SomeRun = TypeVar("SomeRun", bound=Run)


def scores(h: Floats, y: Integers) -> dict[str, float]:
    """Accuracy and Brier score of predictions for single rows."""
    return {"accuracy": float(((h > 0.5) == y).mean()), "brier": float(((h - y) ** 2).mean())}


def in_processes(
    function: Callable[..., Any], tasks: Iterable[Sequence[Any]], *, n_jobs: int, ordered: bool = False
) -> Iterator[Any]:
    """What the function gives for the arguments of each task: in the order of tasks, or as it comes."""
    workers = Parallel(n_jobs=n_jobs, return_as="generator" if ordered else "generator_unordered")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A worker stopped")  # joblib replaces those that have grown large
        yield from workers(delayed(function)(*task) for task in tasks)


def grouped(
    runs: Iterable[SomeRun], together: Callable[[SomeRun], Hashable], done: Collection[str] = ()
) -> list[list[SomeRun]]:
    """The runs that are not done, in groups to be computed together, those of one value of `together`, in order."""
    groups: dict[Hashable, list[SomeRun]] = {}
    for run in runs:
        if run.key not in done:
            groups.setdefault(together(run), []).append(run)
    return list(groups.values())


def complete(
    runs: Sequence[SomeRun],
    store: Store,
    compute: Callable[[list[SomeRun]], Sequence[Mapping[str, Any]]],
    *,
    together: Callable[[SomeRun], Hashable] = lambda run: run.key,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Compute what the store lacks, and return the rows of all runs, in their order.

    compute: the rows of a group of runs, which hold their `origin`.  together: see `grouped`.

    Each group is stored when it is finished: stopping loses those under way. Several processes, also started apart, may
    work on one store.
    """
    tell = progress or (lambda done, total, text: None)
    keys = [run.key for run in runs]
    done = store.finished() & set(keys)
    groups = grouped(runs, together, done)
    for polite in (True, False):  # first what no other process works at, then what is still missing
        coming = iter([*map(_words, groups), "done"])
        tell(len(done), len(runs), next(coming))
        left = []
        for group, stored in in_processes(
            _finish, ((group, store, compute, polite) for group in groups), n_jobs=n_jobs
        ):
            if stored:
                done |= {run.key for run in group}
            else:
                left.append(group)
            tell(len(done), len(runs), next(coming))
        groups = left
    store.gather()
    return store.rows(keys)


def _words(group: Sequence[Run]) -> str:
    first = group[0]
    return f"{first.dataset}, bags of {first.size}" + (f", {first.method}" if len(group) == 1 else "")


def _finish(
    group: list[SomeRun], store: Store, compute: Callable[[list[SomeRun]], Sequence[Mapping[str, Any]]], polite: bool
) -> tuple[list[SomeRun], bool]:
    """Compute a group and store it, unless another process has done so or, if `polite`, is at it.

    Comes back with whether it is stored by now.
    """
    keys = [run.key for run in group]
    if store.holds(keys):
        return group, True
    if not store.claim(keys) and polite:
        return group, False
    try:
        store.add(keys, compute(group))
    finally:
        store.release(keys)
    return group, True
