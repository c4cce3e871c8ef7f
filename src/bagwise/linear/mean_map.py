r"""Mean map (Quadrianto et al., 2009): logistic regression from class means that bags reveal.

Logistic regression meets the labels only in :math:`E[y\,x] = p\,\mu_1`, with :math:`\mu_c = E[x \mid y = c]`. If a bag
tells nothing about x beyond its proportions, :math:`\bar x_j \approx \sum_c \alpha_{jc}\,\mu_c` gives them.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax

from bagwise.bags import Bags
from bagwise.base import BagClassifier, LinearPredictor, check_finite_features
from bagwise.utils.deadline import check_time
from bagwise.utils.parameters import Constraint, number
from bagwise.utils.typing import Floats, Integers


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
    alpha : float
        The penalty; scikit-learn's ``C`` is 1 / (α n).

    Attributes
    ----------
    coef_, intercept_ : array and float, or arrays
        As in `BagRidgeClassifier`.
    class_means_ : array, shape (classes, features)
        The estimates.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = np.outer(y := rng.integers(2, size=3200), [1, 0]) + rng.normal(size=(3200, 2))
    >>> ids = bw.random_bags(3200, size=8, random_state=0)
    >>> model = BagMeanMapClassifier().fit(X, bw.aggregate(y, ids), bags=ids)
    >>> np.abs(model.class_means_).round()
    array([[0., 0.],
           [1., 0.]])
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {"alpha": number(above=0)}

    def __init__(self, *, alpha: float = 0.1) -> None:
        self.alpha = alpha

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        several = bags.proportion.ndim == 2
        proportion = bags.outputs if several else np.hstack([1 - bags.outputs, bags.outputs])
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is found below, with the column's name
            rows = X[bags.order].astype(float)
            mean, scale = rows.mean(axis=0), rows.std(axis=0)
            check_finite_features(scale, X, getattr(self, "feature_names_in_", None))
        scale = np.where(scale > 1e-12 * np.abs(mean), scale, np.inf)  # a constant feature gets no weight
        rows = (rows - mean) / scale
        means = class_means(bags.mean(rows), bags.size, proportion)
        prior = (bags.size[:, None] * proportion).sum(axis=0) / bags.n_bagged
        coef, intercept = self._maximise(rows, prior, prior[:, None] * means, first=0 if several else 1)
        self._keep(coef / scale, intercept - (coef / scale) @ mean, classes=several)
        self.class_means_ = mean + np.where(np.isfinite(scale), scale, 0.0) * means

    def _maximise(self, X: Floats, prior: Floats, operator: Floats, *, first: int) -> tuple[Floats, Floats]:
        """Weights (outputs, d) and intercepts of the classes from `first` on; those before it have score 0."""
        target = np.column_stack([operator, prior])[first:]

        def loss(parameters: Floats) -> tuple[float, Floats]:
            check_time()
            w = parameters.reshape(target.shape)
            scores = np.pad(X @ w[:, :-1].T + w[:, -1], ((0, 0), (first, 0)))
            h = softmax(scores, axis=1)[:, first:]
            penalty = self.alpha * np.pad(w[:, :-1], ((0, 0), (0, 1)))
            gradient = np.column_stack([h.T @ X, h.sum(axis=0)]) / len(X) - target + penalty
            return logsumexp(scores, axis=1).mean() - (w * target).sum() + (w * penalty).sum() / 2, gradient.ravel()

        options = {"maxiter": 1000, "maxfun": 10_000, "ftol": 0.0, "gtol": 1e-8}
        best = minimize(loss, 0 * target.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(target.shape)
        return best[:, :-1], best[:, -1]

    def _predict_mean(self, X: Floats) -> Floats:
        scores = super()._predict_mean(X)
        check_finite_features(scores, X, getattr(self, "feature_names_in_", None))  # h would hide infinity
        return np.asarray(softmax(scores, axis=1) if scores.ndim == 2 else expit(scores))
