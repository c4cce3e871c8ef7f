"""Histograms of attributed conversions, as browsers' aggregation services return them: a noised sum per bucket."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bagwise.tables.formats.files import Read, only, read_json, read_lines, typed
from bagwise.utils.parameters import NONE, ParameterError, check_parameters, number
from bagwise.utils.text import number_of

_OF_ALL = ("epsilon", "max_value", "value")  # what may stand on every bucket, once above them, or in options
_POSITIVE = number(above=0) | NONE


def attribution_histogram(
    files: Sequence[Path], *, epsilon: float | None = None, max_value: float | None = None, value: float | None = None
) -> Read:
    """Buckets and noised sums of what conversions were worth, from JSON or CSV.

    CSV: columns `bucket`, `sum`, and maybe `epsilon`, `max_value`, `value`. JSON: a list of such records, or an object
    with the list as `buckets`, or sums alone as `histogram`, whose buckets are 0, 1, …; what holds for all stands
    beside. epsilon, max_value, value: for buckets that do not say. Noise on a sum is Laplace's of scale max_value/ε.
    Where each conversion is worth `value`, or `max_value` is 1, sums are counts.
    """
    given = {"epsilon": epsilon, "max_value": max_value, "value": value}
    check_parameters(given, dict.fromkeys(_OF_ALL, _POSITIVE))
    file = only(files)
    records = _from_json(file) if file.suffix.lower() == ".json" else _from_csv(file)
    buckets, seen = [], set()
    for place, record in records:
        if "bucket" not in record or "sum" not in record:
            raise ValueError(f"{file}, {place}: a bucket needs the fields bucket and sum.")
        if record["bucket"] in seen or str(record["bucket"]).strip() == "":
            why = "is empty" if record["bucket"] not in seen else f"{record['bucket']} is there twice"
            raise ValueError(f"{file}, {place}: bucket {why}: every bucket has one line and a name.")
        seen.add(record["bucket"])
        told = {name: one for name, one in given.items() if one is not None}
        told |= {name: record[name] for name in _OF_ALL if record.get(name) not in (None, "")}
        for name in ("epsilon", "max_value"):
            if name not in told:
                raise ParameterError(name, f"must be given: {file}, {place}, does not say it.")
        numbers = {name: _number(file, place, name, one, positive=True) for name, one in told.items()}
        buckets.append({"bucket": record["bucket"], "sum": _number(file, place, "sum", record["sum"]), **numbers})
    return _tables(buckets)


def _tables(buckets: Sequence[Mapping[str, Any]]) -> Read:
    worth = [one.get("value", 1.0 if one["max_value"] == 1 else None) for one in buckets]
    if any(isinstance(one["bucket"], str) for one in buckets):
        columns = {"bucket": typed([str(one["bucket"]) for one in buckets])}
    else:
        columns = {"bucket": pa.array([one["bucket"] for one in buckets])}
    scales = [one["max_value"] / one["epsilon"] for one in buckets]
    if all(one is not None for one in worth):
        counts = [one["sum"] / each for one, each in zip(buckets, worth, strict=True)]
        most = [one["max_value"] / each for one, each in zip(buckets, worth, strict=True)]
        columns |= {"count": pa.array(counts), "epsilon": pa.array([one["epsilon"] for one in buckets])}
        columns |= {"sensitivity": pa.array(most)}
        note = "Sums are divided by what a conversion is worth: counts, with Laplace noise."
        return Read(pa.table(columns), None, {"keys": "bucket"}, (note,))
    if any(one is not None for one in worth):
        unsaid = number_of(sum(one is None for one in worth), "bucket")
        raise ParameterError("value", f"is not said of {unsaid} but of others: give it for all, or for none.")
    columns |= {"sum": pa.array([one["sum"] for one in buckets]), "noise_scale": pa.array(scales)}
    note = "Nothing says what one conversion is worth: sums of values, with Laplace noise."
    return Read(pa.table(columns), None, {"keys": "bucket", "target": "value"}, (note,))


def _number(file: Path, place: str, name: str, told: Any, *, positive: bool = False) -> float:
    try:
        found = math.nan if isinstance(told, bool) else float(told)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found) or (positive and found <= 0):
        raise ValueError(f"{file}, {place}: {name} is {told!r}: it must be a {'positive ' if positive else ''}number.")
    return found


def _from_csv(file: Path) -> list[tuple[str, dict[str, Any]]]:
    lines = read_lines(file)
    columns = {name: lines.column(name) for name in ("bucket", "sum", *_OF_ALL) if name in lines.names}
    return [
        (f"line {number}", {name: values[place] for name, values in columns.items()})
        for place, number in enumerate(lines.numbers)
    ]


def _from_json(file: Path) -> list[tuple[str, dict[str, Any]]]:
    found = read_json(file)
    above = {name: found[name] for name in _OF_ALL if name in found} if isinstance(found, dict) else {}
    listed = found.get("buckets", found.get("histogram")) if isinstance(found, dict) else found
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"{file} has no list of buckets: it must be a list, or an object with buckets or histogram.")
    if isinstance(found, dict) and "buckets" not in found:
        listed = [{"bucket": place, "sum": one} for place, one in enumerate(listed)]
    records = []
    for place, one in enumerate(listed):
        if not isinstance(one, dict):
            raise ValueError(f"{file}, bucket {place + 1}: not a JSON object with bucket and sum.")
        if not isinstance(one.get("bucket", ""), (int, str)):
            raise ValueError(f"{file}, bucket {place + 1}: bucket is {one['bucket']!r}: it must be a number or text.")
        records.append((f"bucket {place + 1}", {**above, **one}))
    return records
