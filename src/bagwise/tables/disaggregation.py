"""Rates of groups of rows of a table, by a model and the reports of their bags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from bagwise.data.rows import InMemory
from bagwise.disaggregation import GroupRates
from bagwise.disaggregation.groups import CONSTRAINTS, RELATED, formation_beside, sign_of
from bagwise.disaggregation.members import Groups
from bagwise.disaggregation.rates import rates_of
from bagwise.disaggregation.refitting import Refit, refit_of
from bagwise.disaggregation.values import means_of
from bagwise.formation import Told
from bagwise.tables.bag_table import BagTable, Summary
from bagwise.tables.diagnosis import frame_of
from bagwise.tables.engines import Connection
from bagwise.tables.model import TableModel
from bagwise.tables.reported import Held, hold, reported_by_each
from bagwise.tables.reports import ReportColumns
from bagwise.tables.sources import Source, home, read
from bagwise.utils.parameters import ParameterError, check_parameters
from bagwise.utils.rng import RandomState, generator

_LOOKED_AT = 500_000  # rows whose features tell how bags came about


def group_rates(
    model: TableModel,
    source: Source,
    *,
    reports: Source | Sequence[Source],
    by: Sequence[str] | str,
    formation: str = "auto",
    related: float = RELATED,
    level: float = 0.95,
    missing_columns: Literal["error", "as-missing"] = "error",
    connection: Connection | None = None,
    keys: Sequence[str] | str | None = None,
    on_mismatch: Literal["error", "drop"] | Sequence[str] = "error",
    random_state: RandomState = 0,
    **columns: Any,
) -> GroupRates:
    """Share of positive labels, or of each class, or mean value, of groups of rows: estimates, intervals and bounds.

    Parameters
    ----------
    model : TableModel
        As `fit` returns it, of labels, classes or values.
    source : path, table or dict
        Rows, as for `write_scores`.
    reports : path, table or dict, or a list of them
        Reports of bags of these rows.
    by : str or sequence of str
        Columns of the rows that tell the group; several together.
    formation, related, level, random_state
        As in `bagwise.group_rates`. By default bags that the model was fitted to came about as it was told.
    missing_columns, connection, keys, on_mismatch, **columns
        As in `write_scores`.

    Returns
    -------
    bagwise.disaggregation.GroupRates
    """
    check_parameters({"formation": formation, "level": level, "related": related}, CONSTRAINTS)
    every: list[Any] = list(reports) if isinstance(reports, (list, tuple)) else [reports]
    own = home(source, *every, connection=connection, ordered=True)
    table = read(source, own, what="the table")
    names = [by] if isinstance(by, str) else list(by)
    if unknown := [name for name in names if name not in table.columns]:
        there = ", ".join(table.columns)
        raise ParameterError("by", f"names {unknown[0]!r}, which is no column of the table: it has {there}.")
    given, reading = ReportColumns(**columns), model.reading(table, missing_columns=missing_columns)
    data = reported_by_each(model, table, every, given, keys=keys, on_mismatch=on_mismatch, connection=own)
    held = hold(model, reading, data, coded=True, by=names)
    reading.met.warn()
    assert held.groups is not None
    seen = _seen(model, data)
    told = _told(model, held, formation, seen=seen)
    groups, refit = Groups.of(held.groups, held.bags), _refit(model, held) if seen else None
    asked: dict[str, Any] = {"told": told, "refit": refit, "related": related, "level": level}
    asked["rng"] = generator(random_state)
    if model.target == "value":
        sign = sign_of(model.estimator, "auto", held.bags)
        return means_of(held.h, held.bags, groups, nonnegative=sign, **asked)
    return rates_of(held.h, held.bags, groups, labels=model.classes or (), **asked)


def _seen(model: TableModel, data: Sequence[BagTable]) -> bool:
    """Whether these are, by their numbers of lines, the tables that the model was fitted to."""
    own, other = model.summary, data[0].summary
    return isinstance(own, Summary) and (own.rows, own.reports) == (other.rows, other.reports)


def _told(model: TableModel, held: Held, formation: str, *, seen: bool) -> Told:
    looked = held.codes is not None and len(held.h) <= _LOOKED_AT
    frame = frame_of(model.features, held.codes) if looked and held.codes is not None else None
    bags, known = replace(held.bags, offset=None), getattr(model.estimator, "formation_", None) if seen else None
    assert held.groups is not None
    return formation_beside(known, formation, frame, held.groups, held.h, bags, values=model.target == "value")


def _refit(model: TableModel, held: Held) -> Refit:
    assert held.codes is not None
    rows = held.codes if model.encoding is None else model.encoding(held.codes)
    return refit_of(model.estimator, InMemory(rows, held.bags).X, held.bags)
