"""One booster of LightGBM tells what the mean of many does, or a sentence why it cannot."""

from __future__ import annotations

from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.export import CannotExportError, code_inputs, to_lightgbm
from tests.export.conftest import KINDS, events, expected, later

pytestmark = pytest.mark.filterwarnings("ignore::bagwise.tables.UnseenValuesWarning")
OPTIONS: Any = {"n_estimators": 12, "n_jobs": 1, "random_state": 0}


def fitted(**options: Any) -> Any:
    rows, rng = events().drop(columns=["at", "day", "town"]), np.random.default_rng(0)
    score = rows["x"].fillna(-1) + (rows["place"] == "north") + 0.1 * (rows["whole"] - 25)
    label = (score + rng.logistic(size=len(rows)) > 0.5).astype(int).groupby(rows["bag"]).sum().rename("count")
    data = bw.tables.join(rows, label.reset_index(), ignore="row")
    model = bw.BagBoostingClassifier(objective="likelihood", **{**OPTIONS, **options})
    return bw.tables.fit(data, model, roles={"grade": "category"})


def test_a_table_of_pandas_with_gaps(tmp_path: Any) -> None:
    model = fitted()
    assert len([fit for fits in model.estimator.fits_.values() for fit in fits]) > 1
    to_lightgbm(model).save_model(tmp_path / "model.txt")
    booster, rows = lgb.Booster(model_file=tmp_path / "model.txt"), later()
    names = [column.name for column in model.features.columns if column.made]
    read = rows[names].assign(flag=rows["flag"].astype(float))
    for name in ("place", "grade"):
        texts = rows[name].map("{:g}".format) if name == "grade" else rows[name]
        read[name] = pd.Categorical(texts)  # in whatever order, with whatever else
    np.testing.assert_allclose(booster.predict(read), expected(model, rows)[:, 0], atol=1e-9)
    assert np.ptp(booster.predict(read)) > 0.1
    assert booster.feature_name() == names
    shares = booster.predict(read, pred_contrib=True).sum(axis=1)
    np.testing.assert_allclose(shares, booster.predict(read, raw_score=True), atol=1e-9)


def test_codes_of_hashed_text_and_times(of_kind: Any) -> None:
    rows, later_rows = events(), later()
    counts = (rows["x"] > 0).groupby(rows["bag"]).sum().rename("count").reset_index()
    data = bw.tables.join(rows, counts, ignore="row")
    model = bw.tables.fit(data, bw.BagBoostingClassifier(objective="likelihood", **OPTIONS))
    codes = code_inputs(model, later_rows)
    np.testing.assert_allclose(to_lightgbm(model).predict(codes), expected(model, later_rows)[:, 0], atol=1e-9)


def test_values_that_add_up_as_they_are_and_updates() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1280, 2))
    bags = bw.random_bags(1280, size=8, random_state=0)
    values = bw.BagBoostingRegressor(**OPTIONS).fit(X, bw.aggregate(X[:, 0], bags), bags=bags)
    np.testing.assert_allclose(to_lightgbm(values).predict(X), values.predict(X), atol=1e-9)
    y = (X[:, 0] + rng.logistic(size=1280) > 0).astype(int)
    model = bw.BagBoostingClassifier(objective="likelihood", **OPTIONS).fit(X, bw.aggregate(y, bags), bags=bags)
    model.partial_fit(X, bw.aggregate((X[:, 1] > 0).astype(int), bags), bags=bags)
    assert model.updates_
    np.testing.assert_allclose(to_lightgbm(model).predict(X), model.predict_proba(X)[:, 1], atol=1e-9)


def test_auto_that_chose_boosting() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1280, 2))
    boosting = bw.BagBoostingClassifier(objective="likelihood", **OPTIONS)
    model = bw.BagAutoClassifier(candidates={"boosting": boosting}, cv=2, random_state=0).fit(X, X[:, 0] > 0)
    np.testing.assert_allclose(to_lightgbm(model).predict(X), model.predict_proba(X)[:, 1], atol=2e-6)


def test_what_one_booster_cannot_say_is_told_in_a_sentence(of_kind: Any) -> None:
    with pytest.raises(
        CannotExportError, match=r"^some fits add up as probabilities, .*: fit it with objective='likelihood' .*--set"
    ):
        to_lightgbm(of_kind("boosting"))
    with pytest.raises(CannotExportError, match=r"^boosted trees of several classes are normalised .*: export to onnx"):
        to_lightgbm(of_kind("boosting", classes=3))
    with pytest.raises(CannotExportError, match=r"^a linear model is no booster of LightGBM: export to sql or onnx"):
        to_lightgbm(of_kind("ridge"))
    with pytest.raises(CannotExportError, match=r"^a network is no booster of LightGBM: export to onnx or torch"):
        to_lightgbm(of_kind("network"))
    with pytest.raises(CannotExportError, match="one booster cannot say"):
        to_lightgbm(of_kind("boosting", "value"))
    flat = KINDS["boosting"]().fit(np.zeros((64, 1)), np.tile([0, 1], 32))
    with pytest.raises(CannotExportError, match="the model has no trees"):
        to_lightgbm(flat)
