"""Models of tables judged without labels: on bags they were not fitted to, and by what moves their predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ibis
import numpy as np

from bagwise import diagnostics, dispersion, evaluation
from bagwise.bags import Bags
from bagwise.data.shards import Shards
from bagwise.disclosure import leaks
from bagwise.tables.bag_table import NOISE, NUMBER, SIZE, BagTable
from bagwise.tables.columns import Features
from bagwise.tables.engine import batches, execute, fetch, keep
from bagwise.tables.model import TableModel
from bagwise.utils.parameters import ParameterError
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import Floats, Integers

_SAMPLE = 200_000  # rows that a diagnosis reads
_SHUFFLED = 5_000  # rows whose predictions are watched while columns are shuffled


def split(data: BagTable, share: float) -> tuple[BagTable, BagTable]:
    """Bags to learn from, and about `share` of them to hold out; the same ones in every run.

    Bags are numbered as if at random, so the last ones are as good as any.
    """
    if not 0 < share < 1:
        raise ParameterError("share", f"must lie between 0 and 1, got {share}.")
    bags = data.summary.bags
    held_out = max(1, round(bags * share))
    if bags < 5:
        raise ValueError(
            f"{bags} bags are too few to hold any out, 3 to measure on and 2 to learn from being the least: hold out "
            "none, or pass tables with more bags."
        )
    if bags - held_out < 2 or held_out < 3:
        raise ValueError(
            f"a share of {share:g} of {bags:,} bags is {held_out}: at least 3 must be held out and 2 left to learn "
            "from; hold out another share, or none."
        )
    first = bags - held_out
    return _some(data, data.bags[NUMBER] < first), _some(data, data.bags[NUMBER] >= first, shift=first)


def _some(data: BagTable, chosen: Any, *, shift: int = 0) -> BagTable:
    """The chosen bags alone, numbered from 0."""
    bags = keep(data.bags.filter(chosen).mutate(**{NUMBER: ibis._[NUMBER] - shift}), data.connection)
    rows = bags[SIZE].sum()
    priors = {f"p{i}": (bags[name] * bags[SIZE]).sum() / rows for i, name in enumerate(data.proportions)}
    found = execute(
        bags.agg(bags=bags.count(), rows=rows, smallest=bags[SIZE].min(), largest=bags[SIZE].max(), **priors),
        data.connection,
    )
    summary = replace(
        data.summary,
        bags=int(found["bags"]),
        used_rows=int(found["rows"]),
        smallest=int(found["smallest"]),
        largest=int(found["largest"]),
        prior=tuple(float(found[name]) for name in priors),
    )
    return replace(data, bags=bags, summary=summary)


def evaluate(
    model: TableModel, data: BagTable, *, level: float = 0.95, even_if_not_random: bool = False
) -> evaluation.Evaluation:
    """Accuracy, Brier score, log loss and AUC of single rows, with intervals, from bags that were not trained on.

    level, even_if_not_random: as in `bagwise.evaluate`.
    """
    number, h = predictions(model, data)
    bags, features = numbered(data, number), spread(data, model.features)
    found = evaluation.measure(h, bags, features=features, level=level, even_if_not_random=even_if_not_random)
    evaluation.warn_of_doubt(found)
    return found


def spread(data: BagTable, features: Features) -> list[dispersion.Finding]:
    """How much bags differ in each feature, beside random bags; 200,000 rows at most are read, of some bags."""
    frame, number = _some_rows(data, features)
    return dispersion.feature_dispersions(frame, numbered(data, number))


def predictions(model: TableModel, data: BagTable) -> tuple[Integers, Floats]:
    """Of every row in a bag, the bag's number and the prediction, as the engine hands them over."""
    if data.classes != model.classes:
        raise ValueError(
            f"the model knows the classes {_listed(model.classes)}, the reports have {_listed(data.classes)}: name the "
            "same columns in the same order."
        )
    number, found, made = [], [], list(model.features.names)
    for batch in batches(model.features.select(data.rows(), NUMBER), data.connection):
        number.append(batch.column(NUMBER).to_numpy(zero_copy_only=False))
        found.append(model.predict(batch.select(made)))
    return np.concatenate(number), np.concatenate(found)


def diagnose(data: BagTable, features: Features | None = None, *, level: float = 0.01) -> diagnostics.Diagnosis:
    """Are the bags random, do they drift along their keys, what do they leak?

    200,000 rows at most are read, of some bags; leaks are those of all bags.
    """
    features = features or Features.of(data.events, data.features, data.connection)
    most = _bags_of(data, _SAMPLE)
    order = data.bags.filter(data.bags[NUMBER] < most)
    order = order.select(NUMBER, place=ibis.row_number().over(order_by=[order[key] for key in data.keys]))
    place = fetch(order, data.connection)
    rank = np.empty(len(place), dtype=np.int64)
    rank[place.column(NUMBER).to_numpy()] = place.column("place").to_numpy()
    frame, number = _some_rows(data, features)
    bags = numbered(data, number)
    proportion = np.asarray(bags.proportion)[bags.code]
    noise = None if bags.noise_variance is None else np.asarray(bags.noise_variance)[bags.code]
    found = diagnostics.diagnose(frame, proportion, bags=rank[number], noise_variance=noise, level=level)
    return replace(found, leaks=leaks(*reported(data)))


def _some_rows(data: BagTable, features: Features) -> tuple[Any, Integers]:
    """The features of the rows of some bags, and the number of each row's bag."""
    rows = data.rows().filter(ibis._[NUMBER] < _bags_of(data, _SAMPLE))
    table = fetch(features.select(rows, NUMBER), data.connection)
    return _frame(features, features.matrix(table)), table.column(NUMBER).to_numpy()


def _frame(features: Features, matrix: Floats) -> Any:
    """Numbers and codes as a data frame of numbers, whether they are missing, and categories."""
    import pandas as pd

    columns: dict[str, Any] = {}
    for made, values in zip(features.made, matrix.T, strict=True):
        if made.levels is None:
            columns |= dict(dispersion.without_gaps(made.name, values))
        else:
            codes = np.where(np.isnan(values), -1, values).astype(int)
            columns[made.name] = pd.Categorical.from_codes(codes, list(made.levels))
    return pd.DataFrame(columns)


def evaluate_shards(
    model: TableModel, shards: Shards, *, level: float = 0.95, even_if_not_random: bool = False
) -> evaluation.Evaluation:
    """The same on bags that were gathered."""
    h = np.concatenate([model.predict_codes(shards.block(number)) for number in range(len(shards))])
    some = shards.sample(_SAMPLE)
    features = dispersion.feature_dispersions(_frame(model.features, some.X), some.bags)
    found = evaluation.measure(h, shards.bags, features=features, level=level, even_if_not_random=even_if_not_random)
    evaluation.warn_of_doubt(found)
    return found


def sensitivity(model: TableModel, data: BagTable | Shards, *, random_state: RandomState = 0) -> dict[str, float]:
    """By how much predictions move, in the mean, when a column is shuffled among rows: larger is more important."""
    codes = data.sample(_SHUFFLED).X if isinstance(data, Shards) else _some_codes(model, data)
    codes = codes[:_SHUFFLED]
    h, order, first = model.predict_codes(codes), generator(random_state).permutation(len(codes)), 0
    found = {}
    for column in model.features.columns:
        last = first + len(column.made)
        if last > first:
            shuffled = codes.copy()
            shuffled[:, first:last] = codes[order, first:last]
            found[column.name] = float(np.abs(model.predict_codes(shuffled) - h).mean())
        first = last
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _some_codes(model: TableModel, data: BagTable) -> Floats:
    rows = data.rows().filter(ibis._[NUMBER] < _bags_of(data, _SHUFFLED))
    return model.features.matrix(fetch(model.features.select(rows), data.connection))


def _bags_of(data: BagTable, rows: int) -> int:
    """How many bags hold about so many rows; 3 at least."""
    return max(3, int(rows * data.summary.bags / data.summary.used_rows))


def numbered(data: BagTable, number: Integers) -> Bags:
    """The bags of rows with these numbers."""
    _, proportion, noise = reported(data)
    return Bags.from_rows(proportion[number], number, noise_variance=None if noise is None else noise[number])


def reported(data: BagTable) -> tuple[Integers, Floats, Floats | None]:
    """Sizes (m,), proportions (m,) or (m, classes) and noise variances (m,) of all bags, by number."""
    line = fetch(data.bags.select(NUMBER, SIZE, NOISE, *data.proportions).order_by(NUMBER), data.connection)
    proportion = np.stack([line.column(name).to_numpy() for name in data.proportions], axis=1)
    noise = np.nan_to_num(line.column(NOISE).to_numpy()) if data.summary.noised else None
    return line.column(SIZE).to_numpy(), proportion if data.classes is not None else proportion[:, 0], noise


def _listed(classes: tuple[str, ...] | None) -> str:
    return "0 and 1" if classes is None else ", ".join(classes)
