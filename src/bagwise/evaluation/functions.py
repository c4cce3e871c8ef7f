"""Single numbers from bags: of two models, of row functions of your own, of real labels."""

from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.evaluation.strata import stratum_of_bags
from bagwise.expectations import Expectations
from bagwise.formation import FORMATIONS
from bagwise.metrics import Estimate, estimated, metrics
from bagwise.predictions import fitting_bags, predicted, row_values
from bagwise.risk import own_risk
from bagwise.utils.parameters import ParameterError, check_level, check_parameters, one_of
from bagwise.utils.typing import ArrayLike, NDArray

_TELLING = one_of(*(name for name, one in FORMATIONS.items() if one.evaluation))


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
    inside = None if strata is None else stratum_of_bags(strata, bags)
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
    if bags.weight is not None:
        said = "is not known to risk, which is of random rows: use evaluate, which asks how bags came about."
        raise ParameterError("sample_weight", said)
    rows = Expectations(row_values("h", h, bags), bags)
    return estimated(*own_risk(rows.gap, bags.size, rows.noise.mean(axis=1)), level)
