r"""How good a model is, from bags alone, in every formation.

Accuracy, Brier score, log loss, a calibration bin, a point of the ROC curve and the area under it are all of the form
E[a + y·g], which `bagwise.expectations` tells from bags: by residuals where rows came to bags at random, by the slope
of bag means on proportions where rates of bags differ. With one row per bag every estimate equals the ordinary one from
individual labels.

Where bags are grouped by features, or have effects of their own beside that, bags do not tell how good a model is for
single rows. Then there is no number for it, but what is known in every formation (`bagwise.bag_fit`): how well the
model fits bags, what its accuracy would be if it were right, and between which numbers it lies whatever is true. A few
individual labels settle it (`labels`).
"""

import warnings
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from bagwise import dispersion
from bagwise.bag_fit import BagFit, bag_fit
from bagwise.bags import Bags, as_bags
from bagwise.bags.reading import name as shown
from bagwise.dispersion import NOT_RANDOM
from bagwise.expectations import Expectations, check_enough
from bagwise.formation import FORMATION, FORMATIONS, Told, formation_of
from bagwise.formation.strata import formation_inside
from bagwise.metrics import (
    METRICS,
    Curve,
    Estimate,
    auc,
    curves,
    estimated,
    metrics,
    possible,
    within_unit,
)
from bagwise.prediction_powered import of_labels
from bagwise.predictions import fitting_bags, predicted, row_values
from bagwise.risk import own_risk
from bagwise.utils.parameters import LEVEL, ParameterError, check_level, check_parameters, number, one_of, whole
from bagwise.utils.text import number_of
from bagwise.utils.typing import ArrayLike, Floats, Integers, NDArray

__all__ = [
    "BagsNotRandomWarning",
    "ClassEvaluation",
    "Curve",
    "Estimate",
    "Evaluation",
    "GroupRate",
    "differences",
    "evaluate",
    "label_linear",
    "risk",
]

ENOUGH_BAGS = 30
"""From which on intervals are not rough."""

_TELLING = one_of(*(name for name, one in FORMATIONS.items() if one.evaluation))
_CONSTRAINTS = {"level": LEVEL, "n_bins": whole(1), "threshold": number(least=0, most=1), "formation": FORMATION}


class BagsNotRandomWarning(UserWarning):
    """Bags do not tell how good a model is for single rows."""


@dataclass(frozen=True, eq=False)
class ClassEvaluation:
    """One of several classes against the rest.

    Attributes
    ----------
    auc, calibration, roc : Estimate, Curve, Curve or None
        None where too few labels are of this class.
    """

    auc: Estimate | None = None
    calibration: Curve | None = None
    roc: Curve | None = None


@dataclass(frozen=True, eq=False)
class GroupRate:
    """The rate of positive labels in a group of rows.

    Attributes
    ----------
    value : str
        What rows of the group have in common.
    n_rows : int
        How many rows these are.
    rate : Estimate
        Share of positive labels among them.
    prediction : float
        The model's mean prediction for them.
    """

    value: str
    n_rows: int
    rate: Estimate
    prediction: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Label-free evaluation of a model on bags.

    Attributes
    ----------
    formation : Told
        How bags came about, and why that is thought: it decides what they tell.
    n_bags, n_rows : int
        What was used.
    level : float
        Of the intervals.
    bags : BagFit
        How the model fits bags, and what follows from that alone; there in every formation.
    brier, accuracy, log_loss, auc : Estimate or None
        Of single rows (for several classes, Brier is summed over them and AUC the mean of classes against the rest);
        None if bags do not tell.
    calibration, roc : Curve or None
        For two classes; None otherwise, or if bags do not tell.
    classes : tuple of ClassEvaluation
        One for each of several classes.
    groups : tuple of GroupRate
        Rates of the groups asked for (`by`), the largest first.
    n_strata, n_labels : int
        Strata that were measured by themselves; rows whose labels were given.
    own_bags : bool
        Whether the model was fitted to these very bags.
    impossible : tuple of str
        Metrics that would lie beyond what is possible by more than their error (see `Estimate.leaves`), or are not
        determined: what was assumed of the bags does not hold, or they are too few.
    """

    formation: Told
    n_bags: int
    n_rows: int
    level: float
    bags: BagFit
    brier: Estimate | None = None
    accuracy: Estimate | None = None
    log_loss: Estimate | None = None
    auc: Estimate | None = None
    calibration: Curve | None = None
    roc: Curve | None = None
    classes: tuple[ClassEvaluation, ...] = ()
    groups: tuple[GroupRate, ...] = ()
    n_strata: int = 1
    n_labels: int = 0
    own_bags: bool = False
    impossible: tuple[str, ...] = ()

    @property
    def withheld(self) -> bool:
        """Whether there are no numbers of single rows, since bags do not tell them."""
        return self.accuracy is None

    @property
    def doubt(self) -> str | None:
        """Why the numbers are missing, or flatter, in a sentence; None where nothing speaks against them."""
        if self.own_bags and not self.n_labels:
            return "The model was fitted to these very bags: measured on them it looks better than it is."
        if not self.withheld:
            return None
        if self.impossible:
            named = " and ".join(METRICS[name] for name in self.impossible)
            why = f"the {named} would lie beyond what is possible, as where bags are too few or of another formation"
        else:
            why = self.formation.reason
        return f"How good this model is for single rows cannot be told from these bags: {why}."

    @property
    def known(self) -> str:
        """What is known of the model, and what is not, in a sentence."""
        inside = f"between {self.bags.least_accuracy.low:.3f} and {self.bags.most_accuracy.high:.3f}"
        if self.n_labels:
            return f"Known of single rows from {self.n_labels:,} labels, in every formation."
        if not self.withheld:
            return f"Known of single rows, if bags are what they look like ({self.formation.name})."
        fits = "fits" if self.bags.gain.low > 0 else "does not clearly fit"
        return (
            f"Known of bags only: the model {fits} them better than the mean label does; its accuracy on single rows "
            f"lies {inside} whatever is true, and would be {self.bags.implied['accuracy']:.3f} if it is right."
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the calibration, of single rows or of bags, as `BagCalibrationDisplay` does.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to; a figure of its own by default.

        Returns
        -------
        BagCalibrationDisplay
        """
        from bagwise.displays import BagCalibrationDisplay

        return BagCalibrationDisplay(self).plot(ax)

    def _repr_html_(self) -> str:
        numbers = {METRICS[name]: getattr(self, name) for name in METRICS}
        if self.withheld:
            numbers = {"log-likelihood of a bag over that of the mean label": self.bags.gain}
        rows = "".join(f"<tr><th>{name}</th><td>{one}</td></tr>" for name, one in numbers.items() if one is not None)
        told = [f"{self.formation}.", *([self.doubt] if self.doubt else []), self.known]
        return f"<table>{rows}</table>" + "".join(f"<p>{escape(one)}</p>" for one in told)

    def __str__(self) -> str:
        lines = [f"{self.formation}", f"from {self.n_bags} bags, {self.level:.0%} intervals"]
        estimates = {name: getattr(self, name) for name in METRICS}
        lines += [f"{name:<10}{one}" for name, one in estimates.items() if one is not None]
        if self.withheld:
            lines += [f"{'gain':<10}{self.bags.gain} log-likelihood of a bag over that of the mean label", self.known]
        return "\n".join([*lines, *([self.doubt] if self.doubt else [])])


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
) -> Evaluation:
    """Brier score, accuracy, log loss, AUC, calibration and ROC curve of single rows, as far as bags tell them.

    At least 3 bags are needed, and below about 30 intervals are rough. Where bags are grouped by features, or an
    estimate would lie beyond what is possible, there are no numbers for single rows, and a `BagsNotRandomWarning` says
    why; `Evaluation.bags` holds what is known all the same.

    Parameters
    ----------
    model : classifier or array
        A fitted classifier with `predict_proba`; or its predictions: (n,) probabilities of the positive class, or
        (n, classes). Of two classes, the second is the one whose proportion bags report.
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
        Groups of rows whose rates of positive labels are asked for.
    threshold : float
        Above which the class whose proportion bags report is said, where there are two.
    level : float
        Of the confidence intervals.
    n_bins : int
        Bins of the calibration curve and thresholds of the ROC curve, at quantiles of the predictions.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> h = rng.uniform(size=64000)
    >>> y = rng.random(64000) < h
    >>> ids = bw.random_bags(64000, size=64, random_state=0)
    >>> result = evaluate(h, None, bw.aggregate(y, ids), bags=ids)
    >>> print(result.accuracy)
    0.7721 [0.7448, 0.7994]
    """
    h = predicted(model, X)
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


def warn_of_doubt(found: Evaluation, *, stacklevel: int = 3) -> None:
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
    inside = None if strata is None else strata_of(strata, bags)
    told = formation if isinstance(formation, Told) else _told(formation, h, X, bags, inside)
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
                found = replace(found, groups=_group_rates(rows, by, level))
    if labels is not None:
        told_by_labels = of_labels(h, bags, labels, threshold=threshold, level=level)
        found = replace(found, impossible=(), **told_by_labels)
    return found


def _told(formation: str, h: Floats, X: Any, bags: Bags, strata: Integers | None) -> Told:
    if (bags.size == 1).all() and formation == "auto":
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


def strata_of(values: NDArray[Any], bags: Bags) -> Integers:
    """(m,) the number of the stratum of each bag."""
    import pandas as pd

    codes, names = pd.factorize(values[bags.order], use_na_sentinel=False)
    first = codes[bags.offsets[:-1]]
    mixed = codes != bags.repeat(first)
    if mixed.any():
        key = bags.keys[int(bags.code[bags.order][np.argmax(mixed)])]
        raise ParameterError("strata", f"has several values in bag {shown(key)}: a bag must lie in one stratum.")
    count = np.bincount(first, minlength=len(names))
    if count.min() < 3:
        few = int(np.argmin(count))
        raise ParameterError(
            "strata",
            f"has the value {shown(names[few])} in {number_of(int(count[few]), 'bag')} only: at least 3 are needed in "
            "each stratum; put such strata together.",
        )
    return np.asarray(first, dtype=np.intp)


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


def _group_rates(rows: Expectations, by: NDArray[Any], level: float) -> tuple[GroupRate, ...]:
    """E[y·1_group]/P(group) of every group."""
    import pandas as pd

    if rows.h.ndim == 2:
        raise ParameterError("by", "asks for rates of positive labels, of which there are several classes here.")
    bags = rows.bags
    codes, names = pd.factorize(by[bags.order], use_na_sentinel=False)
    cell = bags.repeat(np.arange(rows.m)) * len(names) + codes
    inside, h = (
        np.bincount(cell, weights, minlength=rows.m * len(names)).reshape(rows.m, -1).astype(float)
        for weights in (None, rows.h[bags.order])
    )
    share, share_influence = rows.mean(inside)
    value, influence = rows.positives(h, inside)
    rate, influence = value / share, (influence - value / share * share_influence) / share
    n, said = inside.sum(axis=0), h.sum(axis=0) / inside.sum(axis=0)
    return tuple(
        GroupRate(str(names[g]), int(n[g]), estimated(rate[g], influence[:, g], level).within(0, 1), float(said[g]))
        for g in np.argsort(-n, kind="stable")
    )


def differences(
    h: ArrayLike,
    other: ArrayLike,
    bags: Bags,
    *,
    formation: str = "random",
    strata: NDArray[Any] | None = None,
    level: float = 0.95,
) -> dict[str, Estimate]:
    """Brier score, accuracy, log loss and, for two classes, AUC of predictions less those of others on the same bags.

    Both meet the same bags, whose luck they share: the interval is narrower than those of the two let one think.

    Parameters
    ----------
    h, other : array of shape (n,) or (n, classes)
        Predictions as `evaluate` takes them.
    bags, level : Bags, float
        Bags held out from both models, and the level of the confidence intervals.
    formation : {"random", "rates"}
        How they came about.
    strata : array of shape (n,), optional
        What bags are random inside of, as in `evaluate`.

    Returns
    -------
    dict of str to Estimate
        By the name of the metric.

    Examples
    --------
    >>> bags = Bags.singletons([0, 1, 1, 0])
    >>> found = differences([0.2, 0.7, 0.9, 0.4], [0.5, 0.5, 0.5, 0.5], bags)
    >>> round(found["accuracy"].value, 6), round(found["brier"].value, 6)
    (0.5, -0.175)
    """
    check_level(level)
    check_parameters({"formation": formation}, {"formation": _TELLING})
    inside = None if strata is None else strata_of(strata, bags)
    one, two = (
        metrics(Expectations(one, fitting_bags(one, bags), by_slope=formation == "rates", strata=inside))
        for one in (predicted(h, None), predicted(other, None))
    )
    return {
        name: estimated(value - two[name][0], influence - two[name][1], level)
        for name, (value, influence) in one.items()
        if name in two
    }


def label_linear(
    h: ArrayLike,
    g: ArrayLike,
    bags: Bags,
    *,
    a: ArrayLike | float = 0.0,
    formation: str = "random",
    level: float = 0.95,
) -> Estimate:
    """E[a + y·g] from bags, for row functions a and g of your own.

    Parameters
    ----------
    h, g, a : array of shape (n,)
        Predictions, which sharpen the estimate in random bags, and values of g, in table order; values of a, or one
        number.
    bags, level : Bags, float
        Bags of the rows, and the level of the confidence interval.
    formation : {"random", "rates"}
        How they came about.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> bags = Bags.singletons([0, 1, 1, 0])
    >>> label_linear([0.2, 0.7, 0.9, 0.4], [1.0, 1.0, 0.0, 0.0], bags).value  # E[y g], one row per bag: the plain mean
    0.25
    """
    check_level(level)
    values, weights = row_values("h", h, bags), row_values("g", g, bags)
    rows = row_values("a", np.full(bags.n_rows, a) if np.ndim(a) == 0 else a, bags)
    check_parameters({"formation": formation}, {"formation": _TELLING})
    return estimated(*Expectations(values, bags, by_slope=formation == "rates").expectation(rows, weights), level)


def risk(h: ArrayLike, bags: Bags, *, level: float = 0.95) -> Estimate:
    r"""E[(y − h)²] from bags, for real labels too: the debiased square loss with p and E[h] taken from these bags.

    .. math:: \Bigl(1 - \tfrac{1}{n}\Bigr) \tfrac{1}{m-1} \sum_j R_j^2/k_j + (p - \bar h)^2

    The divisor m − 1 makes it exactly unbiased although p and E[h] are estimated; what declared noise adds is
    subtracted. Squared noise has heavy tails: where it dominates, intervals of 95% cover somewhat less (91% measured).

    Parameters
    ----------
    h : array of shape (n,)
        Predictions in table order.
    bags, level : Bags, float
        Random bags of the rows, held out from the model, and the level of the confidence interval.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> risk([0.2, 0.7, 0.9, 0.4], Bags.singletons([0, 1, 1, 0]))
    Estimate(value=0.075..., standard_error=..., low=..., high=...)
    """
    check_level(level)
    gap = Expectations(row_values("h", h, bags), bags).gap
    return estimated(*own_risk(gap, bags.size, bags.noise_variance), level)
