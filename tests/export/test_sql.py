"""Queries tell in DuckDB and Spark what models tell; what SQL has no words for is told in a sentence."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.export import CannotExportError, to_sql
from tests.export.conftest import KINDS, VALUE_KINDS, events, expected, later

pytest.importorskip("sqlglot", reason="sqlglot is not installed: pip install 'bagwise[sql]'")
pytestmark = pytest.mark.filterwarnings("ignore::bagwise.tables.UnseenValuesWarning")
IN_SQL = [kind for kind in KINDS if kind != "network"]
_IN_SINGLE = 2e-6  # linear models read columns in single precision, engines in double


def in_duckdb(model: Any, rows: pd.DataFrame, **options: Any) -> pd.DataFrame:
    duck = duckdb.connect(config={"threads": 1})
    duck.execute("SET TimeZone = 'UTC'")
    duck.register("rows", rows)
    return duck.sql(to_sql(model, "rows", **options)).to_arrow_table().to_pandas()


def check(model: Any) -> None:
    for rows in (events(3), later()):
        found = in_duckdb(model, rows, keep=["row"])
        assert list(found.columns) == ["row", *model.predictions]
        said = found.sort_values("row")[list(model.predictions)].to_numpy()
        np.testing.assert_allclose(said, expected(model, rows), rtol=1e-5, atol=_IN_SINGLE)


@pytest.mark.parametrize("kind", IN_SQL)
def test_two_classes(of_kind: Any, kind: str) -> None:
    check(of_kind(kind))


@pytest.mark.parametrize("kind", IN_SQL)
def test_several_classes(of_kind: Any, kind: str) -> None:
    check(of_kind(kind, classes=3))


@pytest.mark.parametrize("kind", [kind for kind in VALUE_KINDS if kind != "network"])
def test_values(of_kind: Any, kind: str) -> None:
    check(of_kind(kind, "value"))


def test_columns_of_training_are_handed_on_unless_others_are_named(of_kind: Any) -> None:
    model, rows = of_kind("logistic"), events(3)
    trained = [one.name for one in model.features.columns]
    assert list(in_duckdb(model, rows).columns) == [*trained, "prediction"]
    assert list(in_duckdb(model, rows, keep=[]).columns) == ["prediction"]
    with pytest.raises(ValueError, match="keep names column 'prediction', which is that of a prediction"):
        to_sql(model, keep=["prediction"])


def test_what_is_not_finite_is_missing(of_kind: Any) -> None:
    """NaN, which engines order differently; predict refuses infinity."""
    model, rows = of_kind("boosting"), events(3)
    duck = duckdb.connect()
    duck.register("given", rows)
    duck.execute("CREATE TABLE rows AS SELECT * REPLACE (coalesce(x, 'nan'::DOUBLE) AS x) FROM given")
    assert duck.sql("SELECT count(*) FROM rows WHERE isnan(x)").fetchall()[0][0] > 100
    found = duck.sql(to_sql(model, "main.rows", keep=["row"])).df().sort_values("row")["prediction"]
    np.testing.assert_allclose(found, expected(model, rows)[:, 0], atol=1e-9)


def test_a_column_may_be_called_what_it_likes() -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(640, 2)), columns=['a "quoted" name', "select"])
    model = KINDS["logistic"]().fit(X, X["select"] > 0)
    duck = duckdb.connect()
    duck.register("rows", X)
    found = duck.sql(to_sql(model, "rows", keep=[])).df()["prediction"]
    np.testing.assert_allclose(found, model.predict_proba(X)[:, 1], atol=1e-9)


@pytest.mark.parametrize("dialect", ["postgres", "bigquery", "snowflake", "tsql", "mysql", "trino", "redshift"])
def test_other_dialects_can_be_read_again(of_kind: Any, dialect: str) -> None:
    import sqlglot

    for kind in ("logistic", "boosting"):
        parsed = sqlglot.parse_one(to_sql(of_kind(kind), "place.rows", dialect=dialect), read=dialect)
        assert "rows" in {table.name for table in parsed.find_all(sqlglot.exp.Table)}


def test_parentheses_are_no_deeper_where_trees_are_many(torch: Any) -> None:
    """Spark's parser reads what is in parentheses anew for each pair around it: its driver ran out of memory."""
    X = np.random.default_rng(0).normal(size=(1280, 3))

    def depth(n_estimators: int) -> tuple[int, int]:
        model = bw.BagBoostingClassifier(n_estimators=n_estimators, objective="square", n_jobs=1, random_state=0)
        query = to_sql(model.fit(X, X[:, 0] * X[:, 1] > 0), keep=[], dialect="spark")
        deep = np.cumsum([{"(": 1, ")": -1}.get(letter, 0) for letter in query])
        return query.count("CAST(CASE"), int(deep.max())

    (few, one), (many, other) = depth(5), depth(60)
    assert few < 50 < 4 * 50 < many
    assert other <= one + 1


def test_what_has_no_sql_says_so(of_kind: Any) -> None:
    with pytest.raises(CannotExportError, match=r"^a network cannot be written as SQL: export it to onnx or torch\.$"):
        to_sql(of_kind("network"))
    with pytest.raises(ValueError, match=r"max_leaves must be larger: the trees have .* got 10; or export to onnx"):
        to_sql(of_kind("boosting"), max_leaves=10)
    with pytest.raises(ValueError, match=r"dialect must be one that sqlglot knows .* got 'klingon'"):
        to_sql(of_kind("ridge"), dialect="klingon")
    with pytest.raises(ValueError, match="table must be what stands after FROM, got 'a b c; d'"):
        to_sql(of_kind("ridge"), "a b c; d")


def _spark_missing() -> str:
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'bagwise[spark]'"
    return "" if shutil.which("java") or os.environ.get("JAVA_HOME") else "Spark needs Java"


@pytest.mark.slow  # the first query of a session takes seconds
@pytest.mark.skipif(bool(_spark_missing()), reason=_spark_missing() or "ready")
def test_spark(of_kind: Any) -> None:
    from pyspark.sql import SparkSession

    settings = {"spark.sql.shuffle.partitions": 1, "spark.ui.enabled": False, "spark.sql.session.timeZone": "UTC"}
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    try:
        rows = later()
        frame = spark.createDataFrame(bw.tables.read(rows, bw.tables.connect(ordered=True)).fetch())
        frame.createOrReplaceTempView("rows")
        for kind, classes in (("logistic", 2), ("ridge", 3), ("boosting", 2)):
            model = of_kind(kind, classes=classes)
            query = to_sql(model, "rows", dialect="spark", keep=["row"])
            found = spark.sql(query).toArrow().to_pandas().sort_values("row")[list(model.predictions)]
            np.testing.assert_allclose(found.to_numpy(), expected(model, rows), rtol=1e-5, atol=_IN_SINGLE)
    finally:
        spark.stop()
