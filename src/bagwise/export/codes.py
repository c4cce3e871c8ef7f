"""Rows of a table as numbers and codes, which programs of torch and boosters of LightGBM read."""

from __future__ import annotations

from bagwise.tables.engines.duckdb import connect
from bagwise.tables.model import TableModel
from bagwise.tables.sources import Source, home, in_memory, read
from bagwise.utils.typing import Floats


def code_inputs(model: TableModel, table: Source) -> Floats:
    """What a program of `to_torch`, or a booster of `to_lightgbm`, is fed with, of the rows of a table.

    Parameters
    ----------
    model : TableModel
        The model that was exported.
    table : table, dict or path
        Anything that `tables.read` takes, with columns of the types of training.

    Returns
    -------
    array, shape (n, columns)
        Numbers, and codes of categories, NaN for those never seen; what is missing is as the model takes it.

    Examples
    --------
    >>> import bagwise as bw
    >>> rows = {"x": [0.0, 1.0, 2.0, 3.0], "place": ["a", "b", "b", "a"], "bag": [0, 0, 1, 1]}
    >>> data = bw.tables.join(rows, {"bag": [0, 1], "count": [0, 2]})
    >>> model = bw.tables.fit(data, "ridge", random_state=0)
    >>> code_inputs(model, {"x": [5.0, None], "place": ["b", "c"]})
    array([[5. , 1. ],
           [1.5, nan]])
    """
    rows = in_memory(table)
    rows = read(table, home(table, connection=connect(ordered=True))) if rows is None else rows
    model.features.check(rows)
    return model.features.matrix(model.features.select(rows).fetch())
