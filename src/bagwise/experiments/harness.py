"""What experiments share: configs, runs and their seeds, work in several processes.

Configs are frozen dataclasses, changed by TOML files and known by their hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from bagwise.bags import Bags, aggregate, random_bags
from bagwise.experiments.results import Store
from bagwise.utils.parameters import Constraint, several, whole
from bagwise.utils.signals import end_with_parent
from bagwise.utils.typing import Floats, Integers

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Config = TypeVar("Config", bound=DataclassInstance)

Progress = Callable[[int, int, str], None]
"""Called with the runs done, their number and what comes now."""

LIBRARIES = ("scikit-learn", "lightgbm", "torch")
"""Whose versions every run carries, besides those that every table does."""

# -- configs -------------------------------------------------------------------------------------------------------

_WITHOUT_EFFECT = {"n_jobs"}  # how an experiment is run, not what it computes
_IN_WORDS = {int: "whole number", float: "number", str: "text"}

BAG_SIZES = several(whole(1), "one or more bag sizes of at least 1")

PAPER_LOSSES = {
    "ours": "debiased_square",
    "li": "li_square",
    "vanilla_sq": "matching_square",
    "vanilla_ce": "matching_cross_entropy",
}
"""The paper's names of losses, which stored results carry, where the library has others."""


def names_of(known: Collection[str]) -> Constraint:
    """Names out of those that are known."""
    return Constraint(f"names out of {', '.join(known)}", lambda given: set(given) <= set(known))


def different(what: str) -> Constraint:
    """One or more whole numbers of at least 1, no two alike."""
    words, one_or_more = f"one or more different {what} of at least 1", several(whole(1), "")
    return Constraint(words, lambda given: one_or_more.holds(given) and len(set(given)) == len(given))


def load(base: Config, path: str | Path) -> Config:
    """The config `base` with the values that a TOML file gives in place of its own; unknown keys are an error."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from None
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    kinds = get_type_hints(type(base))
    if unknown := sorted(set(values) - set(kinds)):
        raise ValueError(f"{path} has unknown keys {', '.join(unknown)}: the keys are {', '.join(kinds)}.")
    for key, value in values.items():
        needed = getattr(type(base), key) != ()  # a list that is not empty by default
        if not _fits(value, kinds[key]) or (value == () and needed):
            given = json.dumps(value, default=str)
            raise ValueError(f"{path} gives {key} = {given}: it must be {_in_words(kinds[key], needed)}.")
    return replace(base, **values)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, also inside of tuples; a whole number may stand for any number."""
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(one, get_args(kind)[0]) for one in value)
    return type(value) is kind or (kind is float and type(value) is int)


def _in_words(kind: Any, needed: bool) -> str:
    if get_origin(kind) is tuple:
        return f"a list of {'one or more ' if needed else ''}{_IN_WORDS[get_args(kind)[0]]}s"
    return "true or false" if kind is bool else f"a {_IN_WORDS[kind]}"


def as_json(config: DataclassInstance) -> str:
    """Everything in the config that affects the result."""
    return json.dumps({key: value for key, value in asdict(config).items() if key not in _WITHOUT_EFFECT})


def fingerprint(config: DataclassInstance) -> str:
    """Hash of everything in the config that affects the result."""
    kind = getattr(config, "kind", type(config).__name__)
    return hashlib.sha256(f"{kind} {as_json(config)}".encode()).hexdigest()[:12]


def provenance(config: DataclassInstance, *libraries: str) -> dict[str, str]:
    """Columns every table of results carries: the config, its hash and the versions of the libraries."""
    return {"config": as_json(config), "config_hash": fingerprint(config), **versions(*libraries)}


def versions(*libraries: str) -> dict[str, str]:
    """Versions of bagwise, NumPy, SciPy and further libraries, empty for those that are not there, by column."""
    return {f"{name}_version": _version(name) for name in ("bagwise", "numpy", "scipy", *libraries)}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


# -- runs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Run:
    """One method on one partition of a data set into bags: all that the result depends on, as frozen fields.

    Subclasses name the fields; names, order and values make the key, by which stored results are found again.
    """

    kind: ClassVar[str] = "Run"
    numbered_by: ClassVar[str]
    """The field that says which partition of the data set it is."""
    if TYPE_CHECKING:  # every subclass has these, among others, in an order of its own
        dataset: str
        size: int
        method: str
        random_state: int

    @cached_property
    def key(self) -> str:
        """Hash of all fields."""
        return fingerprint(self)

    @cached_property
    def origin(self) -> dict[str, str]:
        """The fields as JSON, their hash and the versions of libraries."""
        return provenance(self, *LIBRARIES)

    @property
    def where(self) -> str:
        """What it is about, but for the method."""
        return f"{self.dataset}, bags of {self.size}"

    def seed(self, number: int) -> int:
        """Seeds that do not depend on the method: 0 for the partition, 1 for what the method draws, 2 for the fold."""
        key = (getattr(self, self.numbered_by), self.size, number)
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
    function: Callable[..., Any],
    tasks: Sequence[Sequence[Any]],
    *,
    n_jobs: int,
    ordered: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Any]:
    """What the function gives for the arguments of each task: in the order of tasks, or as it comes.

    progress: called with the tasks done and their number.
    """
    workers, here = Parallel(n_jobs=n_jobs, return_as="generator" if ordered else "generator_unordered"), os.getpid()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A worker stopped")  # joblib replaces those that have grown large
        for done, result in enumerate(workers(delayed(_work)(here, function, *task) for task in tasks), start=1):
            yield result
            if progress is not None:
                progress(done, len(tasks))


def _work(parent: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """A task, in a process that does not outlive the one that wants it: who starts again finds nobody at work."""
    if os.getpid() != parent:
        end_with_parent(parent)
    return function(*arguments)


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
        tasks = [(group, store, compute, polite) for group in groups]
        for group, stored in in_processes(_finish, tasks, n_jobs=n_jobs):
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
    return first.where + (f", {first.method}" if len(group) == 1 else "")


def _finish(
    group: list[SomeRun], store: Store, compute: Callable[[list[SomeRun]], Sequence[Mapping[str, Any]]], polite: bool
) -> tuple[list[SomeRun], bool]:
    """Compute a group and store it, unless another process has or, if `polite`, is at it; is it stored by now?"""
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
