r"""How good a model of real labels (a purchase's value, a cost) is for single rows, from bags of their means alone.

Unlike a label 0 or 1, a real one has a square of its own, E[y²], which no E[a + y·g] tells. Where rows came to bags at
random, squares of bags do: with :math:`R_j = k_j(\alpha_j - p) - \sum_{i \in j}(h_i - \bar h)`,

.. math:: E[(y - h)^2] = E[R_j^2/k_j] + (p - \bar h)^2, \qquad \mathrm{Var}(y) = E[k_j (\alpha_j - p)^2], \qquad
          R^2 = 1 - E[(y - h)^2] / \mathrm{Var}(y)

less what declared noise adds. The first two are unbiased, their ratio nearly so; the mean label of a bin of predictions
is :math:`E[y 1_b]/P(b)` as for classifiers (`bagwise.expectations`). With one row per bag all are the ordinary numbers.

Where bags are grouped by features or have effects of their own, squares of bags hold what bags differ in. Where labels
differ by themselves (`rates`), a mean does not tell how labels of a bag spread. In all of these only what bags report
is known (`bagwise.bag_fit.value_fit`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from bagwise.bag_fit import ValueFit, value_fit
from bagwise.bags import Bags
from bagwise.dispersion import NOT_RANDOM
from bagwise.evaluation.groups import group_means
from bagwise.evaluation.result import Drawn, GroupRate
from bagwise.expectations import Expectations, check_enough
from bagwise.formation import FORMATION, Told, formation_of
from bagwise.metrics import Curve, Estimate, calibration, estimated
from bagwise.predictions import row_values
from bagwise.risk import risk_of
from bagwise.utils.parameters import LEVEL, check_parameters, whole
from bagwise.utils.text import decimals_of
from bagwise.utils.typing import Floats, NDArray

VALUE_METRICS = {"mse": "mean square error", "r2": "R²"}
"""Numbers of single rows: their names, and what they are called in a sentence."""

_CONSTRAINTS = {"level": LEVEL, "n_bins": whole(1), "formation": FORMATION}
_EACH_HALF = 10  # bags of the larger, and of the smaller, half that are compared at least
_CONSTANT = 1e-12  # of the mean square of labels, under which their variance is rounding


@dataclass(frozen=True, eq=False)
class ValueEvaluation(Drawn):
    """Label-free evaluation of a model of real labels on bags.

    Attributes
    ----------
    formation : Told
        How bags came about, and why that is thought: it decides what they tell.
    n_bags, n_rows : int
        What was used.
    level : float
        Of the intervals.
    bags : ValueFit
        How the model fits bags; there in every formation.
    mean_label, mean_prediction, bias : Estimate
        The mean label of rows, their mean prediction, and that less the mean label; there in every formation.
    mse, r2 : Estimate or None
        Mean square error E[(y − h)²] and R² of single rows; None if bags do not tell, R² also where all labels are the
        same.
    calibration : Curve or None
        Mean prediction and mean label in bins of the predictions; None if bags do not tell.
    groups : tuple of GroupRate
        Mean labels of the groups asked for (`by`), the largest first; none if bags do not tell.
    own_bags : bool
        Whether the model was fitted to these very bags.
    impossible : tuple of str
        Metrics that would lie beyond what is possible by more than their error: what was assumed of the bags, or of
        their noise, does not hold, or they are too few.
    """

    formation: Told
    n_bags: int
    n_rows: int
    level: float
    bags: ValueFit
    mean_label: Estimate
    mean_prediction: Estimate
    bias: Estimate
    mse: Estimate | None = None
    r2: Estimate | None = None
    calibration: Curve | None = None
    groups: tuple[GroupRate, ...] = ()
    own_bags: bool = False
    impossible: tuple[str, ...] = ()

    @property
    def withheld(self) -> bool:
        """Whether there are no numbers of single rows, since bags do not tell them."""
        return self.mse is None

    @property
    def doubt(self) -> str | None:
        """Why the numbers are missing, or flatter, in a sentence; None where nothing speaks against them."""
        if self.own_bags:
            return "The model was fitted to these very bags: measured on them it looks better than it is."
        if not self.withheld:
            return None
        why = self.formation.reason
        if self.impossible:
            named = " and ".join(VALUE_METRICS[name] for name in self.impossible)
            why = f"the {named} would lie beyond what is possible, as where bags are too few or noise was misdeclared"
        return f"How good this model is for single rows cannot be told from these bags: {why}."

    @property
    def known(self) -> str:
        """What is known of the model, and what is not, in a sentence."""
        if not self.withheld:
            return f"Known of single rows, if bags are what they look like ({self.formation.name})."
        least = self.bags.least_mse.low
        bound = f"the mean square error of single rows is at least {least:.{decimals_of(least)}f}" if least > 0 else ""
        return (
            f"Known of bags only: mean predictions explain {self.bags.explained:.0%} of the variation of mean labels "
            f"between bags; {bound or 'nothing is known of the error of single rows'}."
        )

    @property
    def lines(self) -> list[str]:
        """The numbers in words, line by line."""
        low, high = self.bias.low, self.bias.high
        off = "" if low <= 0 <= high else ", clearly too high" if low > 0 else ", clearly too low"
        told = [
            f"{'mean label':<22}{_shown(self.mean_label)}",
            f"{'mean prediction':<22}{_shown(self.mean_prediction)}",
            f"{'their difference':<22}{_shown(self.bias)}{off}",
        ]
        if self.mse is not None:
            told.append(f"{'mean square error':<22}{_shown(self.mse)}")
            told.append(f"{'R²':<22}{'not told: all bags report one mean' if self.r2 is None else self.r2}")
        else:
            told.append(
                f"{'square error of bags':<22}{_shown(self.bags.error)}; of the mean label "
                f"{_shown(self.bags.constant_error)}"
            )
        curve = self.calibration
        if curve is not None:
            told.append("mean label of rows by their prediction:")
            places = decimals_of(*curve.x, *curve.y)
            for x, y, least, most in zip(curve.x, curve.y, curve.y_low, curve.y_high, strict=True):
                told.append(
                    f"  predicted {x:>10,.{places}f}: {y:,.{places}f} [{least:,.{places}f}, {most:,.{places}f}]"
                )
        if self.groups:
            places = decimals_of(*(one.rate.value for one in self.groups), *(one.prediction for one in self.groups))
            for one in self.groups:
                rate = f"{one.rate.value:,.{places}f} [{one.rate.low:,.{places}f}, {one.rate.high:,.{places}f}]"
                told.append(f"  mean label of {one.value}: {rate} (predicted {one.prediction:,.{places}f})")
        return told

    def _repr_html_(self) -> str:
        told = [f"{self.formation}.", *([self.doubt] if self.doubt else []), self.known]
        return f"<pre>{escape(chr(10).join(self.lines))}</pre>" + "".join(f"<p>{escape(one)}</p>" for one in told)

    def __str__(self) -> str:
        lines = [f"{self.formation}", f"from {self.n_bags} bags, {self.level:.0%} intervals", *self.lines]
        lines += [self.known] if self.withheld else []
        return "\n".join([*lines, *([self.doubt] if self.doubt else [])])


def _shown(one: Estimate) -> str:
    """An estimate with four digits, whatever its size."""
    places = decimals_of(one.value, one.low, one.high)
    return f"{one.value:,.{places}f} [{one.low:,.{places}f}, {one.high:,.{places}f}]"


def measure_values(
    h: Floats,
    bags: Bags,
    *,
    X: Any = None,
    formation: str | Told = "auto",
    level: float = 0.95,
    n_bins: int = 10,
    by: NDArray[Any] | None = None,
) -> ValueEvaluation:
    """What bags of real labels tell of predictions, without a warning.

    h: (n,) in table order.  formation: a name, "auto", or what was told already.  by: (n,) groups of rows.
    """
    name = formation.name if isinstance(formation, Told) else formation
    check_parameters({"level": level, "n_bins": n_bins, "formation": name}, _CONSTRAINTS)
    h = row_values("h", h, bags)
    check_enough(bags)
    rows = Expectations(h, bags)
    label, said = rows.mean(rows.count), rows.mean(rows.sums)
    told = formation if isinstance(formation, Told) else formation_of_values(formation, h, X, bags)
    found = ValueEvaluation(
        formation=told,
        n_bags=len(bags),
        n_rows=bags.n_bagged,
        level=level,
        bags=value_fit(h, bags, level=level),
        mean_label=estimated(*label, level),
        mean_prediction=estimated(*said, level),
        bias=estimated(said[0] - label[0], said[1] - label[1], level),
    )
    if told.name != "random":
        return found
    found = _of_rows(found, rows)
    if found.withheld:
        return found
    groups = () if by is None else group_means(rows, by, level)
    return replace(found, calibration=calibration(rows, n_bins, level), groups=groups)


def _of_rows(found: ValueEvaluation, rows: Expectations) -> ValueEvaluation:
    """The evaluation with numbers of single rows, unless one of them cannot be."""
    bags, level = rows.bags, found.level
    mse, influence = risk_of(rows.gap, bags)
    variance, of_variance = _variance(rows)
    least = _CONSTANT * (variance + float(rows.prior) ** 2)
    error = estimated(mse, influence, level, positive=True)
    if variance <= least:
        if bags.noise_variance is not None:  # there is nothing left beside noise
            return replace(found, impossible=("r2",))
        return replace(found, mse=error.within(0.0, np.inf))
    share = mse / variance
    left = estimated(share, (influence - share * of_variance) / variance, level, positive=True)  # 1 − R²
    if left.leaves(0.0, np.inf) or not np.isfinite(left.standard_error):
        return replace(found, impossible=("mse",))
    left = left.within(0.0, np.inf)
    r2 = Estimate(1 - left.value, left.standard_error, 1 - left.high, 1 - left.low)
    return replace(found, mse=error.within(0.0, np.inf), r2=r2)


def _variance(rows: Expectations) -> tuple[float, Floats]:
    """Var(y) from bags, and the influence of each."""
    bags, n = rows.bags, rows.n
    value, influence = risk_of(rows.count - bags.size * rows.prior, bags)
    # Less noise of the mean label, which is the centre here and no error.
    return value + (0.0 if bags.noise_variance is None else float(bags.noise_variance.sum()) / n**2), influence


def formation_of_values(formation: str, h: Floats, X: Any, bags: Bags) -> Told:
    """The formation asked for; for "auto" the one that features, predictions and sizes of bags tell.

    How far means of real labels differ by chance is unknown; but what bags have beside their rows makes squares of
    residuals grow with the size of bags, where that differs.
    """
    if formation == "auto" and bags.equal_size == 1:
        return Told("random", "every row is a bag of its own: reports are labels")
    told = formation_of(formation, X, bags, h=h, values=True)
    if formation == "auto" and told.name == "random" and _grows_with_size(h, bags):
        return Told("effects", "large bags are farther from the model than random ones would be")
    return told


def _grows_with_size(h: Floats, bags: Bags) -> bool:
    """Whether R²/k is larger in the mean of the larger half of the bags than of the smaller, by more than chance."""
    large = bags.size > np.median(bags.size)
    if len(bags) < _EACH_HALF * 2 or large.sum() < _EACH_HALF:
        return False
    size, gap = bags.size.astype(float), bags.size * bags.outputs[:, 0] - bags.sum_table(h)
    square = (gap - size * (gap.sum() / size.sum())) ** 2 / size - bags.noise_per_row
    more, less = float(square[large].mean()), float(square[~large].mean())
    if min(more, less) <= 0:
        return False
    # The logarithm of the ratio, since squares vary by their own size.
    share = large.mean()
    influence = np.where(large, (square / more - 1) / share, (1 - square / less) / (1 - share))
    return estimated(np.log(more / less), influence, 1 - 2 * NOT_RANDOM).low > 0
