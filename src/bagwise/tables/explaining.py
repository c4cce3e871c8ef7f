"""Why a model of tables says what it says: what a column adds to scores, and what bags lose without it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from bagwise.bags import Bags
from bagwise.explanation import Dependence, Explanation, Importances
from bagwise.explanation.dependence import values_of
from bagwise.explanation.importance import measure_importances
from bagwise.formation import Told
from bagwise.tables.bag_table import BagTable
from bagwise.tables.columns import Column
from bagwise.tables.evaluation import told_of
from bagwise.tables.model import TableModel
from bagwise.tables.predictions import Predictions, predict
from bagwise.tables.table import Table
from bagwise.utils.files import replacing
from bagwise.utils.parameters import LEVEL, ParameterError, check_parameters, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import Floats, Integers

_WRITERS: dict[str, Any] = {".parquet": pyarrow.parquet.ParquetWriter, ".csv": pyarrow.csv.CSVWriter}
EXPLAINED = 2_000
"""Rows whose contributions are looked at."""

_PERMUTED = 20_000  # rows
_DRAWN, _VALUES = 3, 24  # columns whose dependence is shown, and values of each


@dataclass(frozen=True, eq=False)
class Drivers:
    """What drives a model.

    Attributes
    ----------
    explanation : Explanation
        Of some thousands of rows.
    importances : Importances
        What bags lose when a column is permuted; None of a model that knows an offset.
    dependences : tuple of Dependence
        Of what is made of the columns with the largest contributions.
    """

    explanation: Explanation
    importances: Importances | None
    dependences: tuple[Dependence, ...]


def permutation_importance(
    model: TableModel,
    data: BagTable | Predictions,
    *,
    formation: str | Told = "auto",
    n_repeats: int = 2,
    level: float = 0.95,
    random_state: RandomState = 0,
) -> Importances:
    """What held-out bags lose when a column of the events is permuted among rows (see `bagwise.explanation`).

    Columns that no prediction depends on are left out.

    Parameters
    ----------
    model : TableModel
        As `fit` returns it.
    data : BagTable or Predictions
        Bags that it was not fitted to, of which about 20,000 rows serve; or what it says of them already.
    formation : {"auto", "random", "rates", "features", "effects"} or Told
        How bags came about; "auto" lets them tell.
    n_repeats : int
        How often each column is permuted.
    level : float
        Of the intervals.
    random_state : int, Generator or None
        For the permutations.

    Returns
    -------
    bagwise.explanation.Importances
    """
    check_parameters({"level": level, "n_repeats": n_repeats}, {"level": LEVEL, "n_repeats": whole(1)})
    if model.of_rows.offset is not None:
        raise ParameterError("offset", "is known to the model: columns cannot be permuted beside it.")
    found = predict(model, data) if isinstance(data, BagTable) else data
    told = formation if isinstance(formation, Told) else told_of(model, found, formation)
    codes, h, bags = _some(found)
    places = _places(model)
    rows = np.lexsort((*codes.T, bags.code))  # engines hand rows over in any order

    def shuffled(number: int, order: Integers) -> Floats:
        moved = codes.copy()
        part = places[number][1]
        moved[rows, part] = codes[rows[order], part]
        return model.predict_codes(moved)

    names = [column.name for column, _ in places]
    options: dict[str, Any] = {"values": model.target == "value", "n_repeats": n_repeats, "level": level}
    return measure_importances(h, bags, shuffled, names, told, random_state=random_state, **options)


def write_contributions(
    model: TableModel,
    table: Table,
    out: str | os.PathLike[str],
    *,
    keep: Sequence[str] | None = None,
    force: bool = True,
) -> int:
    """Write the rows of a table with what columns add to their scores; memory does not grow with the table.

    There is a column `adds_…` for each column that predictions depend on, then `base` and `score`, the sum of all.

    Parameters
    ----------
    model : TableModel
        Of labels 0 and 1, or of values.
    table : Table
        As `read` returns it.
    out : path
        It ends in .parquet or .csv.
    keep : sequence of str, optional
        Columns to hand on; all of them if not given.
    force : bool
        Replace what is there. Without it that stays and is an error, also where another process wrote it meanwhile.

    Returns
    -------
    int
        How many rows were written.
    """
    if model.classes is not None:
        raise ValueError("contributions to scores of several classes are not written: call explain of the model.")
    kind = Path(out).suffix.lower()
    if kind not in _WRITERS:
        raise ValueError(f"{out} has an unknown ending: contributions are written to .parquet or .csv.")
    kept, reading, rows = list(table.columns if keep is None else keep), model.reading(table), 0
    unused = {column.name for column in model.features.columns if column.name in model.unused}
    with replacing(out, force=force) as (target,), ExitStack() as open_files:
        writer: Any = None
        for batch, codes, offset in model.codes(reading, kept):
            frame = model.explain_codes(codes, offset).to_frame().drop(columns=list(unused), errors="ignore")
            columns = {f"adds_{name}" if name not in ("base", "score") else name: frame[name] for name in frame}
            arrays = [*batch.columns, *(pa.array(values.to_numpy()) for values in columns.values())]
            made = pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, *columns])
            if writer is None:
                writer = open_files.enter_context(_WRITERS[kind](target, made.schema))
            writer.write(made)
            rows += made.num_rows
        if writer is None:
            raise ValueError("the table is empty: there is no row to explain.")
    reading.met.warn(stacklevel=2)
    return rows


def drivers(model: TableModel, found: Predictions, told: Told, *, level: float = 0.95) -> Drivers:
    """Contributions, importances and dependences from predictions of held-out bags of a formation."""
    codes = found.codes
    if len(codes) > EXPLAINED:
        codes = codes[np.sort(generator(0).choice(len(codes), EXPLAINED, replace=False))]
    none = None if model.of_rows.offset is None else np.zeros(len(codes))
    explanation = model.explain_codes(codes, none)
    first = list(explanation.importances)[:_DRAWN]
    places = sorted((p for p in _places(model) if p[0].name in first), key=lambda p: first.index(p[0].name))
    dependences = [one for column, part in places for one in _dependences(model, codes, none, column, part)]
    importances = permutation_importance(model, found, formation=told, level=level) if none is None else None
    return Drivers(explanation, importances, tuple(dependences))


def _some(found: Predictions) -> tuple[Floats, Floats, Bags]:
    """Codes, predictions and bags of about so many rows as are permuted, in the order of bags."""
    bags = found.some
    most = max(3, int(np.searchsorted(np.cumsum(bags.rows), _PERMUTED, side="right")))
    bags = bags.take(np.arange(min(most, len(bags))))
    rows = bags.order
    bags = replace(bags, order=np.arange(bags.n_bagged), n_rows=bags.n_bagged)
    return found.codes[rows], found.said[rows], bags


def _places(model: TableModel) -> list[tuple[Column, slice]]:
    """Columns that predictions depend on, and where what is made of them stands."""
    found, first = [], 0
    for column in model.features.columns:
        last = first + len(column.made)
        if column.made and column.name not in model.unused:
            found.append((column, slice(first, last)))
        first = last
    return found


def _dependences(
    model: TableModel, codes: Floats, offset: Floats | None, column: Column, part: slice
) -> list[Dependence]:
    """Mean predictions by the values of what is made of a column."""
    found = []
    for place, made in zip(range(part.start, part.stop), column.made, strict=True):
        values = _values(codes[:, place], made.levels)
        means = []
        for value in values:
            changed = codes.copy()
            changed[:, place] = value
            means.append(model.predict_codes(changed, offset).mean(axis=0))
        if len(values) > 1:
            named = values if made.levels is None else np.array([made.levels[int(one)] for one in values], dtype=object)
            found.append(Dependence(made.name, named, np.asarray(means)))
    return found


def _values(held: Floats, levels: Sequence[str] | None) -> Floats:
    """Quantiles of numbers, or the most frequent codes."""
    if levels is None:
        return values_of(held, _VALUES)
    codes, counts = np.unique(held[np.isfinite(held)], return_counts=True)
    return np.sort(codes[np.argsort(-counts, kind="stable")[:_VALUES]])
