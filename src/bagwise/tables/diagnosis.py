"""What the bags of tables are like: how they came about, whether they drift along their keys, what they leak."""

from dataclasses import replace
from typing import Any

import numpy as np

from bagwise import diagnostics
from bagwise.data.shards import WEIGHT
from bagwise.disclosure import leaks
from bagwise.ranks import without_gaps
from bagwise.tables.bag_table import NUMBER, BagTable
from bagwise.tables.columns import Features
from bagwise.tables.fitting import features_of
from bagwise.tables.predictions import SAMPLE, bags_of
from bagwise.tables.table import col
from bagwise.utils.typing import Floats


def diagnose(data: BagTable, features: Features | None = None, *, level: float = 0.01) -> diagnostics.Diagnosis:
    """How did the bags come about, do they drift along their keys, what do they leak?

    Parameters
    ----------
    data : BagTable
        Events and reports, as `join` returns them; 200,000 rows at most are read, but leaks are those of all bags.
    features : Features, optional
        The columns to look at, with their roles, as far as the events have them; those that `fit` would read by
        default.
    level : float
        Rate at which random bags raise a false alarm, at most.

    Returns
    -------
    bagwise.diagnostics.Diagnosis
        As `bagwise.diagnose` returns it.
    """
    features = features_of(data) if features is None else features.among(data.features)
    if not features.made:
        raise ValueError("the events have none of the columns that the model was trained with: pass other tables.")
    most, reports = data.bags_with(SAMPLE), data.reported
    lines = data.bags.filter(col(NUMBER) < most).numbered("bagwise_place", *data.keys).sort(NUMBER).fetch()
    rank = lines.column("bagwise_place").to_numpy()
    table = features.select(data.rows(most), NUMBER, *data.of_rows.ours).fetch().combine_chunks()
    frame, number = frame_of(features, features.matrix(table)), table.column(NUMBER).to_numpy()
    # Of several keys, one may be what the others are random in.
    several = data.keys if len(data.keys) > 1 else ()
    keys = {key: np.asarray(lines.column(key).to_pylist(), dtype=str)[number] for key in several}
    weight = data.of_rows.read(table).get(WEIGHT) if data.of_rows.weight is not None else None
    bags = bags_of(reports, number, rank[number], weight=weight)
    found = diagnostics.diagnose(frame, bags=bags, keys=keys, level=level, target=data.target)
    hidden = None if reports.interval is None else reports.interval.hidden
    told = leaks(reports.size, reports.proportion, reports.noise, values=data.target == "value", hidden=hidden)
    return replace(found, leaks=told)


def frame_of(features: Features, matrix: Floats) -> Any:
    """Numbers and codes as a data frame of numbers, whether they are missing, and categories."""
    import pandas as pd

    columns: dict[str, Any] = {}
    for made, values in zip(features.made, matrix.T, strict=True):
        if made.levels is None:
            columns |= dict(without_gaps(made.name, values))
        else:
            codes = np.where(np.isnan(values), -1, values).astype(int)
            columns[made.name] = pd.Categorical.from_codes(codes, list(made.levels))
    return pd.DataFrame(columns)
