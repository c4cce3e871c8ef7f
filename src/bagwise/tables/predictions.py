"""What a model says of the rows of bags, and by what its predictions are moved."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.data.rows import row_starts
from bagwise.data.shards import OFFSET, WEIGHT, Shards
from bagwise.tables.bag_table import NUMBER, BagTable, Reported
from bagwise.tables.model import TableModel
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import Floats, Integers, NDArray

SAMPLE = 200_000
"""Rows that a diagnosis reads."""

_SHUFFLED = 5_000  # rows whose predictions are watched while columns are shuffled


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of the rows of bags.

    h: (n,) or (n, classes).  bags: of these rows.  codes, said, some: features of the rows of some bags, what it says
    of them, and these bags.  columns: of the events, (n,) each, by name.
    """

    h: Floats
    bags: Bags
    codes: Floats
    said: Floats
    some: Bags
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of what bags reported and of their mean predictions: the same model on the same bags has it."""
        size, noise = np.asarray(self.bags.size, dtype=float), self.bags.noise_variance
        means = np.asarray(self.bags.sum_table(self.h)).T / size
        found = hashlib.sha256()
        for part in (size, self.bags.outputs, means, *([] if noise is None else [noise])):
            # Sums differ by their order and from machine to machine, so six digits count.
            found.update((np.round(np.asarray(part, dtype=float), 6) + 0.0).tobytes())
        return found.hexdigest()


def bags_of(reports: Reported, number: Integers, keys: Integers | None = None, *, weight: Floats | None = None) -> Bags:
    """The bags of rows, by the number of the bag of each; in the order of keys if given."""
    noise = None if reports.noise is None else reports.noise[number]
    bags = Bags.from_rows(reports.proportion[number], number if keys is None else keys, noise_variance=noise)
    bags = bags if weight is None else bags.with_weights(weight)
    if reports.interval is None:
        return bags
    return replace(bags, interval=reports.interval.take(number[bags.order[bags.offsets[:-1]]]))


def predict(model: TableModel, data: BagTable | Shards, columns: Sequence[str] = ()) -> Predictions:
    """Predictions of all rows in bags, in one pass over them; with these `columns` of the events, as text."""
    if isinstance(data, Shards):
        starts = row_starts(data)
        blocks = [None if data.offset is None else data.offset[slice(*rows)] for rows in pairwise(starts)]
        h = np.concatenate([model.predict_codes(data.block(number), one) for number, one in enumerate(blocks)])
        sample = data.sample(SAMPLE)
        own = model.predict_codes(sample.X, sample.offset)
        bags, some = (replace(one, offset=None) for one in (data.bags, sample.bags))  # predictions have it in them
        return Predictions(h, bags, sample.X, own, some)
    model.check_target(data.target)
    model.check_classes(data.classes)
    reports, most = data.reported, data.bags_with(SAMPLE)
    numbers, predicted, codes = [], [], []
    others: dict[str, list[NDArray[Any]]] = {name: [] for name in columns}
    reading = model.reading(data.rows())
    ours: dict[str, list[Floats]] = {name: [] for name in model.of_rows.ours}
    for batch in reading.select(NUMBER, *ours, *columns).batches():
        of_rows = model.of_rows.read(batch)
        for name, values in of_rows.items():
            ours[name].append(values)
        number, read = batch.column(NUMBER).to_numpy(zero_copy_only=False), reading.matrix(batch)
        numbers.append(number)
        predicted.append(model.predict_codes(read, of_rows.get(OFFSET)))
        codes.append(read[number < most])
        for name in columns:
            others[name].append(np.asarray(batch.column(name).to_pylist(), dtype=str))
    reading.met.warn(stacklevel=3)
    number, h = np.concatenate(numbers), np.concatenate(predicted)
    # An order that does not depend on how the engine's threads worked: numbers are equal to the last digit.
    few, weight = number < most, np.concatenate(ours[WEIGHT]) if WEIGHT in ours else None
    equal = () if weight is None else (weight,)
    order = np.lexsort((*equal, h, number) if h.ndim == 1 else (*equal, *h.T, number))
    bags, some = (
        bags_of(reports, number[part], weight=None if weight is None else weight[part]) for part in (order, few)
    )
    asked = {name: np.concatenate(parts)[order] for name, parts in others.items()}
    return Predictions(h[order], bags, np.concatenate(codes), h[few], some, asked)


def sensitivity(model: TableModel, data: BagTable | Shards, *, random_state: RandomState = 0) -> dict[str, float]:
    """By how much predictions move, in the mean, when a column is shuffled among rows: larger is more important.

    Parameters
    ----------
    model : TableModel
        As `fit` returns it.
    data : BagTable or Shards
        Bags whose rows are shuffled, some thousands of them.
    random_state : int, Generator or None
        For the order.

    Returns
    -------
    dict of float
        By column, the largest first.
    """
    if isinstance(data, Shards):
        codes = data.sample(_SHUFFLED).X[:_SHUFFLED]
    else:
        rows = model.features.select(data.rows(data.bags_with(_SHUFFLED)))
        codes = model.features.matrix(rows.fetch())[:_SHUFFLED]
    none = None if model.of_rows.offset is None else np.zeros(len(codes))
    h, order, first = model.predict_codes(codes, none), generator(random_state).permutation(len(codes)), 0
    found = {}
    for column in (one for one in model.features.columns if one.made):
        last, shuffled = first + len(column.made), codes.copy()
        shuffled[:, first:last] = codes[order, first:last]
        found[column.name] = float(np.abs(model.predict_codes(shuffled, none) - h).mean())
        first = last
    return dict(sorted(found.items(), key=lambda item: -item[1]))
