"""The measures of an evaluation: which of them bags tell, and with what interval."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_regressor

from bagwise import dispersion
from bagwise.bag_fit import bag_fit
from bagwise.bags import Bags, as_bags
from bagwise.dispersion import NOT_RANDOM
from bagwise.evaluation.groups import group_means
from bagwise.evaluation.result import ClassEvaluation, Evaluation
from bagwise.evaluation.strata import stratum_of_bags
from bagwise.evaluation.values import ValueEvaluation, measure_values
from bagwise.expectations import Expectations, check_enough
from bagwise.formation import FORMATION, FORMATIONS, Told, formation_of
from bagwise.formation.strata import formation_inside
from bagwise.metrics import METRICS, Estimate, auc, curves, estimated, metrics, possible, within_unit
from bagwise.prediction_powered import of_labels
from bagwise.predictions import fitting_bags, predicted, predicted_values
from bagwise.utils.parameters import LEVEL, TARGET, NamesParameters, ParameterError, check_parameters, number, whole
from bagwise.utils.typing import ArrayLike, Floats, Integers, NDArray

ENOUGH_BAGS = 30
"""From which on intervals are not rough."""

_CONSTRAINTS = {"level": LEVEL, "n_bins": whole(1), "threshold": number(least=0, most=1), "formation": FORMATION}


class BagsNotRandomWarning(NamesParameters, UserWarning):
    """Bags do not tell how good a model is for single rows."""


def evaluate(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    bags: ArrayLike | Bags | None = None,
    noise_variance: ArrayLike | None = None,
    formation: str = "auto",
    strata: ArrayLike | str | None = None,
    labels: ArrayLike | None = None,
    by: ArrayLike | str | None = None,
    threshold: float = 0.5,
    level: float = 0.95,
    n_bins: int = 10,
    target: str = "auto",
) -> Evaluation | ValueEvaluation:
    """Brier score, accuracy, log loss, AUC, calibration and ROC curve of single rows, as far as bags tell them.

    Of a regressor, whose labels are real: mean square error, R², mean prediction beside mean label, and calibration.

    At least 3 bags are needed, and below about 30 intervals are rough. Where bags are grouped by features, or an
    estimate would lie beyond what is possible, there are no numbers for single rows, and a `BagsNotRandomWarning` says
    why; `Evaluation.bags` holds what is known all the same.

    Parameters
    ----------
    model : classifier, regressor or array
        A fitted classifier with `predict_proba`; or its predictions: (n,) probabilities of the positive class, or
        (n, classes). Of two classes, the second is the one whose proportion bags report. Or a fitted regressor, or its
        predictions (n,), where `target` is "value".
    X : array or table of shape (n, features), or None
        Held-out rows. Where predictions are given, they serve to tell the formation; None for no such look.
    y, bags, noise_variance : array, Bags or None
        As in `fit` and `Bags.from_rows`. The bags must be new to the model.
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about; "auto" lets proportions, predictions and features tell.
    strata : array of shape (n,) or name of a column of X, optional
        What bags are random inside of, as a campaign or a day: bags lie in one stratum each, three or more in each
        stratum, which are measured one by one and added up.
    labels : array of shape (n,), optional
        Labels of a few rows, in bags or in none, NaN for the others: labelled rows must be drawn at random. Accuracy,
        Brier score, log loss and AUC then rest on them, sharpened by the model and the bags; they are right in every
        formation.
    by : array of shape (n,) or name of a column of X, optional
        Groups of rows whose rates of positive labels, or mean values, are asked for.
    threshold : float
        Above which the class whose proportion bags report is said, where there are two.
    level : float
        Of the confidence intervals.
    n_bins : int
        Bins of the calibration curve and thresholds of the ROC curve, at quantiles of the predictions.
    target : {"auto", "label", "value"}
        What bags report: proportions of labels, or means of real numbers. "auto": the latter for a regressor. Of
        values, `strata`, `labels` and `threshold` tell nothing, and single rows are known of random bags alone.

    Returns
    -------
    Evaluation, or ValueEvaluation for values

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> h = rng.uniform(size=64000)
    >>> y = rng.random(64000) < h
    >>> ids = bw.random_bags(64000, size=64, random_state=0)
    >>> result = evaluate(h, None, bw.aggregate(y, ids), bags=ids)
    >>> print(result.accuracy)
    0.7721 [0.7446, 0.7994]
    >>> value = 20 * h + rng.normal(size=64000)
    >>> print(evaluate(20 * h, None, bw.aggregate(value, ids), bags=ids, target="value").mse)
    1.0036 [0.9150, 1.1020]
    """
    check_parameters({"target": target}, {"target": TARGET})
    if target == "value" or (target == "auto" and _is_regressor(model)):
        check_no_labels(strata=strata, labels=labels, threshold=None if threshold == 0.5 else threshold)
        asked: dict[str, Any] = {"formation": formation, "level": level, "n_bins": n_bins}
        return _evaluate_values(model, X, y, bags, noise_variance, by=by, **asked)
    h = predicted(model, X, bags)
    given = as_bags(y, bags, len(h), noise_variance=noise_variance, whole_labels=True)
    given.check_proportions()
    result = measure(
        h,
        given,
        X=X,
        formation=formation,
        strata=None if strata is None else column("strata", strata, X, len(h)),
        labels=labels,
        by=None if by is None else column("by", by, X, len(h)),
        threshold=threshold,
        level=level,
        n_bins=n_bins,
    )
    result = replace(result, own_bags=getattr(model, "_bags_seen", None) == given.fingerprint)
    warn_of_doubt(result)
    return result


def check_no_labels(**given: Any) -> None:
    """Raise where something is given that is not for values."""
    for name in (name for name, one in given.items() if one is not None and not (isinstance(one, tuple) and not one)):
        raise ParameterError(name, "is for labels 0 and 1 or classes, not for values: leave it out.")


def _is_regressor(model: Any) -> bool:
    return hasattr(model, "__sklearn_tags__") and bool(is_regressor(model))


def _evaluate_values(
    model: Any,
    X: Any,
    y: ArrayLike | None,
    bags: ArrayLike | Bags | None,
    noise_variance: ArrayLike | None,
    by: ArrayLike | str | None,
    **options: Any,
) -> ValueEvaluation:
    h = predicted_values(model, X, bags)
    given = as_bags(y, bags, len(h), noise_variance=noise_variance)
    options["by"] = None if by is None else column("by", by, X, len(h))
    found = measure_values(h, given, X=X, **options)
    found = replace(found, own_bags=getattr(model, "_bags_seen", None) == given.fingerprint)
    warn_of_doubt(found, stacklevel=4)
    return found


def warn_of_doubt(found: Evaluation | ValueEvaluation, *, stacklevel: int = 3) -> None:
    """Say why numbers are withheld, or not to be relied on."""
    if found.doubt is not None:
        warnings.warn(found.doubt, BagsNotRandomWarning, stacklevel=stacklevel)


def column(name: str, values: ArrayLike | str, X: Any, n: int) -> NDArray[Any]:
    """(n,) values of rows, given or as the column of X of that name."""
    if isinstance(values, str):
        if not hasattr(X, "columns") or values not in list(X.columns):
            raise ParameterError(name, f"names the column {values!r}, which X does not have.")
        values = X[values]
    found = np.asarray(values)
    if found.shape != (n,):
        raise ParameterError(name, f"must hold one value per row, shape ({n},), got shape {found.shape}.")
    return found


def measure(
    h: Floats,
    bags: Bags,
    *,
    X: Any = None,
    formation: str | Told = "auto",
    strata: NDArray[Any] | None = None,
    labels: ArrayLike | None = None,
    by: NDArray[Any] | None = None,
    threshold: float = 0.5,
    level: float = 0.95,
    n_bins: int = 10,
) -> Evaluation:
    """The same from predictions and bags, without a warning.

    h: (n,) or (n, classes), as `predicted` gives them.  formation: a name, "auto", or what was told already.
    """
    name = formation.name if isinstance(formation, Told) else formation
    check_parameters({"level": level, "n_bins": n_bins, "threshold": threshold, "formation": name}, _CONSTRAINTS)
    bags = fitting_bags(h, bags)
    check_enough(bags)
    inside = None if strata is None else stratum_of_bags(strata, bags)
    told = formation if isinstance(formation, Told) else told_formation(formation, h, X, bags, inside)
    found = Evaluation(
        formation=told,
        n_bags=len(bags),
        n_rows=bags.n_bagged,
        level=level,
        bags=bag_fit(h, bags, level=level, threshold=threshold),
        n_strata=1 if inside is None else int(inside.max()) + 1,
    )
    if _tells_rows(told, h, X, bags):
        rows = Expectations(h, bags, by_slope=told.name == "rates", strata=inside)
        found = _of_rows(found, rows, threshold)
        if not found.withheld and told.name != "effects":
            found = replace(found, **_curves(rows, n_bins, level))
            if by is not None:
                groups = (replace(one, rate=one.rate.within(0, 1)) for one in group_means(rows, by, level))
                found = replace(found, groups=tuple(groups))
    if labels is not None:
        told_by_labels = of_labels(h, bags, labels, threshold=threshold, level=level)
        found = replace(found, impossible=(), **told_by_labels)
    return found


def told_formation(formation: str, h: Floats, X: Any, bags: Bags, strata: Integers | None = None) -> Told:
    """The formation asked for; for "auto" the one that bags tell, inside strata where there are any."""
    if (bags.rows == 1).all() and formation == "auto":
        return Told("random", "every row is a bag of its own: reports are labels")
    if strata is None:
        return formation_of(formation, X, bags, h=h)
    if formation != "auto":
        return Told(formation, "as asked for, inside strata")
    return formation_inside(strata, X, bags, h=h)


def _tells_rows(told: Told, h: Floats, X: Any, bags: Bags) -> bool:
    """Whether bags tell of single rows: as the formation says, or where effects come to rows that are random."""
    if told.name != "effects":
        return bool(FORMATIONS[told.name].evaluation)
    features = () if X is None else dispersion.feature_dispersions(X, bags)
    found = dispersion.dispersions(bags, h=h, features=features)
    return len(bags) >= ENOUGH_BAGS and all(one.p_value >= NOT_RANDOM for one in found if one.subject != "proportions")


def _of_rows(found: Evaluation, rows: Expectations, threshold: float) -> Evaluation:
    """The evaluation with numbers of single rows, unless one of them cannot be."""
    measured = _metrics(rows, threshold, found.level)
    if found.formation.name == "effects":
        # Where rows look random, rates that hardly differ look like effects: intervals that hold for both.
        other = _metrics(Expectations(rows.h, rows.bags, by_slope=True, strata=rows.strata), threshold, found.level)
        measured = {
            name: replace(one, low=min(one.low, other[name].low), high=max(one.high, other[name].high))
            for name, one in measured.items()
        }
    impossible = tuple(
        name
        for name in METRICS
        if name in measured
        and (not np.isfinite(measured[name].standard_error) or measured[name].leaves(*possible(name, rows.h.ndim)))
    )
    if impossible:
        return replace(found, impossible=impossible)
    told: dict[str, Any] = {name: one.within(*possible(name, rows.h.ndim)) for name, one in measured.items()}
    return replace(found, **told)


def _metrics(rows: Expectations, threshold: float, level: float) -> dict[str, Estimate]:
    with np.errstate(invalid="ignore", over="ignore"):
        return {
            name: estimated(*one, level, positive=name == "log_loss")
            for name, one in metrics(rows, threshold=threshold).items()
        }


def _curves(rows: Expectations, n_bins: int, level: float) -> dict[str, Any]:
    if rows.h.ndim == 1:
        return {name: within_unit(one) for name, one in curves(rows, n_bins, level).items()}
    return {"classes": tuple(_of_class(rows.of_class(c), n_bins, level) for c in range(rows.h.shape[1]))}


def _of_class(rows: Expectations, n_bins: int, level: float) -> ClassEvaluation:
    area = auc(rows)
    drawn = {name: within_unit(one) for name, one in curves(rows, n_bins, level).items()}
    return ClassEvaluation(None if area is None else estimated(*area, level).within(0.0, 1.0), **drawn)
