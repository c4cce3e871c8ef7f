"""Tables from files, folders, addresses, DuckDB files and memory."""

from __future__ import annotations

import datetime
import gc
import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from bagwise.cli import app
from bagwise.tables import connect, join, read
from bagwise.tables.table import col, kind_of

TABLE = {"bag": [1, 2], "x y": [1.5, None], "ü'%": ["a", "b"]}


@pytest.fixture(scope="module")
def duck() -> Any:
    return connect(threads=1)


def write(path: Path, columns: dict[str, Any] = TABLE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    else:
        text = pd.DataFrame(columns).to_csv(index=False, sep="\t" if ".tsv" in path.name else ",")
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def contents(source: Any, duck: Any) -> dict[str, list[Any]]:
    table = read(source, duck)
    return table.sort(table.columns[0]).fetch().to_pydict()


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["a.parquet", "a.csv", "a.tsv", "a.csv.gz", "A.CSV", "it's.parquet", 'q".csv', "p%20 s.csv", "a[1].parquet",
     "st*r.csv", "wh?t.parquet", "ü;--.csv", "{x}.csv", "a::b.csv"],
)  # fmt: skip
def test_one_file(duck: Any, tmp_path: Path, name: str) -> None:
    for other in ("a1.parquet", "star.csv", "what.parquet"):  # which the names above would match as patterns
        write(tmp_path / other, {"bag": [9]})
    path = write(tmp_path / name)
    assert contents(str(path), duck) == TABLE
    assert contents(path, duck) == TABLE


def test_folders_and_patterns(duck: Any, tmp_path: Path) -> None:
    write(tmp_path / "day 1" / "part 0.parquet", {"bag": [1], "x": [1]})
    write(tmp_path / "day 2" / "deep" / "part 0.parquet", {"bag": [2], "x": [2]})
    for hidden in ("_temporary/part 1.parquet", ".part 0.parquet", "day 1/_part.csv"):
        write(tmp_path / hidden)
    (tmp_path / "README.md").write_text("no table")
    (tmp_path / "_SUCCESS").write_text("")
    assert contents(tmp_path, duck) == {"bag": [1, 2], "x": [1, 2]}
    assert contents(f"{tmp_path}/d*/part*.parquet", duck) == {"bag": [1], "x": [1]}
    assert contents(f"{tmp_path}/day*/**/part ?.parquet", duck) == {"bag": [1, 2], "x": [1, 2]}
    assert contents(os.path.relpath(tmp_path / "day [12]" / "*.parquet"), duck) == {"bag": [1], "x": [1]}


def test_folders_of_spark_name_columns(duck: Any, tmp_path: Path) -> None:
    for day in (1, 2):
        write(tmp_path / f"day={day}" / "part.parquet", {"x": [day * 10]})
    assert contents(tmp_path, duck) == {"x": [10, 20], "day": [1, 2]}


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_files_whose_columns_differ_are_matched_by_name(duck: Any, tmp_path: Path, kind: str) -> None:
    write(tmp_path / f"1.{kind}", {"bag": [1, 1], "x": [1, 2]})
    write(tmp_path / f"2.{kind}", {"y": ["u", "v"], "bag": [2, 2]})
    found = contents(tmp_path, duck)
    assert found == {"bag": [1, 1, 2, 2], "x": [1, 2, None, None], "y": [None, None, "u", "v"]}


def test_text_that_comes_late_is_found(duck: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("bag,x\n" + "1,2\n" * 30_000 + "1,abc\n")
    assert kind_of(read(tmp_path / "a.csv", duck).schema["x"]) == "text"


BROKEN = {
    "missing": ("no.csv", None, FileNotFoundError, "there is no file .*no.csv"),
    "no match": ("no*.csv", None, FileNotFoundError, r"no file matches .*no\*.csv"),
    "address": ("https://localhost:9/folder", None, ValueError, "a file of unknown kind .folder.: pass Parquet files"),
    "unknown": ("a.json", b"{}", ValueError, r"a file of unknown kind \(a.json\)"),
    "only gz": ("a.gz", b"", ValueError, r"a file of unknown kind \(a.gz\)"),
    "truncated": ("a.parquet", b"PAR1" + b"\0" * 50, ValueError, "a.parquet.* cannot be read: .*magic bytes"),
    "zero": ("a.parquet", b"", ValueError, "too small to be a Parquet file"),
    "empty": ("a.csv", b"", ValueError, "a.csv is empty: its first line must name the columns"),
    "no gzip": ("a.csv.gz", b"\x1f\x8bnonsense", ValueError, "GZIP"),
    "latin": ("a.csv", "bag,x\nä,1\n".encode("latin-1"), ValueError, "not utf-8 encoded"),
    "more fields": ("a.csv", b"bag,x\n1,2\n1,2,3\n", ValueError, "do not all have as many fields"),
    "fewer fields": ("a.csv", b"bag,x\n1,2\n1\n", ValueError, "do not all have as many fields"),
    "case": ("a.csv", b"bag,x,X\n1,2,3\n", ValueError, "columns 'x' and 'X' are the same to the engine"),
    "twice": ("a.csv", b"bag;x;x\n1;2;3\n", ValueError, "columns 'x' and 'x' are the same to the engine"),
    "broken": ("a.duckdb", b"hello" * 1000, ValueError, "a.duckdb cannot be read"),
    "no database": ("no.duckdb", None, FileNotFoundError, "there is no file"),
    "no database table": ("no.duckdb::t", None, FileNotFoundError, "there is no file"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_file_gets_one_sentence(duck: Any, tmp_path: Path, case: str) -> None:
    name, content, error, sentence = BROKEN[case]
    path = name if "://" in name else tmp_path / name
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=f"^events.*{sentence}") as raised:
        read(path, duck, what="events")
    assert "\n" not in str(raised.value)


def test_broken_folders(duck: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no Parquet or CSV file"):
        read(tmp_path, duck)
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.csv")
    with pytest.raises(ValueError, match="files of different kinds"):
        read(tmp_path, duck)
    names = pa.table([pa.array([1]), pa.array([2])], names=["x", "X"])
    pq.write_table(names, tmp_path / "c.parquet")
    with pytest.raises(ValueError, match="columns 'x' and 'X' are the same to the engine"):
        read(tmp_path / "c.parquet", duck)


def test_header_without_lines_is_an_empty_table(duck: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("bag,x\n")
    assert contents(tmp_path / "a.csv", duck) == {"bag": [], "x": []}
    with pytest.raises(ValueError, match="the events are empty"):
        join(tmp_path / "a.csv", {"bag": [1, 2], "count": [1, 0]}, connection=duck)
    with pytest.raises(ValueError, match="the reports are empty"):
        join({"bag": [1, 2], "x": [1, 0]}, tmp_path / "a.csv", count="x", connection=duck)


def test_line_that_does_not_fit_far_down_gets_one_sentence(duck: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("bag,x\n" + "1,2\n" * 250_000 + "1,abc\n")
    table = read(tmp_path / "a.csv", duck)
    with pytest.raises(ValueError, match=r'^the tables cannot be read: .*Line: 250002.*column "x".*abc') as raised:
        table.line(total=col("x").sum())
    assert "\n" not in str(raised.value)


# -- DuckDB files -----------------------------------------------------------------------------------------------------


def database(path: Path, *statements: str) -> Path:
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def test_tables_of_a_duckdb_file(tmp_path: Path) -> None:
    duck = connect(threads=1)
    one = database(tmp_path / "o'ne.duckdb", 'CREATE TABLE "t 1" AS SELECT 1 AS bag')
    assert contents(one, duck) == {"bag": [1]}
    assert contents(f"{one}::t 1", duck) == {"bag": [1]}
    many = database(tmp_path / "many.db", "CREATE TABLE t AS SELECT 2 AS bag", "CREATE VIEW v AS SELECT 3 AS bag")
    assert contents(f"{many}::t", duck) == {"bag": [2]}
    assert contents(f"{many}::v", duck) == {"bag": [3]}
    with pytest.raises(ValueError, match=r"holds 2 tables \(t, v\): say which one with .*::table"):
        read(many, duck)
    with pytest.raises(ValueError, match="has no table 'w': it has t, v"):
        read(f"{many}::w", duck)
    none = database(tmp_path / "none.duckdb")
    with pytest.raises(ValueError, match=r"holds 0 tables \(none\)"):
        read(none, duck)


def test_own_connection_to_the_file_is_used(tmp_path: Path) -> None:
    path = database(tmp_path / "a.duckdb", "CREATE TABLE t AS SELECT i // 2 AS bag, i AS x FROM range(6) r(i)")
    own = duckdb.connect(path, read_only=True)
    found = join(f"{path}::t", {"bag": [0, 1, 2], "count": [1, 1, 0]}, connection=own)
    assert found.summary.used_rows == 6
    own.close()
    del found
    gc.collect()  # what was kept in a connection that is closed is no longer there to be removed


def test_file_that_another_process_writes_gets_one_sentence(duck: Any, tmp_path: Path) -> None:
    path = database(tmp_path / "a.duckdb", "CREATE TABLE t AS SELECT 1 AS bag")
    holding = f"import duckdb; c = duckdb.connect({str(path)!r}); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(ValueError, match=r"a.duckdb cannot be read: .*lock") as raised:
            read(path, duck)
        other.communicate(b"\n")
    assert "\n" not in str(raised.value)


# -- memory -----------------------------------------------------------------------------------------------------------

NOON = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
MEMORY = {
    "dict": {"bag": [1, 2], "x": ["a", None]},
    "pandas with an index": pd.DataFrame({"bag": [1, 2], "x": ["a", None]}, index=pd.Index([7, 7], name="i")),
    "pandas categories": pd.DataFrame({"bag": [1, 2], "x": pd.Categorical(["a", None], categories=["z", "a"])}),
    "pandas nullable": pd.DataFrame({"bag": pd.array([1, 2], "Int8"), "x": pd.array(["a", None], "string")}),
    "polars": pl.DataFrame({"bag": [1, 2], "x": ["a", None]}),
    "polars categories": pl.DataFrame({"bag": [1, 2], "x": pl.Series(["a", None], dtype=pl.Categorical)}),
    "arrow chunks": pa.table({"bag": pa.chunked_array([[1], [2]]), "x": pa.chunked_array([["a"], [], [None]], "str")}),
    "arrow dictionary": pa.table({"bag": [1, 2], "x": pa.array(["a", None]).dictionary_encode()}),
    "arrow batch": pa.RecordBatch.from_pydict({"bag": [1, 2], "x": ["a", None]}),
    "duckdb": duckdb.sql("SELECT * FROM (VALUES (1, 'a'), (2, NULL)) v(bag, x)"),
    "polars query": pl.LazyFrame({"bag": [1, 2], "x": ["a", None]}),
}  # fmt: skip


@pytest.mark.parametrize("kind", MEMORY)
def test_tables_in_memory(duck: Any, kind: str) -> None:
    assert contents(MEMORY[kind], duck) == {"bag": [1, 2], "x": ["a", None]}


def test_types_of_tables_in_memory(duck: Any) -> None:
    frame = pd.DataFrame(
        {"t": [pd.Timestamp(NOON).tz_convert("Asia/Tokyo")], "half": np.array([1.5], np.float16), "yes": [True]}
    )
    assert contents(frame, duck) == {"t": [NOON], "half": [1.5], "yes": [True]}
    assert contents(pa.table({"x": pa.array([1], pa.decimal256(50, 2))}), duck) == {"x": [1.0]}
    assert contents(pd.DataFrame({0: [1], 1: [2]}), duck) == {"0": [1], "1": [2]}


UNREADABLE = {
    "query": (pl.LazyFrame({"bag": [1]}).select("no"), "cannot be read: .*no"),
    "None": (None, "pass a path or a table, got NoneType"),
    "series": (pd.Series([1]), "pass a path or a table, got Series"),
    "lines": ([{"bag": 1}], "pass a path or a table, got list"),
    "matrix": (np.ones((2, 2)), "pass a path or a table, got ndarray"),
    "lengths": ({"bag": [1, 2], "x": [1]}, "pass a path or a table, got dict"),
    "mixed": (pd.DataFrame({"bag": [1, "a"]}, dtype=object), "failed for column bag"),
    "twice": (pd.DataFrame([[1, 2]], columns=["a", "a"]), r"Duplicate column names found: \['a', 'a'\]"),
    "case": ({"bag": [1], "BAG": [2]}, "columns 'bag' and 'BAG' are the same to the engine"),
    "no columns": (pd.DataFrame(), "the table has no columns"),
    "no name": ({"": [1], "x": [2]}, "column 0 has no name"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_unreadable_table_gets_one_sentence(duck: Any, case: str) -> None:
    source, sentence = UNREADABLE[case]
    with pytest.raises(ValueError, match=f"^events.*{sentence}") as raised:
        read(source, duck, what="events")
    assert "\n" not in str(raised.value)


def test_a_query_of_polars_runs_once_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    asked = []
    query = pl.LazyFrame({"bag": [1, 1, 2], "x": [1, 2, 3]}).map_batches(lambda frame: asked.append(1) or frame)
    duck = connect(threads=1, folder=str(tmp_path.parent))
    found = join(query, {"bag": [1, 2], "count": [1, 0]}, connection=duck)
    assert found.rows().count() == 3
    assert asked == [1]
    assert len(list(tmp_path.glob("*/collected.parquet"))) == 1
    rows = found.rows()
    del found
    gc.collect()
    assert rows.count() == 3  # what still needs it keeps it
    del rows, duck
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def can_read_addresses() -> bool:
    try:
        duckdb.connect().execute("LOAD httpfs")
    except duckdb.Error:
        return False
    return True


needs_addresses = pytest.mark.skipif(not can_read_addresses(), reason="DuckDB has no extension for addresses")


@pytest.mark.skipif(can_read_addresses(), reason="DuckDB has its extension for addresses")
@pytest.mark.parametrize(
    "address", ["s3://b/a.parquet", "https://h/a.csv?v=1", "gs://b/*.parquet", "hf://datasets/a/b/c.csv"]
)
def test_addresses_need_an_extension_and_say_so(address: str) -> None:
    duck = connect(threads=1)
    duck.execute("SET autoinstall_known_extensions = false")
    with pytest.raises(ValueError, match=r"^events \(.*extension httpfs, which is not here.*INSTALL httpfs") as raised:
        read(address, duck, what="events")
    assert "\n" not in str(raised.value)


SERVER = """
import re, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

class Ranges(BaseHTTPRequestHandler):
    def do_GET(self):
        file = Path(sys.argv[1]) / self.path.partition("?")[0].lstrip("/")
        if not file.is_file():
            return self.send_error(404)
        whole = file.read_bytes()
        asked = re.fullmatch(r"bytes=(\\d+)-(\\d*)", self.headers.get("Range", ""))
        first = int(asked[1]) if asked else 0
        last = min(int(asked[2] or len(whole)), len(whole) - 1) if asked else len(whole) - 1
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(whole)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(whole[first : last + 1])
    do_HEAD = do_GET

server = ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Where files of `tmp_path` are served, in pieces, too; by a process of its own, since DuckDB waits with a lock."""
    command = [sys.executable, "-c", SERVER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        server.terminate()
        server.communicate()


@needs_addresses
def test_addresses_are_read(duck: Any, tmp_path: Path, address: str) -> None:
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.csv")
    assert contents(f"{address}/a.parquet", duck) == TABLE
    assert contents(f"{address}/b.csv?v=1", duck) == TABLE
    with pytest.raises(ValueError, match=r"^events \(http.*none\.parquet\) cannot be read: .*404") as raised:
        read(f"{address}/none.parquet", duck, what="events")
    assert "\n" not in str(raised.value)


@needs_addresses
def test_commands_read_addresses(tmp_path: Path, address: str) -> None:
    """From tables at an address to scores, equal to those from files."""
    rng = np.random.default_rng(0)
    x, bag = rng.normal(size=1600), np.arange(1600) // 16
    count = np.bincount(bag, rng.random(1600) < 1 / (1 + np.exp(-2 * x)))
    pd.DataFrame({"bag": bag, "x": x}).to_parquet(tmp_path / "events.parquet", row_group_size=400)
    pd.DataFrame({"bag": np.arange(100), "count": count}).to_csv(tmp_path / "reports.csv", index=False)
    told, scores = [], []
    for number, place in enumerate((address, str(tmp_path))):
        tables, folder = [f"{place}/events.parquet", f"{place}/reports.csv"], tmp_path / f"model {number}"
        for line in (
            ["diagnose", *tables],
            ["fit", *tables, "--model", "ridge", "--out", str(folder)],
            ["predict", str(folder), tables[0], "--out", str(folder) + ".parquet"],
        ):
            found = CliRunner().invoke(app, line)
            assert found.exit_code == 0, found.output
            told.append(found.stdout)
        scores.append(pd.read_parquet(str(folder) + ".parquet")["prediction"])
    assert told[0] == told[3]
    np.testing.assert_array_equal(*scores)
