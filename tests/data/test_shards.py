"""Bags gathered into shards, and boosting and networks over them: every row once, in whole bags; as in memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import bagwise as bw
from bagwise import tables
from bagwise.boosting.dataset import Table, TreeOptions
from bagwise.boosting.trees import Job, varies
from bagwise.data import rows as data_rows
from bagwise.data.features import Encoding
from bagwise.data.rows import InMemory, fit_codes, in_one_piece, prior, row_starts, subset
from bagwise.data.shards import NOISE, Shards, digest
from bagwise.folds import Fold
from bagwise.tables import connect, gather, join
from bagwise.tables.bag_table import NUMBER
from bagwise.tables.columns import Features
from bagwise.tables.gather import write_shards

SIZES = {
    "equal": np.full(60, 10),
    "unequal": np.arange(1, 50),
    "larger than a block": np.array([500, 1, 3, 700, 2, 2, 90, 1]),
    "one row each": np.ones(200, dtype=int),
}

OTHER_REPORTS = {"classes": (3, None), "noise": (0, 2.0)}
every_kind = pytest.mark.parametrize(  # sizes and reports have nothing to do with each other: not every pair
    ("sizes", "classes", "noise"),
    [pytest.param(sizes, 0, None, id=name) for name, sizes in SIZES.items()]
    + [
        pytest.param(sizes, *reports, id=f"{name}, {kind}", marks=[] if name == "unequal" else pytest.mark.slow)
        for name, sizes in SIZES.items()
        for kind, reports in OTHER_REPORTS.items()
    ],
)


def made_up(sizes: Any, *, seed: int = 0, classes: int = 0, noise: float | None = None) -> tuple[Any, Any]:
    """Events with numbers, gaps, categories and times, some of them in no reported bag; and reports."""
    rng = np.random.default_rng(seed)
    n, m = int(np.sum(sizes)), len(sizes)
    x, y = rng.normal(size=n), rng.normal(size=n)
    events = pd.DataFrame(
        {
            "bag": rng.permutation(np.repeat([f"b{j}" for j in range(m)], sizes)),
            "x": np.where(rng.random(n) < 0.1, np.nan, x),
            "y": y,
            "clicks": rng.integers(0, 5, n),
            "device": rng.choice(np.array(["phone", "tablet", None]), n),
            "time": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 10**6, n), unit="s"),
        }
    )
    label = (np.nan_to_num(x) * y > 0).astype(int) + (classes == 3) * (events["device"] == "phone").to_numpy()
    counts = pd.DataFrame({f"count_{c}": label == c for c in range(classes)} if classes else {"count": label})
    reports = counts.groupby(events["bag"]).sum().reset_index()
    if noise is not None:
        reports["noise_scale"] = noise
    lost = events.head(3).assign(bag="lost")
    return pd.concat([events, lost]), reports


def joined(events: Any, reports: Any, *, classes: int = 0, **options: Any) -> tuple[Any, Features]:
    if classes:
        options["count"] = [f"count_{c}" for c in range(classes)]
    data = join(events, reports, on_mismatch="drop", connection=connect(threads=1), **options)
    return data, Features.of(data.events, data.features)


def gathered(sizes: Any, *, classes: int = 0, noise: float | None = None) -> tuple[Any, Features]:
    """Tables made up and joined, once for all tests that only read them."""
    return _gathered(tuple(sizes), classes, noise)


@cache
def _gathered(sizes: tuple[int, ...], classes: int, noise: float | None) -> tuple[Any, Features]:
    return joined(*made_up(sizes, classes=classes, noise=noise), classes=classes)


def one_query(data: Any, features: Features) -> tuple[Any, bw.Bags]:
    """The rows of usable bags by one query, and their bags."""
    table = features.select(data.rows(), NUMBER, NOISE, *data.proportions).fetch().combine_chunks()
    number = table.column(NUMBER).to_numpy()
    proportion = np.stack([table.column(name).to_numpy() for name in data.proportions], axis=1)
    noise = np.nan_to_num(table.column(NOISE).to_numpy()) if data.summary.noised else None
    given = proportion if data.classes is not None else proportion[:, 0]
    return features.matrix(table), bw.Bags.from_rows(given, number, noise_variance=noise)


def sorted_rows(X: Any, bags: Any) -> Any:
    """Rows by bag, and inside a bag by their numbers."""
    X = np.nan_to_num(X.astype(np.float32), nan=-9)
    return X[np.lexsort((*X.T, bags.code))]


def all_rows(shards: Shards) -> Any:
    return np.concatenate([shards.block(number) for number in range(len(shards))])


# -- what is in the shards ---------------------------------------------------------------------------------------------


@every_kind
def test_shards_hold_every_usable_row_once_in_whole_bags(tmp_path, sizes, classes, noise):
    data, features = gathered(sizes, classes=classes, noise=noise)
    shards = write_shards(data, features, tmp_path / "shards", shard_rows=150, group_rows=60)
    X, bags = one_query(data, features)
    assert np.array_equal(sorted_rows(all_rows(shards), shards.bags), sorted_rows(X, bags))
    np.testing.assert_array_equal(shards.bags.size, bags.size)
    np.testing.assert_allclose(shards.bags.proportion, bags.proportion)
    np.testing.assert_allclose(prior(shards), bw.means.prior(bags))
    assert (shards.bags.noise_variance is None) == (noise is None)
    if noise is not None:
        np.testing.assert_allclose(shards.bags.noise_variance, bags.noise_variance)
    groups = [
        pq.ParquetFile(file).metadata.row_group(number).num_rows
        for file in sorted((tmp_path / "shards").glob("shard-*.parquet"))
        for number in range(pq.ParquetFile(file).metadata.num_row_groups)
    ]
    assert groups == np.diff(row_starts(shards)).tolist()
    assert set(np.cumsum(groups)) <= set(np.cumsum(bags.size))  # blocks end where bags end
    assert max(groups) <= 60 + bags.size.max()
    assert len(shards.files) > 1


def test_blocks_know_their_bags(tmp_path):
    data, features = gathered(SIZES["unequal"])
    shards = write_shards(data, features, tmp_path / "shards", group_rows=100)
    chosen = [len(shards) - 1, 0]
    ends, whole = shards.starts, shards.bags
    bags = subset(shards, np.concatenate([np.arange(ends[number], ends[number + 1]) for number in chosen]))
    expected = whole.take(np.concatenate([np.arange(ends[number], ends[number + 1]) for number in chosen]))
    assert bags.n_rows == bags.n_bagged == sum(len(shards.block(number)) for number in chosen)
    assert np.array_equal(bags.size, expected.size)
    assert np.array_equal(bags.proportion, expected.proportion)


def test_small_tables_have_blocks_for_several_processes(tmp_path):
    data, features = gathered(SIZES["equal"])
    bags = data.summary.bags
    found = {
        least: len(write_shards(data, features, tmp_path / f"shards-{least}", least_blocks=least))
        for least in (1, 5, 10 * bags)
    }
    assert found[1] == 1
    assert 5 <= found[5] < bags
    assert found[10 * bags] == bags
    assert len(write_shards(data, features, tmp_path / "given", group_rows=10**6, least_blocks=5)) == 1


def test_the_same_tables_give_the_same_shards(tmp_path):
    events, reports = made_up(SIZES["unequal"])
    written = []
    for number, threads in enumerate((1, 2)):
        data = join(
            events.sample(frac=1, random_state=number), reports, on_mismatch="drop", connection=connect(threads=threads)
        )
        features = Features.of(data.events, data.features)
        folder = tmp_path / str(number)
        write_shards(data, features, folder, group_rows=100, shard_rows=300)
        written.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert written[0] == written[1]


def test_the_encoding_is_that_of_all_rows(tmp_path):
    data, features = gathered(SIZES["equal"])
    shards = write_shards(data, features, tmp_path / "shards", group_rows=50)
    X, ours = all_rows(shards), shards.encoding()
    expected = Encoding.of(X.astype(float), categorical=features.categorical)
    assert shards.categorical == features.categorical
    np.testing.assert_allclose(ours(X), expected(X), rtol=1e-6)


def test_a_sample_is_the_first_whole_bags(tmp_path):
    data, features = gathered(SIZES["unequal"])
    shards = write_shards(data, features, tmp_path / "shards", group_rows=100)
    some = shards.sample(300)
    X, bags = some.X, some.bags
    assert len(X) == bags.n_bagged == bags.n_rows
    assert 300 - 50 < len(X) <= 300
    np.testing.assert_array_equal(X, all_rows(shards)[: len(X)])
    assert np.array_equal(bags.proportion, shards.proportion[: len(bags)])
    assert len(shards.sample(1).bags) == 4  # fewer leave nothing to choose by
    assert len(shards.sample(10**9).X) == shards.n_rows


def test_numbers_keep_their_digits(tmp_path):
    n = 40
    events = {
        "bag": np.repeat([1, 2, 3, 4], 10),
        "seconds": 1.7e9 + np.arange(n),
        "huge": np.linspace(0, 1e300, n),
        "plain": np.linspace(-5, 5, n),
        "constant": np.full(n, 3.0),
        "missing": pd.array([None] * n, dtype="Float64"),
    }
    data, features = joined(pd.DataFrame(events), {"bag": [1, 2, 3, 4], "count": [1, 2, 3, 4]})
    shards = write_shards(data, features, tmp_path / "shards")
    kinds = {column.name: column.type for column in shards.columns}
    assert kinds["seconds"] == kinds["huge"] == "float64"
    assert kinds["plain"] == kinds["constant"] == "float32"
    assert len(np.unique(all_rows(shards)[:, 0])) == n


# -- what can go wrong -------------------------------------------------------------------------------------------------


def test_a_folder_that_exists_is_left_alone(tmp_path):
    data, features = gathered(SIZES["equal"])
    (tmp_path / "shards").mkdir()
    with pytest.raises(FileExistsError, match="exists already"):
        write_shards(data, features, tmp_path / "shards")


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_not_finished_does_not_open(tmp_path, monkeypatch, killed):
    """An error leaves nothing; a kill, which clears nothing up, leaves a folder that is none of shards."""
    data, features = gathered(SIZES["equal"])
    kept, calls = gather.as_kept, []

    def as_kept(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return kept(*args)

    with monkeypatch.context() as patch:
        patch.setattr(gather, "as_kept", as_kept)
        if killed:
            patch.setattr(shutil, "rmtree", lambda *args, **options: None)
        with pytest.raises(KeyboardInterrupt):
            write_shards(data, features, tmp_path / "shards", group_rows=100)
    left = list(tmp_path.iterdir())
    assert len(left) == killed
    for folder in (tmp_path / "shards", *left):
        with pytest.raises(FileNotFoundError, match="no folder of shards"):
            Shards.open(folder)
    assert write_shards(data, features, tmp_path / "shards").n_rows == 600


def change(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)


def rewrite(folder: Path, **changed: Any) -> None:
    index = json.loads((folder / "shards.json").read_text())
    (folder / "shards.json").write_text(json.dumps({**index, **changed}))


def sign(folder: Path) -> None:
    index = json.loads((folder / "shards.json").read_text())
    del index["sha256"]
    rewrite(folder, sha256=digest(index))


DAMAGES = {
    "a shard is missing": (lambda folder: (folder / "shard-00001.parquet").unlink(), "shard-00001.parquet is missing"),
    "a shard is cut off": (
        lambda folder: (folder / "shard-00000.parquet").write_bytes(b"PAR1"),
        "shard-00000.parquet is damaged",
    ),
    "a byte is wrong": (lambda folder: change(folder / "shard-00001.parquet", 40), "shard-00001.parquet is damaged"),
    "reports are damaged": (lambda folder: change(folder / "bags.parquet", 40), "bags.parquet is damaged"),
    "no index": (lambda folder: (folder / "shards.json").unlink(), "no folder of shards"),
    "index cut off": (lambda folder: (folder / "shards.json").write_text("{"), "shards.json is damaged"),
    "index of another kind": (lambda folder: (folder / "shards.json").write_text("[]"), "shards.json is damaged"),
    "columns are missing": (lambda folder: rewrite(folder, columns=[{}]), "shards.json was changed or damaged"),
    "no checksum": (lambda folder: rewrite(folder, sha256=None), "shards.json was changed or damaged"),
    "another version": (lambda folder: rewrite(folder, format=2), "format 2, this version reads 1"),
    "a name leads elsewhere": (
        lambda folder: (rewrite(folder, files=[{"name": "../x.parquet", "bytes": 1, "bags": [60]}]), sign(folder)),
        "shards.json does not describe shards",
    ),
    "classes beyond count": (
        lambda folder: (rewrite(folder, classes=10**9), sign(folder)),
        "does not have the classes of shards.json",
    ),
    "numbers that are none": (lambda folder: (rewrite(folder, rows="7"), sign(folder)), "does not describe shards"),
    "columns of nothing": (lambda folder: (rewrite(folder, columns=[{}]), sign(folder)), "does not describe shards"),
    "other bags": (lambda folder: (rewrite(folder, rows=7), sign(folder)), "bags.parquet does not fit the shards"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "shards"
    data, features = gathered(SIZES["equal"])
    write_shards(data, features, folder, shard_rows=200, group_rows=100)
    return folder


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named_in_one_sentence(tmp_path, sound, damage, message):
    shutil.copytree(sound, tmp_path / "shards")
    damage(tmp_path / "shards")
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        all_rows(Shards.open(tmp_path / "shards"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change", [lambda events: events.iloc[:-9], lambda events: pd.concat([events, events.head(9)])]
)
def test_events_that_changed_are_noticed(tmp_path, change):
    events, reports = made_up(SIZES["equal"])
    events.to_parquet(tmp_path / "events.parquet")
    data, features = joined(str(tmp_path / "events.parquet"), reports)
    change(events).to_parquet(tmp_path / "events.parquet")
    with pytest.raises(ValueError, match="not those that were joined"):
        write_shards(data, features, tmp_path / "shards", group_rows=100)
    assert not (tmp_path / "shards").exists()


def test_infinity_is_named(tmp_path):
    events, reports = made_up(SIZES["equal"])
    events.loc[5, "y"] = np.inf
    data, features = joined(events, reports)
    with pytest.raises(ValueError, match="column 'y' contains infinity"):
        write_shards(data, features, tmp_path / "shards", group_rows=100)
    assert not list(tmp_path.iterdir())


def test_sizes_are_checked(tmp_path):
    data, features = gathered(SIZES["equal"])
    for wrong in ({"group_rows": 0}, {"shard_rows": 1.5}, {"least_blocks": 0}):
        with pytest.raises(ValueError, match="must be a whole number of at least 1"):
            write_shards(data, features, tmp_path / "shards", **wrong)


# -- in memory ---------------------------------------------------------------------------------------------------------


@every_kind
def test_rows_gathered_in_memory_are_those_of_the_shards(tmp_path, monkeypatch, sizes, classes, noise):
    monkeypatch.setattr(gather, "_NUMBERS", 300)
    data, features = gathered(sizes, classes=classes, noise=noise)
    shards, memory = write_shards(data, features, tmp_path / "shards"), gather.gather(data, features)
    assert len(memory) == len(shards) > 1
    assert np.array_equal(memory.starts, shards.starts)
    for number in range(len(shards)):
        ours, theirs = memory.block(number), shards.block(number)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    for name in ("size", "proportion", "noise_variance", "shape", "categorical"):
        np.testing.assert_array_equal(getattr(memory, name), getattr(shards, name))
    encoding = shards.encoding()
    np.testing.assert_allclose(memory.encoding()(memory.X), encoding(memory.X), rtol=1e-6)
    some, theirs = (rows.encoded(encoding).sample(50) for rows in (memory, shards))
    assert in_one_piece(some)
    np.testing.assert_array_equal(some.X, theirs.X)
    assert np.array_equal(some.bags.size, theirs.bags.size)


# -- boosting ----------------------------------------------------------------------------------------------------------

OPTIONS = TreeOptions(
    learning_rate=0.1,
    num_leaves=8,
    min_child_samples=5,
    colsample_bytree=1.0,
    reg_lambda=1.0,
    max_cat_to_onehot=64,
    cat_smooth=10.0,
    n_jobs=1,
)


def in_blocks(X: Any, starts: Any, bags: Any = None) -> InMemory:
    """Rows that are bags of their own, or stand in the order of `bags`; the blocks begin with the bags `starts`."""
    bags = bw.Bags.singletons(np.zeros(len(X))) if bags is None else bags
    return InMemory(X, bags, starts=np.array([0, *starts, len(bags)]))


@pytest.mark.filterwarnings("ignore:Overriding the parameters")
@pytest.mark.parametrize("sampled", [300, 200_000])  # rows that LightGBM finds bins by: some of them, or all
@pytest.mark.parametrize("kind", ["greedy", "random"])
def test_trees_over_blocks_are_those_in_memory(sampled, kind):
    """Categories and gaps too, and a fold of the bags; exactly."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4)).astype(np.float32)
    X[:, 3] = rng.integers(0, 6, 1200)
    X[rng.random(1200) < 0.1, 0] = np.nan
    bags = bw.Bags.from_rows(*(np.repeat(values, 10) for values in (rng.random(120), np.arange(120))))
    options = OPTIONS if kind == "greedy" else TreeOptions(**{**vars(OPTIONS), "extra_trees": True, "link": "logit"})
    fits = []
    for rows in (InMemory(X, bags), in_blocks(X, [10, 11, 70], bags)):
        table = Table.of(rows, options, [3], bin_construct_sample_cnt=sampled)
        whole = Job(table, options, 15, 1).fit(options.n_jobs)
        before = whole.scores(X, 15)
        whole.release()
        assert np.array_equal(whole.scores(X, 15), before)
        fold = Fold(np.arange(0, 120, 2), np.arange(1, 120, 2))
        part = Job(table, options, 9, 2, fold, patience=99).fit(options.n_jobs)
        fits.append([before, part.scores(X, 9), np.stack(part.deviations)])
    for mine, theirs in zip(*fits, strict=True):
        assert np.ptp(mine) > 0.01
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)


def test_leaves_that_move_alike_are_told_apart_over_blocks():
    """Two cells of a table with the same mean label, far apart, are different leaves of the same value."""
    cell = np.repeat(np.arange(4), 100)
    X, y = np.stack([cell // 2, cell % 2], axis=1).astype(np.float32), np.isin(cell, [0, 3]).astype(float)
    bags, fits = bw.Bags.singletons(y), []
    for rows in (InMemory(X, bags), in_blocks(X, [150, 250], bags)):
        fits.append(Job(Table.of(rows, OPTIONS, []), OPTIONS, 5, 0).fit(OPTIONS.n_jobs).scores(X, 5))
    assert np.array_equal(*fits)


def test_columns_vary_inside_a_block_or_between_blocks():
    X = np.array([[1, np.nan], [1, np.nan], [2, np.nan], [2, np.nan]])
    assert varies([X[:2], X[2:]])
    assert varies([X[1:2], X[2:]])
    assert not varies([X[:1], X[1:2]])
    assert varies([np.array([[np.nan], [np.nan]]), np.array([[1.0]])])


def test_rows_of_blocks_are_taken_in_any_order():
    X = np.arange(20.0).reshape(10, 2)
    chosen = np.array([9, 0, 5, 4, 5])
    for rows in (in_blocks(X, []), in_blocks(X, [3, 5])):
        assert np.array_equal(Table.of(rows, OPTIONS, []).take(chosen), X[chosen])


@pytest.mark.parametrize("classes", [0, 3])
def test_with_the_same_settings_boosting_over_shards_is_that_in_memory(tmp_path, monkeypatch, classes):
    data, features = gathered(np.full(80, 12), classes=classes)
    shards = write_shards(data, features, tmp_path / "shards", shard_rows=400, group_rows=150)
    whole, choose = shards.sample(10**9), bw.BagBoostingClassifier._choose
    settings = {"formation": "random", "n_estimators": 12, "n_fits": 1, "cv": 2, "n_jobs": 1, "random_state": 0}
    memory, disk = (bw.BagBoostingClassifier(**settings, categorical_features=shards.categorical) for _ in range(2))
    # Both choose on all rows, and then fit to all bags, as is done where these do not fit into memory.
    monkeypatch.setattr(
        bw.BagBoostingClassifier, "_choose", lambda self, _, rng: choose(self, self._table(whole), rng) or True
    )
    memory.fit_rows(whole)
    monkeypatch.setattr(data_rows, "SAMPLE_ROWS", 100)
    disk.fit_rows(shards)
    assert disk.n_estimators_ == memory.n_estimators_
    np.testing.assert_allclose(disk.predict_proba(whole.X), memory.predict_proba(whole.X), rtol=0, atol=1e-9)


def learnable(tmp_path: Path, *, n: int = 12_000, size: int = 10) -> tuple[Shards, Any, Any]:
    """Shards of a simple problem, and rows with labels to test on."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(2 * n, 3))
    device = rng.integers(0, 3, 2 * n)
    y = ((x[:, 0] * x[:, 1] > 0) & (device < 2)).astype(int)
    bag = np.concatenate([bw.random_bags(n, size, random_state=0), np.full(n, -1)])
    table = pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "x2": x[:, 2], "device": np.array(["a", "b", "c"])[device]})
    train = table[:n].assign(bag=bag[:n])
    data, features = joined(train, pd.DataFrame({"bag": bag[:n], "count": y[:n]}).groupby("bag").sum().reset_index())
    shards = write_shards(data, features, tmp_path / "shards", shard_rows=4000, group_rows=1000)
    test = np.column_stack([x[n:], device[n:]])
    return shards, test, y[n:]


def test_boosting_learns_from_shards(tmp_path, monkeypatch):
    shards, X, y = learnable(tmp_path)
    settings = {"n_estimators": 20, "n_fits": 1, "cv": 3, "n_jobs": 1, "random_state": 0}
    memory, disk = bw.BagBoostingClassifier(**settings), bw.BagBoostingClassifier(**settings)
    assert fit_codes(memory, shards) is None
    monkeypatch.setattr(data_rows, "SAMPLE_ROWS", 4000)
    fit_codes(disk, shards)
    boosters = [booster for fits in disk.fits_.values() for fit in fits for booster in fit.boosters]
    assert boosters
    assert not any(hasattr(booster, "train_set") for booster in boosters)  # nothing of the rows is kept
    assert (memory.predict(X) == y).mean() > 0.93
    assert (disk.predict(X) == y).mean() > (memory.predict(X) == y).mean() - 0.02
    bw.save(disk, tmp_path / "model")
    assert np.array_equal(bw.load(tmp_path / "model").predict_proba(X), disk.predict_proba(X))


# -- networks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [2, 4])
def test_processes_share_the_rows_evenly_where_streams_have_different_numbers_of_blocks(torch, tmp_path, world):
    from bagwise.distributed import Distributed, Processes
    from bagwise.neural.distributed import BlockLoader

    data, features = gathered([4] * 60)
    shards = write_shards(data, features, tmp_path / "shards", group_rows=12)
    assert len(shards) == 20  # of 8 streams, four have a block more
    rows = [
        sum(len(batch.x) for batch in BlockLoader(
            shards, torch.from_numpy, Distributed(Processes(rank, world), streams=8), rows=40, seed=0
        ).epoch(0))
        for rank in range(world)
    ]  # fmt: skip
    assert rows == [240 // world] * world


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(("classes", "world"), [pytest.param(3, 1, marks=pytest.mark.slow), (0, 3)])
def test_a_pass_over_the_streams_meets_every_bag_once(torch, tmp_path, monkeypatch, sizes, classes, world):
    from bagwise.distributed import Distributed, Processes
    from bagwise.neural import distributed
    from bagwise.neural.distributed import BlockLoader

    monkeypatch.setattr(distributed, "_NUMBERS", 50)
    data, features = gathered(sizes, classes=classes)
    shards = write_shards(data, features, tmp_path / "shards", group_rows=20)
    whole = np.nan_to_num(all_rows(shards), nan=-9)

    def streams(rank: int, world: int) -> BlockLoader:
        read = lambda rows: torch.from_numpy(np.nan_to_num(rows, nan=-9)).double()  # noqa: E731
        return BlockLoader(shards, read, Distributed(Processes(rank, world), streams=4), rows=30, seed=5)

    if world > min(4, len(shards)):
        with pytest.raises(ValueError, match="there are 3 processes for"):
            streams(0, world)
        return
    passes = []
    for number in range(2):
        steps = []
        for together in zip(*(streams(rank, world).epoch(number) for rank in range(world)), strict=True):
            step: list[int] = []
            for batch in together:
                x, bags = batch.x, batch.bags
                assert x.dtype == bags.proportion.dtype == torch.float64
                assert len(x) == bags.n_bagged
                for j, key in enumerate(bags.keys):
                    rows = x[bags.offsets[j] : bags.offsets[j + 1]].numpy()
                    start = shards.size[:key].sum()
                    assert np.array_equal(rows, whole[start : start + shards.size[key]])
                    np.testing.assert_allclose(bags.proportion[j].numpy(), shards.proportion[key])
                step += bags.keys.tolist()
            assert all(sorted(batch.whole.keys) == sorted(step) for batch in together)
            assert all(np.array_equal(batch.whole.keys[batch.mine], batch.bags.keys) for batch in together)
            assert len(step) >= 2
            assert shards.size[step].sum() <= 30 + 3 * max(sizes)
            steps.append(step)
        assert sorted(np.concatenate(steps).tolist()) == list(range(len(shards.size)))
        passes.append(steps)
        alone = [batch.bags.keys.tolist() for batch in streams(0, 1).epoch(number)]
        assert [sorted(step) for step in steps] == [sorted(step) for step in alone]
        middle = len(steps) // 2
        for rank in range(world):  # a pass can be taken up where it was left
            for late, early in zip(
                streams(rank, world).epoch(number, middle),
                list(streams(rank, world).epoch(number))[middle:],
                strict=True,
            ):
                assert torch.equal(late.x, early.x)
                assert np.array_equal(late.bags.keys, early.bags.keys)
    assert passes[0] != passes[1]


@pytest.mark.slow
def test_a_network_learns_from_shards(torch, one_thread, tmp_path, monkeypatch):
    from bagwise.neural import BagNeuralClassifier

    shards, X, y = learnable(tmp_path)
    settings = {"learning_rate": 0.03, "max_epochs": 30, "cv": 2, "random_state": 0, "batch_rows": 256}
    memory, disk = BagNeuralClassifier(**settings), BagNeuralClassifier(**settings)
    fit_codes(memory, shards)
    monkeypatch.setattr(data_rows, "SAMPLE_ROWS", 4000)
    encoding = fit_codes(disk, shards)
    chosen = [line for line in disk.history_ if line["stage"] == "choice" and line["risk"] == disk.risk_]
    assert disk.n_epochs_ == -(-chosen[0]["epoch"] * 4000 // 12_000)
    read = encoding(X)
    assert (memory.predict(read) == y).mean() > 0.93
    assert (disk.predict(read) == y).mean() > (memory.predict(read) == y).mean() - 0.03
    assert disk.prior_ == pytest.approx(prior(shards))
    bw.save(disk, tmp_path / "model")
    loaded = bw.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(read), disk.predict_proba(read))
    before = disk.predict_proba(read)
    disk.partial_fit(encoding(shards.sample(4000).X), bags=shards.sample(4000).bags)
    assert disk._rows_seen == 16_000
    assert not np.array_equal(disk.predict_proba(read), before)


def test_passes_are_as_many_as_asked_for_where_nothing_is_chosen(torch, one_thread, tmp_path, monkeypatch):
    from bagwise.neural import BagNeuralClassifier

    monkeypatch.setattr(data_rows, "SAMPLE_ROWS", 200)
    data, features = gathered(np.full(80, 12), classes=3)
    shards = write_shards(data, features, tmp_path / "shards", group_rows=150)
    models = [
        BagNeuralClassifier(learning_rate=0.01, max_epochs=3, early_stopping=False, random_state=seed, dtype="float64")
        for seed in (0, 0, 1)
    ]
    for model in models:
        encoding = fit_codes(model, shards)
    assert [line["stage"] for line in models[0].history_] == ["final"] * 3
    same, again, other = (model.predict_proba(encoding(all_rows(shards))) for model in models)
    assert np.array_equal(same, again)
    assert not np.array_equal(same, other)
    assert same.shape == (960, 3)


def test_damage_met_while_training_is_named(torch, one_thread, tmp_path, monkeypatch):
    from bagwise.neural import BagNeuralClassifier

    monkeypatch.setattr(data_rows, "SAMPLE_ROWS", 200)
    data, features = gathered(np.full(80, 12))
    shards = write_shards(data, features, tmp_path / "shards", group_rows=150, shard_rows=300)
    change(tmp_path / "shards" / shards.files[-1].name, 40)
    model = BagNeuralClassifier(learning_rate=0.01, max_epochs=3, early_stopping=False, random_state=0)
    with pytest.raises(ValueError, match="is damaged"):
        fit_codes(model, shards)


# -- more data than memory ---------------------------------------------------------------------------------------------

SCRIPT = """
import json, resource, sys
from pathlib import Path

import duckdb
import numpy as np

folder, rows, columns, memory = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
steps = 8
duck = duckdb.connect(config={"threads": 1, "memory_limit": "100MB", "preserve_insertion_order": False})
made = ", ".join(f"random() AS x{i}" for i in range(columns))
(folder / "events").mkdir()
for step in range(steps):
    query = f"SELECT (random() * {rows // 100})::BIGINT AS bag, {made} FROM range({rows // steps})"
    duck.execute(f"COPY ({query}) TO '{folder}/events/{step}.parquet' (ROW_GROUP_SIZE 10000)")
query = f"SELECT bag, sum((x0 > 0.5 AND x1 > 0.3)::INT) AS count FROM '{folder}/events/*.parquet' GROUP BY bag"
duck.execute(f"COPY ({query}) TO '{folder}/reports.parquet'")
duck.close()
size = sum(file.stat().st_size for file in (folder / "events").iterdir())

import bagwise as bw
import torch
from bagwise.neural import BagNeuralClassifier
from bagwise.tables import connect, join
from bagwise.tables.columns import Features
from bagwise.tables.gather import write_shards
from bagwise.data import rows as data_rows
from bagwise.data.rows import fit_codes

data_rows.SAMPLE_ROWS = 20_000
torch.set_num_threads(1)
trees = bw.BagBoostingClassifier(n_estimators=8, learning_rate=0.5, reg_lambda=10, n_fits=1, n_jobs=1, random_state=0)
network = BagNeuralClassifier(learning_rate=0.01, max_epochs=10, cv=2, random_state=0)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


X = np.random.default_rng(0).random((2000, columns))  # what a first use loads is not the data's
ids = bw.random_bags(2000, 10, random_state=0)
for model in (trees, network):
    model.fit(X, bw.aggregate(X[:, 0] > 0.5, ids), bags=ids)
start = peak()
data = join(str(folder / "events"), str(folder / "reports.parquet"), connection=connect(memory=memory, threads=1))
shards = write_shards(data, Features.of(data.events, data.features), folder / "shards")
del data
peaks = {"gather": peak() - start}
encoding = fit_codes(network, shards)
peaks["network"] = peak() - start
fit_codes(trees, shards)
peaks["boosting"] = peak() - start
X = np.random.default_rng(1).random((20_000, columns))
y = (X[:, 0] > 0.5) & (X[:, 1] > 0.3)
right = {"network": (network.predict(encoding(X)) == y).mean(), "boosting": (trees.predict(X) == y).mean()}
print(json.dumps({"size": size, "rows": shards.n_rows, "peaks": peaks, "right": right}))
"""


def beyond_memory(folder: Path, rows: int, columns: int, memory: str) -> dict[str, Any]:
    """Figures of a process that gathers and learns from a table larger than DuckDB's memory."""
    (folder / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(folder / "script.py"), str(folder), str(rows), str(columns), memory]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["rows"] == rows
    assert min(found["right"].values()) > 0.9
    return found


@pytest.mark.slow
def test_a_table_larger_than_the_engines_memory_trains(torch, tmp_path):
    found = beyond_memory(tmp_path, 480_000, 20, "25MB")
    assert found["size"] > 3 * 25e6


@pytest.mark.slow
def test_a_table_larger_than_memory_trains_in_a_fraction_of_its_size(torch, tmp_path):
    found = beyond_memory(tmp_path, 2_000_000, 100, "150MB")
    size, peaks = found["size"], found["peaks"]
    assert size > 10 * 150e6
    assert peaks["gather"] < 0.35 * size
    assert peaks["network"] < 0.35 * size
    assert peaks["boosting"] < 0.55 * size


def hidden_below(reports: Any, least: int) -> Any:
    """Reports whose small counts are not shown."""
    shown = reports["count"].astype(int).astype(str)
    return reports.assign(count=shown.where(reports["count"] >= least, "*"))


@pytest.mark.parametrize("noise", [None, 2.0], ids=["exact", "noised"])
def test_intervals_of_counts_are_those_of_the_reports(tmp_path, noise):
    events, reports = made_up(SIZES["unequal"], noise=noise)
    data, features = joined(events, hidden_below(reports, 8), hidden="0-7")
    shards = write_shards(data, features, tmp_path / "shards", group_rows=100)
    there, again = gather.gather(data, features), Shards.open(tmp_path / "shards")
    for rows in (shards, again):
        for name in ("low", "high", "noise"):
            np.testing.assert_array_equal(getattr(rows.bags.interval, name), getattr(there.bags.interval, name))
        np.testing.assert_array_equal(rows.noise_variance, there.noise_variance)
    assert 0 < shards.bags.interval.open.sum() < len(shards.size)
    some = subset(again, np.array([5, 2]))
    np.testing.assert_array_equal(some.interval.low, there.bags.interval.low[[5, 2]])
    other = write_shards(*joined(events, hidden_below(reports, 8), hidden="0-9"), tmp_path / "other", group_rows=100)
    assert other.fingerprint != shards.fingerprint


@pytest.mark.parametrize("model", ["boosting", "network"])
def test_hidden_counts_are_learned_from_on_disk_as_in_memory(tmp_path, model):
    events, reports = made_up(SIZES["unequal"])
    data, features = joined(events, hidden_below(reports, 8), hidden="0-7")
    shards = write_shards(data, features, tmp_path / "shards", group_rows=100)
    there = gather.gather(data, features)
    settings = {"boosting": {"n_estimators": 5, "n_jobs": 1}, "network": {"max_epochs": 2, "learning_rate": 0.01}}
    made = {"boosting": bw.BagBoostingClassifier, "network": bw.BagNeuralClassifier}[model]
    estimators = [made(formation="features", random_state=0, **settings[model]) for _ in range(2)]
    for one, rows in zip(estimators, (shards, there), strict=True):
        fit_codes(one, rows)
    codes = np.concatenate([there.block(number) for number in range(len(there))])
    codes = codes if model == "boosting" else there.encoding()(codes)
    h, expected = (one.predict_proba(codes)[:, 1] for one in estimators)
    np.testing.assert_allclose(h, expected, rtol=0, atol=1e-5)


def test_several_tables_of_reports_say_why_they_are_not_written(tmp_path, monkeypatch):
    events, reports = made_up(SIZES["unequal"])
    kept = events[events["bag"] != "lost"].assign(site=np.arange(len(events) - 3) % 7)
    sites = pd.DataFrame({"site": np.arange(7), "count": 20})
    data = join(kept, [reports, sites])
    with pytest.raises(ValueError, match="share rows cannot be read block by block"):
        write_shards(data, Features.of(data.events, data.features), tmp_path / "shards")
    assert not (tmp_path / "shards").exists()
    monkeypatch.setattr("bagwise.tables.fitting.IN_MEMORY", 100)
    with pytest.raises(ValueError, match="leave out columns with ignore, or pass the one table"):
        tables.fit(data, "boosting")
