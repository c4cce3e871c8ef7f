"""Cross-validation over bags with scikit-learn's own tools: a splitter and label-free scorers.

They work with `GridSearchCV`, `cross_validate` and pipelines by scikit-learn's metadata routing, which must be switched
on once with ``sklearn.set_config(enable_metadata_routing=True)``. The estimators, `BagKFold` and the scorers ask for
``bags`` by themselves, so passing ``bags=ids`` to the search is all there is to do (`examples/grid_search.py`).
Routing slices columns of rows: pass the column of ids, not a `Bags`. scikit-learn's own ``GroupKFold`` keeps bags whole
too if the ids are also passed as ``groups``; rows in no bag, whose id is −1, are then one more group.

A scorer sees the held-out fold only, and takes p and E[h] from its bags. Nothing is given away by that: the model was
fitted to the other bags, with a p of their own, and knows nothing of the deviations of the held-out ones; that p and
E[h] are estimated from m bags is made up for by the divisor m − 1: scores are unbiased, the AUC nearly. (The trap lies
on the other side: were the *training* bags centred with the mean of all bags, their deviations would tell those of the
held-out bags. So no step before the split may use the proportions.) Means of the training bags instead would make
the risk too large by a share of one over their number. The price is that a fold needs at least 3 bags.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED

from bagwise.bags import Bags, as_bags
from bagwise.bags.reading import encode_rows
from bagwise.evaluation import risk
from bagwise.evaluation.measures import measure, warn_of_doubt
from bagwise.expectations import Expectations
from bagwise.gains import HeldOut
from bagwise.log_odds import prior_of, prior_of_classes, scores_of
from bagwise.metrics import metrics
from bagwise.predictions import fitting_bags, predicted
from bagwise.utils.parameters import Parameter, ParameterError, check_parameters, one_of, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats, Integers, NDArray

__all__ = ["BagKFold", "LabelFreeScorer", "label_free_scorer"]

METRICS = {
    "neg_risk": "risk",
    "neg_brier": "brier",
    "accuracy": "accuracy",
    "neg_log_loss": "log_loss",
    "auc": "auc",
    "gain": "gain",
}
"""What scorers can tell, and what it is called elsewhere: under another name where its sign is turned."""


class BagKFold(BaseEstimator):
    """Folds of whole bags with about the same number of rows in each.

    Rows in no bag are in the training part of every fold: what a pipeline learns from features may use them.

    Parameters
    ----------
    n_splits : int
        Number of folds.
    shuffle : bool
        Draw the folds at random; otherwise bags are dealt out in the order of their ids.
    random_state : int, Generator or None
        For the draw.

    Examples
    --------
    >>> ids = np.array([7, 7, 8, 8, 9, 9, -1])
    >>> for train, test in BagKFold(3, shuffle=False).split(np.zeros((7, 2)), bags=ids):
    ...     print(ids[train], ids[test])
    [ 8  8  9  9 -1] [7 7]
    [ 7  7  9  9 -1] [8 8]
    [ 7  7  8  8 -1] [9 9]
    """

    __metadata_request__split = {"bags": True, "groups": UNUSED}  # noqa: RUF012 - read by scikit-learn

    def __init__(self, n_splits: int = 5, *, shuffle: bool = True, random_state: RandomState = None) -> None:
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def split(
        self, X: Any, y: Any = None, bags: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Row numbers of the training and the test part of each fold.

        The rows are those of `X`, of shape (n, features); `bags` holds their ids (n,), −1 for rows in no bag; `groups`
        are the ids under the name scikit-learn passes on without metadata routing; `y` is not looked at.
        """
        ids, n = groups if bags is None else bags, X.shape[0] if hasattr(X, "shape") else len(X)
        if ids is None:
            raise ValueError(f"BagKFold got no bags: {_HOW}")
        if isinstance(ids, Bags):
            raise ValueError("cross-validation slices rows: pass the column of bag ids, not a Bags.")
        codes, keys = encode_rows(ids)
        if len(codes) != n:
            raise ValueError(f"X has {n} rows but bags has {len(codes)}: give each row one bag id.")
        check_parameters(self, {"n_splits": whole(2)})
        m = len(keys)
        if self.n_splits > m:
            raise ParameterError("n_splits", f"must be at most the number of bags ({m}), got {self.n_splits}.")
        fold = np.append(self._folds(np.bincount(codes[codes >= 0], minlength=m)), -1)[codes]
        rows = np.arange(len(codes))
        for number in range(self.n_splits):
            yield rows[fold != number], rows[fold == number]

    def get_n_splits(self, X: Any = None, y: Any = None, bags: Any = None, groups: Any = None) -> int:
        """Number of folds, whatever the data: `X`, `y`, `bags` and `groups` are not looked at."""
        return self.n_splits

    def _folds(self, size: Integers) -> Integers:
        """The fold of each bag: the largest bags first, each to the fold with the fewest rows so far."""
        if not self.shuffle and self.random_state is not None:
            raise ParameterError("random_state", "does nothing where ", Parameter("shuffle"), " is False.")
        order = generator(self.random_state).permutation(len(size)) if self.shuffle else np.arange(len(size))
        order = order[np.argsort(-size[order], kind="stable")]
        lightest = [(0, number) for number in range(self.n_splits)]
        fold = np.empty(len(size), dtype=np.intp)
        for bag, rows in zip(order.tolist(), size[order].tolist(), strict=True):
            total, number = lightest[0]
            fold[bag] = number
            heapq.heapreplace(lightest, (total + rows, number))
        return fold


def label_free_scorer(metric: str = "neg_risk") -> LabelFreeScorer:
    """A scorer of scikit-learn that needs bags and no labels: ``scorer(model, X, y, bags=ids)`` is a number.

    With one row per bag, `y` being individual labels, scores are the usual ones.

    Parameters
    ----------
    metric : {"gain", "neg_risk", "neg_brier", "accuracy", "neg_log_loss", "auc"}
        Larger is better for all.

        - ``"gain"``: the log-likelihood of a bag's count over that of the mean label (see `bagwise.gains`), for
          classifiers and bags of every formation: the one to use where bags are not random;
        - ``"neg_risk"``: minus the risk E[(y − h)²] by the debiased square loss (`evaluation.risk`), summed over
          classes; for real labels, too. Only for random bags is it that of single rows;
        - ``"neg_brier"``, ``"accuracy"``, ``"neg_log_loss"``, ``"auc"``: those of `bagwise.evaluate`, for classifiers
          and random bags; where proportions or predictions tell that they are not random, scores are NaN. They are as
          they come, so that their mean over folds is unbiased: of a few large bags, one may be beyond the possible.

    Returns
    -------
    LabelFreeScorer

    Examples
    --------
    >>> import bagwise as bw
    >>> X = np.random.default_rng(0).normal(size=(3200, 2))
    >>> ids = bw.random_bags(3200, size=8, random_state=0)
    >>> y_bag, train = bw.aggregate(X[:, 0] > 0, ids), ids < 200
    >>> model = bw.BagRidgeClassifier(random_state=0).fit(X[train], y_bag[train], bags=ids[train])
    >>> bool(label_free_scorer("accuracy")(model, X[~train], y_bag[~train], bags=ids[~train]) > 0.8)
    True
    """
    check_parameters({"metric": metric}, _CONSTRAINTS)
    return LabelFreeScorer(metric)


class LabelFreeScorer(BaseEstimator):
    """What `label_free_scorer` returns: a callable that scikit-learn routes bags to.

    Parameters
    ----------
    metric : str
        As in `label_free_scorer`.
    """

    __metadata_request__score = {"estimator": UNUSED, "bags": True, "noise_variance": True}  # noqa: RUF012

    def __init__(self, metric: str = "neg_risk") -> None:
        self.metric = metric

    def __call__(self, estimator: Any, X: Any, y: ArrayLike, **routed: Any) -> float:
        """The score of a fitted estimator; see `score`."""
        return self.score(estimator, X, y, **routed)

    def score(
        self,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        bags: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
    ) -> float:
        """The score of a fitted estimator on held-out bags.

        Parameters
        ----------
        estimator : classifier or regressor
            The model.
        X, y, bags, noise_variance : array or table
            Held-out rows, their bags' proportions, their bag ids and the variance of noise: as in `bagwise.evaluate`.

        Returns
        -------
        float
        """
        check_parameters(self, _CONSTRAINTS)
        if bags is None:
            raise ValueError(f"the scorer got no bags: {_HOW}")
        name = METRICS[self.metric]
        classifier = name != "risk" or hasattr(estimator, "predict_proba")
        h = predicted(estimator, X, bags) if classifier else np.asarray(estimator.predict(X), dtype=float)
        given = as_bags(y, bags, len(h), noise_variance=noise_variance)
        if classifier:
            given.check_proportions()
        if name == "gain":
            return _gain(h, given)
        value = _risk(h, given) if name == "risk" else self._metric(name, h, given)
        return value if name == self.metric else -value

    def _metric(self, name: str, h: Floats, bags: Bags) -> float:
        found = measure(h, bags)  # whether features differ need not be asked of every fold
        if found.withheld and not found.impossible:
            warn_of_doubt(found)
            return float("nan")
        # As it comes: what lies beyond its range by chance still ranks, and means of folds stay unbiased.
        scores = metrics(Expectations(h, fitting_bags(h, bags), by_slope=found.formation.name == "rates"))
        if name not in scores:
            raise ValueError(f"{self.metric} needs bags that report ten labels or more of each class.")
        return float(scores[name][0])


_CONSTRAINTS = {"metric": one_of(*METRICS)}
_HOW = (
    "pass bags=ids (a column of row ids) and switch on sklearn.set_config(enable_metadata_routing=True), or give each "
    "row an id of its own where y holds individual labels."
)


def _gain(h: Floats, bags: Bags) -> float:
    """The mean over bags; p and E[h] are those of the same bags."""
    bags = fitting_bags(h, bags)
    scores = scores_of(h)[bags.order]
    prior = prior_of(bags) if h.ndim == 1 else prior_of_classes(bags)
    return float(HeldOut.of(prior, bags, scores, scores, bags).gains(np.ones(1)).mean())


def _risk(h: Floats, bags: Bags) -> float:
    """Summed over classes."""
    bags = fitting_bags(h, bags)
    if h.ndim == 1:
        return risk(h, bags).value
    columns = zip(h.T, bags.proportion.T, strict=True)
    return sum(risk(column, replace(bags, proportion=proportion)).value for column, proportion in columns)
