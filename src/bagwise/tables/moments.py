r"""Ridge inside the engine: bag sums and their second moments by query; d × d numbers come out.

A first query adds up every column in every bag. Categories count once per level; a missing number counts as the mean,
and gets a column that says it is missing. The moments of the folds are then sums over bags of products of
deviations, :math:`\sum_j (s_j - k_j\mu)(s_j - k_j\mu)^T / k_j`.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from bagwise.data.features import Encoding
from bagwise.data.shards import NOISE, SIZE
from bagwise.linear.moments import Moments
from bagwise.tables.bag_table import NUMBER, BagTable
from bagwise.tables.columns import Features
from bagwise.tables.engine import execute, fetch, keep
from bagwise.utils.typing import Floats

_OURS = "bagwise_sum_"
_SUM, _KNOWN, _LEVEL = _OURS + "of_{}", _OURS + "known_{}", _OURS + "level_{}_{}"

WIDEST = 100
"""Encoded columns up to which the engine multiplies them: it does so one pair at a time."""


def width(features: Features) -> int:
    """Encoded columns, those for missing numbers not counted."""
    return sum(1 if made.levels is None else len(made.levels) for made in features.made)


def fit_in_engine(data: BagTable, features: Features, model: Any) -> Encoding:
    """Fit a model that reads moments (see `data.reading.Reads`) in the engine; the encoding of its columns."""
    sums, totals = _bag_sums(data, features)
    encoding, origin, deviations = _encode(sums, totals, features)
    parts, noise = _moments(sums, deviations, data, model.n_folds(data.summary.bags))
    model.fit_moments(parts, origin, noise=noise)
    return encoding


def _bag_sums(data: BagTable, features: Features) -> tuple[Any, dict[str, Any]]:
    """One line per usable bag: per number its sum and how many are known, per level how many rows have it.

    And the sums of these columns over all bags.
    To look for NaN in every number takes as long as to add them up: it is done only where a sum came out as none.
    """
    for plain in (True, False):
        rows = features.select(data.events, *data.keys, plain=plain)
        gaps = _with_gaps(rows, features, data.connection) if plain else set(features.names)
        sums: dict[str, Any] = {}
        for number, (name, made) in enumerate(zip(features.names, features.made, strict=True)):
            column = rows[name]
            if made.levels is not None:
                sums |= {_LEVEL.format(number, i): (column == level).sum() for i, level in enumerate(made.levels)}
                continue
            sums[_SUM.format(number)] = column.sum()
            if name in gaps:
                sums[_KNOWN.format(number)] = column.count()
        bags = keep(rows.group_by(list(data.keys)).agg(**sums).inner_join(data.bags, list(data.keys)), data.connection)
        names = [name for name in bags.columns if name.startswith(_OURS)]
        totals = execute(bags.agg(**{name: bags[name].sum() for name in (*names, SIZE)}), data.connection)
        numbers = [number for number, made in enumerate(features.made) if made.levels is None]
        if all(_finite(totals[_SUM.format(number)], totals[_known(number, totals)]) for number in numbers):
            break
    return bags, totals


def _known(number: int, columns: Collection[str]) -> str:
    """The column that says how many rows of a bag know this number: where there are no gaps, all of them."""
    name = _KNOWN.format(number)
    return name if name in columns else SIZE


def _finite(total: float | None, known: int | None) -> bool:
    """Whether a sum of so many known numbers is one; Spark hands NaN over as null."""
    return np.isfinite(float(total)) if total is not None else not known


def _with_gaps(rows: Any, features: Features, connection: Any) -> set[str]:
    """The made columns in which something is missing."""
    known = execute(rows.agg(**{name: rows[name].count() for name in features.names}, rows=rows.count()), connection)
    return {name for name in features.names if known[name] < known["rows"]}


def _encode(sums: Any, totals: dict[str, Any], features: Features) -> tuple[Encoding, Floats, list[Any]]:
    """The encoding of rows, the means of the encoded columns, and their bag sums less those of the means.

    The latter as expressions on `sums`.
    """
    rows, k = float(totals[SIZE]), sums[SIZE].cast("float64")
    low, missing, origin, deviations = [], [], [], []
    levels: list[Floats | None] = []
    for number, made in enumerate(features.made):
        if made.levels is None:
            count_name = _known(number, totals)
            known = totals[count_name] or 0
            total = totals[_SUM.format(number)] or 0.0
            if not _finite(totals[_SUM.format(number)], known):
                raise ValueError(f"column {made.name!r} contains NaN or infinity: replace such values first.")
            mean, gap = float(total) / max(known, 1), known < rows
            low.append(mean)
            missing.append(gap)
            levels.append(None)
            sum_, count = sums[_SUM.format(number)].fill_null(0.0), sums[count_name].cast("float64")
            # A constant column deviates by rounding only.
            deviation = sum_ - count * mean
            slack = 16 * np.finfo(float).eps * abs(mean)
            deviations.append((deviation.abs() <= count * slack).ifelse(0.0, deviation))
            origin.append(0.0)
            if gap:
                share = 1 - known / rows
                deviations.append(k * (1 - share) - count)
                origin.append(share)
        else:
            low.append(0.0)
            missing.append(False)
            levels.append(np.arange(len(made.levels), dtype=float))
            for i in range(len(made.levels)):
                share = float(totals[_LEVEL.format(number, i)] or 0) / rows
                deviations.append(sums[_LEVEL.format(number, i)].fill_null(0).cast("float64") - k * share)
                origin.append(share)
    ones = np.ones(len(low))
    encoding = Encoding(np.array(low), ones, np.zeros(len(low)), np.array(missing, dtype=bool), tuple(levels))
    return encoding, np.array(origin), deviations


def _moments(sums: Any, deviations: list[Any], data: BagTable, folds: int) -> tuple[list[Moments], float]:
    """Moments of the folds of bags, and the mean over bags of s²/k."""
    root = sums[SIZE].cast("float64").sqrt()
    table = sums.select(
        fold=sums[NUMBER] % folds,
        k=sums[SIZE].cast("float64"),
        noise=(sums[NOISE] / sums[SIZE]).fill_null(0.0),
        **{f"z{i}": one / root for i, one in enumerate(deviations)},
        **{f"a{c}": sums[name] * root for c, name in enumerate(data.proportions)},
    )
    d, outputs = len(deviations), len(data.proportions)
    z, a, root_k = [table[f"z{i}"] for i in range(d)], [table[f"a{c}"] for c in range(outputs)], table.k.sqrt()
    figures = {"bags": table.count(), "rows": table.k.sum(), "noise": table.noise.sum()}
    figures |= {f"x{i}": (z[i] * root_k).sum() for i in range(d)}
    figures |= {f"y{c}": (a[c] * root_k).sum() for c in range(outputs)}
    figures |= {f"yy{c}": (a[c] * a[c]).sum() for c in range(outputs)}
    figures |= {f"xy{i}_{c}": (z[i] * a[c]).sum() for i in range(d) for c in range(outputs)}
    figures |= {f"xx{i}_{j}": (z[i] * z[j]).sum() for i, j in combinations_with_replacement(range(d), 2)}
    lines = fetch(table.group_by("fold").agg(**figures).order_by("fold"), data.connection).to_pylist()
    parts = [_part(line, d, outputs) for line in lines]
    return parts, sum(float(line["noise"]) for line in lines) * outputs / sum(part.bags for part in parts)


def _part(line: dict[str, Any], d: int, outputs: int) -> Moments:
    xx = np.zeros((d, d))
    for i, j in combinations_with_replacement(range(d), 2):
        xx[i, j] = xx[j, i] = line[f"xx{i}_{j}"]
    return Moments(
        bags=int(line["bags"]),
        rows=float(line["rows"]),
        x=np.array([line[f"x{i}"] for i in range(d)]),
        y=np.array([line[f"y{c}"] for c in range(outputs)]),
        xx=xx,
        xy=np.array([[line[f"xy{i}_{c}"] for c in range(outputs)] for i in range(d)]),
        yy=np.array([line[f"yy{c}"] for c in range(outputs)]),
    )
