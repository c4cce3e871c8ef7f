"""Rows whose own labels are known, beside the reports of bags: to learn from, and to measure by."""

from dataclasses import replace

import numpy as np

from bagwise.data.shards import NOISE, OFFSET, SIZE, WEIGHT
from bagwise.tables.bag_table import LABELLED, NUMBER, BagTable, Summary
from bagwise.tables.model import TableModel
from bagwise.tables.row_columns import RowColumns
from bagwise.tables.sources import Source, read
from bagwise.tables.table import Table, all_of, any_of, as_text, col, kind_of, length, lit, null, total, where
from bagwise.utils.parameters import ParameterError
from bagwise.utils.text import number_of
from bagwise.utils.typing import Floats

_ONE, _ZERO = ("1", "true"), ("0", "false")


def with_labels(data: BagTable, labels: Source, *, label: str = "label") -> BagTable:
    """Bags to learn from, and beside them rows with labels of their own, each a bag of one row.

    Nothing is told twice if these are other rows than those in bags.

    Parameters
    ----------
    data : BagTable
        Events and reports, as `join` returns them, or `split` those to learn from.
    labels : path, table or dict
        Rows with the features of the events and a label each; anything that `read` takes.
    label : str
        Its column of labels: 0 and 1, false and true, or names of classes.

    Returns
    -------
    BagTable
        With a further bag for every labelled row. They have the lowest numbers, so that `split` holds none of them out.

    Examples
    --------
    >>> from bagwise.tables import join
    >>> data = join({"bag": [1, 1, 2, 2], "x": [1.0, 2.0, 3.0, 4.0]}, {"bag": [1, 2], "count": [0, 2]})
    >>> with_labels(data, {"x": [0.5, 3.5], "label": [0, 1]}).summary.bags
    4
    """
    rows = _labelled(data, labels, label)
    known = rows.numbered(NUMBER, *rows.columns).keep()
    # Each has the key of some bag, and in a further key a number of its own: null would equal nothing.
    one = data.bags.filter(col(NUMBER) == 0).select(*data.keys)
    known = known.beside(one).with_columns(
        **{LABELLED: col(NUMBER) + 1, SIZE: lit(1), NOISE: null(data.bags.schema[NOISE])},
        **dict.fromkeys(data.of_rows.lines, lit(1)),
    )
    labelled = known.count()
    bags = data.bags.with_columns(**{LABELLED: lit(0), NUMBER: col(NUMBER) + labelled}).followed_by(known).keep()
    events = data.events.with_columns(**{LABELLED: lit(0)}).followed_by(known)
    found = Summary.facts(bags.line(**Summary.figures(data.proportions, of_rows=data.of_rows)))
    summary = replace(data.summary, **found, labelled=labelled)
    return replace(data, events=events, bags=bags, keys=(*data.keys, LABELLED), summary=summary)


def score_labels(model: TableModel, data: BagTable, labels: Source, label: str) -> tuple[Floats, Floats]:
    """Predictions for labelled rows, (n,) or (n, classes), and their labels, (n,) numbers of classes."""
    rows = _labelled(data, labels, label)
    reading = model.reading(rows)
    table = reading.select(*data.proportions, *data.of_rows.ours).fetch()
    offset = data.of_rows.read(table).get(OFFSET)
    y = np.stack([table.column(name).to_numpy() for name in data.proportions], axis=1)
    labelled = y[:, 0] if data.classes is None else y.argmax(axis=1)
    return model.predict_codes(reading.matrix(table), offset), labelled.astype(float)


def _labelled(data: BagTable, labels: Source, label: str) -> Table:
    """The features of labelled rows, as the events have them, and their labels in the columns of proportions."""
    if data.target == "value":
        raise ParameterError("labels", "is for labels 0 and 1 or classes, not for values: leave it out.")
    table = _with_row_columns(data.of_rows, read(labels, data.connection, what="labels"))
    there = ", ".join(table.columns)
    if label not in table.columns:
        raise ParameterError("label", f"names column {label!r}, which the labels do not have: they have {there}.")
    if absent := [name for name in data.features if name not in table.columns]:
        raise ValueError(f"labels: there is no column {absent[0]!r}: there are {there}.")
    types = {name: (data.events.schema[name], table.schema[name]) for name in data.features}
    for name, (wanted, found) in types.items():
        if kind_of(wanted) != kind_of(found):
            held = f"{kind_of(found)} in the labels and {kind_of(wanted)} in the events"
            raise ValueError(f"labels: column {name!r} holds {held}: convert one.")
    text = as_text(col(label), table.schema[label])
    text = text.str.to_lowercase() if data.classes is None else text
    kinds = [_ZERO, _ONE] if data.classes is None else [(name,) for name in data.classes]
    is_kind = [text.is_in(list(kind)).fill_null(False) for kind in kinds]
    known = table.line(
        rows=length(), told=total(any_of(is_kind)), other=where(all_of(~one for one in is_kind), text).min()
    )
    if wrong := known["rows"] - known["told"]:
        value = "empty" if known["other"] is None else repr(known["other"])
        classes = "0 or 1" if data.classes is None else " or ".join(data.classes)
        raise ValueError(f"labels: column {label!r} is {value} in {number_of(wrong, 'row')}: it must be {classes}.")
    if not known["rows"]:
        raise ValueError("labels: the table is empty: there must be one line at least.")
    chosen = is_kind[1:] if data.classes is None else is_kind
    told = dict(zip(data.proportions, chosen, strict=True))
    features = {
        name: col(name).cast(wanted) if wanted != found else col(name) for name, (wanted, found) in types.items()
    }
    told = {name: one.cast(data.bags.schema[name]) for name, one in told.items()}
    return table.select(*data.of_rows.ours, **features, **told)


def _with_row_columns(of_rows: RowColumns, table: Table) -> Table:
    """Labelled rows with what the events say of theirs: a label is of one person."""
    if of_rows.offset is not None and of_rows.offset not in table.columns:
        there = ", ".join(table.columns)
        said = f"labels: there is no column {of_rows.offset!r}, the offset of the events: there are {there}."
        raise ValueError(said)
    table = RowColumns(offset=of_rows.offset).added(table)
    if of_rows.weight is None:
        return table
    if of_rows.weight in table.columns:
        table = RowColumns(weight=of_rows.weight).added(table)
        if many := int(table.line(many=total(col(WEIGHT) != 1))["many"] or 0):
            said = f"labels: column {of_rows.weight!r} is not 1 in {number_of(many, 'row')}: a label is of one person"
            raise ValueError(f"{said}, so repeat rows, or leave the column out.")
    return table.with_columns(**{WEIGHT: lit(1.0)})
