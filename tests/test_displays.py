import numpy as np
import pytest
from matplotlib.figure import Figure

import bagwise as bw


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6400, 1))
    y = (rng.random(6400) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype(float)
    ids = np.arange(6400) // 32
    return x, bw.aggregate(y, ids), ids


@pytest.mark.parametrize("display", [bw.BagCalibrationDisplay, bw.BagRocDisplay, bw.BagFunnelDisplay])
def test_displays_draw_models_and_predictions(data, display):
    x, y_bag, ids = data
    train = ids < 100
    model = bw.BagRidgeClassifier(random_state=0).fit(x[train], y_bag[train], bags=ids[train])
    panel = Figure().add_subplot()
    shown = display.from_estimator(model, x[~train], y_bag[~train], bags=ids[~train], ax=panel)
    assert shown.ax_ is panel
    assert panel.lines
    h = model.predict_proba(x[~train])[:, 1]
    assert display.from_predictions(h, y_bag[~train], bags=ids[~train]).figure_ is not panel.figure


def test_calibration_is_of_bags_where_rows_are_unknown(data):
    x, y_bag, ids = data
    h = 1 / (1 + np.exp(-2 * x[:, 0]))
    with pytest.warns(bw.evaluation.BagsNotRandomWarning):
        shown = bw.BagCalibrationDisplay.from_predictions(h, y_bag, bags=ids, formation="features")
    assert shown.ax_.get_xlabel() == "mean prediction of bags"
    with pytest.raises(ValueError, match="cannot be told from these bags"):
        bw.BagRocDisplay(shown.evaluation).plot()
    assert shown.evaluation.plot().ax_.get_xlabel() == "mean prediction of bags"
    assert "<table>" in shown.evaluation._repr_html_()


def test_bags_beyond_the_funnel_are_seen(data):
    x, y_bag, ids = data
    h = 1 / (1 + np.exp(-2 * x[:, 0]))
    right = bw.BagFunnelDisplay.from_predictions(h, y_bag, bags=ids)
    assert 0.9 < (np.abs(right.gap) < right.limit).mean() < 0.99
    moved = np.where(ids == 3, np.minimum(y_bag + 0.6, 1), y_bag)
    wrong = bw.BagFunnelDisplay.from_predictions(h, moved, bags=ids)
    assert abs(wrong.gap[3]) > wrong.limit[3]
    with pytest.raises(ValueError, match="needs predictions of one class"):
        bw.BagFunnelDisplay.from_predictions(np.full((6400, 3), 1 / 3), np.full((6400, 3), 1 / 3), bags=ids)
