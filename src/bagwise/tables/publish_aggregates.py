"""The data holder's side: rows with labels become tables of noised counts and label sums by one feature and by two."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.data.aggregates import Aggregates
from bagwise.privacy import Budget, add_noise, budget_for_tables, record
from bagwise.tables.aggregates import read_edges, write_aggregates
from bagwise.tables.columns import MAX_LEVELS
from bagwise.tables.ledger import Spent, beside_earlier, check_budget, spend
from bagwise.tables.publish import classes_of, labels_as_text
from bagwise.tables.sources import Source, home, read
from bagwise.tables.table import as_text, col, is_text, is_time, kind_of
from bagwise.utils.parameters import NONE, Parameter, ParameterError, check_parameters, number, whole
from bagwise.utils.typing import Floats

_CONSTRAINTS = {"max_levels": whole(1), "bins": whole(2) | NONE, "threshold": number(above=0) | NONE}


@dataclass(frozen=True)
class PublishedAggregates:
    """What `publish_aggregates` wrote.

    Attributes
    ----------
    tables, edges : Path
        The two files.
    features : tuple of str
        What rows are counted by.
    lines, hidden : int
        Cells with a count, and cells that are hidden.
    budget : Budget or None
        What noise cost, None without.
    threshold : float or None
        Below which counts are hidden.
    releases : tuple of Spent
        With noise, this release and those of these labels, or into this folder, before it.
    """

    tables: Path
    edges: Path
    features: tuple[str, ...]
    lines: int
    hidden: int
    budget: Budget | None
    threshold: float | None
    releases: tuple[Spent, ...] = ()

    def __str__(self) -> str:
        d = len(self.features)
        said = f"{self.lines:,} counts and sums in {d + d * (d - 1) // 2:,} tables, by {', '.join(self.features)}"
        lines = [f"{said}."]
        if self.threshold is not None:
            lines.append(f"{self.hidden:,} cells with a count below {self.threshold:g} are hidden.")
        if self.budget is None:
            lines.append("There is no noise: exact counts and sums can give single rows and labels away.")
        else:
            lines.append(f"Spent: {self.budget}{beside_earlier(self.releases)}")
            lines.append(
                "Somebody with r rows has r times the ε. Which values have cells, and where numbers are cut, is "
                "published as it is: ε does not cover what these tell."
            )
        return "\n".join(lines)


def publish_aggregates(
    source: Source,
    folder: str | os.PathLike[str],
    *,
    label: str,
    positive: str | None = None,
    ignore: Sequence[str] = (),
    edges: Mapping[str, Sequence[float]] | str | os.PathLike[str] | None = None,
    bins: int | None = None,
    max_levels: int = MAX_LEVELS,
    epsilon: float | None = None,
    delta: float | None = None,
    threshold: float | None = None,
    force: bool = True,
    force_budget: bool = False,
) -> PublishedAggregates:
    """Write counts and label sums by each column and each pair of columns of a table, maybe with noise.

    A row stands in one cell of each of the d + d(d − 1)/2 tables, and its label may, too: noise is made for that (see
    `bagwise.privacy.Budget`), from the same ε for all tables, on every cell, those without rows included.

    Parameters
    ----------
    source : path, table or dict
        Rows with labels, anything that `read` takes.
    folder : path
        Where `aggregates.parquet` and `edges.json` go.
    label : str
        The column of labels, of two values.
    positive : str, optional
        The label that is summed, where labels are not 0 and 1.
    ignore : sequence of str
        Columns that nothing is counted by.
    edges : dict or path, optional
        Where numbers are cut, by column, or a JSON file that says so.
    bins : int, optional
        Of other numbers with more values than that, cut where as many rows come to each; this tells their quantiles.
    max_levels : int
        The most frequent values of a column that have a cell of their own; others are counted together.
    epsilon, delta : float, optional
        Differential privacy of rows, with their features and labels: discrete Laplace noise, or with a delta discrete
        Gaussian noise, which is less where tables are many. Without epsilon there is no noise.
    threshold : float, optional
        Counts below it are hidden, with their sums.
    force : bool
        Replace what is there. Without it that stays and is an error, also where another process wrote it meanwhile.
    force_budget : bool
        Release labels that were released before all the same. Without it that is an error, which says what would be
        spent in all: see `bagwise.tables.ledger`.

    Returns
    -------
    PublishedAggregates
        The files, and what was spent.
    """
    check_parameters({"max_levels": max_levels, "bins": bins, "threshold": threshold}, _CONSTRAINTS)
    if delta is not None and epsilon is None:
        raise ParameterError("delta", "belongs to noised counts: give ", Parameter("epsilon"), ", too.")
    table = read(source, home(source), what="the table with labels")
    if absent := [name for name in (label, *ignore) if name not in table.columns]:
        raise ValueError(f"there is no column {absent[0]!r}: there are {', '.join(table.columns)}.")
    names = [name for name in table.columns if name not in (label, *ignore)]
    if not names:
        raise ParameterError("ignore", "leaves no column to count by.")
    cut = read_edges(edges)
    if absent := [name for name in cut if name not in names]:
        raise ParameterError("edges", f"names {absent[0]!r}, which is no column to count by: {', '.join(names)}.")
    classes, values = classes_of(table, label, positive, None, noised=epsilon is not None)
    if classes is not None:
        raise ParameterError("label", f"must be a column of two values, but {label!r} has {len(classes)}.")
    made = {}
    for name in names:
        type_ = table.schema[name]
        if is_time(type_) or type_.is_nested():
            way = "make numbers or text of it, or leave it out"
            raise ParameterError("ignore", f"must name column {name!r}, which holds {kind_of(type_)}: {way}.")
        made[name] = col(name) if name in cut or not is_text(type_) else as_text(col(name), type_)
    frame = table.select(bagwise_label=labels_as_text(table, label), **made).fetch().to_pandas()
    y = frame.pop("bagwise_label").isin(values).to_numpy().astype(int)
    for name in names:
        if name in cut or is_text(table.schema[name]) or not table.schema[name].is_numeric():
            continue
        cut |= _quantiles(name, frame[name], bins, max_levels)
    data = Aggregates.of(frame, y, edges=cut, max_levels=max_levels)
    budget, spent, cells, said = None, None, sum(one.count.size for one in data.tables), {}
    if epsilon is not None:
        budget = budget_for_tables(epsilon, delta, tables=len(data.tables))
        spent = Spent.of(table, label, budget)
        check_budget(spent, Path(folder), force_budget=force_budget)
        data = _noised(data, budget, threshold)
        said = record(budget, threshold)
    elif threshold is not None:
        data, said = data.noised(lambda exact: exact, 0.0, threshold=threshold), {"threshold": threshold}
    hidden = cells - data.lines if threshold is not None else 0
    known = () if spent is None else spend(spent, Path(folder), force_budget=force_budget)
    files = write_aggregates(data, folder, force=force, **said)
    return PublishedAggregates(*files, tuple(names), data.lines, hidden, budget, threshold, known)


def _quantiles(name: str, values: Any, bins: int | None, max_levels: int) -> dict[str, tuple[float, ...]]:
    """Where a column of numbers is cut; nowhere if it has few values."""
    known = values.dropna().to_numpy(dtype=float)
    if len(distinct := np.unique(known)) <= (max_levels if bins is None else bins):
        return {}
    if bins is None:
        said = f"must be given for column {name!r}, which holds {len(distinct):,} numbers"
        raise ParameterError("bins", f"{said}: say how many bins, or where they are cut (", Parameter("edges"), ").")
    at = np.unique(np.quantile(known, np.arange(1, bins) / bins, method="higher"))
    return {name: tuple(float(one) for one in at[at > distinct[0]]) or (float(distinct[1]),)}


def _noised(data: Aggregates, budget: Budget, threshold: float | None) -> Aggregates:
    """The tables with noise on all cells."""

    def noise(cells: Floats) -> Floats:
        return add_noise(cells.astype(np.int64), budget).astype(float)

    return data.noised(noise, budget.noise_variance, threshold=threshold)
