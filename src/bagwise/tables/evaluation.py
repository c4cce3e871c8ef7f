"""Models of tables judged without labels: on bags they were not fitted to, and by what moves their predictions."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any

import numpy as np

from bagwise import diagnostics, dispersion, metrics
from bagwise.bags import Bags
from bagwise.data.rows import row_starts
from bagwise.data.shards import OFFSET, WEIGHT, Shards
from bagwise.disclosure import leaks
from bagwise.evaluation import Evaluation, ValueEvaluation, differences, measures
from bagwise.evaluation.measures import check_no_labels
from bagwise.evaluation.strata import stratum_of_bags
from bagwise.evaluation.values import formation_of_values
from bagwise.evaluation.values import measure_values as measure_predictions
from bagwise.formation import FORMATIONS, Told, formation_of
from bagwise.formation.evidence import ENOUGH_BAGS
from bagwise.formation.strata import formation_inside
from bagwise.metrics import Estimate
from bagwise.tables.bag_table import NUMBER, BagTable, Reported
from bagwise.tables.columns import Features
from bagwise.tables.labels import score_labels
from bagwise.tables.model import TableModel, features_of
from bagwise.tables.sources import Source
from bagwise.tables.table import col
from bagwise.utils.parameters import ParameterError
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats, Integers, NDArray

_SAMPLE = 200_000  # rows that a diagnosis reads
_SHUFFLED = 5_000  # rows whose predictions are watched while columns are shuffled


# -- how good -----------------------------------------------------------------------------------------------------


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


def _bags(reports: Reported, number: Integers, keys: Integers | None = None, *, weight: Floats | None = None) -> Bags:
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
        sample = data.sample(_SAMPLE)
        own = model.predict_codes(sample.X, sample.offset)
        bags, some = (replace(one, offset=None) for one in (data.bags, sample.bags))  # predictions have it in them
        return Predictions(h, bags, sample.X, own, some)
    model.check_target(data.target)
    model.check_classes(data.classes)
    reports, most = data.reported, data.bags_with(_SAMPLE)
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
        _bags(reports, number[part], weight=None if weight is None else weight[part]) for part in (order, few)
    )
    asked = {name: np.concatenate(parts)[order] for name, parts in others.items()}
    return Predictions(h[order], bags, np.concatenate(codes), h[few], some, asked)


@dataclass(frozen=True, eq=False)
class Measurement:
    """A model measured on bags that it was not fitted to.

    Attributes
    ----------
    evaluation : bagwise.evaluation.Evaluation
        Its label-free measures.
    guess : dict of float
        Those of one guess for all rows: the mean label of the bags that the model was fitted to.
    gain : dict of Estimate
        The model less the guess, paired; empty where the bags cannot tell.
    predictions : Predictions or None
        What the model says of the rows; None where only its folder is at hand.
    """

    evaluation: Evaluation
    guess: dict[str, float]
    gain: dict[str, Estimate]
    predictions: Predictions | None


def constant_guess(prior: ArrayLike, label: ArrayLike | None = None) -> dict[str, float]:
    """The measures of one prediction for all rows, by name; noise may have put it beyond 0 or 1.

    prior: the guess, (1,) for two classes or one number per class.  label: mean label of the rows, or else the guess.

    >>> found = constant_guess([0.25])
    >>> found["accuracy"], found["brier"], found["auc"]
    (0.75, 0.1875, 0.5)
    """
    p = _shares(prior)
    q, row = p if label is None else np.atleast_1d(label), p if len(p) == 1 else p[None]
    found = {}
    for of in (metrics.accuracy, metrics.brier, metrics.log_loss):
        a, g = of(row)
        found[of.__name__] = float(np.clip(a[0] + (q * g).sum(), *metrics.possible(of.__name__, row.ndim)))
    return {**found, "auc": 0.5} if ((q > 0) & (q < 1)).all() else found


def _shares(prior: ArrayLike) -> Floats:
    """The guess, in [0, 1]; where classes are several, shares of a whole."""
    p: Floats = np.clip(np.asarray(prior, dtype=float), 0, 1)
    return p if len(p) == 1 else p / p.sum()


def measure(
    model: TableModel,
    data: BagTable | Shards | Predictions,
    *,
    formation: str = "auto",
    strata: Sequence[str] | str = (),
    by: str | None = None,
    labels: Source | None = None,
    label: str = "label",
    threshold: float = 0.5,
    held_out: bool = False,
    level: float = 0.95,
) -> Measurement:
    """Judge a model by bags that it was not fitted to, without a warning.

    Parameters
    ----------
    model : TableModel
        As `fit` returns it.
    data : BagTable, Shards or Predictions
        Bags that it was not fitted to, in tables or gathered on disk; or what it says of them already.
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about; "auto" lets them tell.
    strata : str or sequence of str
        Columns of the events that bags are random inside of, as a campaign or a day: each bag has one value of them.
    by : str, optional
        Column of the events whose values are groups of rows, of which rates of positive labels are asked for.
    labels : path, table or dict, optional
        Rows drawn at random whose labels are known, with the features of the events: numbers then rest on them,
        sharpened by the model and the reports, and are right in every formation. The model must not know them.
    label : str
        Their column of labels: 0 and 1, false and true, or names of classes.
    threshold : float
        Above which a row is said to be positive, where there are two classes.
    held_out : bool
        Whether the bags were split off those that the model was fitted to, which then tell, too: of what both say, the
        weaker assumption counts.
    level : float
        Of the confidence intervals.

    Returns
    -------
    Measurement
        Its evaluation, and the model beside one guess for all rows.
    """
    if model.target == "value":
        raise ValueError("the model predicts values: measure it by tables.evaluate.")
    known = None
    if labels is not None:
        if not isinstance(data, BagTable):
            raise ParameterError("labels", "needs tables: rows gathered on disk have no columns to compare.")
        data.check_no_row_columns("labels")
        known = score_labels(model, data, labels, label)
    names = {"strata": [strata] if isinstance(strata, str) else [*strata], "by": [] if by is None else [by]}
    if not isinstance(data, Predictions):
        data = predict(model, data, _asked_for(names, data))
    h, bags = data.h, data.bags
    inside = None if not names["strata"] else _joint([data.columns[name] for name in names["strata"]])
    told = _told(model, data, formation, inside, held_out=held_out)
    asked: dict[str, Any] = {"strata": inside, "by": None if by is None else data.columns[by], "threshold": threshold}
    asked["labels"] = None if known is None else np.concatenate([np.full(len(h), np.nan), known[1]])
    measured = measures.measure(*_with(h, bags, known), formation=told, level=level, **asked)
    p, mean = _shares(model.summary.prior), np.average(bags.outputs, axis=0, weights=bags.size)
    guess, gain = constant_guess(p, mean), {}
    if known is None and not measured.withheld:  # what labels tell, bags need not
        constant = np.full(len(h), p[0]) if h.ndim == 1 else np.tile(p, (len(h), 1))
        how = "rates" if told.name == "rates" else "random"
        paired = differences(h, constant, bags, formation=how, strata=inside, level=level)
        for name, one in ((name, one) for name, one in paired.items() if name in guess):
            least, most = metrics.possible(name, h.ndim)
            gain[name] = one.within(least - guess[name], most - guess[name])
    return Measurement(measured, guess, gain, data)


def measure_values(
    model: TableModel,
    data: BagTable | Shards,
    *,
    formation: str = "auto",
    by: str | None = None,
    held_out: bool = False,
    level: float = 0.95,
) -> ValueEvaluation:
    """Judge a model of values by bags that it was not fitted to, without a warning; parameters as in `measure`."""
    found = predict(model, data, _asked_for({"by": [] if by is None else [by]}, data))
    told = _told(model, found, formation, None, held_out=held_out)
    groups = None if by is None else found.columns[by]
    return measure_predictions(found.h, found.bags, formation=told, level=level, by=groups)


def _with(h: Floats, bags: Bags, known: tuple[Floats, Floats] | None) -> tuple[Floats, Bags]:
    """Predictions and bags, with those of labelled rows, which are in none."""
    if known is None:
        return h, bags
    rows = bags.n_rows + len(known[0])
    wider = Bags.build(bags.keys, bags.order, bags.offsets, bags.proportion, bags.noise_variance, rows)
    return np.concatenate([h, known[0]]), wider


def _asked_for(names: Mapping[str, Sequence[str]], data: BagTable | Shards) -> list[str]:
    """The columns of the events that parameters name; an error where there is none of the name."""
    for parameter, given in names.items():
        if given and isinstance(data, Shards):
            raise ParameterError(parameter, "needs tables: rows gathered on disk have no such columns any more.")
        there = () if isinstance(data, Shards) else (*data.keys, *data.features)
        if absent := [name for name in given if name not in there]:
            listed = ", ".join(there)
            raise ParameterError(parameter, f"names {absent[0]!r}, which is no key or feature of the events: {listed}.")
    return list(dict.fromkeys(name for given in names.values() for name in given))


def _joint(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """(n,) the values of several columns as one."""
    return reduce(lambda one, other: np.char.add(np.char.add(one, " / "), other), columns)


def _told(
    model: TableModel, found: Predictions, formation: str, strata: NDArray[Any] | None, *, held_out: bool
) -> Told:
    """The formation that the bags tell; or, of bags held out, that those tell which the model was fitted to."""
    inside = "" if strata is None else ", inside strata"
    if formation != "auto":
        return Told(formation, f"as asked for{inside}")
    frame = frame_of(model.features, found.codes)
    if strata is not None:
        stratum = stratum_of_bags(strata, found.bags)[: len(found.some)]  # which are the first of the bags
        return formation_inside(stratum, frame, found.some, h=found.said)
    if model.target == "value":
        here = formation_of_values("auto", found.said, frame, found.some)
    else:
        here = formation_of("auto", frame, found.some, h=found.said)
    fitted: Told | None = getattr(model.estimator, "formation_", None)
    if not held_out or fitted is None:
        return here
    assumes = list(FORMATIONS).index  # the more, the less
    if len(found.bags) >= ENOUGH_BAGS and assumes(here.name) >= assumes(fitted.name):
        return here
    return replace(fitted, reason=f"of the bags that the model was fitted to, {fitted.reason}")


def evaluate(
    model: TableModel,
    data: BagTable | Shards,
    *,
    formation: str = "auto",
    strata: Sequence[str] | str = (),
    by: str | None = None,
    labels: Source | None = None,
    label: str = "label",
    threshold: float = 0.5,
    level: float = 0.95,
) -> Evaluation | ValueEvaluation:
    """Accuracy, Brier score, log loss and AUC of single rows, with intervals, from bags that were not trained on.

    Of a model of values: mean square error, R², mean prediction beside mean label, and calibration.

    Parameters
    ----------
    model, data, formation, strata, by, labels, label, threshold, level
        As in `measure`; `strata`, `labels` and `threshold` are not for values, and `by` asks for their means.

    Returns
    -------
    bagwise.evaluation.Evaluation, or bagwise.evaluation.ValueEvaluation of values
        A warning says why, where numbers are withheld or not to be relied on.
    """
    found: Evaluation | ValueEvaluation
    if model.target == "value":
        check_no_labels(strata=strata, labels=labels, threshold=None if threshold == 0.5 else threshold)
        found = measure_values(model, data, formation=formation, by=by, level=level)
        measures.warn_of_doubt(found)
        return found
    asked: dict[str, Any] = {"formation": formation, "strata": strata, "by": by, "threshold": threshold}
    found = measure(model, data, labels=labels, label=label, level=level, **asked).evaluation
    measures.warn_of_doubt(found)
    return found


# -- what bags are like -------------------------------------------------------------------------------------------


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
    most, reports = data.bags_with(_SAMPLE), data.reported
    lines = data.bags.filter(col(NUMBER) < most).numbered("bagwise_place", *data.keys).sort(NUMBER).fetch()
    rank = lines.column("bagwise_place").to_numpy()
    table = features.select(data.rows(most), NUMBER, *data.of_rows.ours).fetch().combine_chunks()
    frame, number = frame_of(features, features.matrix(table)), table.column(NUMBER).to_numpy()
    # Of several keys, one may be what the others are random in.
    several = data.keys if len(data.keys) > 1 else ()
    keys = {key: np.asarray(lines.column(key).to_pylist(), dtype=str)[number] for key in several}
    weight = data.of_rows.read(table).get(WEIGHT) if data.of_rows.weight is not None else None
    bags = _bags(reports, number, rank[number], weight=weight)
    found = diagnostics.diagnose(frame, bags=bags, keys=keys, level=level, target=data.target)
    return replace(found, leaks=leaks(reports.size, reports.proportion, reports.noise, values=data.target == "value"))


def frame_of(features: Features, matrix: Floats) -> Any:
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
