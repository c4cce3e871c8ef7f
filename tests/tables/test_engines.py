"""Engines: the same figures in all of them, nothing left behind, no row lost, and DuckDB as a connection of ours."""

from __future__ import annotations

import gc
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bagwise import tables
from bagwise.tables import connect, join, read
from bagwise.tables.bag_lines import aligned, joined, numbered
from bagwise.tables.columns import Column, Features, Role
from bagwise.tables.engines import engine_of
from bagwise.tables.engines.duckdb import DuckDB
from bagwise.tables.engines.spark import Spark
from bagwise.tables.reports import Keys, ReportColumns
from bagwise.tables.rests import Rests
from bagwise.tables.row_columns import NO_COLUMNS
from bagwise.tables.summary import figures_of
from bagwise.tables.table import Table, col, length

EVENTS = {"bag": [1, 1, 2, 2, 2, 3], "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
REPORTS = {"bag": [1, 2, 3], "count": [1, 2, 0]}


# -- DuckDB as a connection of ours -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"memory": "lots"}, "memory must be a size such as '2GB', got 'lots'"),
        ({"memory": -2}, "memory must be a size such as '2GB', got -2"),
        ({"memory": "-2GB"}, "memory must be a size such as '2GB', got '-2GB'"),
        ({"threads": 0}, "^threads must be a whole number of at least 1, .*got 0"),
        ({"threads": True}, "^threads must be a whole number of at least 1, .*got True"),
        ({"folder": "/no/such/place"}, "folder '/no/such/place' cannot be written to"),
    ],
)
def test_connections_that_cannot_be(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        connect(**options)


def test_what_is_no_connection_gets_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^connection must be a connection of DuckDB, .*, got str"):
        join(EVENTS, REPORTS, connection="duck")


def test_settings_reach_duckdb_and_its_folder_goes(tmp_path: Path) -> None:
    duck = connect(memory="100MB", threads=1, folder=str(tmp_path))
    query = "SELECT current_setting('memory_limit'), current_setting('threads'), current_setting('temp_directory')"
    memory, threads, folder = duck.execute(query).fetchone()
    assert (memory, threads) == ("95.3 MiB", 1)
    place = Path(folder).parent
    assert place.parent == tmp_path
    assert place.exists()
    del duck
    gc.collect()
    assert not place.exists()


@pytest.mark.parametrize(
    ("memory", "groups", "places"),
    [
        ("100MB", None, 14),
        ("10GB", None, 20),
        ("10GB", 10**7, 21),
        ("10GB", 10**4, 15),
        ("1MB", None, 12),
        ("-1", 10**5, 18),
    ],
)
def test_groups_get_as_many_places_as_memory_has_room_for(memory: str, groups: int | None, places: int) -> None:
    duck = connect(threads=2)
    duck.execute(f"SET memory_limit = '{memory}'")
    found = "SELECT current_setting('perfect_ht_threshold')"
    with engine_of(duck).grouping(28, groups):
        assert duck.execute(found).fetchone() == (places,)  # 2 ** places * 28 sums of 16 bytes, of two threads
    assert duck.execute(found).fetchone() == (12,)


def test_settings_that_are_locked_are_left_alone() -> None:
    duck = connect()
    duck.execute("SET lock_configuration = true")
    with engine_of(duck).grouping(28):
        assert join(EVENTS, REPORTS, connection=duck).summary.bags == 3


def of_range(duck: Any, rows: int) -> Table:
    return Table.of(duck.sql(f"SELECT range AS x FROM range({rows})"), engine_of(duck))


def many_texts(duck: Any) -> Table:
    return of_range(duck, 500_000).select(text=nw.concat_str([col("x").cast(nw.String), nw.lit("." * 50)]))


@pytest.mark.parametrize(
    "ask",
    [
        lambda texts: texts.group_by(["text"], {"n": length()}).count(),
        lambda texts: texts.group_by(["text"], {"n": length()}).keep(),
        lambda texts: list(texts.sort("text").batches()),
    ],
    ids=["fetch", "keep", "batches"],
)
def test_too_little_memory_says_what_to_do(ask: Any) -> None:
    with pytest.raises(MemoryError, match=r"memory \(.* MiB/7\.6 MiB\): give it more, such as memory='4GB'\."):
        ask(many_texts(connect(memory="8MB", threads=1)))


# -- rows in pieces ---------------------------------------------------------------------------------------------------


def kept_in(duck: Any) -> int:
    return int(duck.execute("SELECT count(*) FROM duckdb_tables()").fetchone()[0])


def test_rows_are_handed_out_to_the_end_whatever_is_dropped_meanwhile() -> None:
    """DuckDB 1 ends a result without a word when another query runs on its connection; DuckDB 2 refuses that query."""
    duck = connect(threads=1)
    kept = of_range(duck, 1).keep()
    stream = of_range(duck, 300_000).batches(1000)
    rows = next(stream).num_rows
    del kept
    gc.collect()
    assert rows + sum(batch.num_rows for batch in stream) == 300_000
    assert kept_in(duck) == 0  # dropped afterwards


ASKS = {
    "fetch": lambda many: many.head(1).fetch(),
    "keep": lambda many: many.keep(),
    "batches": lambda many: next(many.batches()),
    "types": lambda many: many.with_columns(t=nw.lit(pd.Timestamp("2024-02-29", tz="UTC").to_pydatetime())).schema,
}


@pytest.mark.parametrize("ask", ASKS)
def test_rows_that_another_query_ended_are_missed(ask: str) -> None:
    duck = connect(threads=1)
    many = of_range(duck, 300_000)
    stream = many.batches(1000)
    next(stream)
    kept = ASKS[ask](many)
    with pytest.raises(RuntimeError, match="rows are missing: the engine was asked again"):
        list(stream)
    stream = many.batches(1000)
    next(stream)
    stream.close()  # who does not want the rest may stop
    assert many.count() == 300_000
    del kept
    gc.collect()
    assert kept_in(duck) == 0


# -- nothing is left behind -------------------------------------------------------------------------------------------


def names_in(connection: Any) -> set[str]:
    query = "SELECT table_name FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal"
    return {name for (name,) in connection.execute(query).fetchall()}


def test_tables_of_the_user_stay_in_their_engine_and_nothing_is_left_there() -> None:
    own = duckdb.connect()
    own.execute("CREATE TABLE events (bag BIGINT, x DOUBLE)")
    own.executemany("INSERT INTO events VALUES (?, ?)", list(zip(*EVENTS.values(), strict=True)))
    own.execute("CREATE TABLE reports AS SELECT bag, 1 AS count FROM events GROUP BY 1")
    before = names_in(own)
    found = join(own.table("events"), own.table("reports"), connection=own)
    assert found.connection is own
    rows = found.rows()
    del found
    gc.collect()
    assert rows.count() == 6  # what still needs it keeps it
    assert len(names_in(own)) == len(before) + 1
    del rows
    beside = join(own.table("events"), pd.DataFrame(REPORTS), connection=own)
    assert beside.connection is own
    with pytest.raises(ValueError, match="holds 'a' in line 1"):
        join(own.table("events"), {"bag": [1, 2, 3], "count": ["a", "b", "c"]}, connection=own)
    del beside
    gc.collect()
    assert names_in(own) == before


def test_relations_stay_in_the_default_connection_and_come_out_of_others() -> None:
    relation = duckdb.sql("SELECT * FROM (VALUES (1, 1.0), (1, 2.0), (2, 3.0)) v(bag, x)")
    assert join(relation, {"bag": [1, 2], "count": [1, 0]}).connection is duckdb.default_connection()
    other = duckdb.connect()
    found = join(other.sql("SELECT 1 AS bag, 2 AS x UNION ALL SELECT 2, 3"), {"bag": [1, 2], "count": [1, 0]})
    assert found.summary.bags == 2
    assert found.connection is not other


def test_tables_of_two_connections_are_not_joined() -> None:
    one, other = (read(REPORTS, connect(threads=1)) for _ in range(2))
    with pytest.raises(ValueError, match=r"different connections \(duckdb and duckdb\)"):
        join(one, other, keys="bag")


def test_nothing_is_left_of_what_was_read(tmp_path: Path) -> None:
    own = duckdb.connect()
    pd.DataFrame(EVENTS).to_csv(tmp_path / "a.csv")
    pq.write_table(pa.table(EVENTS), tmp_path / "a.parquet")
    opened = [read(source, own) for source in (tmp_path / "a.csv", tmp_path / "a.parquet", EVENTS)]
    with pytest.raises(ValueError, match="cannot be read"):
        read({"x": ["a"]}, own).select(y=col("x").cast(nw.Int64)).keep()
    del opened
    gc.collect()
    assert names_in(own) == set()


# -- the same in every engine -----------------------------------------------------------------------------------------


def test_names_that_an_engine_takes_apart_are_refused() -> None:
    class Engine(DuckDB):
        unsaid = ".`"

    for name in ("a.b", "`a`"):
        table = Table.of(duckdb.sql(f'SELECT 1 AS "{name}"'), Engine(duckdb.default_connection()))
        with pytest.raises(ValueError, match=f"events: column '{name}' has a name that duckdb takes apart: rename it"):
            read(table, connect(), what="events")


def test_sums_of_products() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"fold": rng.integers(0, 3, 60), "w": rng.random(60), "z0": rng.random(60)})
    table = read(frame, connect()).with_columns(z1=col("z0") + 1)
    figures = {"w": ("sum", "w"), "z0_1": ("sum", "w", "z0", "z1"), "least": ("min", "z0"), "many": ("about", "z0")}
    found = table.aggregate(figures, by="fold").sort("fold").fetch().to_pandas()
    folds = frame.assign(z0_1=frame["w"] * frame["z0"] * (frame["z0"] + 1)).groupby("fold")
    np.testing.assert_allclose(found[["w", "z0_1"]], folds[["w", "z0_1"]].sum(), rtol=1e-12)
    np.testing.assert_array_equal(found["least"], folds["z0"].min())
    np.testing.assert_allclose(found["many"], folds.size(), rtol=0.3)


def made_up(rows: int = 900) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Events with numbers, gaps, categories, many texts and times, of bags with keys of two types; reports."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "bag": rng.integers(0, rows // 12, rows),
            "place": rng.choice(["n", "s"], rows),
            "age": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(1e6, 10, rows)),
            "device": rng.choice(["phone", "tablet", "radio"], rows),
            "moment": pd.Timestamp("2026-03-02") + pd.to_timedelta(rng.integers(0, 10**6, rows), unit="s"),
            "site": [f"site {number}" for number in rng.integers(0, 70, rows)],
        }
    )
    count = rng.random(rows) < 0.2 + 0.5 * (frame["device"] == "radio")
    return frame, count.groupby([frame["bag"], frame["place"]]).sum().rename("count").reset_index()


def check_engine(events: Any, reports: Any, tmp_path: Path) -> None:
    """A table of another engine is joined, read, fitted, measured and scored as it is in DuckDB."""
    own, roles = made_up(), {"site": "hashed"}
    here, there = join(*own), join(events, reports)
    assert replace(there.summary, squares=here.summary.squares) == here.summary
    np.testing.assert_allclose(there.summary.squares, here.summary.squares, rtol=1e-12)  # added up in another order
    models = [tables.fit(data, "ridge", roles={"site": "ignored"}) for data in (here, there)]
    one, other = (model.estimator for model in models)
    np.testing.assert_allclose(other.coef_, one.coef_, atol=1e-8 * np.abs(one.coef_).max())
    np.testing.assert_allclose(other.intercept_, one.intercept_, rtol=1e-7)
    features = Features.of(here.events, here.features, roles=roles)
    told = Features.of(there.events, there.features, roles=roles).columns
    # Every time of Spark is of a time zone.
    assert [replace(one, kind="") for one in told] == [replace(one, kind="") for one in features.columns]
    read_here, read_there = (
        features.matrix(features.select(data.rows(), "bag", "bag_number").sort("bag_number", *features.names).fetch())
        for data in (here, there)
    )
    np.testing.assert_allclose(read_there, read_here, rtol=1e-12)
    files = [tmp_path / "here.parquet", tmp_path / "there.parquet"]
    for file, (rows, lines), model in zip(files, (own, (events, reports)), models, strict=True):
        assert tables.write_scores(model, rows, file, reports=lines, keep=["age"]).reported_rows == 900
    expected, found = (pd.read_parquet(file)["prediction"] for file in files)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def _spark_missing() -> str:
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'bagwise[spark]'"
    return "" if shutil.which("java") else "there is no Java"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from pyspark.sql import SparkSession

    settings = {"spark.sql.shuffle.partitions": 1, "spark.ui.enabled": False, "spark.sql.session.timeZone": "UTC"}
    settings["spark.sql.warehouse.dir"] = str(tmp_path_factory.mktemp("warehouse"))
    session = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.mark.slow
@pytest.mark.skipif(bool(_spark_missing()), reason=_spark_missing() or "ready")
@pytest.mark.filterwarnings("ignore")
def test_spark(spark: Any, tmp_path: Path) -> None:
    events, reports = (spark.createDataFrame(table) for table in made_up())
    check_engine(events, reports, tmp_path)
    gc.collect()
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0
    assert join(events, made_up()[1]).connection == spark


@pytest.mark.slow
@pytest.mark.skipif(bool(_spark_missing()), reason=_spark_missing() or "ready")
@pytest.mark.filterwarnings("ignore")
def test_a_warehouse_behind_ibis(spark: Any, tmp_path: Path) -> None:
    ibis = pytest.importorskip("ibis")
    for name, table in zip(("events", "reports"), made_up(), strict=True):
        spark.createDataFrame(table).createOrReplaceTempView(name)
    backend = ibis.pyspark.connect(spark)
    check_engine(backend.table("events"), backend.table("reports"), tmp_path)
    with pytest.raises(ValueError, match=r"events is a file .*: pyspark cannot read it; pass a table of that engine"):
        read(tmp_path / "a.csv", backend, what="events")
    with pytest.raises(ValueError, match=r"different connections \(pyspark and spark\)"):
        join(backend.table("events"), spark.table("reports"))


def check_scores(spark: Any, rows: Any, out: str, scores: Any, **options: Any) -> Any:
    """Scores that an engine keeps are those of a model in memory; what is met in columns is told as ever."""
    frame, reports = made_up()
    model = tables.fit(join(frame, reports), "logistic", roles={"device": "category", "site": "hashed"})
    known = frame.assign(device=frame["device"].where(frame["age"].notna(), "watch"), row=np.arange(len(frame)))
    found = tables.write_scores(model, rows(known), out, keep=["row", "moment"], **options)
    expected = model.predict_proba(known)[:, 1]
    scored = scores().toPandas().sort_values("row")
    np.testing.assert_allclose(scored["prediction"], expected, rtol=1e-7)
    assert scored["moment"].dt.tz_localize(None).tolist() == frame["moment"].tolist()
    (device,) = (one for one in found.columns.columns if one.name == "device")
    assert (found.rows, device.unseen, device.example) == (900, frame["age"].isna().sum(), "watch")
    with pytest.raises(ValueError, match=r"there already|already exists"):
        tables.write_scores(model, rows(known), out)
    return model, scored


@pytest.mark.slow
@pytest.mark.skipif(bool(_spark_missing()), reason=_spark_missing() or "ready")
@pytest.mark.filterwarnings("ignore")
def test_spark_scores_its_rows_where_they_are(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setattr(Spark, "batches", None)  # no row comes here
    address = (tmp_path / "scored").as_uri()
    model, _ = check_scores(spark, spark.createDataFrame, "::scored", lambda: spark.table("scored"))
    check_scores(spark, spark.createDataFrame, address, lambda: spark.read.parquet(address))
    rows = spark.createDataFrame(made_up()[0])
    tables.write_scores(model, rows, "::scored", keep=["bag"], intervals=0.9, force=True)
    found = spark.table("scored").toPandas()
    assert list(found) == ["bag", "prediction", "prediction_low", "prediction_high"]
    assert ((found["prediction_low"] < found["prediction"]) & (found["prediction"] < found["prediction_high"])).all()
    wrong = made_up()[0].assign(age=np.inf)
    with pytest.raises(ValueError, match=r"^column 'age' contains infinity: replace such values first\.$"):
        tables.write_scores(model, wrong, "::wrong", connection=spark)
    with pytest.raises(ValueError, match="out must be a file of this machine: scores given reports are made here"):
        tables.write_scores(model, rows, "::given", reports=spark.createDataFrame(made_up()[1]))


@pytest.mark.slow
@pytest.mark.skipif(bool(_spark_missing()), reason=_spark_missing() or "ready")
@pytest.mark.filterwarnings("ignore")
def test_a_warehouse_behind_ibis_takes_scores(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ibis = pytest.importorskip("ibis")
    monkeypatch.setattr("bagwise.tables.engines.ibis._INSERTED", 500)  # in two pieces
    backend = ibis.pyspark.connect(spark)

    def rows(frame: Any) -> Any:
        spark.createDataFrame(frame).createOrReplaceTempView("to_score")
        return backend.table("to_score")

    check_scores(spark, rows, "::by_ibis", lambda: spark.table("by_ibis"))
    check_scores(spark, rows, "::default.by_ibis_too", lambda: spark.table("by_ibis_too"))


# -- warehouses that are not at hand ----------------------------------------------------------------------------------


def planned(ibis: Any, columns: dict[str, str], name: str) -> Table:
    """A table that is not there, of an engine that is not there, either."""
    from bagwise.tables.engines.ibis import Ibis

    class Nowhere:
        name = "duckdb"

    class Planned(Ibis):
        def keep(self, table: Any) -> tuple[Any, object]:
            return table, None

    return Table.of(ibis.table(columns, name=name), Planned(Nowhere()))


@pytest.mark.parametrize("engine", ["postgres", "bigquery"])
def test_queries_can_be_said_to_other_engines(engine: str) -> None:
    ibis = pytest.importorskip("ibis")
    events = planned(ibis, {"text": "string", "day": "date", "number": "float64", "p": "float64"}, "events")
    told = {"text": "string", "day": "timestamp", "number": "int64", "count": "int64", "size": "int64",
            "epsilon": "float64", "suppressed": "string"}  # fmt: skip
    reports = planned(ibis, told, "reports")
    keys, said = Keys.of(["text", "day", "number"], events, reports), ReportColumns().guessed(reports.columns)
    lines = joined(events, reports, Rests(keys), said, NO_COLUMNS)
    bags = planned(ibis, lines.native.schema(), "lines")
    queries = {
        "reports": lines,
        "events": aligned(events, keys, ReportColumns(proportion="p"), NO_COLUMNS),
        "lines": bags.select(**figures_of(bags, keys, said, NO_COLUMNS)),
        "MD5": numbered(bags, keys, said),
    }
    for named, query in queries.items():
        text = str(ibis.to_sql(query.native, dialect=engine))
        assert text.startswith(("WITH", "SELECT"))
        assert named in text


@pytest.mark.parametrize("engine", ["postgres", "snowflake", "databricks", "bigquery", "trino"])
def test_made_columns_can_be_said_to_other_engines(engine: str) -> None:
    ibis = pytest.importorskip("ibis")
    types = {"x": "float64", "c": "string", "t": "timestamp", "d": "date", "n": "decimal(10, 2)"}
    roles = {"x": Role.number, "c": Role.category, "t": Role.time, "d": Role.hashed, "n": Role.category}
    features = Features(tuple(Column(name, role, levels=("1",), has_hours=name == "t") for name, role in roles.items()))
    made = features.select(planned(ibis, types, "events"))
    assert "events" in ibis.to_sql(made.native, dialect=engine)


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("duckdb", "MD5(text)"),
        ("snowflake", "MD5(text)"),
        ("databricks", "MD5(text)"),
        ("bigquery", "TO_HEX(MD5(text))"),
        ("trino", "LOWER(TO_HEX(MD5(TO_UTF8(text))))"),
        ("clickhouse", "LOWER(HEX(MD5(text)))"),
    ],
)
def test_checksums_are_digits_in_every_engine(engine: str, said: str) -> None:
    ibis = pytest.importorskip("ibis")
    from bagwise.tables.engines.ibis import md5

    events = ibis.table({"text": "string"}, name="events")
    query = str(ibis.to_sql(events.select(digits=md5(events.text, engine)), dialect=engine))
    assert said in query.replace("t0", "").replace('"', "").replace("`", "").replace(".", "")
