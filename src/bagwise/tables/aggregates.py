"""Tables of counts and label sums by the values of one feature or two, read, and a model of single rows fitted to them.

In a *long* table each line names its features and values (`feature_1`, `value_1`, `feature_2`, `value_2`, the latter
null for one feature); in a *wide* one, columns of values have the names of their features. Beside them stand a count, a
sum of labels and maybe what noise was added.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bagwise.data.aggregates import Aggregates, CountedFeature, CountTable
from bagwise.tables.engines import Connection
from bagwise.tables.reports import RECORD, ReportColumns
from bagwise.tables.sources import Source, home, read
from bagwise.tables.table import Table, as_number, as_text, col, kind_of, lit
from bagwise.utils.files import replacing
from bagwise.utils.parameters import NONE, ParameterError, check_parameters, number

if TYPE_CHECKING:
    import pandas as pd

Sources: TypeAlias = Source | Sequence[Source]
Noise: TypeAlias = str | float | Sequence[str | float] | None
"""What is told of noise: of all tables, or of each."""

EDGES = "edges.json"
"""The file of a folder of tables that tells where numbers were cut."""

_TABLES = (".parquet", ".pq", ".csv", ".tsv", ".csv.gz", ".tsv.gz")
_LONG = (
    ("feature_1", "value_1", "feature_2", "value_2"),
    ("feature_1_id", "feature_1_value", "feature_2_id", "feature_2_value"),  # as Criteo's challenge has it
)
_KEYS = ["feature_1", "value_1", "feature_2", "value_2"]
_INTERVAL = re.compile(r"\s*[\[(].*[,;].*[\])]\s*")
_NOISES = ("noise_variance", "noise_scale", "epsilon", "sensitivity")


def read_aggregates(
    source: Sources,
    *,
    count: str = "count",
    sum: str = "sum",
    noise_variance: Noise = None,
    noise_scale: Noise = None,
    epsilon: Noise = None,
    mechanism: str | None = None,
    sensitivity: Noise = None,
    threshold: float | None = None,
    rows: float | None = None,
    rest: Sequence[str] | str = (),
    edges: Mapping[str, Sequence[float]] | str | os.PathLike[str] | None = None,
    ignore: Sequence[str] | str = (),
    connection: Connection | None = None,
) -> Aggregates:
    """Tables of noised counts and label sums by one feature and by two.

    Parameters
    ----------
    source : path, table, dict, or sequence of these
        A folder of tables, or tables as `read` takes them: long ones, or wide ones of one feature or pair each.
    count, sum : str
        Columns of counts and of label sums, on which noise is the same and independent.
    noise_variance, noise_scale, epsilon, mechanism, sensitivity
        As in `join`, of each count and each sum: a number, or a column that says it line by line; or a sequence of
        these, one for each table. Without any, what tables repeat of each other tells the variance, as one for all.
    threshold : float, optional
        Below which counts were left out; by default that of a column `threshold`. Cells without a line are then hidden;
        without a threshold they have no rows.
    rows : float, optional
        How many rows there are, if that is known better than from the tables.
    rest : str or sequence of str
        Values that stand for all others, as a null value does.
    edges : dict or path, optional
        Where numbers were cut, by feature, or a JSON file that says so; by default `edges.json` of the folder. Values
        of such features are numbers of bins: bin i has edge i − 1 <= x < edge i, counted from 0.
    ignore : str or sequence of str
        Columns of wide tables that are no features.
    connection : duckdb.DuckDBPyConnection, optional
        Where tables are read.

    Returns
    -------
    Aggregates
        The tables as arrays.

    Examples
    --------
    >>> device = {"device": ["phone", "tablet"], "count": [60, 40], "sum": [12, 4]}
    >>> read_aggregates([device], noise_variance=0).features[0].levels
    ('phone', 'tablet')
    """
    import pandas as pd

    optional = number(above=0) | NONE
    check_parameters({"threshold": threshold, "rows": rows}, {"threshold": optional, "rows": optional})
    told: dict[str, Noise] = {"noise_variance": noise_variance, "noise_scale": noise_scale, "epsilon": epsilon}
    sources = _sources(source)
    noises = _noises({**told, "sensitivity": sensitivity}, [name for name, _ in sources])
    if edges is None and isinstance(source, (str, os.PathLike)) and (Path(source) / EDGES).is_file():
        edges = Path(source) / EDGES
    cut = read_edges(edges)
    ignored = {ignore} if isinstance(ignore, str) else {*ignore}
    parts, seen = [], set[str]()
    for (name, one), noise in zip(sources, noises, strict=True):
        table = read(one, home(one, connection=connection), what=name)
        seen |= {*table.columns}
        parts.append(_lines(table, name, count, sum, ReportColumns(count=count, mechanism=mechanism, **noise), ignored))
    if odd := sorted(ignored - seen):
        raise ParameterError("ignore", f"names {odd[0]!r}, which is no column: there are {', '.join(sorted(seen))}.")
    declared = [bool(part["noise"].notna().all()) for part in parts]
    if any(declared) and not all(declared):
        silent = sources[declared.index(False)][0]
        raise ParameterError("noise_variance", f"must be told of {silent}, too, as of the others (0 for none).")
    lines = pd.concat(parts, ignore_index=True)
    others = {rest} if isinstance(rest, str) else {*rest}
    if strange := sorted(others - {*lines["value_1"], *lines["value_2"]}):
        raise ParameterError("rest", f"names {strange[0]!r}, which is no value of any table: leave it out.")
    for value in ("value_1", "value_2"):
        lines.loc[lines[value].isin(others), value] = None
    variance = float(lines["noise"].iloc[0]) if lines["noise"].nunique(dropna=False) == 1 else None
    hidden = threshold if threshold is not None else _one_of(lines["threshold"], "threshold")
    if hidden is not None and not all(declared):
        raise ParameterError(
            "noise_variance", "must be told where rare cells are hidden: tables do not tell it then (0 for none)."
        )
    features = _features(lines, cut, hides=hidden is not None)
    by_lines = variance is None and all(declared)
    found = tuple(_tables(lines, features, hides=hidden is not None, noises=by_lines))
    return Aggregates(features, found, None if by_lines or not all(declared) else variance, hidden, rows)


def write_aggregates(
    data: Aggregates, folder: str | os.PathLike[str], *, force: bool = True, **said: Any
) -> tuple[Path, Path]:
    """Write tables as one long table, `aggregates.parquet`, and `edges.json`, which `read_aggregates` reads.

    Parameters
    ----------
    data : Aggregates
        The tables.
    folder : path
        Where to.
    force : bool
        Replace what is there. Without it that stays and is an error, also where another process wrote it meanwhile.
    **said : str or float
        What else stands on every line, as what was spent on noise.

    Returns
    -------
    Path, Path
        The files.
    """
    import pandas as pd

    parts = []
    for table in data.tables:
        at = np.nonzero(np.isfinite(table.count))
        part: dict[str, Any] = dict.fromkeys(_KEYS)
        for place, (feature, cells) in enumerate(zip(table.features, at, strict=True), start=1):
            one = data.features[feature]
            part[f"feature_{place}"] = one.name
            part[f"value_{place}"] = np.array([*one.levels, None], dtype=object)[cells]
        part |= {"count": table.count[at], "sum": table.sum[at]}
        if table.noise_variance is not None:
            part["noise_variance"] = table.noise_variance[at]
        elif data.noise_variance is not None:
            part["noise_variance"] = data.noise_variance
        parts.append(pd.DataFrame(part))
    lines = pd.concat([one.astype(dict.fromkeys(_KEYS, "string")) for one in parts if len(one)], ignore_index=True)
    lines = lines.assign(**said)
    files = Path(folder) / "aggregates.parquet", Path(folder) / EDGES
    with replacing(*files, force=force) as (table_file, edges_file):
        lines.to_parquet(table_file, index=False)
        edges = {one.name: list(one.edges) for one in data.features if one.edges is not None}
        Path(edges_file).write_text(json.dumps(edges, indent=2) + "\n", encoding="utf-8")
    return files


def _sources(source: Sources, what: str = "the table of counts") -> list[tuple[str, Source]]:
    """What is to be read, each with its name in messages.  what: the name of a table that is no file."""
    if isinstance(source, (list, tuple)):
        names = [f"table {place} of counts" if len(source) > 1 else what for place in range(1, len(source) + 1)]
        return [named for one, name in zip(source, names, strict=True) for named in _sources(one, name)]
    if not isinstance(source, (str, os.PathLike)) or not Path(source).is_dir():
        one: Any = source
        return [(os.fspath(one) if isinstance(one, (str, os.PathLike)) else what, one)]
    files = [file for file in sorted(Path(source).iterdir()) if file.is_file() and file.name.endswith(_TABLES)]
    if not files:
        raise FileNotFoundError(f"the folder {source} holds no Parquet or CSV file: name the tables of counts.")
    return [(str(file), file) for file in files]


def _noises(told: Mapping[str, Noise], names: Sequence[str]) -> list[dict[str, Any]]:
    """What is told of noise, by table.  names: of the tables."""
    found: list[dict[str, Any]] = [{} for _ in names]
    for parameter, given in told.items():
        each = list(given) if isinstance(given, (list, tuple)) else [given] * len(names)
        if len(each) != len(names):
            listed = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
            way = f"one for all, or one for each of the {len(names)} tables ({listed})"
            raise ParameterError(parameter, f"says {len(each)} things: say {way}.")
        for one, value in zip(found, each, strict=True):
            one[parameter] = value
    return found


def read_edges(given: Mapping[str, Sequence[float]] | str | os.PathLike[str] | None) -> dict[str, tuple[float, ...]]:
    """Where numbers are cut, by feature, as it is given or a JSON file says."""
    if isinstance(given, (str, os.PathLike)):
        try:
            given = json.loads(Path(given).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{given} is no JSON file: it must hold lists of numbers by feature.") from error
    if given is not None and not isinstance(given, Mapping):
        raise ParameterError("edges", f"must be lists of numbers by feature, got {given!r}.")
    found = {}
    for name, numbers in (given or {}).items():
        if not isinstance(numbers, Sequence) or not all(isinstance(one, (int, float)) for one in numbers):
            raise ParameterError("edges", f"must be lists of numbers by feature, got {numbers!r} for {name!r}.")
        found[str(name)] = tuple(float(one) for one in numbers)
    return found


def _lines(table: Table, name: str, count: str, total: str, noise: ReportColumns, ignored: set[str]) -> pd.DataFrame:
    """The lines of a table in our columns: features, values, count, sum, noise, threshold."""
    names = table.columns
    for parameter, column in (("count", count), ("sum", total)):
        if column not in names:
            there = ", ".join(names)
            raise ParameterError(parameter, f"must name a column of {name}, got {column!r}: it has {there}.")
        if not table.schema[column].is_numeric():
            raise ValueError(f"{name}: column {column!r} holds {kind_of(table.schema[column])}: convert it to numbers.")
    if absent := [one for one in noise.names if one not in names]:
        way = "name one, or a number, for each table"
        raise ValueError(f"{name} has no column {absent[0]!r} to tell its noise; it has {', '.join(names)}: {way}.")
    long = next((one for one in _LONG if {*one[:2]} <= {*names}), None)
    said = {count, total, *_NOISES, *RECORD, *ignored, *noise.names}
    noise = noise.guessed(names, never=("size", "suppressed", "sum", "mean", "proportion", count, total))
    noise.check(table, [])
    if long is not None:
        made = {ours: as_text(col(theirs), table.schema[theirs]) if theirs in names else lit(None)
                for ours, theirs in zip(_KEYS, long, strict=True)}  # fmt: skip
    else:
        features = [one for one in names if one not in said]
        if len(features) not in (1, 2):
            listed = ", ".join(features) or "none"
            way = "a table is by one feature or by two; name columns to ignore, or write a long table"
            raise ParameterError("ignore", f"leaves {len(features)} columns of values in {name} ({listed}): {way}.")
        made = dict.fromkeys(_KEYS, lit(None))
        for place, one in enumerate(features, start=1):
            made |= {f"feature_{place}": lit(one), f"value_{place}": as_text(col(one), table.schema[one])}
    declared = noise.said(table)
    figures = {"count": as_number(col(count)), "sum": as_number(col(total)), "noise": declared["noise"]}
    figures["wrong"] = declared["wrong_noise"]
    figures["threshold"] = as_number(col("threshold")) if "threshold" in names else lit(None)
    frame = table.select(**made, **figures).fetch().to_pandas()
    for column in _KEYS:
        frame[column] = frame[column].astype(object).where(frame[column].notna(), None)
    return _checked(frame, name, exact=bool(noise.noises))


def _checked(frame: pd.DataFrame, name: str, *, exact: bool) -> pd.DataFrame:
    """The lines of a table, once they can be used.  exact: whether noise is declared, so that none means 0."""
    if not len(frame):
        raise ValueError(f"{name} has no lines: leave the file out.")
    for column in ("count", "sum"):
        if (bad := ~np.isfinite(frame[column].astype(float))).any():
            line = int(np.argmax(bad.to_numpy()))
            raise ValueError(f"{name}: {column} is missing or infinite in line {line + 1}: leave such lines out.")
    if frame["wrong"].any():
        raise ValueError(f"{name}: the declared noise is not a finite number of at least 0 in every line.")
    if frame["feature_1"].isna().any():
        raise ValueError(f"{name}: a line names no first feature: every line must be about one or two features.")
    if (same := frame["feature_1"] == frame["feature_2"]).any():
        one = frame["feature_1"][same].iloc[0]
        raise ValueError(f"{name}: a line is about feature {one!r} and itself: leave such lines out.")
    frame["noise"] = frame["noise"].astype(float).fillna(0.0 if exact else np.nan)
    frame["threshold"] = frame["threshold"].astype(float)
    swapped = frame["feature_2"].notna() & (frame["feature_2"] < frame["feature_1"])
    one, other = ["feature_1", "value_1"], ["feature_2", "value_2"]
    frame.loc[swapped, [*one, *other]] = frame.loc[swapped, [*other, *one]].to_numpy()
    return frame.drop(columns="wrong")


def _one_of(values: pd.Series[Any], what: str) -> float | None:
    """The only number of a column, None where there is none."""
    found = values.dropna().unique()
    if not len(found):
        return None
    if len(found) > 1 or values.isna().any():
        shown = ", ".join(f"{one:g}" for one in sorted(found)[:3]) + (", none" if values.isna().any() else "")
        raise ValueError(f"the {what} must be the same on all lines of all tables, got {shown}: name one number.")
    return float(found[0])


def _features(lines: pd.DataFrame, cut: Mapping[str, tuple[float, ...]], *, hides: bool) -> tuple[CountedFeature, ...]:
    """The features and their levels: all values, or where rare ones are hidden, those with a count of their own."""
    alone = lines["feature_2"].isna()
    own = {*lines["feature_1"][alone]} if hides else set()
    levels: dict[str, set[str]] = {name: set() for name in own}
    single, pairs = lines[alone], lines[~alone]
    for some, side in ((single, 1), (pairs, 1), (pairs, 2)):
        for name, values in some.groupby(f"feature_{side}", sort=False)[f"value_{side}"]:
            if some is single or name not in own:
                levels.setdefault(str(name), set()).update(values.dropna().unique())
    if absent := [name for name in cut if name not in levels]:
        there = ", ".join(levels)
        raise ParameterError("edges", f"names {absent[0]!r}, by which no table counts: there are {there}.")
    for name, values in levels.items():
        if name not in cut and (ranges := [one for one in values if _INTERVAL.fullmatch(one)]):
            said = f"must be told for {name!r}, whose values are ranges of numbers ({sorted(ranges)[0]})"
            raise ParameterError("edges", f"{said}: write numbers of bins in their place, and where they were cut.")
    return tuple(CountedFeature(name, tuple(sorted(levels[name])), cut.get(name)) for name in sorted(levels))


def _tables(lines: pd.DataFrame, features: Sequence[CountedFeature], *, hides: bool, noises: bool) -> list[CountTable]:
    """A table for each feature and each pair that has lines; of values that are hidden themselves, nothing is kept.

    noises: whether lines tell their own noise.
    """
    place, found = {one.name: number for number, one in enumerate(features)}, []
    for (name, other), part in lines.groupby(["feature_1", "feature_2"], dropna=False, sort=False):
        numbers = (place[name],) if other is None or other != other else (place[name], place[other])
        shape = tuple(features[one].rest + 1 for one in numbers)
        cells = [features[one] for one in numbers]
        columns = [part[f"value_{side}"] for side in range(1, len(cells) + 1)]
        at = np.array([_cells(one, values) for one, values in zip(cells, columns, strict=True)])
        if hides:  # a value without a count of its own is in the rest, of which a cell is only a part
            known = np.all([(cell < one.rest) | values.isna().to_numpy()
                            for one, cell, values in zip(cells, at, columns, strict=True)], axis=0)  # fmt: skip
            at, part = at[:, known], part[known]
        flat = np.ravel_multi_index(tuple(at), shape)
        if len(np.unique(flat)) < len(flat):
            twice = part.iloc[int(np.argmax(np.bincount(flat)[flat] > 1))]
            values = [str(one) for one in (twice["value_1"], twice["value_2"])[: len(cells)]]
            by = " and ".join(repr(one.name) for one in cells)
            raise ValueError(f"there are two lines about {' and '.join(values)} by {by}: there must be one.")
        figures = np.full((3, int(np.prod(shape))), np.nan)
        figures[:, flat] = part[["count", "sum", "noise"]].to_numpy(dtype=float).T
        count, total, noise = figures.reshape(3, *shape)
        found.append(CountTable(numbers, count, total, noise if noises else None))
    return sorted(found, key=lambda one: (len(one.features), one.features))


def _cells(feature: CountedFeature, values: pd.Series[Any]) -> Any:
    """The cells of values as tables have them, where those of numbers are bins."""
    return CountedFeature(feature.name, feature.levels).cells(values)
