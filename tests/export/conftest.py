"""Models of a table with a column of every kind, by the estimator that they are of."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise import tables

ROWS = 1_600
KINDS = {
    "ridge": lambda: bw.BagRidgeClassifier(random_state=0),
    "logistic": lambda: bw.BagLogisticClassifier(random_state=0),
    "sgd": lambda: bw.BagSGDClassifier(random_state=0),
    "mean-map": lambda: bw.BagMeanMapClassifier(random_state=0),
    "boosting": lambda: bw.BagBoostingClassifier(n_estimators=12, n_jobs=1, random_state=0),
    "group prior": lambda: bw.baselines.GroupPriorClassifier(n_estimators=5, n_jobs=1, random_state=0),
    "network": lambda: bw.BagNeuralClassifier(hidden=(4,), learning_rate=0.01, max_epochs=2, random_state=0),
}
VALUE_KINDS = {
    "ridge": lambda: bw.BagRidgeRegressor(random_state=0),
    "tweedie": lambda: bw.BagTweedieRegressor(random_state=0),
    "boosting": lambda: bw.BagBoostingRegressor(n_estimators=12, n_jobs=1, random_state=0),
    "network": lambda: bw.BagNeuralRegressor(hidden=(4,), learning_rate=0.01, max_epochs=2, random_state=0),
}


def events(seed: int = 0) -> pd.DataFrame:
    """Gaps, categories of text, numbers and truth values, hashed text, days before 1970 and times of a zone."""
    rng = np.random.default_rng(seed)
    minute = pd.Timestamp("1969-12-28", tz="Asia/Tokyo") + pd.to_timedelta(rng.integers(0, 20_000, ROWS), unit="min")
    return pd.DataFrame(
        {
            "row": np.arange(ROWS),
            "bag": np.arange(ROWS) // 8,
            "x": np.where(rng.random(ROWS) < 0.1, np.nan, rng.normal(size=ROWS)),
            "whole": rng.integers(0, 50, ROWS),
            "flag": rng.random(ROWS) < 0.5,
            "place": rng.choice(["north", "so'uth", "", None], ROWS),
            "grade": rng.choice([1.0, 1.5, 2.0], ROWS),
            "town": [f"town {one}" for one in rng.integers(0, 200, ROWS)],
            "day": minute.tz_localize(None).normalize().date,
            "at": minute,
        }
    )


def later() -> pd.DataFrame:
    """Rows that training did not have, some with gaps and texts that it did not have either."""
    rows = events(1)
    rows.loc[::7, ["whole", "at", "day"]] = None
    rows["whole"] = rows["whole"].astype("float")
    rows["place"] = rows["place"].where(rows["row"] % 5 > 0, "elsewhere")
    return rows


def _fitted(estimator: Any, target: str, classes: int) -> Any:
    rows, rng = events(), np.random.default_rng(2)
    score = rows["x"].fillna(-1) + (rows["place"] == "north") + (rows["grade"] > 1) - 0.5 * rows["flag"]
    if target == "value":
        sums = np.exp(score / 2).groupby(rows["bag"]).sum().rename("sum").reset_index()
        data = tables.join(rows, sums, sum="sum", ignore="row")
    else:
        names = ["low", "mid", "high"][:classes]
        label = np.digitize(score + rng.logistic(size=ROWS), [0.0, 1.5][: classes - 1])
        counts = pd.DataFrame({name: label == place for place, name in enumerate(names)}).groupby(rows["bag"]).sum()
        count: Any = names if classes > 2 else "mid"
        data = tables.join(rows, counts.reset_index(), count=count, ignore="row")
    return tables.fit(data, estimator, roles={"grade": "category"})


@pytest.fixture(scope="session")
def of_kind(torch: Any) -> Callable[..., Any]:
    """The model of a kind, fitted once."""

    @cache
    def fitted(kind: str, target: str = "label", classes: int = 2) -> Any:
        return _fitted((KINDS if target == "label" else VALUE_KINDS)[kind](), target, classes)

    return fitted


def expected(model: Any, rows: pd.DataFrame) -> Any:
    """(n, outputs) what `predict` tells of rows."""
    if model.target == "value":
        return model.predict(rows)[:, None]
    h = model.predict_proba(rows)
    return h if model.classes is not None else h[:, 1:]
