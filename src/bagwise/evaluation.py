r"""How good a model is, from bags alone.

Everything rests on one identity. For any function g of a row, any model h and random bags,

.. math:: E[y\,g] = E[h\,g] + (p - E[h])\,E[g] + E\Bigl[R_j \sum_{i \in j}(g_i - E[g])\Bigr]/k

whose first two terms need no label and whose last is a mean over bags of terms with O(1) variance, smaller the
better h is. Accuracy, Brier score, log loss, a calibration bin, a point of the ROC curve and the area under it are
all of the form E[a + y g]. Noise on the counts has mean zero and is independent of g: no bias, but wider intervals.

With one row per bag every estimate equals the ordinary one from individual labels.

Where bags are not random the identity says nothing: its numbers may be off by any amount, and beyond what is possible.
So `evaluate` withholds them where the spread between bags, or what comes out, tells that bags are not random.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise.bags import Bags, as_bags
from bagwise.dispersion import NOT_RANDOM, Finding, dispersions, feature_dispersions
from bagwise.metrics import METRICS, Curve, Estimate, Identity, curves, estimated, metrics, possible, within_unit
from bagwise.predictions import fitting_bags, predicted, row_values
from bagwise.risk import own_risk
from bagwise.utils.parameters import LEVEL, check_level, check_parameters, whole
from bagwise.utils.typing import ArrayLike, Floats

__all__ = ["BagsNotRandomWarning", "Curve", "Estimate", "Evaluation", "differences", "evaluate", "label_linear", "risk"]

ENOUGH_BAGS = 30
"""From which on intervals are not rough."""


class BagsNotRandomWarning(UserWarning):
    """The bags are not random: label-free estimates are withheld, or biased where they were asked for all the same."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Label-free evaluation of a model on bags.

    Attributes
    ----------
    brier, accuracy, log_loss : Estimate or None
        Of single rows (for several classes, Brier is summed over them); None if withheld.
    auc, calibration, roc : Estimate, Curve, Curve or None
        For two classes only, otherwise None; None if withheld.
    n_bags, n_rows : int
        What was used.
    level : float
        Of the intervals.
    randomness : float
        p-value of the hypothesis that the bags are random, by proportions, predictions and features.
    not_random : tuple of Finding
        What speaks against it, where that is below 0.001, the least likely first.
    impossible : tuple of str
        Metrics that came out beyond what is possible, by more than their error (see `Estimate.leaves`).
    """

    n_bags: int
    n_rows: int
    level: float
    randomness: float
    brier: Estimate | None = None
    accuracy: Estimate | None = None
    log_loss: Estimate | None = None
    auc: Estimate | None = None
    calibration: Curve | None = None
    roc: Curve | None = None
    not_random: tuple[Finding, ...] = ()
    impossible: tuple[str, ...] = ()

    @property
    def withheld(self) -> bool:
        """Whether there are no numbers, since they would say nothing."""
        return self.accuracy is None

    def beyond(self, name: str) -> bool:
        """Whether a number lies where no such number can: what was assumed of the bags does not hold."""
        found: Estimate | None = getattr(self, name)
        least, most = possible(name, 2 if self.auc is None else 1)
        return found is not None and not least <= found.value <= most

    @property
    def doubt(self) -> str | None:
        """Why the numbers say nothing, in a sentence; None where nothing speaks against them."""
        if self.not_random:
            most = self.not_random[0]
            why = f"they are not random ({most}), so that its label-free numbers are biased, maybe grossly"
        elif self.impossible:
            named = " and ".join(METRICS[name] for name in self.impossible)
            why = f"its label-free {named} would lie beyond what is possible, as where bags are too few or not random"
        else:
            return None
        return f"How good this model is cannot be told from these bags: {why}."

    def __str__(self) -> str:
        head = f"from {self.n_bags} bags, {self.level:.0%} intervals"
        estimates = {name: getattr(self, name) for name in METRICS}
        if self.withheld:
            lines = [f"{name:<10}–" for name in estimates]
        else:
            lines = [f"{name:<10}{estimate}" for name, estimate in estimates.items() if estimate is not None]
        return "\n".join([head, *lines, *([self.doubt] if self.doubt else [])])


def evaluate(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    bags: ArrayLike | Bags | None = None,
    noise_variance: ArrayLike | None = None,
    level: float = 0.95,
    n_bins: int = 10,
    even_if_not_random: bool = False,
) -> Evaluation:
    """Brier score, accuracy, log loss, AUC, calibration and ROC curve of single rows, from bags alone.

    At least 3 bags are needed, and below about 30 intervals are rough: of those of 95%, with bags of 64, we saw 92, 93
    and 95% cover with 5, 10 and 30 bags for a good model, 75, 83 and 91% for one worse than chance.

    Where bags are plainly not random, because proportions, predictions or features vary between them as they hardly
    would by chance (p < 0.001) or because an estimate lies beyond what is possible by more than its error, all numbers
    are None and a `BagsNotRandomWarning` says why.

    Parameters
    ----------
    model : classifier or array
        A fitted classifier with `predict_proba` whose classes are 0, 1, …; or its predictions: (n,) probabilities of
        class 1, or (n, classes).
    X : array or table of shape (n, features), or None
        Held-out rows. Where predictions are given, they serve to see whether bags are random; None for no such look.
    y, bags, noise_variance : array, Bags or None
        As in `fit` and `Bags.from_rows`. The bags must be random (see `bagwise.diagnose`) and new to the model.
    level : float
        Of the confidence intervals.
    n_bins : int
        Bins of the calibration curve and thresholds of the ROC curve, at quantiles of the predictions.
    even_if_not_random : bool
        Give the numbers as they come: unbiased if the bags are random, neither withheld nor kept in the possible range.

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
    0.7716 [0.7452, 0.7980]
    """
    h = predicted(model, X)
    given = as_bags(y, bags, len(h), noise_variance=noise_variance, whole_labels=True)
    given.check_proportions()
    features = [] if X is None else feature_dispersions(X, given)
    result = measure(h, given, features=features, level=level, n_bins=n_bins, even_if_not_random=even_if_not_random)
    warn_of_doubt(result)
    return result


def warn_of_doubt(found: Evaluation, *, stacklevel: int = 3) -> None:
    """Say why numbers are withheld, or not to be relied on."""
    if found.doubt is not None:
        way = " Pass even_if_not_random=True to see them all the same." if found.withheld else ""
        warnings.warn(f"{found.doubt}{way}", BagsNotRandomWarning, stacklevel=stacklevel)


def measure(
    h: Floats,
    bags: Bags,
    *,
    features: Sequence[Finding] = (),
    level: float = 0.95,
    n_bins: int = 10,
    even_if_not_random: bool = False,
) -> Evaluation:
    """The same from predictions and bags, without a warning.

    h: (n,) or (n, classes), as `predicted` gives them.  features: what `dispersion.feature_dispersions` found.
    """
    check_parameters({"level": level, "n_bins": n_bins}, {"level": LEVEL, "n_bins": whole(1)})
    identity = Identity(h, fitting_bags(h, bags))
    found = {name: estimated(*one, level) for name, one in metrics(identity).items()}
    drawn = curves(identity, n_bins, level)
    spread = sorted(dispersions(identity.bags, h=h, features=features), key=lambda one: one.p_value)
    not_random = tuple(one for one in spread if one.p_value < NOT_RANDOM)
    impossible = tuple(name for name in METRICS if name in found and found[name].leaves(*possible(name, h.ndim)))
    told: dict[str, Any] = {**found, **drawn}
    if not even_if_not_random:
        told = {name: one.within(*possible(name, h.ndim)) for name, one in found.items()}
        told |= {name: within_unit(one) for name, one in drawn.items()}
    return Evaluation(
        n_bags=identity.m,
        n_rows=identity.n,
        level=level,
        randomness=spread[0].p_value if spread else 1.0,
        not_random=not_random,
        impossible=impossible,
        **(told if even_if_not_random or not (not_random or impossible) else {}),
    )


def differences(h: ArrayLike, other: ArrayLike, bags: Bags, *, level: float = 0.95) -> dict[str, Estimate]:
    """Brier score, accuracy, log loss and, for two classes, AUC of predictions less those of others on the same bags.

    Both meet the same bags, whose luck they share: the interval is narrower than those of the two let one think.

    Parameters
    ----------
    h, other : array of shape (n,) or (n, classes)
        Predictions as `evaluate` takes them.
    bags, level : Bags, float
        Random bags, held out from both models, and the level of the confidence intervals.

    Returns
    -------
    dict of str to Estimate
        By the name of the metric.

    Examples
    --------
    >>> bags = Bags.singletons([0, 1, 1, 0])
    >>> found = differences([0.2, 0.7, 0.9, 0.4], [0.5, 0.5, 0.5, 0.5], bags)
    >>> round(found["accuracy"].value, 6), round(found["auc"].value, 6)
    (0.5, 0.5)
    """
    check_level(level)
    one, two = (metrics(Identity(one, fitting_bags(one, bags))) for one in (predicted(h, None), predicted(other, None)))
    return {
        name: estimated(value - two[name][0], influence - two[name][1], level)
        for name, (value, influence) in one.items()
    }


def label_linear(
    h: ArrayLike, g: ArrayLike, bags: Bags, *, a: ArrayLike | float = 0.0, level: float = 0.95
) -> Estimate:
    """E[a + y·g] from bags, for row functions a and g of your own.

    Parameters
    ----------
    h, g, a : array of shape (n,)
        Predictions and values of g, in table order; values of a, or one number.
    bags, level : Bags, float
        Random bags of the rows, and the level of the confidence interval.

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
    return estimated(*Identity(values, bags).expectation(rows, weights), level)


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
    identity = Identity(row_values("h", h, bags), bags)
    return estimated(*own_risk(identity.gap, bags.size, bags.noise_variance), level)
