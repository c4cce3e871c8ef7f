"""A table of reports, one line per bag, read beside the bags of the rows."""

from typing import Any

import numpy as np

from bagwise import segment
from bagwise.bags.reading import as_column, as_numbers, check_finite, encode, encode_rows, keep, match, name
from bagwise.bags.weights import weights_of_rows
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import ArrayLike, Booleans, Floats, Integers, NDArray


class Reports:
    """The columns of a report table, one line per bag: a dict of columns or a pandas, polars or Arrow table."""

    def __init__(self, table: Any, key: str):
        if hasattr(table, "collect"):
            raise ParameterError("reports", "are a lazy table: collect them first.")
        names = getattr(table, "column_names", None)  # Arrow
        names = names if names is not None else getattr(table, "columns", table)
        if not hasattr(table, "__getitem__") or isinstance(table, (list, tuple, str, np.ndarray)):
            raise ParameterError("reports", f"must be a dict of columns or a table, got {type(table).__name__}.")
        self._table, self._names = table, list(names)
        self._keys = as_column(self._get(key), f"column {key!r} of the report table")
        if len(self) == 0:
            raise ValueError("the report table is empty: there must be one report per bag.")

    def __len__(self) -> int:
        return len(self._keys)

    def column(self, column: str) -> Floats:
        """One column as numbers, missing values as NaN."""
        what = f"column {column!r} of the report table"
        values = as_column(self._get(column), what)
        if len(values) != len(self):
            raise ValueError(f"{what} has {len(values)} lines where the key column has {len(self)}.")
        try:
            return as_numbers(values)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{what} must be numeric.") from error

    def columns(self, columns: str | list[str]) -> Floats:
        """One column (m,), or several (m, classes)."""
        if isinstance(columns, str):
            return self.column(columns)
        if len(columns) == 0:
            raise ValueError("the list of report columns is empty: name one column per class.")
        return np.stack([self.column(c) for c in columns], axis=1)

    def match(self, keys: NDArray[Any], *, drop: bool) -> tuple[NDArray[np.intp], Booleans]:
        """For each bag kept its line, and which bags are kept; without `drop`, all must be, and every line used."""
        codes, reported = encode(self._keys)
        twice = np.bincount(codes[codes >= 0], minlength=1) > 1
        if twice.any():
            raise ValueError(f"bag {name(reported[np.argmax(twice)])} has more than one report: keep one line per bag.")
        line_of_report = np.empty(len(reported), dtype=np.intp)
        line_of_report[codes[codes >= 0]] = np.flatnonzero(codes >= 0)
        report_of_bag = match(reported, keys)
        kept = report_of_bag >= 0
        if not kept.any():
            raise ValueError(
                f"no report matches a bag (rows have ids like {name(keys[0])}, reports like {name(self._keys[0])}): "
                "check that the two key columns hold the same kind of ids."
            )
        line = line_of_report[report_of_bag[kept]]
        if drop:
            return line, kept
        otherwise = "or set on_mismatch='drop'."
        unreported, unused = keys[~kept], reported[match(keys, reported) < 0]
        for bags, has, add in ((unreported, "rows but no report", "reports"), (unused, "a report but no rows", "rows")):
            if len(bags):
                more = f"({len(bags)} such bags): add the {add}"
                raise ValueError(f"bag {name(bags[0])} has {has} {more}, {otherwise}")
        if (codes < 0).any():
            missing = f"line {np.argmin(codes)} of the report table has no bag key (−1 or missing)"
            raise ValueError(f"{missing}: remove it, {otherwise}")
        return line, kept

    def _get(self, column: str) -> Any:
        if column not in self._names:
            raise ValueError(f"the report table has no column {column!r}: it has {', '.join(map(str, self._names))}.")
        return self._table[column]


def read_reports(
    table: Reports,
    ids: Any,
    sample_weight: ArrayLike | None,
    *,
    proportion: str | list[str],
    count: str | list[str] | None,
    size: str | None,
    noise_variance: str | None,
    low: str | list[str] | None,
    high: str | list[str] | None,
    drop: bool,
) -> tuple[dict[str, Any], list[Floats] | None]:
    """What `Bags.build` takes, and the ends of intervals where counts lie in some (see `Bags.from_reports`)."""
    codes, keys = encode_rows(ids)
    line, kept = table.match(keys, drop=drop)
    codes, keys = keep(codes, keys, kept)
    order, offsets = segment.group(codes, len(keys))
    given: dict[str, Any] = {"keys": keys, "order": order, "offsets": offsets, "n_rows": len(codes), "codes": codes}
    rows: Any = np.diff(offsets)
    if sample_weight is not None:
        given["weight"] = weights_of_rows(sample_weight, len(codes), order, offsets, keys)
        rows = np.add.reduceat(given["weight"], offsets[:-1])
    if size is not None:
        _check_sizes(table.column(size)[line], rows, keys)
    given["noise_variance"] = None if noise_variance is None else table.column(noise_variance)[line]
    if low is None and high is None:
        value = table.columns(proportion if count is None else count)[line]
        if count is not None:
            value = value / segment.per_bag(rows, value)
        check_finite(value, keys, "proportion")
        return given | {"proportion": value}, None
    if low is None or high is None:
        raise ParameterError("low", "and high go together: name the columns of both ends.")
    ends = [table.columns(names)[line] for names in (low, high)]
    known = None if count is None else table.columns(count)[line]
    if len({one.shape for one in (*ends, known) if one is not None}) > 1:
        raise ParameterError("low", "and high must name one column each, or one for each class.")
    if known is not None:
        ends = [np.where(np.isfinite(known), known, end) for end in ends]
    return given | {"proportion": np.zeros(ends[0].shape)}, ends


def _check_sizes(reported: Floats, rows: Integers, keys: NDArray[Any]) -> None:
    """Raise and name the bag whose reported size is not its number of rows."""
    differs = reported != rows
    if differs.any():
        j = int(np.argmax(differs))
        raise ValueError(
            f"bag {name(keys[j])} reports size {reported[j]:g} but has {rows[j]} rows: rows are missing or repeated; "
            "complete them, or leave the column of sizes out."
        )
