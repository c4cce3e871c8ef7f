"""What classes are called: after the columns of reports, through estimators, folders and updates."""

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.classes import read_reports
from bagwise.utils.parameters import ParameterError


@pytest.fixture
def reported():
    """Rows, their labels in words, ids, and a table of proportions by class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    labels = np.array(["blue", "green", "red"])[np.digitize(X[:, 0] + 0.3 * rng.normal(size=3000), [-0.5, 0.5])]
    ids = bw.random_bags(3000, 10, random_state=0)
    one_hot = pd.get_dummies(pd.Series(labels), dtype=float)
    return X, labels, ids, pd.DataFrame(bw.aggregate(one_hot, ids), columns=one_hot.columns)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_classes_are_called_as_columns_are(reported, kind):
    X, labels, ids, y = reported
    table = y if kind == "pandas" else pytest.importorskip("polars").from_pandas(y)
    model = bw.BagRidgeClassifier(random_state=0).fit(X, table, bags=ids)
    assert model.classes_.tolist() == ["blue", "green", "red"]
    assert set(model.predict(X)) == {"blue", "green", "red"}
    assert model.score(X, labels) > 0.65  # the most frequent class has 0.38
    plain = bw.BagRidgeClassifier(random_state=0).fit(X, y.to_numpy(), bags=ids)
    np.testing.assert_array_equal(plain.predict_proba(X), model.predict_proba(X))
    assert plain.classes_.tolist() == [0, 1, 2]


def test_of_two_classes_the_second_is_reported(reported, tmp_path):
    X, labels, ids, y = reported
    two = pd.DataFrame({"other": y["blue"] + y["green"], "red": y["red"]})
    model = bw.BagLogisticClassifier(alphas=1.0, cv=2, random_state=0).fit(X, two, bags=ids)
    plain = bw.BagLogisticClassifier(alphas=1.0, cv=2, random_state=0).fit(X, y["red"], bags=ids)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    bw.save(model, tmp_path / "model")
    loaded = bw.load(tmp_path / "model")
    assert loaded.classes_.tolist() == ["other", "red"]
    assert np.mean(loaded.predict(X) == np.where(labels == "red", "red", "other")) > 0.85
    held = np.where(ids < 200, -1, ids)
    model.fit(X, two, bags=np.where(ids < 200, ids, -1))
    found, plainly = (bw.evaluate(model, X, one, bags=held).accuracy.value for one in (two, y["red"]))
    assert found == pytest.approx(plainly)


def test_updates_keep_the_names(reported):
    X, _, ids, y = reported
    two = pd.DataFrame({"other": y["blue"] + y["green"], "red": y["red"]})
    model = bw.BagRidgeClassifier(random_state=0).partial_fit(X, two, bags=ids)
    model.partial_fit(X, two, bags=ids)
    assert model.classes_.tolist() == ["other", "red"]
    with pytest.raises(ParameterError, match=r"y names the classes \['other', 'rot'\].*were \['other', 'red'\] before"):
        model.partial_fit(X, two.rename(columns={"red": "rot"}), bags=ids)


@pytest.mark.parametrize("columns", [["red", "blue"], ["red", "red"], ["red", 1]])
def test_names_out_of_order_are_refused(columns):
    """Measures of scikit-learn take the order of classes for that of their names."""
    with pytest.raises(ParameterError, match=r"y has columns \['red'.*in the order of their names"):
        read_reports(pd.DataFrame(np.full((4, 2), 0.5), columns=columns), [0, 0, 1, 1], 4)


def test_columns_of_classes_add_up_to_one():
    with pytest.raises(ValueError, match=r"bag 1 reports class proportions that sum to 0\.9"):
        read_reports(pd.DataFrame({"no": [0.5, 0.4], "yes": [0.5, 0.5]}), [0, 1], 2)
