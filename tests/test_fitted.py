"""What fitted estimators say of themselves: to the log, which is silent unless asked, and in notebooks."""

import logging
import subprocess
import sys

import numpy as np
import pytest
from sklearn import config_context

import bagwise as bw
from bagwise.fitted import facts
from tests.test_base import ESTIMATORS, name


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 3))
    y = (rng.random(1200) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(float)
    ids = bw.random_bags(1200, 10, random_state=0)
    return X, bw.aggregate(y, ids), ids


def test_a_fit_tells_the_log_what_was_found_and_chosen(data, caplog):
    X, y, ids = data
    with caplog.at_level(logging.INFO, logger="bagwise"):
        model = bw.BagRidgeClassifier(formation="random", random_state=0).fit(X, y, bags=ids)
    said = [record.getMessage() for record in caplog.records]
    assert {record.name for record in caplog.records} == {"bagwise.fitted"}
    assert said[0].startswith("BagRidgeClassifier: fitted to 120 bags of 1,200 rows in ")
    assert said[1] == f"BagRidgeClassifier: formation: {model.formation_}"
    assert said[2].startswith(f"BagRidgeClassifier: chosen: alpha {model.alpha_:.3g}, scaling ")
    assert said[3].startswith(f"BagRidgeClassifier: gain: +{model.gain_:.3f} ± ")


def test_long_fits_tell_their_steps(data, caplog):
    X, y, ids = data
    candidates = {"ridge": bw.BagRidgeClassifier(), "boosting": bw.BagBoostingClassifier(n_estimators=20, n_fits=1)}
    with caplog.at_level(logging.DEBUG, logger="bagwise"):
        bw.BagAutoClassifier(candidates=candidates, cv=2, random_state=0).fit(X, y, bags=ids)
    tried = [record for record in caplog.records if record.name == "bagwise.auto.fitting"]
    assert {record.levelname for record in tried} == {"INFO"}
    assert {"'candidate': 'ridge'", "'candidate': 'boosting'"} <= {
        part for record in tried for part in record.getMessage().strip("{}").split(", ")
    }
    assert next(one.levelname for one in caplog.records if one.name == "bagwise.boosting.fitting") == "DEBUG"


def test_nothing_is_shown_by_default():
    code = (
        "import logging, numpy as np, bagwise as bw; ids = np.arange(400) // 4; X = np.random.rand(400, 2);"
        "y = bw.aggregate(X[:, 0] > 0.5, ids); bw.BagRidgeClassifier(random_state=0).fit(X, y, bags=ids);"
        "logging.getLogger('bagwise').error('nobody asked')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("", "")


def test_a_notebook_shows_formation_choice_and_gain(data):
    X, y, ids = data
    model = bw.BagLogisticClassifier(alphas=(1.0, 10.0), cv=2, random_state=0)
    assert "bagwise-facts" not in model._repr_html_()
    model.fit(X, y, bags=ids)
    for shown in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert "BagLogisticClassifier" in shown
        assert f"<li><b>formation</b> {model.formation_.name}: " in shown
        assert f"alpha {model.alpha_:.3g}" in shown
        assert f"{model.gain_:+.3f} ± " in shown
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]


def test_what_a_notebook_shows_is_escaped():
    model = bw.BagRidgeClassifier()
    model.formation_ = "rates: column '<script>' differs"
    assert "&lt;script&gt;" in model._repr_html_()
    assert "'<script>'" not in model._repr_html_()
    assert facts(model) == {"formation": "rates: column '<script>' differs"}


@pytest.mark.parametrize("estimator", [one for one in ESTIMATORS if "Auto" not in name(one)], ids=name)
def test_steps_are_counted_where_there_are_any(estimator, data):
    X, y, ids = data
    model = type(estimator)(**estimator.get_params()).fit(X, y, bags=ids)
    closed = "Ridge" in name(estimator) or "GroupPrior" in name(estimator)
    assert hasattr(model, "n_iter_") is not closed
    assert closed or 1 <= model.n_iter_ <= 200
