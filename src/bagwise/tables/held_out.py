"""Bags of an engine to learn from and bags to hold out: the last by their numbers, or the latest in time."""

from __future__ import annotations

import warnings
from dataclasses import replace
from sys import float_info

from bagwise.tables.bag_table import LABELLED, NUMBER, ROW, BagTable, Summary
from bagwise.tables.reports import REST
from bagwise.tables.table import Table, any_of, as_number, col, is_text, is_time, kind_of, length, total, where
from bagwise.utils.parameters import LEVEL, ParameterError, check_parameters

_PLACE, _TIME = "bagwise_place", "bagwise_time"
_MIXED = 0.1  # share of the rows to learn from that may be later than those held out, in the mean, without a warning


def split(data: BagTable, share: float, *, latest: str | None = None) -> tuple[BagTable, BagTable]:
    """Bags to learn from, and some of them to hold out; the same ones in every run.

    Parameters
    ----------
    data : BagTable
        Events and reports, as `join` returns them.
    share : float
        About the share of the bags to hold out, between 0 and 1.
    latest : str, optional
        Column of the events, of times or numbers: the bags are held out whose rows are the latest by it, in the mean.
        Bags without a time are learned from. A warning says where bags mix times, so that this is no measure of the
        future.

    Returns
    -------
    train, held_out : BagTable
        Without `latest`, bags are numbered as if at random, so the last ones, which are held out, are as good as any.

    Examples
    --------
    >>> from bagwise.tables import join
    >>> events = {"bag": [4, 9, 7, 1, 8, 2], "day": [1, 2, 3, 4, 5, 6]}
    >>> data = join(events, {"bag": [1, 2, 4, 7, 8, 9], "count": [1, 0, 1, 0, 1, 0]})
    >>> train, held_out = split(data, 0.5, latest="day")
    >>> sorted(held_out.rows().fetch()["day"].to_pylist())
    [4, 5, 6]
    """
    check_parameters({"share": share}, {"share": LEVEL})
    bags = data.summary.bags
    held_out = max(1, round(bags * share))
    if bags - held_out < 2 or held_out < 3:
        way = "hold out another share, or none" if bags >= 5 else "hold out none, or pass tables with more bags"
        needed = "at least 3 must be held out and 2 left to learn from"
        raise ParameterError("share", f"{share:g} of {bags:,} bags is {held_out}: {needed}; {way}.")
    places = data.bags if latest is None else _in_time(data, latest)
    place = col(NUMBER if latest is None else _PLACE)
    train, last = (_some(data, places.filter(part)) for part in (place < bags - held_out, place >= bags - held_out))
    if latest is not None:
        _warn_of_mixed_times(train, last, latest)
    return _apart(train, last), replace(last, others=())


def _apart(train: BagTable, held_out: BagTable) -> BagTable:
    """The same without bags of further tables that share rows with those held out."""
    kept, left_out = [], 0
    for other in train.others:
        rows = held_out.events.join(held_out.bags, held_out.keys).select(ROW)
        touched = other.rows().select(NUMBER, ROW).join(rows, [ROW]).group_by([NUMBER], {"rows": length()})
        rest = other.bags.join(touched.select(NUMBER, shared=col("rows")), [NUMBER], "left")
        rest = rest.filter(col("shared").is_null()).drop("shared")
        apart = rest.count()
        left_out += other.summary.bags - apart
        if apart:
            kept.append(_some(other, rest))
    return replace(train, others=tuple(kept), summary=replace(train.summary, set_aside=left_out))


def last_bags(data: BagTable, bags: int, *, latest: str | None = None) -> BagTable:
    """So many bags which `split` holds out: with the highest numbers, or the `latest` by a column."""
    first = data.summary.bags - bags
    if first <= 0:
        return data
    places = data.bags if latest is None else _in_time(data, latest)
    return _some(data, places.filter(col(NUMBER if latest is None else _PLACE) >= first))


def _some(data: BagTable, chosen: Table) -> BagTable:
    """The chosen of the bags alone, numbered from 0 in the order they had."""
    names = [name for name in data.bags.columns if name != NUMBER]
    bags = chosen.select(*names, **{_PLACE: col(NUMBER)}).numbered(NUMBER, _PLACE).drop(_PLACE).keep()
    found = bags.line(**Summary.figures(data.proportions, of_rows=data.of_rows))
    summary = replace(data.summary, **Summary.facts(found))
    if summary.rests:
        rest = any_of(col(key) == REST for key in data.keys if is_text(bags.schema[key]))
        found = bags.line(rests=total(rest), rest_rows=total(where(rest, data.of_rows.rows)))
        summary = replace(summary, rests=int(found["rests"]), rest_rows=int(found["rest_rows"]))
    return replace(data, bags=bags, summary=summary)


def _in_time(data: BagTable, column: str) -> Table:
    """The bags with their places in the order of a column's means, bags without and labelled rows before all others."""
    rows = _timed(data, data.events if LABELLED not in data.keys else data.events.filter(col(LABELLED) == 0), column)
    means = rows.group_by(data.keys, {_TIME: col(_TIME).mean()})
    bags = data.bags.join(means, data.keys, "left").with_columns(**{_TIME: col(_TIME).fill_null(-float_info.max)})
    return bags.numbered(_PLACE, _TIME, NUMBER).keep()


def _timed(data: BagTable, rows: Table, column: str) -> Table:
    """Rows with a column of times, as numbers."""
    if column not in (there := (*data.keys, *data.features)):
        said = f"names {column!r}, which is no key or feature of the events: {', '.join(there)}."
        raise ParameterError("latest", said)
    type_ = data.events.schema[column]
    if not (is_time(type_) or type_.is_numeric()):
        raise ParameterError(
            "latest", f"names {column!r}, which holds {kind_of(type_)}: it must hold times or numbers."
        )
    time = {_TIME: col(column)}
    return rows.with_seconds(**time) if is_time(type_) else rows.with_columns(**{_TIME: as_number(col(column))})


def _warn_of_mixed_times(train: BagTable, held_out: BagTable, column: str) -> None:
    mean = _timed(held_out, held_out.rows(), column).line(mean=col(_TIME).mean())["mean"]
    if mean is None:
        raise ParameterError("latest", f"names {column!r}, which is empty: there is no latest bag.")
    rows = _timed(train, train.rows(), column).line(rows=length(), later=total(col(_TIME) > mean))
    if rows["later"] > _MIXED * rows["rows"]:
        share = (
            f"{rows['later'] / rows['rows']:.0%} of the rows to learn from are later than the mean of those held out"
        )
        said = f"bags mix times: {share}, by {column!r}, so that they are no measure of the future."
        warnings.warn(said, stacklevel=3)
