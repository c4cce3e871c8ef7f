r"""Have things changed since a model was fitted? What it says of bags that came later, beside what they report.

If nothing changed, the labels of new bags are on average what the model expects: with :math:`r_j = k_j(\alpha_j -
\bar h_j)` the residual of bag j, :math:`\sum_j r_j / \sum_j k_j` is 0 up to an error that the scatter of the residuals
themselves tells, in every formation. The model's own mean is known no better than its bags allowed, so the error is
wider by that. Beyond the mean, held-out new bags tell by their likelihood what would serve them better: the model as it
is, the model moved to their mean label, or a new one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from bagwise import ranks
from bagwise.bags import Bags, as_bags
from bagwise.folds import folds_of
from bagwise.gains import HeldOut
from bagwise.linear import quick
from bagwise.log_odds import prior_of, prior_of_classes, scores_of
from bagwise.losses.log_likelihood import log_likelihoods
from bagwise.metrics import Estimate, estimated
from bagwise.predictions import fitting_bags, predicted
from bagwise.utils.parameters import NONE, check_level, check_parameters, number
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.text import p_digits, with_error
from bagwise.utils.typing import ArrayLike, Floats

_FOLDS = 5


@dataclass(frozen=True)
class Drift:
    """What bags that came later say of a model.

    Attributes
    ----------
    expected, reported : tuple of float
        The mean prediction for the new rows and their mean label; of each class.
    error : tuple of float
        The standard error of the difference, which respects bags, those of the model included.
    p_value : float
        How often the two differ as much if nothing changed; of several classes, the least times their number.
    moved : Estimate or None
        Log-likelihood of a held-out new bag by the model moved to the mean label of other new bags, over that by the
        model as it is; None where there are too few bags to hold any out.
    anew : Estimate or None
        The same of a quick new model, fitted to other new bags; None where there is none.
    n_bags, n_rows : int
        New bags and their rows.
    level : float
        Where nothing changed, a drift is told at most this often.

    Examples
    --------
    >>> Drift((0.2,), (0.25,), (0.01,), 1e-6, None, None, 100, 6400, 0.01).drifted
    True
    """

    expected: tuple[float, ...]
    reported: tuple[float, ...]
    error: tuple[float, ...]
    p_value: float
    moved: Estimate | None
    anew: Estimate | None
    n_bags: int
    n_rows: int
    level: float

    @property
    def drifted(self) -> bool:
        """Whether labels are rarer or more frequent than the model expects by more than chance."""
        return self.p_value < self.level

    @property
    def verdict(self) -> str:
        """What was found, in a sentence."""
        p = f"p {p_digits(self.p_value)}"
        bags = f"{self.n_bags:,} new bags"
        if not math.isfinite(self.p_value):
            return f"Of {bags}, too few to tell, nothing can be said about a drift."
        pairs = zip(self.expected, self.reported, self.error, strict=True)
        said = "; ".join(f"{h:.4g} expected and {y:.4g} reported ({with_error(y - h, e)})" for h, y, e in pairs)
        if self.drifted:
            return f"Labels have drifted since the model was fitted: a mean label of {said}, {p}, in {bags}."
        return f"No drift of the mean label: {said}, {p}, in {bags}."

    def __str__(self) -> str:
        lines = [self.verdict]
        told = (("Moved to the new mean label, the model", self.moved), ("A quick new model", self.anew))
        for what, one in told:
            if one is not None:
                figures = with_error(one.value, one.standard_error)
                better = (
                    "is better" if one.low > 0 else "is worse" if one.high < 0 else "is not clearly better or worse"
                )
                lines.append(f"{what} {better} on held-out new bags: log-likelihood of a bag {figures}.")
        return "\n".join(lines)


def drift(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    bags: ArrayLike | Bags | None = None,
    noise_variance: ArrayLike | None = None,
    fitted_bags: float | None = None,
    fitted_rows: float | None = None,
    level: float = 0.01,
    quick_model: bool = True,
    random_state: RandomState = 0,
) -> Drift:
    """Compare what a model says of bags that came later with their reports.

    Parameters
    ----------
    model : classifier or array of shape (n,) or (n, classes)
        With `predict_proba`; or its predictions for the rows.
    X : array or table of shape (n, features)
        The new rows.
    y, bags, noise_variance : array, Bags or None
        As in `fit` and `Bags.from_rows`, of the new rows.
    fitted_bags, fitted_rows : float, optional
        What the model was fitted to, which says how well it knows its own mean; None takes that for certain. Of rows
        with weights, people.
    level : float
        Where nothing changed, a drift is told at most this often.
    quick_model : bool
        Fit one to the new bags, which takes about a second.
    random_state : int, Generator or None
        For the bags that are held out.

    Returns
    -------
    Drift

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(6400, 2))
    >>> ids = bw.random_bags(6400, size=64, random_state=0)
    >>> y = rng.random(6400) < 1 / (1 + np.exp(-X[:, 0]))
    >>> later = rng.random(6400) < 1 / (1 + np.exp(-X[:, 0] - 0.5))
    >>> h = 1 / (1 + np.exp(-X[:, 0]))
    >>> [drift(h, X, bw.aggregate(one, ids), bags=ids, quick_model=False).drifted for one in (y, later)]
    [False, True]
    """
    check_level(level)
    counts = {"fitted_bags": fitted_bags, "fitted_rows": fitted_rows}
    check_parameters(counts, dict.fromkeys(counts, number(above=0) | NONE))
    n, table = ranks.columns_of(X)
    given = as_bags(y, bags, n, noise_variance=noise_variance, whole_labels=True)
    h = predicted(model, X, bags)
    given = fitting_bags(h, given)
    rng = generator(random_state)
    wider = 1 + max(len(given) / (fitted_bags or math.inf), given.n_people / (fitted_rows or math.inf))
    expected, reported, error, p_value = _mean(h[given.order], given, wider)
    return Drift(
        expected=expected,
        reported=reported,
        error=error,
        p_value=p_value,
        moved=_moved(h, given, rng, level),
        anew=_anew(h, table, given, rng, level) if quick_model else None,
        n_bags=len(given),
        n_rows=given.n_bagged,
        level=level,
    )


def _mean(h: Floats, bags: Bags, wider: float) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], float]:
    """Mean predictions and labels, errors of their differences, and the p-value.  wider: factor of their variance."""
    size = bags.size.astype(float)
    mean = bags.mean(h).reshape(len(bags), -1)
    expected, reported = (np.average(one, axis=0, weights=size) for one in (mean, bags.outputs))
    if len(bags) < 3:
        unknown = (float("nan"),) * len(expected)
        return tuple(expected.tolist()), tuple(reported.tolist()), unknown, float("nan")
    difference = reported - expected
    influence = size[:, None] * (bags.outputs - mean - difference) * len(bags) / size.sum()
    error = np.sqrt(wider * (influence**2).sum(axis=0) / (len(bags) * (len(bags) - 1)))
    second, fourth = ((influence**power).mean(axis=0) for power in (2, 4))
    kurtosis = np.where(second > 0, fourth / np.where(second > 0, second, 1) ** 2, 3.0)
    freedom = np.clip(2 * len(bags) / np.maximum(kurtosis - 1, 1e-9), 1, len(bags) - 1)
    far = np.abs(difference) / np.maximum(error, 1e-300)
    p = float(min(1.0, (2 * special.stdtr(freedom, -far)).min() * len(expected)))
    return tuple(expected.tolist()), tuple(reported.tolist()), tuple(error.tolist()), p


def _moved(h: Floats, bags: Bags, rng: np.random.Generator, level: float) -> Estimate | None:
    """What it gains to move a model to the mean label of other new bags."""
    s, gains = scores_of(h), []
    for fold in folds_of(len(bags), _FOLDS, rng, enough=len(bags)):
        train, held = bags.take(fold.train), bags.take(fold.held_out)
        prior = prior_of(train) if s.ndim == 1 else prior_of_classes(train)
        part = HeldOut.of(prior, train, s[train.order], s[held.order], held)
        gains.append(part.log_likelihoods(np.ones(1))[0] - log_likelihoods(part.scores, held))
    return _estimate(gains, level)


def _anew(h: Floats, table: Any, bags: Bags, rng: np.random.Generator, level: float) -> Estimate | None:
    """What a quick model that is fitted to other new bags gains."""
    if h.ndim == 2:
        return None
    columns = [(name, ranks.scores_of(values[bags.order], name, bags.weight)) for name, values in table]
    found = quick.quick_model(columns, [False] * len(columns), [], bags, rng)
    if found is None:
        return None
    place, gains = {key: j for j, key in enumerate(bags.keys.tolist())}, []
    for part in found.parts:
        held = bags.take([place[key] for key in part.bags.keys.tolist()])
        as_it_is = log_likelihoods(scores_of(h[held.order]), held)
        gains.append(part.log_likelihoods(np.ones(1))[0] - as_it_is)
    return _estimate(gains, level)


def _estimate(gains: list[Floats], level: float) -> Estimate | None:
    if not gains or sum(map(len, gains)) < 3:
        return None
    every = np.concatenate(gains)
    return estimated(float(every.mean()), every - every.mean(), 1 - level)
