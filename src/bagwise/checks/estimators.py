"""The checks: of how rows are grouped in bags, of what must be refused, and of an estimator's manners.

Each is given a `Case`: an estimator with a table to learn from, and the ways to fail.
"""

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import joblib
import numpy as np
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from bagwise import saving
from bagwise.bags import Bags, aggregate, random_bags
from bagwise.cross_validation import BagKFold, label_free_scorer
from bagwise.utils.typing import Floats

_LONGEST = 500  # characters of an error message: more is not read


class Case:
    """An estimator, and 600 rows whose label depends on the first two of four features, in bags of 10.

    Labels are 0 and 1 for a classifier, real ones for a regressor.  sizes: of the bags in place of 10, repeated.
    """

    def __init__(self, estimator: Any, sizes: tuple[int, ...] | None = None) -> None:
        rng = np.random.default_rng(0)
        self.estimator = estimator
        self.X = rng.normal(size=(600, 4))
        self.signal = 1.5 * self.X[:, 0] + self.X[:, 1]
        certain = 1 / (1 + np.exp(-self.signal))
        self.y = (rng.random(600) < certain).astype(float) if is_classifier(estimator) else self.signal + 2
        self.ids = random_bags(600, 10, random_state=0)
        if sizes is not None:
            self.ids = rng.permutation(np.repeat(np.arange(600), np.resize(sizes, 600))[:600])
        self.proportion = aggregate(self.y, self.ids)

    @cached_property
    def model(self) -> Any:
        """Fitted to the table."""
        return self.fitted(self.X, self.proportion, self.ids)

    @property
    def learns_little(self) -> bool:
        """Whether the tags say that small tables teach it nothing."""
        tags = get_tags(self.estimator)
        return bool((tags.classifier_tags or tags.regressor_tags).poor_score)

    def fitted(self, X: Any, y: Any = None, bags: Any = None, *, on: str = "bags") -> Any:
        """A fitted clone; `on` says on what, where that fails."""
        with self.succeeding(f"fit on {on}"):
            return clone(self.estimator).fit(X, y, bags=bags)

    def outputs(self, model: Any) -> Floats:
        """Probabilities of a classifier, predictions of a regressor."""
        return np.asarray(model.predict_proba(self.X) if is_classifier(model) else model.predict(self.X))

    def require(self, holds: Any, sentence: str) -> None:
        """Raise the sentence after the estimator's name, unless something holds."""
        if not holds:
            raise AssertionError(f"{type(self.estimator).__name__}: {sentence}")

    def same(self, model: Any, expected: Any, when: str, *, exactly: bool = False) -> None:
        """Raise where predictions of two models differ that should not."""
        tolerance = 0.0 if exactly else float(getattr(self.estimator, "_check_tolerance", 1e-6))
        found, wanted = self.outputs(model), self.outputs(expected)
        self.require(found.shape == wanted.shape, f"predictions have another shape {when}.")
        gap = np.abs(found - wanted).max()
        close = np.allclose(found, wanted, rtol=tolerance, atol=tolerance)
        self.require(close, f"predictions change by up to {gap:.2g} {when}.")

    @contextmanager
    def succeeding(self, what: str) -> Iterator[None]:
        """A block in which any error means that the estimator failed."""
        try:
            yield
        except Exception as error:
            self.require(False, f"{what} raises {_told(error)}")

    def refuses_fit(self, what: str, X: Any, y: Any = None, bags: Any = None, *, naming: str = "") -> None:
        """Raise unless `fit` refuses what it is given."""
        self.refuses(f"fit on {what}", lambda: clone(self.estimator).fit(X, y, bags=bags), naming=naming)

    def refuses(
        self, what: str, action: Callable[[], Any], *, kind: type[Exception] = ValueError, naming: str = ""
    ) -> None:
        """Raise unless the action ends in an error of that kind, whose message is short and names a bag or a number."""
        try:
            action()
        except kind as error:
            said = len(str(error)) <= _LONGEST and re.search(rf"\b{naming}\b", str(error))
            self.require(said, f"the error of {what} does not say so: {str(error)[:200]!r}.")
        except Exception as error:
            self.require(False, f"{what} should raise a {kind.__name__}, not {_told(error)}")
        else:
            self.require(False, f"{what} should raise a {kind.__name__}, and is accepted.")


def _told(error: Exception) -> str:
    """Kind and first line of an error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or ['(no message)'])[0]}"


# -- how rows are grouped in bags ---------------------------------------------------------------------------------


def check_order_of_rows(case: Case) -> None:
    """Rows in another order give the same model."""
    shuffle = np.random.default_rng(1).permutation(len(case.X))
    model = case.fitted(case.X[shuffle], case.proportion[shuffle], case.ids[shuffle], on="shuffled rows")
    case.same(model, case.model, "when rows are shuffled")


def check_order_of_bags(case: Case) -> None:
    """Bags that follow each other in another order give the same model."""
    forward, backward = (
        case.fitted(case.X[order], case.proportion[order], case.ids[order], on="sorted bags")
        for order in (np.argsort(sign * case.ids, kind="stable") for sign in (1, -1))
    )
    case.same(backward, forward, "when bags are listed in another order")


def check_bags_of_unequal_size(case: Case) -> None:
    """Bags of 1 to 30 rows are learned from."""
    case = Case(case.estimator, sizes=(1, 3, 9, 2, 30))
    h = case.outputs(case.fitted(case.X, case.proportion, case.ids, on="bags of unequal size"))
    h = h[:, -1] if h.ndim == 2 else h
    case.require(np.isfinite(h).all(), "predictions are not finite when bags have unequal sizes.")
    learned = case.learns_little or (h.std() > 0 and np.corrcoef(h, case.signal)[0, 1] > 0.5)
    case.require(learned, "a plain signal is not learned when bags have unequal sizes.")


def check_ids_of_any_kind(case: Case) -> None:
    """Ids may be numbers, strings, tuples, a pandas column; or bags a `Bags`."""
    import pandas as pd

    strings = np.array([f"{number:04d}" for number in case.ids])
    kinds = {
        "strings": strings,
        "a pandas column": pd.Series(strings, index=np.arange(len(strings))[::-1]),
        "floats": case.ids.astype(float),
        "tuples": [("bag", int(number)) for number in case.ids],
    }
    for kind, ids in kinds.items():
        model = case.fitted(case.X, case.proportion, ids, on=f"ids that are {kind}")
        case.same(model, case.model, f"when ids are {kind}")
    model = case.fitted(case.X, bags=Bags.from_rows(case.proportion, case.ids), on="a Bags, without y")
    case.same(model, case.model, "when bags are a Bags")


def check_bags_of_one_row(case: Case) -> None:
    """Bags of one row each are ordinary supervision."""
    without = case.fitted(case.X, case.y, on="labels")
    with_bags = case.fitted(case.X, case.y, np.arange(len(case.y)), on="bags of one row")
    case.same(with_bags, without, "when each row is given as its own bag")


def check_rows_in_no_bag(case: Case) -> None:
    """Rows whose id is −1, or None among strings, do not count, whatever they hold."""
    X = np.vstack([10 * case.X[:50], case.X])
    y = np.r_[np.full(50, np.nan), case.proportion]
    strings: list[Any] = [f"{number:04d}" for number in case.ids]
    for missing, ids in (("−1", np.r_[np.full(50, -1), case.ids]), ("None", [None] * 50 + strings)):
        model = case.fitted(X, y, ids, on="rows of which some are in no bag")
        case.same(model, case.model, f"when there are rows in no bag (id {missing})")


def check_declared_noise(case: Case) -> None:
    """Where noise is declared, reports may be anything finite."""
    noised = Bags.from_rows(3 * case.proportion - 1, case.ids, noise_variance=5.0)
    h = case.outputs(case.fitted(case.X, bags=noised, on="bags with declared noise"))
    case.require(np.isfinite(h).all(), "predictions are not finite after a fit on bags with declared noise.")


# -- what cannot be learned from is refused with a clear sentence ---------------------------------------------------


def check_infinite_features(case: Case) -> None:
    """Infinite features are refused by `fit` and `predict`; so is NaN, unless the tag allow_nan is set."""
    model = case.model
    for value in (np.nan, -np.inf):
        X = case.X.copy()
        X[7, 1] = value
        if np.isnan(value) and get_tags(case.estimator).input_tags.allow_nan:
            case.fitted(X, case.proportion, case.ids, on="features with NaN, which the tags allow").predict(X)
            continue
        case.refuses_fit(f"a feature that is {value}", X, case.proportion, case.ids)
        case.refuses(f"predict on a feature that is {value}", lambda X=X: model.predict(X))  # type: ignore[misc]


def check_two_proportions_in_a_bag(case: Case) -> None:
    """A bag whose rows carry two proportions is refused, by name."""
    case.proportion[np.flatnonzero(case.ids == 13)[1]] += 0.1
    case.refuses_fit("two proportions in bag 13", case.X, case.proportion, case.ids, naming="13")


def check_missing_proportion(case: Case) -> None:
    """A bag that reports NaN is refused, by name."""
    proportion = np.where(case.ids == 13, np.nan, case.proportion)
    case.refuses_fit("a bag 13 that reports NaN", case.X, proportion, case.ids, naming="13")


def check_one_bag_only(case: Case) -> None:
    """One bag is not enough, and none is not either."""
    half = np.full(len(case.X), 0.5)
    case.refuses_fit("one bag", case.X, half, np.zeros(len(half), dtype=int))
    case.refuses_fit("rows that are all in no bag", case.X, half, np.full(len(half), -1))


def check_lengths(case: Case) -> None:
    """X, y and bags of different lengths are refused, with the numbers."""
    case.refuses_fit("600 rows with 599 proportions", case.X, case.proportion[:-1], case.ids, naming="599")
    case.refuses_fit("600 rows with 599 bag ids", case.X, case.proportion, case.ids[:-1], naming="599")
    case.refuses_fit("a Bags of another table", case.X, bags=Bags.from_rows([0.0, 1.0], [0, 1]), naming="600")


def check_empty_table(case: Case) -> None:
    """A table without rows is refused."""
    case.refuses_fit("an empty table", case.X[:0], case.proportion[:0], case.ids[:0])


def check_not_fitted(case: Case) -> None:
    """Predicting before `fit` is a NotFittedError."""
    case.refuses("predict before fit", lambda: clone(case.estimator).predict(case.X), kind=NotFittedError)


def check_proportions_outside_0_1(case: Case) -> None:
    """Counts in the place of proportions, without declared noise, are refused."""
    case.refuses_fit("proportions outside [0, 1]", case.X, 10 * case.proportion, case.ids)


def check_one_class_only(case: Case) -> None:
    """Bags that report one class only are refused."""
    for value in (0.0, 1.0):
        case.refuses_fit(f"bags that all report {value:g}", case.X, np.full(len(case.X), value), case.ids)


def check_one_real_label(case: Case) -> None:
    """Real labels may be any numbers, but one per row."""
    model = case.fitted(case.X, 100 * case.proportion - 50, case.ids, on="large and negative means")
    case.require(np.isfinite(model.predict(case.X)).all(), "predictions of large labels are not finite.")
    case.refuses_fit("a y of two columns", case.X, np.stack([case.proportion] * 2, axis=1), case.ids)


# -- manners: what it returns, keeps, repeats, saves and passes on --------------------------------------------------


def check_predictions(case: Case) -> None:
    """One finite prediction per row; probabilities in [0, 1] that sum to 1; classes 0 and 1 by the larger one."""
    _check_outputs(case, case.model, 2)


def check_several_classes(case: Case) -> None:
    """Columns of proportions are classes 0, 1, …; columns that do not sum to 1 are refused."""
    labels = np.digitize(case.X[:, 0], [-0.5, 0.5])
    proportion = aggregate((labels[:, None] == np.arange(3)).astype(float), case.ids)
    model = case.fitted(case.X, proportion, case.ids, on="proportions of three classes")
    _check_outputs(case, model, 3)
    learned = case.learns_little or model.score(case.X, labels) > 0.5
    case.require(learned, "three classes that one feature tells apart are not learned.")
    wrong = np.tile([0.5, 0.2, 0.2], (len(case.X), 1))
    case.refuses_fit("class proportions that do not sum to 1", case.X, wrong, case.ids)


def _check_outputs(case: Case, model: Any, classes: int) -> None:
    n, h, predicted = len(case.X), case.outputs(model), np.asarray(model.predict(case.X))
    case.require(np.isfinite(h).all(), "predictions are not finite.")
    case.require(predicted.shape == (n,), f"predict returns shape {predicted.shape} for {n} rows.")
    if not is_classifier(case.estimator):
        return
    proper = h.shape == (n, classes) and h.min() >= 0 and h.max() <= 1 and np.allclose(h.sum(axis=1), 1)
    case.require(proper, f"predict_proba must return {classes} numbers in [0, 1] per row that sum to 1.")
    numbered = np.array_equal(model.classes_, np.arange(classes))
    case.require(numbered, f"classes_ must be 0 … {classes - 1} after a fit on bags, and is {model.classes_}.")
    chosen = np.take_along_axis(h, np.searchsorted(model.classes_, predicted)[:, None], axis=1)[:, 0]
    case.require(np.allclose(chosen, h.max(axis=1)), "predict does not return the most probable class.")


def check_same_seed_same_model(case: Case) -> None:
    """The same fit twice gives the same model, to the last bit."""
    again = case.fitted(case.X, case.proportion, case.ids)
    case.same(again, case.model, "when the same fit is repeated", exactly=True)


def check_fit_starts_anew(case: Case) -> None:
    """A second `fit` forgets the first."""
    model = case.fitted(case.X[:, :2], case.y[::-1].copy(), on="labels")
    with case.succeeding("a second fit, on other columns,"):
        model.fit(case.X, case.proportion, bags=case.ids)
    case.same(model, case.model, "when the model was fitted before")


def check_fit_changes_nothing_given(case: Case) -> None:
    """`fit` changes neither its parameters nor X, y and bags."""
    model = clone(case.estimator)
    parameters = {key: joblib.hash(value) for key, value in model.get_params().items()}
    given = {"X": case.X, "y": case.proportion, "bags": case.ids}
    before = {key: value.copy() for key, value in given.items()}
    with case.succeeding("fit on bags"):
        model.fit(**given)
    for key, value in model.get_params().items():
        case.require(joblib.hash(value) == parameters.get(key), f"fit changes its parameter {key!r}.")
    for key, value in given.items():
        case.require(np.array_equal(value, before[key]), f"fit writes into {key}.")
        case.require(value.flags.writeable, f"fit makes {key} read-only.")


def check_clone(case: Case) -> None:
    """A clone of a fitted model has its parameters, is not fitted, and learns the same."""
    model = case.model
    with case.succeeding("clone of a fitted model"):
        copy = clone(model)
    for key in vars(copy):
        case.require(key.startswith("_") or not key.endswith("_"), f"a clone keeps {key}, which was learned.")
    with case.succeeding("fit of a clone"):
        copy.fit(case.X, case.proportion, bags=case.ids)
    case.same(copy, model, "when a clone is fitted to the same data", exactly=True)


def check_save_and_load(case: Case) -> None:
    """A model that was saved and loaded, without pickle, predicts the same to the last bit."""
    model = case.model
    with tempfile.TemporaryDirectory() as place:
        with case.succeeding("save"):
            saving.save(model, f"{place}/model")
        with case.succeeding("load"):
            again = saving.load(f"{place}/model")
    with case.succeeding("predict of a loaded model"):
        again.predict(case.X)
    case.same(again, model, "when the model is saved and loaded", exactly=True)


def check_feature_names(case: Case) -> None:
    """Names of columns are remembered; a table with others, or with their order changed, is refused."""
    import pandas as pd

    frame = pd.DataFrame(case.X, columns=["a", "b", "c", "d"])
    model = case.fitted(frame, case.proportion, case.ids, on="a data frame")
    named = list(getattr(model, "feature_names_in_", ())) == list(frame.columns)
    case.require(named, "feature_names_in_ does not hold the names of the columns.")
    case.require(getattr(model, "n_features_in_", None) == 4, "n_features_in_ is not the number of columns.")
    for what, columns in (("columns in another order", list("bacd")), ("a column less", list("abc"))):
        other = frame[columns]
        case.refuses(f"predict on {what}", lambda other=other: model.predict(other))  # type: ignore[misc]


def check_pipelines_and_searches(case: Case) -> None:
    """Bags reach `fit` through a pipeline and cross-validation, by scikit-learn's metadata routing."""
    routed = hasattr(case.estimator, "set_fit_request")
    case.require(routed, "fit does not ask for bags by scikit-learn's metadata routing.")
    with config_context(enable_metadata_routing=True), case.succeeding("cross-validation of a pipeline"):
        result = cross_validate(
            make_pipeline(StandardScaler(), clone(case.estimator).set_fit_request(bags=True)),
            case.X,
            case.proportion,
            params={"bags": case.ids},
            cv=BagKFold(3, random_state=0),
            scoring=label_free_scorer("neg_risk"),
            error_score="raise",
        )
    finite = np.isfinite(result["test_score"]).all()
    case.require(finite, "cross-validation of a pipeline gives scores that are not finite.")
