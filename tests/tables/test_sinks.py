"""Scores in tables: of DuckDB files and of connections, whole or not at all; what cannot be gets one sentence."""

from __future__ import annotations

from functools import cache
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise import tables


@cache
def fitted() -> tuple[Any, pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"row": np.arange(2_400), "bag": np.arange(2_400) // 8, "x": rng.normal(size=2_400)})
    count = (rows["x"] + rng.logistic(size=2_400) > 0).groupby(rows["bag"]).sum().rename("count").reset_index()
    return tables.fit(tables.join(rows, count, ignore="row"), bw.BagRidgeClassifier(random_state=0)), rows, count


@pytest.fixture
def place(tmp_path: Any) -> Any:
    """A DuckDB file with a table of events."""
    with duckdb.connect(str(tmp_path / "w.duckdb")) as own:
        own.register("rows", fitted()[1])
        own.execute("CREATE TABLE events AS FROM rows")
    return tmp_path / "w.duckdb"


def table_of(file: Any, name: str = "scores") -> pd.DataFrame:
    with duckdb.connect(str(file), read_only=True) as own:
        return own.sql(f"FROM {name}").df()


def check(found: pd.DataFrame) -> None:
    model, rows, _ = fitted()
    assert found["row"].tolist() == rows["row"].tolist()
    np.testing.assert_allclose(found["prediction"], model.predict_proba(rows)[:, 1], atol=1e-12)


def test_a_file_is_made_where_there_is_none(tmp_path: Any) -> None:
    model, rows, _ = fitted()
    scored = tables.write_scores(model, rows, f"{tmp_path}/new/s.duckdb::my scores", keep=["row"])
    assert scored.rows == 2_400
    check(table_of(tmp_path / "new" / "s.duckdb", '"my scores"'))


def test_rows_and_scores_may_be_in_one_file(place: Any) -> None:
    """Which is open for reading while rows are scored, and again afterwards."""
    model, own = fitted()[0], tables.connect(ordered=True)
    given: dict[str, Any] = {"keep": ["row"], "connection": own}
    tables.write_scores(model, f"{place}::events", f"{place}::scores", **given)
    assert tables.read(f"{place}::events", own).count() == 2_400
    tables.write_scores(model, f"{place}::events", f"{place}::events", force=True, **given)
    own.close()
    check(table_of(place))
    check(table_of(place, "events"))


def test_a_table_that_is_there_is_kept_unless_it_is_to_be_replaced(place: Any) -> None:
    model, rows, _ = fitted()
    for out in (f"{place}::Events", f"{place}::events"):
        with pytest.raises(
            ValueError, match=r"^out names a table that is there already \([Ee]vents\): .* pass force to"
        ):
            tables.write_scores(model, rows, out)
    assert "prediction" not in table_of(place, "events")
    tables.write_scores(model, rows, f"{place}::events", keep=["row"], force=True)
    check(table_of(place, "events"))


def test_tables_of_a_connection(place: Any) -> None:
    model, rows, _ = fitted()
    with duckdb.connect(str(place)) as own:
        own.execute("CREATE SCHEMA s")
        tables.write_scores(model, own.table("events"), "::scores", keep=["row"], connection=own)
        tables.write_scores(model, rows, "::s.scores", keep=["row"], connection=own)
        tables.write_scores(model, rows, f"{place}::third", keep=["row"], connection=own)  # it holds the file
        for name in ("scores", "s.scores", "third"):
            check(own.sql(f"FROM {name} ORDER BY row").df())
        with pytest.raises(ValueError, match=r"out names a table that is there already \(s.scores\)"):
            tables.write_scores(model, rows, "::s.scores", connection=own)
        with pytest.raises(ValueError, match=r"w.duckdb cannot be written: .*already attached"):
            tables.write_scores(model, rows, f"{place}::other")  # by a connection that does not hold it


def test_nothing_is_left_of_scores_that_were_not_finished(place: Any, tmp_path: Any) -> None:
    model, rows, _ = fitted()
    wrong = rows.assign(x=np.where(rows["row"] == 2_000, np.inf, rows["x"]))
    for out in (f"{tmp_path}/new.duckdb::scores", f"{place}::events"):
        with pytest.raises(ValueError, match="column 'x' contains infinity"):
            tables.write_scores(model, wrong, out, force=True)
    assert [one.name for one in tmp_path.iterdir()] == ["w.duckdb"]
    assert list(table_of(place, "events")) == ["row", "bag", "x"]


def test_a_new_file_that_cannot_be_filled_is_removed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from bagwise.tables.engines import duckdb as engine

    model, rows, _ = fitted()
    monkeypatch.setattr(engine, "as_pattern", lambda file: "/nowhere.parquet")
    with pytest.raises(ValueError, match=r"the DuckDB file .*new.duckdb cannot be written: .*nowhere"):
        tables.write_scores(model, rows, f"{tmp_path}/new.duckdb::scores")
    assert not list(tmp_path.iterdir())


def test_scores_given_reports_add_up_in_a_table(place: Any) -> None:
    model, _, count = fitted()
    for name, reports in (("one", count), ("two", [count, count])):
        tables.write_scores(model, f"{place}::events", f"{place}::{name}", reports=reports)
        sums = table_of(place, name).groupby("bag")["prediction"].sum()
        np.testing.assert_allclose(sums.loc[count["bag"]], count["count"], atol=1e-4)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("scores.duckdb", "out must say which table of scores.duckdb to write: scores.duckdb::scores."),
        ("::scores", "out names a table of the engine that holds the rows, and these are in none: .* pass connection."),
        ("s3://place/scores.parquet", r"out is an address \(s3://.*\), to which Spark alone writes"),
        ("scores.json", "scores.json has an unknown ending: scores are written to .parquet or .csv, or to a table"),
    ],
)
def test_places_that_cannot_be_get_one_sentence(out: str, words: str) -> None:
    model, rows, _ = fitted()
    with pytest.raises(ValueError, match=words):
        tables.write_scores(model, rows, out)


def test_a_file_that_is_none_of_duckdb(tmp_path: Any) -> None:
    model, rows, _ = fitted()
    (tmp_path / "s.db").write_text("no database " * 1000)
    with pytest.raises(ValueError, match=r"the DuckDB file .*s.db cannot be written: .*not a valid DuckDB database"):
        tables.write_scores(model, rows, f"{tmp_path}/s.db::scores")
