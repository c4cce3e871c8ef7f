"""Models of tables judged without labels, on bags they were not fitted to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from bagwise import metrics
from bagwise.bags import Bags
from bagwise.data.shards import Shards
from bagwise.evaluation import Evaluation, ValueEvaluation, differences, measures
from bagwise.evaluation.measures import check_no_labels
from bagwise.evaluation.strata import stratum_of_bags
from bagwise.evaluation.values import formation_of_values
from bagwise.evaluation.values import measure_values as measure_predictions
from bagwise.formation import FORMATIONS, Told, formation_of
from bagwise.formation.evidence import ENOUGH_BAGS
from bagwise.formation.strata import formation_inside
from bagwise.metrics import Estimate
from bagwise.tables.bag_table import BagTable
from bagwise.tables.diagnosis import frame_of
from bagwise.tables.labels import score_labels
from bagwise.tables.model import TableModel
from bagwise.tables.predictions import Predictions, predict
from bagwise.tables.sources import Source
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import ArrayLike, Floats, NDArray


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
        known = score_labels(model, data, labels, label)
    names = {"strata": [strata] if isinstance(strata, str) else [*strata], "by": [] if by is None else [by]}
    if not isinstance(data, Predictions):
        data = predict(model, data, _asked_for(names, data))
    h, bags = data.h, data.bags
    inside = None if not names["strata"] else _joint([data.columns[name] for name in names["strata"]])
    told = told_of(model, data, formation, inside, held_out=held_out)
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
    data: BagTable | Shards | Predictions,
    *,
    formation: str = "auto",
    by: str | None = None,
    held_out: bool = False,
    level: float = 0.95,
) -> ValueEvaluation:
    """Judge a model of values by bags that it was not fitted to, without a warning; parameters as in `measure`."""
    found = data
    if not isinstance(found, Predictions):
        found = predict(model, found, _asked_for({"by": [] if by is None else [by]}, found))
    told = told_of(model, found, formation, None, held_out=held_out)
    groups = None if by is None else found.columns[by]
    return measure_predictions(found.h, found.bags, formation=told, level=level, by=groups)


def _with(h: Floats, bags: Bags, known: tuple[Floats, Floats] | None) -> tuple[Floats, Bags]:
    """Predictions and bags, with those of labelled rows, which are in none."""
    if known is None:
        return h, bags
    return np.concatenate([h, known[0]]), replace(bags, n_rows=bags.n_rows + len(known[0]))


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


def told_of(
    model: TableModel,
    found: Predictions,
    formation: str,
    strata: NDArray[Any] | None = None,
    *,
    held_out: bool = False,
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
