"""Data sets: official formats read right, splits as published, files checked wherever they come from."""

import gzip
import hashlib
import http.server
import io
import logging
import os
import struct
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pooch
import pytest
from rich.console import Console

from bagwise import datasets
from bagwise.datasets import files, published
from bagwise.datasets.files import FILES, Archive, Official

with_data = pytest.mark.skipif(not os.environ.get("BAGWISE_DATA"), reason="BAGWISE_DATA is not set")


def needs(*names):
    """The mirror may hold a part of the files."""
    missing = [name for name in names if not files.held(name)]
    return pytest.mark.skipif(bool(missing), reason=f"BAGWISE_DATA has no file {missing[0] if missing else ''}")


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Put a file into an otherwise empty BAGWISE_DATA, as if it were the official one."""
    folder = tmp_path / "mirror"
    monkeypatch.setenv("BAGWISE_DATA", str(folder))

    def put(name, content):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if name in FILES:
            monkeypatch.setitem(FILES, name, Official(sha256(content), "http://nowhere.invalid/file"))
        return path

    return put


# -- the real files -----------------------------------------------------------------------------------------------


@with_data
def test_every_official_file_at_hand_has_its_checksum():
    names = [name for name in FILES if files.held(name)]
    assert names
    for name in names:
        assert files.file(name).is_file()


@with_data
def test_adult_is_the_published_split():
    split = datasets.adult()
    assert (len(split.X), len(split.X_test)) == (32_561, 16_281)
    assert (int(split.y.sum()), int(split.y_test.sum())) == (7_841, 3_846)
    assert sum(dtype.kind not in "if" for dtype in split.X.dtypes) == 8
    assert "income" not in split.X


@with_data
def test_adult_encoded_as_in_the_paper():
    """Column by column: one-hot by the training levels, min–max by the training rows."""
    table, split = datasets.adult(), datasets.adult(encoded=True)
    assert split.X.shape == (32_561, 108)
    assert split.X_test.shape == (16_281, 108)
    assert split.X.dtype == np.float32
    for part, encoded in ((table.X, split.X), (table.X_test, split.X_test)):
        columns = []
        for name, train in table.X.items():
            if train.dtype.kind in "if":
                columns.append((part[name] - train.min()) / (train.max() - train.min()))
            else:
                columns += [part[name] == level for level in sorted(train.unique())]
        np.testing.assert_array_equal(encoded, np.column_stack(columns).astype(np.float32))
    assert (split.X.min(), split.X.max()) == (0, 1)
    assert split.X_test.max() > 1  # the largest fnlwgt is a test row: nothing was learned from it


@pytest.mark.slow
@with_data
@needs("criteo/criteo-80k.parquet")
def test_criteo_keeps_the_last_rows_for_testing():
    split = datasets.criteo()
    assert (len(split.X), len(split.X_test)) == (64_000, 16_000)
    assert np.concatenate([split.y, split.y_test]).mean() == pytest.approx(0.2245, abs=1e-3)
    encoded = datasets.criteo(encoded=True)
    assert np.isfinite(encoded.X).all()
    assert len(encoded.X_test) == 16_000


@with_data
def test_mnist_labels_are_odd_digits():
    split = datasets.mnist()
    assert split.X.shape == (60_000, 1, 28, 28)
    assert split.X_test.shape == (10_000, 1, 28, 28)
    assert split.X.dtype == np.float32
    assert split.X.max() == 1
    assert list(split.y[:5]) == [1, 0, 0, 1, 1]  # 5 0 4 1 9
    assert len(split.y) == 60_000
    assert len(split.y_test) == 10_000


@with_data
@needs("cifar10/data_batch_1.bin", "cifar10/test_batch.bin")
def test_cifar10_machines():
    split = datasets.cifar10(rows=10_000)
    assert split.X.shape == split.X_test.shape == (10_000, 3, 32, 32)
    assert split.X.dtype == np.float32
    assert (split.X.min(), split.X.max()) == (0, 1)
    assert list(split.y[:5]) == [0, 1, 1, 0, 1]  # frog, truck, truck, deer, automobile
    assert split.y_test.sum() == 4_000  # 1,000 of each of four


@with_data
@pytest.mark.skipif(files.held("cifar10/data_batch_2.bin"), reason="the mirror has more of CIFAR-10")
@needs("cifar10/data_batch_1.bin")
@pytest.mark.parametrize("rows", [None, 10_001, 50_000])
def test_cifar10_says_what_a_partial_mirror_can_do(rows):
    with pytest.raises(FileNotFoundError, match=r"no file cifar10/data_batch_2\.bin: .* rows=10000 or less"):
        datasets.cifar10(rows=rows)


@with_data
@needs("higgs/higgs-84k.parquet")
@pytest.mark.skipif(files.held("higgs/HIGGS.csv.gz"), reason="the mirror has the official file")
def test_higgs_sample():
    split = datasets.higgs()
    assert (split.X.shape, split.X_test.shape) == ((74_056, 28), (10_000, 28))
    assert split.X.dtype == np.float32
    assert split.y_test.mean() == 0.5295
    # The first numbers of the official file: label 1, lepton pT 0.869…, eta −0.635…
    assert split.y_test[0] == 1
    assert split.X_test[0, :2] == pytest.approx([0.869293, -0.635082], abs=1e-6)
    some = datasets.higgs(rows=1_000)
    np.testing.assert_array_equal(some.X, split.X[:1_000])
    with pytest.raises(FileNotFoundError, match=r"no file higgs/HIGGS\.csv\.gz, .* rows=74056 or less"):
        datasets.higgs(rows=74_057)


# -- official formats, in small -----------------------------------------------------------------------------------

ADULT = "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Wife, White, Male, 2174, 0, 40, Cuba, {}\n"


def test_adult_format(put):
    put("adult/adult.data", (ADULT.format("<=50K") + ADULT.format(">50K") + "\n").encode())
    put("adult/adult.test", ("|1x3 Cross validator\n" + ADULT.format(">50K.") + "\n").encode())
    split = datasets.adult()
    assert list(split.y) == [0, 1]
    assert list(split.y_test) == [1]
    assert split.X_test.iloc[0, [0, 6, 13]].tolist() == [39, "?", "Cuba"]


def idx(array):
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes())


@pytest.fixture
def small_mnist(put):
    rng = np.random.default_rng(0)
    truth = {}
    for name, n in (("train", 6), ("t10k", 3)):
        truth[name] = rng.integers(0, 256, (n, 28, 28)), rng.integers(0, 10, n)
        put(f"mnist/{name}-images-idx3-ubyte.gz", idx(truth[name][0]))
        put(f"mnist/{name}-labels-idx1-ubyte.gz", idx(truth[name][1]))
    return truth


def test_mnist_format(small_mnist):
    (train, digits), (test, test_digits) = small_mnist["train"], small_mnist["t10k"]
    raw = datasets.mnist(scaled=False)
    np.testing.assert_array_equal(raw.X, train[:, None])
    np.testing.assert_array_equal(raw.X_test, test[:, None])
    np.testing.assert_array_equal(raw.y, digits % 2)
    np.testing.assert_array_equal(raw.y_test, test_digits % 2)
    scaled = datasets.mnist()
    np.testing.assert_array_equal(scaled.X, raw.X / np.float32(255))
    assert raw.X.dtype == scaled.X.dtype == np.float32
    first = datasets.mnist(rows=4)
    np.testing.assert_array_equal(first.X, scaled.X[:4])
    np.testing.assert_array_equal(first.y, scaled.y[:4])
    assert len(first.X_test) == 3


@pytest.fixture
def small_cifar10(put, monkeypatch):
    monkeypatch.setattr(published, "_BATCH", 20)
    rng = np.random.default_rng(0)
    truth = {}
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        truth[name] = np.arange(20) % 10, rng.integers(0, 256, (20, 3, 32, 32), dtype=np.uint8)
        records = [bytes([label]) + image.tobytes() for label, image in zip(*truth[name], strict=True)]
        put(f"cifar10/{name}.bin", b"".join(records))
    return truth


def test_cifar10_format(small_cifar10):
    raw = datasets.cifar10(scaled=False)
    assert raw.X.dtype == np.float32
    np.testing.assert_array_equal(raw.X, np.concatenate([small_cifar10[f"data_batch_{i}"][1] for i in range(1, 6)]))
    np.testing.assert_array_equal(raw.X_test, small_cifar10["test_batch"][1])
    assert list(raw.y_test[:10]) == [1, 1, 0, 0, 0, 0, 0, 0, 1, 1]  # airplane, automobile … ship, truck
    assert list(raw.y) == [1, 1, 0, 0, 0, 0, 0, 0, 1, 1] * 10
    scaled = datasets.cifar10(rows=27)  # one file and a part of the next
    np.testing.assert_array_equal(scaled.X, raw.X[:27] / np.float32(255))
    np.testing.assert_array_equal(scaled.y, raw.y[:27])


def test_cifar10_reads_only_the_files_it_needs(small_cifar10):
    for name in ("data_batch_3", "data_batch_5"):
        (files.mirror() / f"cifar10/{name}.bin").unlink()
    assert len(datasets.cifar10(rows=40).X) == 40
    for rows in (41, 100, None):
        with pytest.raises(FileNotFoundError, match=r"no file cifar10/data_batch_3\.bin: .* rows=40 or less"):
            datasets.cifar10(rows=rows)
    (files.mirror() / "cifar10/data_batch_1.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"no file cifar10/data_batch_1\.bin"):
        datasets.cifar10(rows=1)


@pytest.fixture
def small_higgs(monkeypatch):
    """Labels and features of 40 rows, of which the first 10 are to test."""
    monkeypatch.setattr(published, "_HIGGS_TEST", 10)
    monkeypatch.setattr(published, "_HIGGS_ROWS", 40)
    monkeypatch.setattr(published, "_CHUNK_ROWS", 7)
    rng = np.random.default_rng(0)
    return rng.integers(0, 2, 40), rng.normal(size=(40, 28)).astype(np.float32)


def csv(y, X):
    text = io.StringIO()
    np.savetxt(text, np.column_stack([y, X.astype(float)]), fmt="%.18e", delimiter=",")
    return text.getvalue().encode()


def test_higgs_format(put, small_higgs):
    y, X = small_higgs
    put("higgs/HIGGS.csv.gz", gzip.compress(csv(y, X)))
    put("higgs/higgs-84k.parquet", b"not looked at where the official file is")
    split = datasets.higgs()
    np.testing.assert_array_equal(split.X_test, X[:10])
    np.testing.assert_array_equal(split.y_test, y[:10])
    np.testing.assert_array_equal(split.X, X[10:])
    np.testing.assert_array_equal(split.y, y[10:])
    assert split.X.dtype == split.X_test.dtype == np.float32


def test_higgs_reads_no_further_than_needed(put, small_higgs):
    y, X = small_higgs
    put("higgs/HIGGS.csv.gz", gzip.compress(csv(y[:25], X[:25]) + b"no number\n" * 15))
    split = datasets.higgs(rows=15)
    np.testing.assert_array_equal(split.X, X[10:25])
    with pytest.raises(ValueError, match="no number"):
        datasets.higgs(rows=16)


@pytest.fixture
def higgs_sample(small_higgs):
    """Rows 0 to 24 of the official file, then five whose places are unknown, all shuffled but for the unknown."""
    y, X = small_higgs
    table = pd.DataFrame(X[:30], columns=[f"f{i}" for i in range(28)])
    table.insert(0, "label", y[:30].astype(np.int8))
    table["uci_row"] = np.r_[np.arange(25), np.full(5, -1)].astype(np.int32)
    table["source"] = "somewhere"
    return table.iloc[np.r_[np.random.default_rng(1).permutation(25), 25:30]]


def parquet(table):
    content = io.BytesIO()
    table.to_parquet(content, index=False)
    return content.getvalue()


def test_higgs_sample_is_brought_into_official_order(put, small_higgs, higgs_sample):
    y, X = small_higgs
    put("higgs/higgs-84k.parquet", parquet(higgs_sample))
    split = datasets.higgs()
    np.testing.assert_array_equal(split.X_test, X[:10])
    np.testing.assert_array_equal(split.X, X[10:30])
    np.testing.assert_array_equal(np.r_[split.y_test, split.y], y[:30])
    assert split.X.dtype == np.float32
    np.testing.assert_array_equal(datasets.higgs(rows=7).X, X[10:17])
    with pytest.raises(FileNotFoundError, match=r"no file higgs/HIGGS\.csv\.gz, .* holds 20 .* rows=20 or less"):
        datasets.higgs(rows=21)
    with pytest.raises(ValueError, match="rows must be a whole number from 1 to 30, "):
        datasets.higgs(rows=31)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda table: table.drop(columns="uci_row"), r"has no column 'uci_row'"),
        (lambda table: table.assign(uci_row="x"), r"column 'uci_row' of .* must hold numbers"),
        (lambda table: table.drop(columns="f3"), "27 columns of features"),
        (lambda table: table.assign(f3="x"), "27 of them with decimals"),
        (lambda table: table[table["uci_row"] != 4], "each of the first 10 official rows once"),
        (lambda table: pd.concat([table, table]), "each of the first 10 official rows once"),
        (lambda table: table.assign(label=2), r"higgs-84k\.parquet in BAGWISE_DATA has the label 2 in row 0"),
    ],
)
def test_a_strange_higgs_sample_is_refused(put, higgs_sample, spoil, message):
    put("higgs/higgs-84k.parquet", parquet(spoil(higgs_sample)))
    with pytest.raises(ValueError, match=message):
        datasets.higgs()


@pytest.fixture
def criteo_table(monkeypatch):
    monkeypatch.setattr(published, "_CRITEO_TEST", 4)
    monkeypatch.setattr(published, "_CRITEO_ROWS", 12)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"label": np.arange(12) % 2})
    for i in range(1, 14):
        table[f"I{i}"] = pd.array(rng.integers(-2, 100, 12), dtype="Int32")
    table.loc[3, "I2"] = pd.NA
    for i in range(1, 27):
        table[f"C{i}"] = rng.integers(0, 3, 12)
    return table


def test_criteo_sample(put, criteo_table):
    put("criteo/criteo-80k.parquet", parquet(criteo_table.assign(row=np.arange(12))))
    split = datasets.criteo()
    assert (split.X.shape, split.X_test.shape) == ((8, 39), (4, 39))
    assert list(split.y) == [0, 1] * 4
    assert list(split.X_test["I1"]) == list(criteo_table["I1"][8:])
    assert np.isnan(split.X["I2"][3])
    encoded = datasets.criteo(encoded=True)
    assert np.isfinite(encoded.X).all()
    assert encoded.X.dtype == np.float32


def test_criteo_as_given_out(put, criteo_table):
    """Tabs, no names, hexadecimal categories, nothing where a value is missing; rows after the first are left."""
    table = criteo_table.astype({f"C{i}": str for i in range(1, 27)})
    table.loc[5, "C2"] = None
    table["C7"] = "05e00000"  # neither a number nor infinity
    more = pd.concat([table, table])
    put("criteo/dac_sample.txt", more.to_csv(sep="\t", index=False, header=False).encode())
    put("criteo/criteo-80k.parquet", b"not looked at where the official file is")
    split = datasets.criteo()
    assert (split.X.shape, split.X_test.shape) == ((8, 39), (4, 39))
    assert list(split.y_test) == list(table["label"][8:])
    assert list(split.X["C3"]) == list(table["C3"][:8])
    assert split.X["C7"][0] == "05e00000"
    assert split.X["C2"][5] == ""
    assert np.isnan(split.X["I2"][3])
    assert np.isfinite(datasets.criteo(encoded=True).X).all()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("criteo-80k.parquet", lambda table: b"no Parquet", "cannot be read as a Parquet file"),
        ("criteo-80k.parquet", lambda table: parquet(table.drop(columns="C9")), "has no column 'C9'"),
        ("criteo-80k.parquet", lambda table: parquet(table.assign(I4="x")), "column 'I4' .* must hold numbers"),
        ("criteo-80k.parquet", lambda table: parquet(table.assign(label=0.5)), r"has the label 0\.5 in row 0"),
        ("criteo-80k.parquet", lambda table: parquet(table[:4]), "has 4 rows: more than 4"),
        ("dac_sample.txt", lambda table: b"", "cannot be read as a tab-separated file"),
        ("dac_sample.txt", lambda table: b"1\t2\t3\n", "has 3 columns, not 40"),
    ],
)
def test_a_strange_criteo_sample_is_refused(put, criteo_table, name, content, message):
    put(f"criteo/{name}", content(criteo_table))
    with pytest.raises(ValueError, match=message):
        datasets.criteo()


@pytest.mark.parametrize(
    ("load", "most"), [(datasets.mnist, 60_000), (datasets.cifar10, 50_000), (datasets.higgs, 10_990_000)]
)
def test_rows_are_checked_before_any_file_is_looked_for(load, most, monkeypatch):
    monkeypatch.delenv("BAGWISE_DATA", raising=False)
    monkeypatch.setattr(files, "download", lambda *_: pytest.fail("downloads"))
    monkeypatch.setattr(files, "download_members", lambda *_: pytest.fail("downloads"))
    for rows in (0, -5, most + 1):
        with pytest.raises(ValueError, match=f"rows must be .* from 1 to {most}, .* got {rows}"):
            load(rows=rows)
    for rows in (1.0, "all", True, np.nan):
        with pytest.raises(ValueError, match="rows must be a whole number"):
            load(rows=rows)


def test_rows_may_be_a_numpy_integer(small_mnist):
    assert len(datasets.mnist(rows=np.int64(2)).X) == 2


# -- the mirror ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "name"),
    [
        (datasets.adult, "adult/adult.data"),
        (datasets.mnist, "mnist/train-images-idx3-ubyte.gz"),
        (datasets.higgs, "higgs/HIGGS.csv.gz"),
        (datasets.cifar10, "cifar10/test_batch.bin"),
    ],
)
def test_a_missing_file_is_named(tmp_path, monkeypatch, load, name):
    monkeypatch.setenv("BAGWISE_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"^BAGWISE_DATA has no file {name}: put it there"):
        load()


@pytest.mark.parametrize("folder", ["", "empty"])
def test_criteo_says_what_to_put_where(tmp_path, monkeypatch, folder):
    monkeypatch.setenv("BAGWISE_DATA", folder and str(tmp_path / folder))
    with pytest.raises(FileNotFoundError, match=r"set BAGWISE_DATA to a folder that holds criteo/dac_sample\.txt"):
        datasets.criteo()


def test_a_damaged_file_of_the_mirror_is_refused(small_mnist):
    path = files.mirror() / "mnist/train-labels-idx1-ubyte.gz"
    datasets.mnist()
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"mnist/train-labels-idx1-ubyte\.gz in BAGWISE_DATA is damaged or not"):
        datasets.mnist()


def test_a_file_is_checked_once_until_it_changes(put, monkeypatch):
    path = put("adult/adult.data", b"rows")
    checked = []
    real = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, kind: checked.append(Path(file.name)) or real(file, kind))
    for _ in range(3):
        assert files.file("adult/adult.data") == path
    assert checked == [path]
    os.utime(path, ns=(0, 10**18))
    files.file("adult/adult.data")
    assert checked == [path, path]


# -- downloads ----------------------------------------------------------------------------------------------------


class Server(http.server.ThreadingHTTPServer):
    """Publishes `pages`: bytes, or bytes and the length to claim for them. Remembers what was asked for."""

    def __init__(self):
        self.pages, self.asked = {}, []
        super().__init__(("127.0.0.1", 0), Handler)

    def url(self, name):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path[1:]
        self.server.asked.append(name)
        if name not in self.server.pages:
            self.send_error(404)
            return
        page = self.server.pages[name]
        content, length = page if isinstance(page, tuple) else (page, len(page))
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("BAGWISE_CACHE", str(folder))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("BAGWISE_DATA", raising=False)
    return folder


LABELS = "mnist/t10k-labels-idx1-ubyte.gz"
CONTENT = bytes(range(256)) * 5_000


@pytest.fixture
def publish(server, cache, monkeypatch):
    """Let the server publish MNIST's test labels: `content`, where CONTENT is right."""

    def publish(content):
        server.pages["labels.gz"] = content
        monkeypatch.setitem(FILES, LABELS, Official(sha256(CONTENT), server.url("labels.gz")))

    return publish


def kept(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def reports():
    """What pooch reports. It has a handler of its own, for standard error."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    pooch.get_logger().addHandler(handler)
    yield messages
    pooch.get_logger().removeHandler(handler)


def test_a_download_is_kept_and_silent(publish, server, cache, capfd, reports):
    publish(CONTENT)
    level = pooch.get_logger().level
    for _ in range(2):
        path = files.file(LABELS)
        assert path == cache / LABELS
        assert path.read_bytes() == CONTENT
    assert server.asked == ["labels.gz"]
    assert kept(cache) == [LABELS]
    assert capfd.readouterr() == ("", "")
    assert reports == []
    assert pooch.get_logger().level == level


def test_a_damaged_file_of_the_cache_is_fetched_anew(publish, server, cache):
    publish(CONTENT)
    files.file(LABELS).write_bytes(CONTENT[:100])
    assert files.file(LABELS).read_bytes() == CONTENT
    assert server.asked == ["labels.gz"] * 2


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT[:-1] + b"x", b""], ids=["truncated", "corrupt", "empty"])
def test_a_damaged_download_is_never_kept(publish, server, cache, capfd, content):
    publish(content)
    with pytest.raises(ValueError, match=r"from http.*labels\.gz is damaged .* try again, or set BAGWISE_DATA"):
        files.file(LABELS)
    assert kept(cache) == []
    assert capfd.readouterr() == ("", "")
    publish(CONTENT)
    assert files.file(LABELS).read_bytes() == CONTENT


def test_a_connection_that_breaks_off_leaves_nothing(publish, cache):
    publish((CONTENT[:500_000], len(CONTENT)))
    with pytest.raises(FileNotFoundError, match=rf"labels\.gz could not be downloaded \(.*\): .* that holds {LABELS}"):
        files.file(LABELS)
    assert kept(cache) == []


def test_a_missing_page_is_named(publish, server, cache):
    publish(CONTENT)
    del server.pages["labels.gz"]
    with pytest.raises(FileNotFoundError, match=r"labels\.gz could not be downloaded \(HTTP status 404\)"):
        files.file(LABELS)
    assert kept(cache) == []


def test_an_interrupted_download_leaves_nothing(publish, cache, monkeypatch):
    publish(CONTENT)

    def interrupt(self, size):
        assert len(kept(cache)) == 1  # the part that has come
        raise KeyboardInterrupt

    monkeypatch.setattr(files.DownloadBar, "update", interrupt)
    with pytest.raises(KeyboardInterrupt), datasets.show_downloads(terminal()):
        files.file(LABELS)
    assert kept(cache) == []


def test_a_cache_that_cannot_be_written(publish, cache):
    publish(CONTENT)
    cache.write_text("a file where the folder should be")
    with pytest.raises(OSError, match=rf"cannot take {LABELS} \(.*\): point BAGWISE_CACHE at a folder with room"):
        files.file(LABELS)


def test_the_cache_is_the_systems_own(monkeypatch):
    monkeypatch.delenv("BAGWISE_CACHE", raising=False)
    assert files.cache() == pooch.os_cache("bagwise")


# -- archives -----------------------------------------------------------------------------------------------------

TRAIN = (ADULT.format("<=50K") + ADULT.format(">50K")).encode()
TEST = ("|1x3 Cross validator\n" + ADULT.format(">50K.")).encode()


def zipped(**members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(f"adult.{name}", member)
    return content.getvalue()


def taped(**members):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, member in members.items():
            info = tarfile.TarInfo(f"adult.{name}")
            info.size = len(member)
            archive.addfile(info, io.BytesIO(member))
    return content.getvalue()


@pytest.fixture
def publish_adult(server, cache, monkeypatch):
    """Let the server publish Adult's archive, with or without a checksum; TRAIN and TEST are right."""

    def publish(content, checksum):
        server.pages["adult.archive"] = content
        archive = Archive(server.url("adult.archive"), checksum)
        monkeypatch.setitem(FILES, "adult/adult.data", Official(sha256(TRAIN), archive))
        monkeypatch.setitem(FILES, "adult/adult.test", Official(sha256(TEST), archive))

    return publish


@pytest.mark.parametrize("pack", [zipped, taped])
@pytest.mark.parametrize("checked", [True, False])
def test_archives_are_unpacked_and_not_kept(publish_adult, server, cache, capfd, pack, checked):
    content = pack(readme=b"hello", test=TEST, data=TRAIN)
    publish_adult(content, sha256(content) if checked else None)
    for _ in range(2):
        split = datasets.adult()
        assert (list(split.y), list(split.y_test)) == ([0, 1], [1])
    assert server.asked == ["adult.archive"]
    assert kept(cache) == ["adult/adult.data", "adult/adult.test"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("pack", [zipped, taped])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda pack: pack(data=TRAIN, test=TEST[:-1]), r"\(adult\.test in it does not have sha256:"),
        (lambda pack: pack(data=TRAIN), r"\(adult\.test in it does not have sha256:"),
        (lambda pack: pack(data=TRAIN, test=TEST)[:-40], "is damaged"),
        (lambda pack: b"<html>moved</html>", r"\(it cannot be unpacked\)"),
    ],
    ids=["other member", "no member", "truncated", "no archive"],
)
def test_damaged_archives_leave_nothing(publish_adult, cache, pack, spoil, message):
    content = spoil(pack)
    publish_adult(content, None)
    with pytest.raises(ValueError, match=message + r".* and was thrown away: try again, or set BAGWISE_DATA"):
        datasets.adult()
    assert kept(cache) == []


def test_an_archive_is_held_to_its_own_checksum(publish_adult, cache):
    publish_adult(zipped(data=TRAIN, test=TEST), sha256(b"another"))
    with pytest.raises(ValueError, match=r"it does not have sha256:.* a folder that holds adult/adult\.data"):
        datasets.adult()
    assert kept(cache) == []


def test_cifar10_comes_in_one_archive():
    (archive,) = {official.source for name, official in FILES.items() if name.startswith("cifar10/")}
    assert archive.url == "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    assert archive.checksum == "md5:c32a1d4ab5d03f1284b67883e8d87530"


# -- progress -----------------------------------------------------------------------------------------------------


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def test_a_bar_is_drawn_where_asked_for(publish, cache, monkeypatch):
    publish(CONTENT)
    console, seen = terminal(), []
    monkeypatch.setattr(
        files.DownloadBar, "close", lambda bar: seen.append((bar.total, bar._progress.tasks[0].completed))
    )
    with datasets.show_downloads(console):
        files.file(LABELS)
        drawn = console.file.getvalue()
        files.file(LABELS)
    assert "labels.gz" in drawn
    assert "1.3/1.3 MB" in drawn
    assert seen == [(len(CONTENT), len(CONTENT))]
    assert console.file.getvalue() == drawn  # the second call found the file in the cache


def test_a_bar_inside_another_display(publish, cache):
    """As the command line has one for its own progress."""
    from rich.progress import Progress

    publish(CONTENT)
    console = terminal()
    with Progress(console=console) as outer, datasets.show_downloads(console):
        outer.add_task("outer")
        files.file(LABELS)
    assert "labels.gz" in console.file.getvalue()


def test_no_bar_on_what_is_no_terminal(publish, cache):
    publish(CONTENT)
    console = Console(file=io.StringIO())
    with datasets.show_downloads(console):
        files.file(LABELS)
    assert console.file.getvalue() == ""


def test_bars_end_with_the_block(publish, cache):
    publish(CONTENT)
    console = terminal()
    with datasets.show_downloads(console):
        pass
    files.file(LABELS)
    assert console.file.getvalue() == ""
