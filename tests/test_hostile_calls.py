"""Calls that make no sense get one true sentence, which names what is wrong; nothing is taken for what it is not."""

import gc
import os
import stat
import time
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from inspect import signature
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app, common
from bagwise.estimators import ESTIMATORS
from bagwise.formation import FORMATION
from bagwise.utils.files import replacing
from bagwise.utils.parameters import ParameterError, check_parameters

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 2))
IDS = bw.random_bags(120, 4, random_state=0)
Y = bw.aggregate(X[:, 0] > 0, IDS)
FITTED = bw.BagRidgeClassifier(random_state=0).fit(X, Y, bags=IDS)


@pytest.mark.parametrize(
    ("kind", "parameter", "value", "said"),
    [
        ("BagBoostingClassifier", "n_estimators", True, "a whole number of at least 1"),
        ("BagBoostingClassifier", "learning_rate", True, "a number above 0 and at most 1"),
        ("BagBoostingClassifier", "callback", 3, "a function, or None"),
        ("BagRidgeClassifier", "alphas", [True], "one or more finite numbers"),
        ("BagSGDClassifier", "fit_intercept", "x", "True or False"),
        ("BagAutoClassifier", "stack", "x", "True or False"),
        ("BagAutoClassifier", "callback", 3, "a function, or None"),
        ("BagNeuralClassifier", "optimizer", "adam", "a function that makes an optimizer, such as torch.optim.Adam"),
        ("BagNeuralClassifier", "callback", 3, "a function, or None"),
        ("BagNeuralClassifier", "average", "x", "True or False"),
    ],
)
def test_parameters_of_the_wrong_kind_are_named(kind, parameter, value, said):
    if "Neural" in kind:
        pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
    with pytest.raises(ParameterError, match=f"^{parameter} must be {said}.*, got "):
        getattr(bw, kind)(**{parameter: value}).fit(X, Y, bags=IDS)


ODD = [
    *(None, True, 0, 1, -1, 3.5, 1e308, 2**31, 2**63, 10**400, float("nan"), float("inf"), "x", "", b"x", 3 + 4j, len),
    *([], [1], ["x"], [True], {}, {"a": 1}, (), object(), np.array([]), np.array([1.0, np.nan]), np.array(["auto"])),
]
_READ_BY_OTHERS = {"random_state", "device"}  # by `utils.rng.generator`, and by torch


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_parameter_is_held_to_what_it_may_be(name):
    """Whatever a parameter is, the check of it ends in one sentence that names it, or lets it pass."""
    if "Neural" in name:
        pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
    kind = getattr(import_module(ESTIMATORS[name]), name)
    constraints = {"formation": FORMATION, **kind._constraints}
    assert {*signature(kind).parameters} - {*constraints} <= _READ_BY_OTHERS
    for parameter, constraint in constraints.items():
        for value in ODD:
            with suppress(ParameterError):
                check_parameters({parameter: value}, {parameter: constraint})


@pytest.mark.parametrize(
    ("kind", "parameter", "value"),
    [
        ("BagBoostingClassifier", "num_leaves", 2**31),
        ("BagBoostingClassifier", "min_child_samples", 2**31),
        ("BagBoostingClassifier", "categorical_features", 1),
        ("GroupPriorClassifier", "n_jobs", "x"),
        ("BagTweedieRegressor", "alphas", 1e308),
        ("BagNeuralClassifier", "batch_rows", 2**63),
        ("BagNeuralClassifier", "hidden", [True]),
        ("BagNeuralClassifier", "device", 2**63),
    ],
)
def test_what_libraries_do_not_hold_is_named(kind, parameter, value):
    if "Neural" in kind:
        pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
    with pytest.raises(ParameterError, match=f"^{parameter} must be "):
        getattr(import_module(ESTIMATORS[kind]), kind)(**{parameter: value}).fit(X, Y, bags=IDS)


def test_a_model_asks_for_no_more_threads_than_there_are_processors():
    """LightGBM ends the process where it has no memory for the next."""
    model = bw.BagBoostingClassifier(n_estimators=2, n_fits=1, cv=2, n_jobs=10**9, random_state=0).fit(X, Y, bags=IDS)
    alone = bw.BagBoostingClassifier(n_estimators=2, n_fits=1, cv=2, n_jobs=1, random_state=0).fit(X, Y, bags=IDS)
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))


@pytest.mark.parametrize("which", ["X", "y", "bags"])
def test_masked_arrays_are_refused(which):
    given = {"X": X, "y": Y, "bags": IDS}
    given[which] = np.ma.masked_array(given[which], mask=np.zeros_like(given[which], dtype=bool))
    with pytest.raises(ParameterError, match=f"^{which} is a masked array: fill it"):
        bw.BagRidgeClassifier().fit(given["X"], given["y"], bags=given["bags"])
    model = bw.BagRidgeClassifier(random_state=0).fit(X, Y, bags=IDS)
    with pytest.raises(ParameterError, match="X is a masked array"):
        model.predict(np.ma.masked_array(X))


def test_a_folder_is_a_path():
    with pytest.raises(ParameterError, match="folder must be the path of a folder, got None"):
        bw.load(None)


DATES = X.astype("datetime64[D]")


@pytest.mark.parametrize("kind", ["BagRidgeClassifier", "BagLogisticClassifier", "BagBoostingClassifier"])
@pytest.mark.parametrize("dates", [DATES, DATES - DATES[0], DATES.astype(object)], ids=["dates", "times", "objects"])
def test_dates_are_no_features(kind, dates):
    with pytest.raises(ParameterError, match=r"^X holds dates or times: turn them into numbers first"):
        getattr(bw, kind)().fit(dates, Y, bags=IDS)
    with pytest.raises(ParameterError, match=r"^X holds dates or times"):
        FITTED.predict(dates)


@pytest.mark.parametrize(
    ("column", "said"), [(DATES[:, 0], "dates"), ([[1]] * 120, "lists"), ([{"c": 1}] * 120, "lists, or others")]
)
def test_columns_that_are_no_features_are_named(column, said):
    table = pd.DataFrame({"a": X[:, 0], "b": ["u", "v"] * 60})
    model = bw.BagBoostingClassifier(n_estimators=2, cv=2, n_fits=1, random_state=0).fit(table, Y, bags=IDS)
    with pytest.raises(ValueError, match=f"^column 'b' of X holds {said}"):
        model.predict(table.assign(b=column))
    with pytest.raises(ValueError, match=f"^column 'b' of X holds {said}"):
        type(model)().fit(table.assign(b=column), Y, bags=IDS)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "8", None, 10**400])
def test_sizes_of_bags_are_whole_numbers(size):
    with pytest.raises(ParameterError, match=r"^size must be "):
        bw.random_bags(120, size, random_state=0)


@pytest.mark.parametrize(("features", "hidden", "wrong"), [(0, (3,), "features"), (2, (0,), "hidden")])
def test_networks_have_features_and_layers(features, hidden, wrong):
    pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
    from bagwise.neural.networks import mlp

    with pytest.raises(ParameterError, match=f"^{wrong} must be "):
        mlp(features, hidden)


@pytest.mark.parametrize("value", [-1, 1.5, "x", [0.1, 2.0], float("nan"), True])
def test_a_mean_label_is_between_0_and_1(value):
    with pytest.raises(ParameterError, match=r"^mu_y must be one or more numbers between 0 and 1"):
        bw.BagSGDClassifier(mu_y=value).fit(X, Y, bags=IDS)


def test_a_label_is_written_in_one_way():
    assert np.copysign(1.0, bw.BagRidgeClassifier().fit(X, np.where(X[:, 0] > 0, 1.0, -0.0)).classes_[0]) == 1.0
    for labels in (np.array(["1", "1.0"] * 60), ["0", "0.0"] * 60, np.array(["1", "1.0"] * 60, dtype=object)):
        with pytest.raises(ParameterError, match=r"^y writes one label in two ways, '.' and '..0': pass numbers"):
            bw.aggregate(labels, IDS)
    np.testing.assert_array_equal(bw.aggregate(np.array(["1", "0"] * 60), IDS), bw.aggregate([1, 0] * 60, IDS))
    with pytest.raises(ParameterError, match=r"^y holds dates"):
        bw.BagRidgeClassifier().fit(X, DATES[:, 0])


@pytest.mark.parametrize(
    ("labels", "more", "said"),
    [
        ([], ["--size", 4], "the table with labels is empty: there must be one row at least"),
        (["1", "1.0", "0"] * 8, ["--size", 4], "column 'label' writes one label in two ways (0, 1, 1.0)"),
        (["1", "1.0"] * 12, ["--size", 4], "column 'label' writes one label in two ways (1, 1.0)"),
        (["A", "a", "b"] * 8, ["--size", 4], "the labels 'A' and 'a' of column 'label' differ in case only"),
        (["A", "b"] * 12, ["--size", 4], "say which one is positive (--positive)"),
        (["A", "b", "c"] * 8, ["--size", 4, "--epsilon", 1], "(--classes) or the positive one (--positive)"),
        ([[1], [0]] * 12, ["--size", 4], "column 'label' holds lists or records"),
        ([1, 0] * 12, ["--by", "x"], "column 'x' holds lists or records"),
        ([1, 0] * 12, ["--size", 4, "--min-size", 9], "make larger bags, or lower --min-size"),
        ([1, 0] * 12, ["--size", 1.5], "--size: input should be a valid integer"),
    ],
)
def test_labels_that_make_no_bags_get_one_sentence(tmp_path, labels, more, said):
    table = pd.DataFrame({"x": [[1]] * len(labels), "label": labels})
    (table if labels else table.astype(int)).to_parquet(tmp_path / "rows.parquet")
    asked = ["bag", tmp_path / "rows.parquet", "--label", "label", "--out", tmp_path / "out", *more]
    told = CliRunner().invoke(app, [str(part) for part in asked])
    assert told.exit_code in (1, 2)
    assert said in " ".join(told.output.split())
    assert not (tmp_path / "out" / "reports.parquet").exists()


def test_minus_zero_is_zero_and_any_size_is_a_size(tmp_path):
    pd.DataFrame({"x": range(24), "label": [1.0, -0.0] * 12}).to_parquet(tmp_path / "rows.parquet")
    asked = ["bag", tmp_path / "rows.parquet", "--label", "label", "--out", tmp_path / "out", "--size", 2**63]
    told = CliRunner().invoke(app, [str(part) for part in asked])
    assert told.exit_code == 0, told.output
    assert pd.read_parquet(tmp_path / "out" / "reports.parquet")["count"].tolist() == [12]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_outputs_go_to_files_only(tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="is a device or a pipe, no file"), replacing(pipe):
        raise AssertionError("never reached")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [one.name for one in tmp_path.iterdir()] == ["pipe.csv"]


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this system has no device that is always full")
def test_a_device_stays_one(tmp_path):
    bw.save(FITTED, tmp_path / "model")
    pd.DataFrame(X).to_csv(tmp_path / "rows.csv", index=False)
    for asked in (["page", "--model", tmp_path / "model"], ["predict", tmp_path / "model", tmp_path / "rows.csv"]):
        told = CliRunner().invoke(app, [*(str(part) for part in asked), "--out", "/dev/full", "--force"])
        assert told.exit_code != 0
        assert "is a device or a pipe, no file" in told.output
        assert Path("/dev/full").is_char_device()


def test_control_characters_of_names_do_not_reach_the_terminal(tmp_path):
    (tmp_path / "events.csv").write_text("bag,a\x1b[31m,n\n1,2,3\n1,3,4\n")
    (tmp_path / "reports.csv").write_text("bag\x1b[2J,count\n1,1\n")
    told = CliRunner().invoke(
        app, ["fit", str(tmp_path / "events.csv"), str(tmp_path / "reports.csv"), "--out", str(tmp_path / "m")]
    )
    assert told.exit_code != 0
    assert "\x1b" not in told.output
    assert "\\x1b[2J" in told.output


def test_control_characters_of_progress_do_not_reach_the_terminal(monkeypatch, capsys):
    monkeypatch.setattr(common, "_PAUSE", 0.01)
    with common.show_progress() as progress:
        progress(1, 2, "fold \x1b[31m")
        time.sleep(0.2)
    common.say("checkpoints\x1b[2J\x9b")
    told = capsys.readouterr().err
    assert "fold \\x1b[31m" in told
    assert "checkpoints\\x1b[2J\\x9b" in told
    assert "\x1b" not in told


# -- anything at all ----------------------------------------------------------------------------------------------

anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 200),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from([X, X[:, 0], Y, IDS, X[:3], np.zeros((0, 2)), np.array(["a", "b"] * 60), np.full(120, np.nan)]),
    st.sampled_from([X.astype("datetime64[s]"), Y.astype(object), -Y, IDS.astype(float), X[::-1].T, [], {}, object()]),
    st.sampled_from([np.ma.masked_array(Y), np.array(1.0), Y.astype(complex), np.zeros(120), -np.zeros(120)]),
)
FITS = {
    name: lambda kind=kind, more=more: getattr(bw, kind)(**more)
    for name, kind, more in (
        ("ridge", "BagRidgeClassifier", {"random_state": 0}),
        ("values", "BagRidgeRegressor", {"random_state": 0}),
        ("logistic", "BagLogisticClassifier", {"cv": 2, "random_state": 0}),
        ("mean map", "BagMeanMapClassifier", {"random_state": 0}),
    )
}
CALLS = {
    **{name: lambda a, b, c, make=make: make().fit(a, b, bags=c) for name, make in FITS.items()},
    "aggregate": lambda a, b, c: bw.aggregate(a, b),
    "random_bags": lambda a, b, c: bw.random_bags(a, b, random_state=c),
    "from_rows": lambda a, b, c: bw.Bags.from_rows(a, b, noise_variance=c),
    "evaluate": lambda a, b, c: bw.evaluate(FITTED, a, b, bags=c),
    "diagnose": lambda a, b, c: bw.diagnose(a, b, bags=c),
    "predict": lambda a, b, c: FITTED.predict_proba(a),
    "load": lambda a, b, c: bw.load(a),
    "parameters": lambda a, b, c: bw.BagRidgeClassifier(alphas=a, cv=b, scaling=c).fit(X, Y, bags=IDS),
}
_LIKELY = {"ridge": (X, Y, IDS), "evaluate": (X, Y, IDS), "diagnose": (X, Y, IDS), "aggregate": (Y, IDS, None)}


@pytest.mark.parametrize("examples", [100, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")
def test_random_calls_give_a_result_or_one_sentence(examples):
    """Most calls have one argument that makes no sense, some three."""
    ended = Counter[str]()

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(sorted(CALLS)), anything, st.sampled_from([0, 1, 2, None]), anything, anything)
    def check(name, value, place, second, third):
        given_ = [value, second, third] if place is None else list(_LIKELY.get(name, (X, Y, IDS)))
        if place is not None:
            given_[place] = value
        try:
            CALLS[name](*given_)
            ended["results"] += 1
        except (ValueError, TypeError, OSError) as error:
            ended["sentences" if 0 < len(str(error).strip()) < 4000 else f"{name}: {error!r}"] += 1

    check()
    assert set(ended) == {"results", "sentences"}
    assert min(ended.values()) > examples // 20


# -- threads and memory -------------------------------------------------------------------------------------------


def test_sixteen_threads_equal_one():
    """Fits and predictions side by side give what they give alone, bit for bit."""

    def work(seed):
        model = bw.BagBoostingClassifier(n_estimators=3, cv=2, n_fits=1, n_jobs=1, random_state=seed % 4)
        ridge = bw.BagRidgeClassifier(random_state=seed % 4)
        return [one.fit(X, Y, bags=IDS).predict_proba(X) for one in (model, ridge)]

    alone = [work(seed) for seed in range(4)]
    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(work, range(32)))
    for seed, found in enumerate(together):
        for one, expected in zip(found, alone[seed % 4], strict=True):
            np.testing.assert_array_equal(one, expected)


@pytest.mark.parametrize("kind", ["BagRidgeClassifier", "BagLogisticClassifier"])
@pytest.mark.parametrize("fits", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_fits_in_a_row_do_not_grow_memory(kind, fits):
    """A fit that kept its rows would hold all of `X.nbytes`; half of it is left to what libraries remember."""
    X = RNG.normal(size=(2000, 20))
    ids = bw.random_bags(2000, 20, random_state=0)
    y = bw.aggregate(X[:, 0] > 0, ids)

    def held(times):
        for _ in range(times):
            getattr(bw, kind)(cv=2, random_state=0).fit(X, y, bags=ids).predict_proba(X)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = held(30)
        assert held(fits) - before < fits * X.nbytes / 2
    finally:
        tracemalloc.stop()
