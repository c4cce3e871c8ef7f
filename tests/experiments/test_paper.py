"""The paper's experiments: what is planned, computed, stored and chosen; kills and processes that share a folder."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bagwise.datasets import Split
from bagwise.experiments import harness, variance
from bagwise.experiments.harness import grouped
from bagwise.experiments.harness import load as load_config
from bagwise.experiments.paper import PRESETS, PaperConfig, page, plan, run, store_of
from bagwise.experiments.paper import runs as paper_runs
from bagwise.experiments.paper.results import (
    BY_TEST,
    LABEL_FREE,
    Measured,
    accuracy_figure,
    claims,
    curves,
    learning_curves,
)
from bagwise.experiments.paper.runs import PAPER
from bagwise.experiments.results import write_table

SMALL = PaperConfig(
    rows=800,
    sizes=(1, 8),
    methods=("ours", "vanilla_sq"),
    extras=("ridge",),
    learning_rates=(1e-3, 1e-2),
    epochs=(1, 3),
    repetitions=2,
    extra_repetitions=1,
    held_out_repetitions=1,
    batch_rows=128,
    n_jobs=1,
)


@pytest.fixture
def rows(monkeypatch, one_thread):
    """A linear problem in place of the data set's files."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4)).astype(np.float32)
    y = (X[:, 0] + 0.3 * rng.normal(size=1200) > 0).astype(int)
    split = Split(X[:800], y[:800], X[800:], y[800:])
    monkeypatch.setattr(paper_runs, "load", lambda dataset, rows, scaled=True, *, table=False: split)
    return split


def units(runs, done=()):
    return grouped(runs, lambda one: one.stack, done)


def keys(unit):
    return [one.key for one in unit]


def test_a_plan_names_every_run_once():
    runs = plan(SMALL)
    # Networks: 2 methods × 2 sizes × 2 rates × (2 repetitions + 1 with held-out bags); ridge: 2 sizes × 1 repetition.
    assert len(runs) == 2 * 2 * 2 * 3 + 2
    assert len({one.key for one in runs}) == len(runs)
    assert {one.method for one in runs if one.held_out} == {"ours", "vanilla_sq"}
    assert [one.repetition for one in runs] == sorted(one.repetition for one in runs)
    stacks = units(runs)
    assert sorted(len(unit) for unit in stacks) == [1, 1, 4, 4, 4, 4, 4, 4]
    assert units(runs, {one.key for one in runs}) == []


def test_partitions_do_not_depend_on_what_else_is_computed():
    more = PaperConfig(**{**vars(SMALL), "methods": ("ours", "li", "vanilla_sq"), "sizes": (1, 4, 8)})
    keys = {one.key for one in plan(more)}
    assert {one.key for one in plan(SMALL)} <= keys


def test_images_as_published_are_other_runs():
    scaled, published = (plan(PaperConfig(dataset="mnist", scaled=scaled)) for scaled in (True, False))
    assert not {one.key for one in scaled} & {one.key for one in published}


@pytest.mark.skipif(not os.environ.get("BAGWISE_DATA"), reason="BAGWISE_DATA, with MNIST, is not set")
def test_images_are_loaded_as_the_config_says():
    scaled, published = (paper_runs.load("mnist", 50, scaled) for scaled in (True, False))
    assert (scaled.X.max(), published.X.max()) == (1, 255)
    np.testing.assert_allclose(published.X, scaled.X * 255, rtol=1e-6)


@pytest.mark.parametrize("scale", PRESETS)
@pytest.mark.parametrize("dataset", ["adult", "mnist", "cifar10", "higgs"])
def test_presets_are_for_their_data_set(scale, dataset):
    config = PRESETS[scale][dataset]
    assert config.dataset == dataset
    assert set(config.epochs) <= set(config.measured)
    if scale == "paper":
        assert (config.sizes, len(config.learning_rates), config.repetitions) == (
            tuple(2**i for i in range(10)),
            8,
            10,
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "iris"}, "dataset must be .*iris"),
        ({"methods": ("theirs",)}, "methods must be .*theirs"),
        ({"methods": ("ours", "ridge")}, "extras and methods both name ridge"),
        ({"sizes": (1, 128)}, "sizes must be at most half of batch_rows"),
        ({"epochs": ()}, "epochs must be .* different"),
        ({"learning_rates": (0.0,)}, "learning_rates must be .* above 0"),
        ({"learning_rates": (1e-3, np.nan)}, "learning_rates must be .* above 0"),
        ({"repetitions": 0}, "repetitions must be .* at least 1"),
    ],
)
def test_wrong_configs_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        PaperConfig(**{**vars(SMALL), **change})


def test_unknown_keys_of_a_file_are_refused(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text("colour = 1\n")
    with pytest.raises(ValueError, match="unknown keys colour"):
        load_config(SMALL, file)


@pytest.mark.parametrize("base", [SMALL, PaperConfig()], ids=["some", "none"])
@pytest.mark.parametrize("extras", [(), ("ours_running",)])
def test_a_file_may_name_extras_or_none(tmp_path, base, extras):
    file = tmp_path / "own.toml"
    file.write_text(f"extras = {json.dumps(extras)}\n")
    assert load_config(base, file).extras == extras
    file.write_text('scaled = "yes"\n')
    with pytest.raises(ValueError, match='gives scaled = "yes": it must be true or false'):
        load_config(base, file)


@pytest.mark.usefixtures("rows")
def test_workers_that_joblib_replaces_are_no_news(tmp_path, monkeypatch):
    def parallel(**_):
        def compute(tasks):
            warnings.warn("A worker stopped while some jobs were given to the executor.", stacklevel=1)
            yield from (call(*args, **options) for call, args, options in tasks)

        return compute

    monkeypatch.setattr(harness, "Parallel", parallel)
    few = replace(SMALL, sizes=(8,), methods=(), learning_rates=(1e-2,), held_out_repetitions=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(run(few, tmp_path)["method"]) == ["ridge"]


def test_runs_are_stored_and_not_repeated(tmp_path, rows):
    told = []
    frame = run(SMALL, tmp_path, progress=lambda *what: told.append(what))
    assert list(frame["key"]) == [one.key for one in plan(SMALL)]
    assert told[0][:2] == (0, 26)
    assert told[-1][:2] == (26, 26)
    held_out, networks = frame["held_out"], frame["method"] != "ridge"
    assert all(np.isfinite(risk).all() for risk in frame.loc[held_out, "risk"])
    assert all(list(epochs) == [1, 2, 3] for epochs in frame.loc[networks, "epoch"])
    best = max(max(values) for values in frame.loc[networks, "accuracy"])
    assert best > 0.85
    for name in ("config", "config_hash", "seed", "seconds", "bagwise_version", "torch_version"):
        assert frame[name].notna().all()

    parts = {path: path.stat().st_mtime_ns for path in (tmp_path / "adult").iterdir()}
    again = run(SMALL, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "adult").iterdir()} == parts
    pd.testing.assert_frame_equal(again, frame)
    more = run(PaperConfig(**{**vars(SMALL), "repetitions": 3}), tmp_path)  # only what is new is computed
    assert len(more) == len(frame) + 8
    assert len(list((tmp_path / "adult").iterdir())) == len(parts) + 2


def test_one_run_alone_equals_the_same_run_in_a_stack(rows):
    unit = [one for one in plan(SMALL) if one.size == 8 and one.repetition == 0 and not one.held_out][:4]
    together = paper_runs.compute(unit)
    for place, one in enumerate(unit):
        (alone,) = paper_runs.compute([one])
        np.testing.assert_allclose(alone["accuracy"], together[place]["accuracy"], atol=2 / 400)
        np.testing.assert_allclose(alone["brier"], together[place]["brier"], rtol=1e-3)


def test_what_diverges_is_recorded_and_never_chosen(tmp_path, rows):
    rows.X[0] = np.nan
    wild = PaperConfig(**{**vars(SMALL), "extras": (), "sizes": (8,), "repetitions": 1})
    frame = run(wild, tmp_path)
    assert frame["diverged"].all()
    assert np.isnan(np.stack(frame.loc[~frame["held_out"], "accuracy"]).astype(float)).all()
    assert (curves(frame, wild)["accuracy"] == 0).all()


def stored(method, size, rate, repetition, held_out, accuracy, risk):
    run = {"method": method, "size": size, "learning_rate": rate, "repetition": repetition, "held_out": held_out}
    return run | {"epoch": [1, 3], "accuracy": accuracy, "brier": [0.2, 0.2], "risk": risk}


def test_learning_rates_are_chosen_by_either_rule():
    nothing = [np.nan, np.nan]
    frame = pd.DataFrame(
        [
            stored("ours", 8, 0.1, 0, False, [0.6, 0.7], nothing),
            stored("ours", 8, 0.1, 1, False, [0.6, 0.9], nothing),
            stored("ours", 8, 0.2, 0, False, [0.7, 0.75], nothing),
            stored("ours", 8, 0.2, 1, False, [0.7, 0.75], nothing),
            stored("ours", 8, 0.1, 0, True, [0.5, 0.5], [0.3, 0.3]),
            stored("ours", 8, 0.2, 0, True, [0.5, 0.5], [0.2, 0.1]),
        ]
    )
    found = curves(frame, SMALL).set_index(["rule", "epochs"])
    assert found.loc[(BY_TEST, 1), "learning_rate"] == 0.2
    assert found.loc[(BY_TEST, 3), ["learning_rate", "accuracy"]].tolist() == pytest.approx([0.1, 0.8])
    assert found.loc[(BY_TEST, 3), "se"] == pytest.approx(0.1)  # of 0.7 and 0.9
    assert found.loc[(LABEL_FREE, 3), ["learning_rate", "accuracy"]].tolist() == [0.2, 0.75]
    learning = learning_curves(frame, SMALL, 8)
    assert learning["learning_rate"].unique().tolist() == [0.1]
    assert learning["accuracy"].tolist() == pytest.approx([0.6, 0.8])


def test_figures_show_every_method(tmp_path, rows):
    drawing = accuracy_figure(run(SMALL, tmp_path), SMALL)
    shown = {text.get_text() for text in drawing.legends[0].get_texts()}
    assert shown == {"Ours", "VanillaSQ", "ridge, closed form"}
    assert len([axes for axes in drawing.axes if axes.get_visible()]) == 4


def test_a_folder_ignores_files_that_are_not_finished(tmp_path):
    folder = store_of(tmp_path, "adult")
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / ".half-0123.parquet").write_bytes(b"half a file")
    assert folder.read().empty


@pytest.mark.slow
def test_the_page_shows_what_is_stored(tmp_path, monkeypatch, rows):
    five = PaperConfig(**{**vars(SMALL), "methods": PAPER, "extras": ()})
    later = {"adult": PaperConfig(**{**vars(five), "repetitions": 9})}
    monkeypatch.setattr(page, "DATASETS", ("adult",))
    monkeypatch.setattr(page, "PRESETS", {"paper": later, "machine": {"adult": five}})
    with pytest.raises(FileNotFoundError, match="holds no finished experiment: run bagwise reproduce adult"):
        page.write_page(tmp_path, tmp_path / "page.md")
    assert not list(tmp_path.iterdir())

    frame = run(five, tmp_path)
    write_table(variance.run(replace(variance.QUICK, rows=2**12, n_jobs=1)), tmp_path / "variance.parquet")
    files = page.write_page(tmp_path, tmp_path / "page.md")
    assert [path.name for path in files] == ["page.md", "adult.png", "variance.png"]
    assert all(path.stat().st_size > 1000 for path in files)
    text = files[0].read_text()
    found = curves(frame, five)
    one = found[(found["rule"] == BY_TEST) & (found["epochs"] == 3) & (found["method"] == "li") & (found["size"] == 8)]
    line = next(line for line in text.split("3 epochs, learning rate by test accuracy")[1].splitlines() if "Li" in line)
    assert line.endswith(f" {one['accuracy'].iloc[0]:.3f} |")
    for words in (
        "Ours is best at every bag size",
        "VanillaCE often overlaps",
        "EasyLLP grows linearly",
        "60 trainings",
    ):
        assert words in text
    assert "k = 64" not in text.split("## Claims")[1].split("##")[0]  # no data set here speaks to that


def test_the_page_shows_the_repetitions_that_are_complete(tmp_path, monkeypatch, rows):
    whole = PaperConfig(**{**vars(SMALL), "methods": PAPER, "extras": (), "repetitions": 5, "held_out_repetitions": 1})
    monkeypatch.setattr(page, "PRESETS", {"paper": {"adult": whole}, "machine": {"adult": whole}})
    run(replace(whole, repetitions=2), tmp_path)
    _, config = page.finished(tmp_path, "adult")
    assert (config.repetitions, config.held_out_repetitions) == (2, 1)
    text = page.differences({"adult": page.finished(tmp_path, "adult")})
    assert "2 repetitions for 5" in text


def test_the_page_compares_images_scaled_and_as_published(tmp_path):
    settings = {"rows": 100, "size": 8, "method": "ours", "learning_rate": 0.1, "held_out": False}
    measured = {"epoch": [1, 3], "brier": [0.2, 0.2], "risk": [0.2, 0.2]}
    records = [
        {
            "config_hash": f"{scaled}{number}",
            "repetition": number,
            "scaled": scaled,
            "accuracy": [0.1, value],
            **settings,
            **measured,
        }
        for scaled, value in ((True, 0.9), (False, 0.7))
        for number in range(2)
    ]
    assert page.scaling(tmp_path) == []
    write_table(pd.DataFrame(records[:2]), tmp_path / "mnist.parquet")
    assert page.scaling(tmp_path) == []  # nothing to compare with
    write_table(pd.DataFrame(records), tmp_path / "mnist.parquet")
    (text,) = page.scaling(tmp_path)
    assert text.splitlines()[-1] == "| MNIST, even or odd | 100 | 8 | Ours | 0.1 | 3 | 0.700 | 0.900 |"


def measured(ours, others, se=0.001):
    index = pd.MultiIndex.from_product([(1, 3), (1, 8)], names=["epochs", "size"])
    accuracy = pd.DataFrame(dict.fromkeys(PAPER[1:], others) | {"ours": ours}, index=index)
    return Measured("Data", SMALL, accuracy, accuracy * 0 + se)


@pytest.mark.parametrize(
    ("ours", "others", "verdicts"),
    [
        ([0.9, 0.8, 0.9, 0.85], [0.9, 0.7, 0.9, 0.84], ("agrees", "in part", "agrees")),  # worse by a point only
        ([0.9, 0.6, 0.9, 0.7], [0.9, 0.7, 0.9, 0.84], ("differs", "in part", "agrees")),  # behind by less at first
        ([0.9, 0.8, 0.9, 0.85], [0.9, 0.79, 0.9, 0.7], ("agrees", "agrees", "differs")),
    ],
)
def test_claims_follow_the_numbers(ours, others, verdicts):
    told = claims({"adult": measured(ours, others)})
    best, fall, widest, overlap = (one.verdict for one in told)
    assert (best, fall, widest, overlap) == (*verdicts, "agrees")


# -- as a program -------------------------------------------------------------------------------------------------

CONFIG = """
rows = 2000
sizes = [4, 16]
methods = ["ours", "easyllp"]
extras = ["ridge"]
learning_rates = [0.001, 0.01]
epochs = [2, 20]
repetitions = 2
extra_repetitions = 1
held_out_repetitions = 1
"""


def start(folder, jobs=1):
    folder.mkdir(exist_ok=True)
    (folder / "small.toml").write_text(CONFIG)
    options = ["--scale", "quick", "--config", folder / "small.toml", "--out", folder, "--jobs", jobs]
    words = [str(Path(sys.executable).with_name("bagwise")), "reproduce", "adult", *map(str, options)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def rows_of(folder):
    frame = store_of(folder, "adult").read().sort_values("key", ignore_index=True)
    return frame.drop(columns="seconds")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, torch):
    if not os.environ.get("BAGWISE_DATA"):
        pytest.skip("set BAGWISE_DATA")
    folder = tmp_path_factory.mktemp("undisturbed")
    process = start(folder)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    return rows_of(folder)


def finished(folder):
    return {path.name: path.stat().st_mtime_ns for path in (folder / "adult").glob("[!.]*.parquet")}


@pytest.mark.slow
def test_a_kill_loses_only_what_is_under_way(tmp_path, undisturbed):
    process = start(tmp_path, jobs=2)
    end = time.monotonic() + 120
    while len(finished(tmp_path)) < 2 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = finished(tmp_path)
    assert before
    process = start(tmp_path)
    told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert {name: time for name, time in finished(tmp_path).items() if name in before} == before
    pd.testing.assert_frame_equal(rows_of(tmp_path), undisturbed)


@pytest.mark.slow  # in one process below
def test_two_processes_share_a_folder(tmp_path, undisturbed):
    processes = [start(tmp_path), start(tmp_path)]
    for process in processes:
        told = process.communicate(timeout=300)
        assert process.returncode == 0, told
    pd.testing.assert_frame_equal(rows_of(tmp_path), undisturbed)
    assert {path.suffix for path in (tmp_path / "adult").iterdir()} == {".parquet"}


def test_a_second_process_begins_with_what_the_first_left(tmp_path, rows, monkeypatch):
    """Groups that are claimed come last; what another process has stored by then is not computed again."""
    computed, folder = [], store_of(tmp_path, "adult")
    claimed = units(plan(SMALL))[:2]
    finished_elsewhere = paper_runs.compute(claimed[0])
    for unit in claimed:
        assert folder.claim(keys(unit))
    whole = paper_runs.compute

    def compute(unit, threads=None):
        computed.append(unit)
        if len(computed) == 3:
            folder.add(keys(claimed[0]), finished_elsewhere)
            folder.release(keys(claimed[0]))
        return whole(unit, threads)

    monkeypatch.setattr(paper_runs, "compute", compute)
    frame = run(SMALL, tmp_path)
    assert list(frame["key"]) == [one.key for one in plan(SMALL)]
    assert computed == [*units(plan(SMALL))[2:], claimed[1]]
    assert not list((tmp_path / "adult").glob("*.claim"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Dask's own
def test_a_dask_cluster_gives_the_same_rows(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'bagwise[dask]'.")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    from dask_sweep import sweep

    config = replace(PRESETS["quick"]["adult"], rows=4000, epochs=(1, 2), sizes=(16, 64), repetitions=1)
    here = run(replace(config, n_jobs=1), tmp_path / "here")
    local = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**local) as cluster, distributed.Client(cluster) as client:
        there = sweep(config, str(tmp_path / "there"), client)
    changing = [name for name in here.columns if name in ("seconds", "config", "config_hash")]
    pd.testing.assert_frame_equal(here.drop(columns=changing), there.drop(columns=changing), rtol=1e-4)
