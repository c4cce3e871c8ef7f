r"""Mean map (Quadrianto et al., 2009): logistic regression from class means that bags reveal.

Logistic regression meets the labels only in :math:`E[y\,x] = p\,\mu_1`, with :math:`\mu_c = E[x \mid y = c]`. If a bag
tells nothing about x beyond its proportions, :math:`\bar x_j \approx \sum_c \alpha_{jc}\,\mu_c` gives them.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from bagwise import segment
from bagwise.bags import Bags
from bagwise.base import BagClassifier
from bagwise.data.rows import Reads
from bagwise.explanation.contributions import LOG_ODDS, LOGITS, Contributions, linear_contributions
from bagwise.folds import folds_of
from bagwise.gains import HeldOut, best_stretch, tell_gain
from bagwise.linear.probabilities import some_bags
from bagwise.log_odds import prior_of, prior_of_classes, shift_to
from bagwise.losses.log_likelihood import log_likelihoods
from bagwise.numeric import LinearPredictor, check_finite_features
from bagwise.utils.deadline import check_time
from bagwise.utils.parameters import NONE, Constraint, number, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import Floats, Integers

_ALPHAS = np.logspace(-2, 2, 5)
_ENOUGH = 128  # bags held out; a fit takes long
_CLOSE, _NEARLY = 1e-8, 1e-4  # gradients at which the search ends; the latter where only the penalty is chosen
_USUAL_ALPHA = 0.3


def class_means(centroids: Floats, size: Integers, proportion: Floats) -> Floats:
    r"""(classes, d) minimisers of :math:`\sum_j k_j \|\bar x_j - \sum_c \alpha_{jc} \mu_c\|^2`, the smallest if many.

    centroids: (m, d).  proportion: (m, classes).

    >>> class_means(np.array([[1.0], [2.0]]), np.array([4, 4]), np.array([[1.0, 0.0], [0.5, 0.5]])).T.round(6)
    array([[1., 3.]])
    """
    root = np.sqrt(size)[:, None]  # a centroid of k rows has a variance of order 1/k
    return np.linalg.lstsq(root * proportion, root * centroids)[0]


class BagMeanMapClassifier(LinearPredictor, BagClassifier):
    r"""Logistic regression from bags by the mean map.

    Minimises :math:`\tfrac{1}{n} \sum_i \log(1 + e^{w \cdot x_i + b}) - p\,(w \cdot \hat\mu_1 + b) + \alpha |w|^2 / 2`
    over standardised features, with class means by `class_means`; several classes by the softmax. Bags of one row make
    it ordinary logistic regression. Best where proportions differ widely for reasons that have to do with the label
    alone. Those of random bags are nearly equal: errors of the class means then shrink with the number of bags, not of
    rows, and only a larger penalty helps. Bags grouped by a feature break the assumption.

    Parameters
    ----------
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about (see `bagwise.formation`): said in `formation_`, the method is the same.
    alpha : float, optional
        The penalty; scikit-learn's ``C`` is 1 / (α n). None chooses from 0.01 to 100 by the likelihood of held-out
        bags, and a stretch of log odds with it (for two classes).
    cv : int
        Number of folds of bags.
    random_state : int, Generator or None
        For the folds.

    Attributes
    ----------
    coef_, intercept_ : array and float, or arrays
        As in `BagRidgeClassifier`, of log odds.
    feature_means_ : array, shape (features,)
        The mean row, which `explain` measures from.
    class_means_ : array, shape (classes, features)
        The estimates.
    alpha_, stretch_ : float
        The penalty, and the factor by which log odds are stretched.
    n_iter_ : int
        Steps of the last fit.
    formation_ : Told
        The formation, and why.
    gain_, gain_error_ : float
        Log-likelihood of a held-out bag over that of the mean label, and its standard error; NaN where there were too
        few bags to hold any out.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = np.outer(y := rng.integers(2, size=3200), [1, 0]) + rng.normal(size=(3200, 2))
    >>> ids = bw.random_bags(3200, size=8, random_state=0)
    >>> model = BagMeanMapClassifier(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
    >>> np.abs(model.class_means_).round()
    array([[0., 0.],
           [1., 0.]])
    """

    reads: ClassVar[Reads] = Reads(weights=True, offset=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {"alpha": number(above=0) | NONE, "cv": whole(2)}

    def __init__(
        self,
        *,
        formation: str = "auto",
        alpha: float | None = None,
        cv: int = 5,
        random_state: RandomState = None,
    ) -> None:
        self.formation, self.alpha, self.cv, self.random_state = formation, alpha, cv, random_state

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        several = bags.proportion.ndim == 2
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is found below, with the column's name
            rows = X[bags.order].astype(float)
            mean = bags.average(rows)
            scale = np.sqrt(bags.average((rows - mean) ** 2))
            check_finite_features(scale, X, getattr(self, "feature_names_in_", None))
        self._tell_formation(X, bags)
        scale = np.where(scale > 1e-12 * np.abs(mean), scale, np.inf)  # a constant feature gets no weight
        rows -= mean
        rows /= scale
        gains = self._choose(rows, bags, generator(self.random_state))
        coef, intercept, self.n_iter_, means = _fit(rows, bags, self.alpha_)
        if not several and self.stretch_ != 1.0:
            coef = self.stretch_ * coef
            s = rows @ coef[0] if bags.offset is None else rows @ coef[0] + bags.offset
            intercept = np.array([shift_to(prior_of(bags), s, weight=bags.weight)])
        self.feature_means_ = mean
        self._keep(coef / scale, intercept - (coef / scale) @ mean, classes=several)
        self.class_means_ = mean + np.where(np.isfinite(scale), scale, 0.0) * means
        self.gain_, self.gain_error_ = tell_gain(gains, stacklevel=5)

    def _choose(self, rows: Floats, bags: Bags, rng: np.random.Generator) -> Floats | None:
        """Set the penalty and the stretch that held-out bags prefer; their gains.  rows: in bag order."""
        alphas = _ALPHAS if self.alpha is None else np.array([float(self.alpha)])
        self.alpha_, self.stretch_ = float(_USUAL_ALPHA if self.alpha is None else self.alpha), 1.0
        some = some_bags(bags, rows.shape[1], rng)
        rows = rows[segment.take(np.arange(bags.n_bagged), bags.offsets, some)[0]]
        bags = bags.take(some)
        folds = folds_of(len(bags), self.cv, rng, enough=_ENOUGH, shared=bags.shared)
        if not folds:
            return None
        several = bags.proportion.ndim == 2
        gains, parts = np.zeros((len(alphas), 0)), [[] for _ in alphas]  # type: ignore[var-annotated]
        for fold in folds:
            chosen = np.zeros(len(bags), dtype=bool)
            chosen[fold.held_out] = True
            out = bags.repeat(chosen)
            train, held_out, start, found = bags.take(~chosen), bags.take(chosen), None, []
            for place, alpha in reversed(list(enumerate(alphas))):  # each begins where the heavier one ended
                coef, intercept, *_ = _fit(rows[~out], train, alpha, start=start, close=_NEARLY)
                start = np.column_stack([coef, intercept])
                if several:
                    constant = np.tile(np.log(prior_of_classes(train)), (int(out.sum()), 1))
                    s = log_softmax(rows[out] @ coef.T + intercept, axis=1)
                    found.append(log_likelihoods(s, held_out) - log_likelihoods(constant, held_out))
                else:
                    part = HeldOut.of(prior_of(train), train, rows[~out] @ coef[0], rows[out] @ coef[0], held_out)
                    parts[place].append(part)
                    found.append(part.gains(np.ones(1))[0])
            gains = np.concatenate([gains, np.array(found[::-1])], axis=1)
        best = int(np.argmax(gains.sum(axis=1)))
        self.alpha_ = float(alphas[best])
        if several or self.alpha is not None:
            return np.asarray(gains[best])
        self.stretch_, stretched = best_stretch(parts[best])
        return stretched

    def _decision(self, X: Floats) -> Floats:
        return super()._predict_mean(X)

    def _contributions(self, X: Floats) -> Contributions:
        return linear_contributions(self, X, LOG_ODDS if self.coef_.ndim == 1 else LOGITS)

    def _predict_mean(self, X: Floats) -> Floats:
        scores = super()._predict_mean(X)
        check_finite_features(scores, X, getattr(self, "feature_names_in_", None))  # h would hide infinity
        return np.asarray(softmax(scores, axis=1) if scores.ndim == 2 else expit(scores))


def _fit(
    rows: Floats, bags: Bags, alpha: float, *, start: Floats | None = None, close: float = _CLOSE
) -> tuple[Floats, Floats, int, Floats]:
    """Weights (outputs, d), intercepts, steps and class means (classes, d) from standardised rows in bag order."""
    first = 0 if bags.proportion.ndim == 2 else 1
    proportion = bags.outputs if first == 0 else np.hstack([1 - bags.outputs, bags.outputs])
    means = class_means(bags.mean(rows), bags.size, proportion)
    prior = (bags.size[:, None] * proportion).sum(axis=0) / bags.n_people
    told = (rows, bags, prior, prior[:, None] * means, alpha)
    return *_maximise(*told, first=first, start=start, close=close), means


def _maximise(
    X: Floats,
    bags: Bags,
    prior: Floats,
    operator: Floats,
    alpha: float,
    *,
    first: int,
    start: Floats | None,
    close: float,
) -> tuple[Floats, Floats, int]:
    """Weights (outputs, d) and intercepts of the classes from `first` on, others having score 0; and steps."""
    target = np.column_stack([operator, prior])[first:]
    offset = 0.0 if bags.offset is None else bags.offset[:, None]
    share = np.full(len(X), 1 / len(X)) if bags.weight is None else bags.weight / bags.n_people

    def loss(parameters: Floats) -> tuple[float, Floats]:
        check_time()
        w = parameters.reshape(target.shape)
        scores = np.pad(X @ w[:, :-1].T + w[:, -1] + offset, ((0, 0), (first, 0)))
        top = scores.max(axis=1, keepdims=True)
        above = np.exp(scores - top)
        total = above.sum(axis=1, keepdims=True)
        h = (above / total)[:, first:] * share[:, None]
        penalty = alpha * np.pad(w[:, :-1], ((0, 0), (0, 1)))
        gradient = np.column_stack([h.T @ X, h.sum(axis=0)]) - target + penalty
        value = float(share @ (top + np.log(total))[:, 0])
        return value - (w * target).sum() + (w * penalty).sum() / 2, gradient.ravel()

    begin = 0 * target.ravel() if start is None else start.ravel()
    options = {"maxiter": 1000, "maxfun": 10_000, "ftol": 0.0, "gtol": close}
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", options=options)
    best = found.x.reshape(target.shape)
    return best[:, :-1], best[:, -1], int(found.nit)
