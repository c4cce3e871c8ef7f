"""What all estimators share: reading (X, y, bags), naming classes, turning h into predictions.

An estimator states how it reads features (`_check_features`, and `reads` for tables), what its parameters may be
(`_constraints`), how it fits bags (`_fit_bags`) and what it predicts (`_predict_mean`); everything a user calls is
written here once.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import get_tags

from bagwise.bags import Bags, as_bags
from bagwise.bags.reading import check_unmasked
from bagwise.bags.weights import offsets_of_rows, standing_for
from bagwise.classes import classes_of, indicators_of, labels_of, read_reports
from bagwise.data.rows import BagRows, InMemory, Reads, in_one_piece
from bagwise.data.sparse import SparseRows, as_dense, as_rows, in_pieces, is_large
from bagwise.explanation.contributions import Contributions
from bagwise.explanation.result import Explanation
from bagwise.fitted import as_html, log_fit
from bagwise.formation import FORMATION, Told, formation_of
from bagwise.losses.adding_up import values_adding_up
from bagwise.numeric import check_finite_features, check_no_dates
from bagwise.predictions import given_reports
from bagwise.updates import CANNOT, UnlessRefused
from bagwise.utils.parameters import Constraint, ParameterError, check_parameters
from bagwise.utils.typing import ArrayLike, Booleans, Floats, NDArray

_WIDEST = 2**24  # numbers of a row
_WITH_LOG_ODDS = "take logistic regression, boosting or a network of classes"


class BagEstimator(ABC, BaseEstimator):
    """An estimator that learns from bags.

    Attributes
    ----------
    reads : Reads
        What it reads of a table; a property of the class.
    formation : str
        How bags came about, as a parameter: a key of `bagwise.formation.FORMATIONS`, or "auto".
    formation_ : Told
        The formation that was used, and why.
    """

    reads: ClassVar[Reads] = Reads()
    formation: str = "auto"
    formation_: Told
    _constraints: ClassVar[Mapping[str, Constraint]] = {}
    partial_fit: Any = UnlessRefused()

    # In a search or a pipeline of scikit-learn, bags reach `fit` without being asked for once more.
    __metadata_request__fit = {"bags": True}  # noqa: RUF012

    @abstractmethod
    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        """Learn from rows in table order and their bags; what is learned goes into attributes ending in _."""

    @abstractmethod
    def _predict_mean(self, X: Floats) -> Floats:
        """The predictions h, (n,) or (n, classes), not clipped."""

    @abstractmethod
    def _check_features(self, X: Any, *, fitting: bool) -> Floats:
        """X as the numbers the model reads, checked; in `fit`, what is to be remembered of X is remembered."""

    @abstractmethod
    def _given_bags(self, y: ArrayLike | None, bags: ArrayLike | Bags | None, n_rows: int) -> Bags:
        """What `fit` was given, as bags; a classifier remembers their classes."""

    @abstractmethod
    def _check_bags(self, bags: Bags) -> None:
        """Raise where the reports of bags are not what the estimator learns from."""

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        bags: ArrayLike | Bags | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from bags.

        Parameters
        ----------
        X : array, table or sparse matrix, shape (n, features)
            The rows. A large sparse matrix is read block by block, by estimators that know how.
        y : array, shape (n,) or (n, classes), optional
            Each row's bag proportion, or bag mean of real labels, constant in a bag (see `bagwise.aggregate`). Without
            `bags`, individual labels: of any kind for a classifier. Not needed where `bags` is a `Bags`. A table with a
            column per class, in the order of their names, names the classes.
        bags : array or Bags, shape (n,), optional
            Bag ids, −1 for rows in no bag; or a `Bags`. Without it, every row is its own bag.
        sample_weight : array, shape (n,), optional
            For how many people each row stands, whom reports then are of (see `Bags.with_weights`).

        Returns
        -------
        Self
            The estimator itself.
        """
        if self.reads.blocks and is_large(X):
            return self._fit_sparse(X, y, bags, sample_weight)
        check_unmasked(X, "X")
        check_no_dates(X, "X")
        check_unmasked(y, "y")
        X = self._check_features(as_dense(X, type(self).__name__), fitting=True)
        names = getattr(self, "feature_names_in_", None)
        given = standing_for(self._given_bags(y, bags, len(X)), sample_weight, alone=bags is None)
        self._fit_named(self._checked(InMemory(X, given, names=names)))
        return self

    def _fit_sparse(self, X: Any, y: Any, bags: Any, sample_weight: ArrayLike | None) -> Self:
        """Learn from a sparse matrix, block by block."""
        X = as_rows(X, gaps=get_tags(self).input_tags.allow_nan)
        self._check_features(X[:2].toarray(), fitting=True)
        given = standing_for(self._given_bags(y, bags, X.shape[0]), sample_weight, alone=bags is None)
        if given.overlap is not None:
            X, given = X[given.order], given.apart()
        self._check_bags(given)
        self._fit_named(self._checked(SparseRows(X, given)))
        return self

    def fit_rows(self, data: BagRows) -> Self:
        """Learn from bags of rows, in memory or on disk; returns the estimator itself.

        `data` are rows as the estimator reads them (see `reads`): `bagwise.data.rows.InMemory`, or
        `bagwise.data.shards.Shards`.
        """
        self._fit_named(self._begin(data))
        return self

    def _begin(self, data: BagRows) -> BagRows:
        """The data, whose features are checked and remembered; blocks were checked when they were gathered."""
        if in_one_piece(data):
            X = self._check_features(data.X, fitting=True)
            data = InMemory(X, data.bags, data.categorical, names=data.names)
        else:
            self._check_features(data.sample(1).X, fitting=True)
        return self._checked(data)

    def _checked(self, data: BagRows) -> BagRows:
        """The data, after a look at parameters and bags."""
        check_parameters(self, {"formation": FORMATION, **self._constraints})
        self._check_reads(data)
        if in_one_piece(data):
            overlap = data.bags.overlap
            if overlap is not None and not overlap.apart and not self.reads.shared:
                data = InMemory(data.X[data.bags.order], data.bags.apart(), data.categorical, names=data.names)
            self._check_bags(data.bags)
        self._bags_seen = data.bags.fingerprint
        self.__dict__.pop("has_offset_", None)
        if data.offset is not None:
            self.has_offset_ = True
        return data

    def _check_reads(self, data: BagRows) -> None:
        """Raise where rows of bags carry what the estimator does not know what to do with."""
        kind = type(self).__name__
        if data.weight is not None and not self.reads.weights:
            said = f"is not known to a {kind}: take ridge, logistic regression or boosting, or repeat rows."
            raise ParameterError("sample_weight", said)
        if data.offset is not None and not self.reads.offset:
            others = "take BagTweedieRegressor" if isinstance(self, BagRegressor) else _WITH_LOG_ODDS
            raise ParameterError("offset", f"is not known to a {kind}: {others}.")
        if data.offset is not None and data.proportion.ndim == 2:
            raise ParameterError("offset", "is for two classes: several have no log odds that one number is added to.")

    def _fit_named(self, data: BagRows, *more: Any) -> None:
        """Learn from data that are checked; the names of their columns are known meanwhile."""
        self._names, began = data.names, time.monotonic()
        try:
            self._fit_data(data, *more)
        finally:
            del self._names
        log_fit(self, len(data.rows), int(data.rows.sum()), time.monotonic() - began)

    def _fit_data(self, data: BagRows) -> None:
        """Learn from data that are checked; an estimator that reads blocks does so here."""
        whole = data if in_one_piece(data) else data.sample(data.shape[0])
        self._fit_bags(whole.X, whole.bags)

    @property
    def _repr_html_(self) -> Callable[[], str]:
        diagram = super()._repr_html_  # there is none where scikit-learn is asked for text
        return lambda: as_html(self, diagram())

    def _repr_mimebundle_(self, **how: Any) -> dict[str, str]:
        shown: dict[str, str] = super()._repr_mimebundle_(**how)
        return shown | {kind: as_html(self, text) for kind, text in shown.items() if kind == "text/html"}

    def check_whole(self) -> None:
        """Raise unless its parts fit each other, so that it predicts: of a model that was read from a file."""
        check_parameters(self, {"formation": FORMATION, **self._constraints})
        shape = self._row_shape()
        if not all(isinstance(n, (int, np.integer)) and 1 <= n <= _WIDEST for n in shape):
            raise ValueError("it does not know how many features a row has")
        names, features = getattr(self, "feature_names_in_", None), getattr(self, "features_", None)
        categories = getattr(features, "categories", None)
        for of in (names, categories):
            if of is not None and (len(of),) != shape:
                raise ValueError("what it knows of features is not of as many as it reads")
        if names is not None and not all(isinstance(name, str) for name in names):
            raise ValueError("names of features are not text")
        self._check_prediction(self._predict_mean(np.zeros((1, *shape))))

    def _row_shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return (self.n_features_in_,)

    def _check_prediction(self, h: Floats) -> None:
        """Raise unless it is one of one row."""
        if np.shape(h) != (1,):
            raise ValueError("it does not predict one number of a row")

    def used_features(self) -> Booleans | None:
        """Whether each feature, as the model reads them, can move a prediction; None where any may."""
        return None

    def refuses_updates(self) -> str | None:
        """Why it has no `partial_fit`, None if it has one."""
        return f"a {type(self).__name__} {CANNOT}"

    def cannot_update(self) -> str | None:
        """Why it cannot learn from further bags as it is, None if it can."""
        return self.refuses_updates()

    def _tell_formation(self, X: Floats, bags: Bags) -> None:
        """Set `formation_`: as asked for, or as these bags tell."""
        names = getattr(self, "_names", None)
        self.formation_ = formation_of(self.formation, X, bags, names, values=isinstance(self, BagRegressor))

    def _decision(self, X: Floats) -> Floats:
        """(n,) log odds that an offset is added to, of an estimator that reads one."""
        kind = type(self).__name__
        raise ParameterError("offset", f"is not known to a {kind}: {_WITH_LOG_ODDS}.")

    def _predict_moved(self, X: Floats, offset: Floats) -> Floats:
        """(n,) predictions of rows to whose scores an offset (n,) is added."""
        return np.asarray(expit(self._decision(X) + offset))

    def _contributions(self, X: Floats) -> Contributions:
        """What features add to the scores of rows, without an offset."""
        way = "take its permutation importance (bagwise.explanation)"
        raise ValueError(f"a {type(self).__name__} does not tell what features add to its scores: {way}.")

    def explain(self, X: Any, *, offset: ArrayLike | None = None) -> Explanation:
        """What each feature adds to the score of each row: contributions that add up to it exactly.

        Linear terms from the mean training row; Shapley values of trees, as LightGBM computes them; integrated
        gradients of networks from the mean training row. Scores are log odds where predictions come from a sigmoid.

        Parameters
        ----------
        X : array or table, shape (n, features)
            The rows.
        offset : array, shape (n,), optional
            As for predictions: what it adds is a feature of its own, named "offset".

        Returns
        -------
        Explanation
        """
        X = self._check_features(as_dense(X, "an explanation"), fitting=False)
        moved = self._checked_offset(offset, len(X))
        found = self._contributions(X)
        names = getattr(self, "feature_names_in_", None)
        check_finite_features(found.values, X.reshape(len(X), -1), names)
        named = [f"x{i}" for i in range(found.values.shape[1])] if names is None else [str(name) for name in names]
        if moved is not None:
            found = Contributions(np.column_stack([found.values, moved]), found.base, found.scale)
            named.append("offset")
        return Explanation.of(found, named)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _checked_offset(self, offset: ArrayLike | None, n_rows: int) -> Floats | None:
        """(n,) what is added to scores; raise where it is missing, or not known to the model."""
        known = getattr(self, "has_offset_", False)
        if known and offset is None:
            said = f"is missing: the {type(self).__name__} was fitted with one, which its scores are without."
            raise ParameterError("offset", said)
        if offset is not None and not known:
            raise ParameterError("offset", "is for models that were fitted with one: leave it out.")
        return None if offset is None else offsets_of_rows(offset, n_rows, np.arange(n_rows))

    def _checked_predict(self, X: Any, offset: ArrayLike | None = None) -> Floats:
        check_unmasked(X, "X")
        check_no_dates(X, "X")
        if is_large(X):
            moved = None if offset is None else np.asarray(offset)
            X = as_rows(X, gaps=get_tags(self).input_tags.allow_nan)
            return in_pieces(X, lambda x, rows: self._checked_predict(x, None if moved is None else moved[rows]))
        X = self._check_features(as_dense(X, type(self).__name__), fitting=False)
        moved = self._checked_offset(offset, len(X))
        h = self._predict_mean(X) if moved is None else self._predict_moved(X, moved)
        check_finite_features(h, X, getattr(self, "feature_names_in_", None))
        return h


class BagClassifier(ClassifierMixin, BagEstimator):
    """A classifier that learns from bags: classes 0 and 1, or one class per column of proportions."""

    classes_: NDArray[Any]

    def _given_bags(self, y: ArrayLike | None, bags: ArrayLike | Bags | None, n_rows: int) -> Bags:
        if bags is None:
            indicators, self.classes_ = indicators_of(y, n_rows)
            return Bags.singletons(indicators)
        given, self.classes_ = read_reports(y, bags, n_rows)
        return given

    def _check_prediction(self, h: Floats) -> None:
        labels, several = np.shape(self.classes_) == (2,) and np.shape(h) == (1,), (1, *np.shape(self.classes_))
        if not labels and (np.shape(h) != several or len(self.classes_) < 2):
            raise ValueError("it does not predict as many classes as it knows")

    def _begin(self, data: BagRows) -> BagRows:
        self.classes_ = classes_of(data.proportion)
        return super()._begin(data)

    def _check_bags(self, bags: Bags) -> None:
        bags.check_proportions()
        check_enough(bags)
        value = bags.proportion.flat[0]
        if (
            bags.proportion.ndim == 1
            and bags.noise_variance is None
            and value in (0, 1)
            and np.ptp(bags.proportion) == 0
        ):
            raise ValueError(
                f"y holds one class only (every bag reports proportion {value:g}): a classifier needs 2 classes."
            )

    def predict_proba(self, X: Any, *, bags: Bags | None = None, offset: ArrayLike | None = None) -> Floats:
        """Probabilities of the classes: h kept in [0, 1], rows summing to 1.

        Parameters
        ----------
        X : array or table, shape (n, features)
            The rows.
        bags : Bags, optional
            Reports about these rows. Rows of a bag then get probabilities given its report, too, which add up to the
            count where that is exact (see `bagwise.losses.posterior`); rows in no bag get theirs as without.
        offset : array, shape (n,), optional
            What is added to the log odds of each row, where the model was fitted with an offset (see
            `Bags.with_offset`): it must be given then.

        Returns
        -------
        array, shape (n, classes)
            In the order of `classes_`.
        """
        h = np.clip(self._checked_predict(X, offset), 0, 1)
        if h.ndim == 2:
            total = h.sum(axis=1, keepdims=True)
            h = np.where(total > 0, h / np.where(total > 0, total, 1), 1 / h.shape[1])
        if bags is not None:
            h = given_reports(h, bags, getattr(self, "effect_variance_", 0.0))
        return h if h.ndim == 2 else np.stack([1 - h, h], axis=1)

    def predict(self, X: Any, *, offset: ArrayLike | None = None) -> NDArray[Any]:
        """The most probable class of each row.

        Parameters
        ----------
        X : array or table, shape (n, features)
            The rows.
        offset : array, shape (n,), optional
            As for `predict_proba`.

        Returns
        -------
        array, shape (n,)
            One of `classes_` for each.
        """
        h = self._checked_predict(X, offset)
        return np.asarray(self.classes_[(h > 0.5).astype(int) if h.ndim == 1 else h.argmax(axis=1)])


class BagRegressor(RegressorMixin, BagEstimator):
    """A regressor that learns from bags of real labels."""

    def _given_bags(self, y: ArrayLike | None, bags: ArrayLike | Bags | None, n_rows: int) -> Bags:
        return as_bags(y if isinstance(bags, Bags) else labels_of(y), bags, n_rows)

    def _check_bags(self, bags: Bags) -> None:
        if bags.proportion.ndim != 1:
            raise ValueError("a regressor learns one real label: the bags must report one mean each.")
        check_enough(bags)

    def predict(self, X: Any, *, bags: Bags | None = None, offset: ArrayLike | None = None) -> Floats:
        """The expected label of each row.

        Parameters
        ----------
        X : array or table, shape (n, features)
            The rows.
        bags : Bags, optional
            Exact reports about these rows: predictions of rows of a bag then add up to its sum, by the least change
            (see `bagwise.losses.adding_up`); those of rows in no bag stay as they are.
        offset : array, shape (n,), optional
            What is added to the logarithm of each prediction, where the model was fitted with an offset (see
            `Bags.with_offset`): it must be given then.

        Returns
        -------
        array, shape (n,)
        """
        h = self._checked_predict(X, offset)
        return h if bags is None else self.given_sums(h, bags)

    def given_sums(self, h: Floats, bags: Bags) -> Floats:
        """Predictions `h` (n,) of rows, changed to add up to what their `bags` report."""
        if bags.n_rows != len(h):
            raise ValueError(f"the bags were built on {bags.n_rows} rows but X has {len(h)}.")
        return values_adding_up(h, bags, nonnegative=getattr(self, "nonnegative_", False))


def check_enough(bags: Bags) -> None:
    """Raise where there is one bag only."""
    if len(bags) < 2:
        raise ValueError("there is one bag only: at least 2 are needed to learn or measure anything.")
