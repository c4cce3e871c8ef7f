"""What the benchmark of formations is about: data sets, the bags that come natural to each, and cases of formations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from bagwise import datasets
from bagwise.bags import random_bags
from bagwise.datasets import Split
from bagwise.experiments.bench import precincts
from bagwise.experiments.bench.formations import (
    bags_with_rates,
    cells,
    deciles,
    labels_with_effects,
    natural_groups,
    sorted_bags,
)
from bagwise.experiments.bench.runs import DATASETS, FULL
from bagwise.utils.typing import ArrayLike, Floats, Integers

Columns = Callable[[Any], Sequence[ArrayLike]]

MOST_ROWS = 20_000
"""Training rows: of HIGGS the first so many, of Criteo the last."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set and the bags that come natural to it.

    title: for readers.  load: its table and its numbers.  rate: about which the rates of bags are drawn.
    sorting, grouping: columns of X.  sorted_by, grouped_by: the same in words.  cases, sizes: those it has, all if
    empty.
    """

    title: str
    load: Callable[[], tuple[Split, Split]]
    rate: float = 0.25
    sorting: Columns = lambda X: ()
    grouping: Columns
    sorted_by: str = ""
    grouped_by: str
    cases: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()

    def places(self, names: Sequence[str], sizes: Sequence[int] = ()) -> list[tuple[str, int]]:
        """Those of these cases that it has, with each bag size, or with `sizes` in place of these."""
        return [
            (name, size)
            for name in names
            if name in (self.cases or CASES)
            for size in (sizes if sizes and CASES[name].sizes != (0,) else CASES[name].sizes)
            if sizes or not size or size in (self.sizes or CASES[name].sizes)
        ]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Bags of a formation.

    title: for readers.  formation: which one it is.  sizes: of bags, 0 where they have sizes of their own.
    width: how far rates lie from the data set's at most.  effect: τ, of labels that are drawn; None for those of rows.
    """

    title: str
    formation: str
    sizes: tuple[int, ...]
    width: float = 0.0
    effect: float | None = None


CASES = {
    "random": Case(title="random", formation="random", sizes=(16, 64, 256, 512)),
    "rates-strong": Case(title="rates differ widely", formation="rates", sizes=(64, 512, 2048), width=0.25),
    "rates-weak": Case(title="rates differ a little", formation="rates", sizes=(64, 512), width=0.05),
    "sorted": Case(title="sorted by features", formation="features", sizes=(64, 512)),
    "groups": Case(title="natural groups", formation="features", sizes=(0,)),
    **{
        f"effects-{sd:g}": Case(title=f"effects of sd {sd:g}", formation="effects", sizes=(64, 512), effect=sd)
        for sd in (0.25, 0.5, 1.0)
    },
}
"""The cases by name."""


def cases_of(names: Sequence[str]) -> list[str]:
    """The cases of these names; one without what follows the hyphen stands for all that begin so.

    >>> cases_of(["rates", "groups"])
    ['rates-strong', 'rates-weak', 'groups']
    """
    return [case for case in CASES if case in names or case.split("-")[0] in names]


def _named(name: str) -> Callable[[], tuple[Split, Split]]:
    return lambda: DATASETS[name][1](FULL.synthetic_rows)


def _higgs() -> tuple[Split, Split]:
    split = datasets.higgs(rows=MOST_ROWS)
    return split, split


def _criteo() -> tuple[Split, Split]:
    both = (datasets.criteo(encoded=encoded) for encoded in (False, True))
    table, encoded = (replace(one, X=one.X[-MOST_ROWS:], y=one.y[-MOST_ROWS:]) for one in both)
    return table, encoded


def _columns(*names: str) -> Columns:
    return lambda X: [X[name] for name in names]


_FEW_CASES = ("random", "rates-strong", "rates-weak", "sorted", "groups", "effects-1")  # of all but the first
SOURCES = {
    "adult": Source(
        title=DATASETS["adult"][0],
        load=_named("adult"),
        sorting=_columns("education", "occupation", "age"),
        sorted_by="education, occupation, age",
        grouping=_columns("education", "occupation"),
        grouped_by="education × occupation",
    ),
    "criteo": Source(
        title=DATASETS["criteo"][0],
        load=_criteo,
        sorting=_columns("C14", "C17", "C2"),
        sorted_by="the categories C14, C17, C2",
        grouping=_columns("C14", "C17"),
        grouped_by="the categories C14 × C17",
        cases=_FEW_CASES,
        sizes=(64, 512),
    ),
    "digits": Source(
        title=DATASETS["digits"][0],
        load=_named("digits"),
        rate=0.5,
        sorting=lambda X: [X[:, 36], X[:, 28], X[:, 20]],
        sorted_by="three points in the middle of the image (36, 28, 20)",
        grouping=lambda X: [cells(X, 20)],
        grouped_by="20 cells of k-means",
        cases=_FEW_CASES,
        sizes=(16, 64),
    ),
    "synthetic": Source(
        title=DATASETS["synthetic"][0],
        load=_named("synthetic"),
        sorting=_columns("campaign", "country", "hour"),
        sorted_by="campaign, country, hour",
        grouping=_columns("campaign", "device"),
        grouped_by="campaign × device",
        cases=_FEW_CASES,
        sizes=(64, 512),
    ),
    "higgs": Source(
        title="HIGGS (a boson was made)",
        load=_higgs,
        rate=0.5,
        sorting=lambda X: [deciles(X[:, 25]), X[:, 27]],
        sorted_by="m_bb in tenths, m_wwbb",
        grouping=lambda X: [deciles(X[:, 25]), deciles(X[:, 27])],
        grouped_by="tenths of m_bb × tenths of m_wwbb",
        cases=_FEW_CASES,
        sizes=(64, 512),
    ),
    "precincts": Source(
        title="Precinct register (Democrat), by the voter's group alone",
        load=lambda: precincts.load(context=False),
        grouping=lambda X: [precincts.bag_ids()],
        grouped_by="precincts",
        cases=("groups",),
    ),
    "precincts_context": Source(
        title="Precinct register (Democrat), by group, county and the precinct's shares of groups",
        load=lambda: precincts.load(context=True),
        grouping=lambda X: [precincts.bag_ids()],
        grouped_by="precincts",
        cases=("groups",),
    ),
}
"""Data sets by name."""


@dataclass(frozen=True, eq=False)
class Data:
    """A data set that was read: a table and its numbers, which are the same for arrays."""

    source: Source
    table: Split
    encoded: Split

    @classmethod
    def of(cls, name: str) -> "Data":
        """Read the data set of this name."""
        return cls(SOURCES[name], *SOURCES[name].load())

    @cached_property
    def groups(self) -> Integers:
        """The natural groups as bag ids."""
        return natural_groups(self.source.grouping(self.table.X))

    @cached_property
    def log_odds(self) -> tuple[Floats, Floats]:
        """Of training and test rows, by logistic regression on their labels: the truth that labels are drawn from."""
        model = LogisticRegression(max_iter=5000).fit(self.encoded.X, self.encoded.y)
        return model.decision_function(self.encoded.X), model.decision_function(self.encoded.X_test)

    def rates(self, case: Case) -> tuple[float, float]:
        """Between which the rates of bags are drawn."""
        return self.source.rate - case.width, self.source.rate + case.width

    def draw(self, name: str, size: int, seed: Callable[[int], int]) -> "Drawn":
        """Bags of a case, or single rows for none, and the labels behind them.  seed: 0 for bags, 2 for labels."""
        y, y_test = self.table.y, self.table.y_test
        if not name:
            return Drawn(np.arange(len(y)), y, y_test)
        case = CASES[name]
        if name == "groups":
            ids = self.groups
        elif name == "sorted":
            ids = sorted_bags(self.source.sorting(self.table.X), size, random_state=seed(0))
        elif case.width:
            ids = bags_with_rates(y, size, *self.rates(case), random_state=seed(0))
        else:
            ids = random_bags(len(y), size, random_state=seed(0))
        if case.effect is not None:
            s, s_test = self.log_odds
            rng = np.random.default_rng(seed(2))
            y, _ = labels_with_effects(s, ids, case.effect, random_state=rng)
            y_test, _ = labels_with_effects(s_test, np.full(len(s_test), -1), 0.0, random_state=rng)
        return Drawn(ids, y, y_test)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Bag ids and labels of the training rows, labels of the test rows."""

    ids: Integers
    y: Integers
    y_test: Integers
