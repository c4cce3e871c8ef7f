"""The benchmark: what it measures, what methods get to see, what is stored, and the tables."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise import datasets
from bagwise.experiments import bench
from bagwise.experiments.bench import BenchConfig, llp_learn, methods, plan, store_of, tables
from bagwise.experiments.bench.methods import Method, Prediction, Task
from bagwise.experiments.harness import load
from bagwise.experiments.results import read_table

TINY = BenchConfig(
    datasets=("digits",),
    sizes=(8,),
    methods=("ridge", "class_prior"),
    partitions=2,
    epochs=1,
    learning_rates=(1e-3, 1e-2),
    outside_rates=(1e-2,),
    synthetic_rows=(400, 200),
)


def tiny(**changes):
    return dataclasses.replace(TINY, **changes)


@pytest.fixture
def add_method(monkeypatch):
    """Adds a method of one's own to the table."""

    def add(name, function, **options):
        monkeypatch.setitem(methods.METHODS, name, Method(label=name, run=function, **options))
        return name

    return add


# -- measuring ----------------------------------------------------------------------------------------------------


def test_a_row_is_what_the_method_scores_by_hand(tmp_path):
    frame = bench.run(tiny(methods=("ridge",)), tmp_path / "bench.parquet")
    split = datasets.digits()
    assert list(frame["partition"]) == [0, 1]
    for unit, (_, row) in zip(plan(tiny(methods=("ridge",))), frame.iterrows(), strict=True):
        ids = bw.random_bags(1200, 8, random_state=unit.seed(0))
        model = bw.BagRidgeClassifier(random_state=unit.seed(1))
        model.fit(split.X, bw.aggregate(split.y, ids), bags=ids)
        h = model.predict_proba(split.X_test)[:, 1]
        assert row["accuracy"] == pytest.approx(model.score(split.X_test, split.y_test))
        assert row["brier"] == pytest.approx(np.mean((h - split.y_test) ** 2))
        ones, zeros = h[split.y_test == 1], h[split.y_test == 0]
        assert row["auc"] == pytest.approx((ones[:, None] > zeros).mean(), abs=1e-3)
        assert (row["bags"], row["rows"], row["test_rows"]) == (150, 1200, 597)
        assert row["seconds"] > 0
        assert row["error"] == ""
    assert frame["accuracy"].nunique() == 2  # partitions differ


def test_methods_see_no_labels_but_the_proportions(tmp_path, add_method):
    seen = []

    def spy(problem):
        seen.append(problem)
        yield Prediction(np.full(len(problem.X_test), 0.5))

    add_method("spy", spy)
    add_method("ceiling", spy, individual=True)
    bench.run(tiny(methods=("spy", "ceiling"), partitions=1), tmp_path / "bench.parquet")
    problem, ceiling = seen
    split = datasets.digits()
    assert {field.name for field in dataclasses.fields(Task)} == {"X", "X_test", "bags", "random_state"}
    np.testing.assert_array_equal(problem.bags.size, 8)
    labels = split.y[problem.bags.order].reshape(-1, 8)
    np.testing.assert_allclose(problem.bags.proportion, labels.mean(axis=1))  # and nothing finer
    np.testing.assert_array_equal(ceiling.bags.proportion, split.y)
    held = problem.bags.take(problem.fold.held_out)
    assert (len(problem.training_bags), len(held)) == (135, 15)
    assert not set(problem.training_bags.order) & set(held.order)


def test_held_out_risk_is_the_debiased_loss_of_bags_not_trained_on():
    split = datasets.digits()
    ids = bw.random_bags(1200, 8, random_state=0)
    task = Task(split.X, split.X_test, bw.Bags.from_rows(bw.aggregate(split.y, ids), ids), 0)
    h = np.random.default_rng(0).random(1200)
    train, held = task.training_bags, task.bags.take(task.fold.held_out)
    p, mean = split.y[train.order].mean(), h[train.order].mean()
    expected = bw.losses.debiased_square(h[held.order], held, prior=p, mean=mean).mean()
    assert task.held_out_risk(h) == pytest.approx(expected)


@pytest.mark.slow
def test_all_methods_without_torch_or_network_run(tmp_path):
    names = ("ridge", "sgd", "mean_map", "class_prior", "group_prior", "supervised_lightgbm", "supervised_logistic")
    frame = bench.run(
        tiny(datasets=("digits", "synthetic"), methods=names, partitions=1), tmp_path / "bench.parquet"
    ).set_index(["dataset", "method"])
    assert (frame["error"] == "").all()
    accuracy = frame["accuracy"]["digits"]
    assert accuracy["supervised_lightgbm"] > accuracy["ridge"] > accuracy["class_prior"] + 0.2
    assert accuracy["mean_map"] > 0.65
    prior = datasets.digits().y[: 8 * 150].mean()
    assert frame["auc"]["digits", "class_prior"] == 0.5
    assert frame["brier"]["digits", "class_prior"] == pytest.approx(prior * (1 - prior), abs=0.01)
    assert frame["size"]["digits", "supervised_logistic"] == 1


def test_networks_give_a_row_per_learning_rate(tmp_path, torch):
    names = ("network_ours", "network_label_generation")
    frame = bench.run(tiny(methods=names, epochs=4), tmp_path / "bench.parquet")
    assert len(frame) == 2 * 2 * 2
    assert (frame["error"] == "").all()
    assert frame["risk"].notna().all()
    by_rate = frame.groupby("learning_rate")["accuracy"].mean()
    assert by_rate[1e-2] > by_rate[1e-3]  # 4 epochs of 1e-3 do not get as far
    assert by_rate[1e-2] > 0.7


def test_a_learning_rate_that_diverges_is_a_row_with_an_error(tmp_path, torch):
    frame = bench.run(
        tiny(methods=("network_ours",), partitions=1, learning_rates=(1e-2, 1e38)), tmp_path / "b.parquet"
    )
    good, bad = (frame[frame["learning_rate"] == rate].iloc[0] for rate in (1e-2, 1e38))
    assert good["error"] == ""
    assert np.isnan(bad["accuracy"])
    assert bad["error"]
    (held, test), text = tables.summary(frame).itertuples(), bench.markdown(frame)
    assert held.accuracy == test.accuracy == good["accuracy"]
    assert "learning rate 1e+38 (1 of 2 trainings): " in text


# -- storing ------------------------------------------------------------------------------------------------------


def test_what_is_stored_is_not_computed_again(tmp_path, add_method):
    calls = []

    def count(problem):
        calls.append(problem.random_state)
        yield Prediction(np.linspace(0, 1, len(problem.X_test)))

    name, out = add_method("count", count), tmp_path / "new" / "bench.parquet"
    first = bench.run(tiny(methods=(name,)), out)
    assert len(calls) == 2
    again = bench.run(tiny(methods=(name,)), out)
    assert len(calls) == 2
    pd.testing.assert_frame_equal(first, again)
    bench.run(tiny(methods=(name,), partitions=3), out)
    assert len(calls) == 3  # only the new partition
    bench.run(tiny(methods=(name,), random_state=1), out)
    assert len(calls) == 5  # another seed is another run
    assert len(read_table(out)) == 5
    assert len(set(calls)) == 5
    pd.testing.assert_frame_equal(bench.run(tiny(methods=(name,)), out), first)


def test_other_versions_are_other_runs(tmp_path, monkeypatch):
    out = tmp_path / "bench.parquet"
    bench.run(tiny(), out)
    assert store_of(out).finished() == {unit.key for unit in plan(tiny())}
    monkeypatch.setattr("bagwise.experiments.harness._version", lambda name: "999")
    assert not store_of(out).finished()
    bench.run(tiny(), out)
    assert len(read_table(out)) == 8  # the others stay


def test_settings_a_method_does_not_read_do_not_matter():
    plain, other = (
        {
            unit.method: unit.origin["config_hash"]
            for unit in plan(tiny(methods=("ridge", "network_ours"), epochs=epochs))
        }
        for epochs in (1, 2)
    )
    assert plain["ridge"] == other["ridge"]
    assert plain["network_ours"] != other["network_ours"]


def test_stopping_loses_nothing(tmp_path, add_method):
    out, stop = tmp_path / "bench.parquet", [True]

    def interrupted(problem):
        if stop[0]:
            raise KeyboardInterrupt
        yield Prediction(np.full(len(problem.X_test), 0.5))

    config = tiny(methods=("class_prior", add_method("interrupted", interrupted)))
    with pytest.raises(KeyboardInterrupt):
        bench.run(config, out)
    assert list(store_of(out).read()["method"]) == ["class_prior"]
    stop[0] = False
    seen = []
    frame = bench.run(config, out, progress=lambda done, total, text: seen.append((done, total, text)))
    assert list(frame["method"]) == ["class_prior", "interrupted"] * 2
    assert seen[0] == (1, 4, "digits, bags of 8, interrupted")
    assert seen[-1][:2] == (4, 4)


def test_failures_are_rows_and_are_tried_again(tmp_path, add_method):
    out, working = tmp_path / "bench.parquet", [False]

    def fails(problem):
        if not working[0]:
            raise ValueError("this cannot work.")
        yield Prediction(np.full(len(problem.X_test), 0.5))

    def nonsense(problem):
        yield Prediction(np.full(len(problem.X_test), np.nan))

    config = tiny(methods=(add_method("fails", fails), add_method("nonsense", nonsense), "class_prior"), partitions=1)
    frame = bench.run(config, out).set_index("method")
    assert frame["error"]["fails"] == "ValueError: this cannot work."
    assert frame["error"]["nonsense"] == "some predictions are not finite."
    assert frame["error"]["class_prior"] == ""
    working[0] = True
    frame = bench.run(config, out)
    assert list(frame["method"]) == ["fails", "nonsense", "class_prior"]  # in place of the failure, in the same order
    assert frame["error"][0] == ""
    assert len(read_table(out)) == 3


def test_missing_data_sets_and_missing_modules_are_reported(tmp_path, monkeypatch, add_method):
    monkeypatch.setenv("BAGWISE_DATA", str(tmp_path / "empty"))
    add_method("homeless", lambda problem: iter(()), needs="no_such_room")
    frame = bench.run(
        tiny(datasets=("adult", "digits"), sizes=(8, 512), methods=("class_prior", "homeless"), partitions=1),
        tmp_path / "bench.parquet",
    ).set_index(["dataset", "method", "size"])
    assert frame["error"]["adult", "class_prior", 8].startswith("skipped: BAGWISE_DATA has no file adult/adult.data")
    assert frame["error"]["digits", "class_prior", 8] == ""
    assert frame["error"]["digits", "class_prior", 512] == "skipped: 1,200 rows make too few bags of 512."
    assert frame["error"]["digits", "homeless", 8] == "ModuleNotFoundError: No module named 'no_such_room'"
    text = bench.markdown(frame.reset_index())
    assert "## Adult (income over 50K)\n\nAll of it was skipped: BAGWISE_DATA has no file" in text
    assert "- homeless, k = 8 (1 of 1 trainings): ModuleNotFoundError" in text
    assert "k = 512" in text


# -- tables -------------------------------------------------------------------------------------------------------


def rows(method, accuracy, *, partition, rate=np.nan, risk=np.nan, size=8, error="", seconds=1.0):
    config = json.dumps({"settings": {"epochs": 20, "learning_rates": [0.1, 0.2, 0.3]} if rate == rate else {}})
    record = {"dataset": "digits", "size": size, "method": method, "partition": partition, "learning_rate": rate}
    record |= {"risk": risk, "accuracy": accuracy, "auc": accuracy, "brier": 1 - accuracy, "seconds": seconds}
    return record | {"bags": 150, "rows": 1200, "test_rows": 597, "cores": 2, "error": error, "config": config}


def test_two_rules_choose_the_learning_rate():
    """Held out: per partition, without looking at accuracy. Test: one for all partitions, by the mean accuracy."""
    frame = pd.DataFrame(
        [
            rows("network_ours", 0.70, partition=0, rate=0.1, risk=0.10),
            rows("network_ours", 0.80, partition=0, rate=0.2, risk=0.20),
            rows("network_ours", 0.82, partition=0, rate=0.3, risk=0.30),
            rows("network_ours", 0.60, partition=1, rate=0.1, risk=0.30),
            rows("network_ours", 0.90, partition=1, rate=0.2, risk=0.20),
            rows("network_ours", 0.64, partition=1, rate=0.3, risk=0.10),
        ]
    )
    held, test = tables.summary(frame).to_dict("records")
    assert (held["rule"], test["rule"]) == (tables.HELD, tables.TEST)
    assert held["accuracy"] == pytest.approx((0.70 + 0.64) / 2)
    assert held["accuracy_se"] == pytest.approx(0.03)
    assert test["accuracy"] == pytest.approx(0.85)
    assert test["accuracy_se"] == pytest.approx(0.05)
    assert held["seconds"] == test["seconds"] == 3  # all learning rates had to be tried
    assert held["partitions"] == test["partitions"] == 2


def test_markdown_marks_what_used_labels_and_what_failed():
    frame = pd.DataFrame(
        [
            rows("ridge", 0.8, partition=0),
            rows("ridge", 0.9, partition=1),
            rows("ridge", 0.75, partition=0, size=32),
            rows("network_ours", 0.7, partition=0, rate=0.1, risk=0.1),
            rows("supervised_lightgbm", 0.95, partition=0, size=1),
            rows("llp_learn_em", np.nan, partition=0, error="llp-learn failed:\n no end after 9 s."),
        ]
    )
    text = bench.markdown(frame)
    accuracy = text[text.index("| Accuracy") : text.index("| AUC")].splitlines()
    assert accuracy[:3] == [
        "| Accuracy | k = 8 | k = 32 |",
        "| --- | --- | --- |",
        "| `BagRidgeClassifier` | 0.850 ± 0.050 | 0.750 |",
    ]
    assert "| paper's network, debiased square (Ours), best by test accuracy † | 0.700 | – |" in accuracy
    assert "| paper's network, debiased square (Ours), by held-out bags | 0.700 | – |" in accuracy
    assert "| LightGBM on individual labels ‡ | 0.950 | 0.950 |" in accuracy
    assert not any("llp-learn" in line for line in accuracy)
    assert "- llp-learn 1.6, EM, k = 8 (1 of 1 trainings): llp-learn failed: no end after 9 s." in text
    assert "2 random partitions" in text
    assert "20 epochs, learning rates 0.1, 0.2, 0.3" in text
    assert "uses test labels" in text


# -- llp-learn in another process ---------------------------------------------------------------------------------

FAKE = {
    "__init__.py": "",
    "em.py": """
import time
import numpy as np

class EM:
    def __init__(self, model, random_state):
        self.model = model

    def fit(self, X, bags, proportions):
        assert len(X) == len(bags) and len(proportions) == bags.max() + 1
        if SLOW:
            time.sleep(60)
        if BROKEN:
            raise ValueError("no such luck")
        self.model.fit(X, proportions[bags] > np.median(proportions))
""",
    "dllp.py": """
import torch
from torchvision.models import resnet18  # undeclared, as in the package

class DLLP:
    def __init__(self, lr, n_epochs, model_type, hidden_layer_sizes, device, n_jobs, random_state):
        assert (lr, n_epochs, model_type, hidden_layer_sizes) == (0.01, 1, "simple-mlp", (32,))

    def fit(self, X, bags, proportions):
        assert len(proportions) == 135  # the others are held out
        self.model = torch.nn.Linear(X.shape[1], 2)
""",
}


@pytest.fixture
def fake_package(tmp_path, monkeypatch):
    """A package with the face of llp-learn, found by this Python."""

    def make(*, slow=False, broken=False):
        folder = tmp_path / "lib" / "llp_learn"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in FAKE.items():
            (folder / name).write_text(f"SLOW, BROKEN = {slow}, {broken}\n{text}")
        monkeypatch.setenv("PYTHONPATH", str(folder.parent))
        monkeypatch.setattr(llp_learn, "environment", lambda: Path(sys.executable))

    return make


@pytest.mark.slow
def test_predictions_come_back_from_another_process(tmp_path, fake_package):
    fake_package()
    frame = bench.run(tiny(methods=("llp_learn_em",), partitions=1), tmp_path / "bench.parquet")
    assert frame["error"][0] == ""
    assert frame["auc"][0] > 0.6
    assert 0 < frame["seconds"][0] < 5  # of the fit, not of starting Python


@pytest.mark.slow
def test_networks_of_another_process_are_chosen_like_ours(tmp_path, fake_package, torch):
    fake_package()
    frame = bench.run(tiny(methods=("llp_learn_dllp",), partitions=1), tmp_path / "bench.parquet")
    assert frame["error"][0] == ""
    assert frame["learning_rate"][0] == 1e-2
    assert frame["risk"][0] > 0


@pytest.mark.slow
def test_failures_of_another_process_are_reported(tmp_path, fake_package):
    fake_package(broken=True)
    frame = bench.run(tiny(methods=("llp_learn_em",), partitions=1), tmp_path / "bench.parquet")
    assert frame["error"][0] == "llp-learn failed: ValueError: no such luck"
    fake_package(slow=True)
    frame = bench.run(tiny(methods=("llp_learn_em",), partitions=1, timeout=1), tmp_path / "bench.parquet")
    assert frame["error"][0] == "llp-learn failed: no end after 1 s."


@pytest.mark.slow
def test_an_install_that_fails_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(llp_learn, "REQUIREMENTS", (str(tmp_path / "missing.whl"),))
    monkeypatch.setattr(llp_learn.pooch, "os_cache", lambda name: str(tmp_path / name))
    frame = bench.run(tiny(methods=("llp_learn_em",), partitions=1), tmp_path / "bench.parquet")
    assert frame["error"][0].startswith("llp-learn could not be installed: ")


@pytest.mark.slow
def test_the_environment_has_its_own_packages_and_our_libraries(tmp_path, monkeypatch):
    create, commands = llp_learn.venv.create, []
    monkeypatch.setattr(llp_learn.venv, "create", lambda folder, clear, with_pip: create(folder, clear=clear))
    monkeypatch.setattr(llp_learn, "_call", lambda command, timeout, failure: commands.append(command))
    python = llp_learn.environment(tmp_path)
    assert commands[0][-2:] == list(llp_learn.REQUIREMENTS)
    assert "--no-deps" in commands[0]  # its own pins would bring an old torch with GPU packages
    code = "import sys, sklearn; assert sys.prefix.startswith(sys.argv[1])"
    llp_learn.subprocess.run([python, "-c", code, str(tmp_path)], check=True)
    assert llp_learn.environment(tmp_path) == python
    assert len(commands) == 1  # made once


# -- config -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"datasets": ("moon",)}, "datasets must be .*adult.*moon"),
        ({"methods": ("magic",)}, "methods must be .*ridge.*magic"),
        ({"sizes": ()}, "sizes must be"),
        ({"sizes": (0,)}, "sizes must be"),
        ({"partitions": 0}, "partitions must be .* at least 1"),
        ({"synthetic_rows": (1,)}, "synthetic_rows must be"),
        ({"fewest_bags": 1}, "fewest_bags must be .* at least 2"),
    ],
)
def test_wrong_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(**changes)


def test_configs_come_from_toml(tmp_path):
    path = tmp_path / "bench.toml"
    path.write_text('datasets = ["digits"]\nsizes = [8]\n')
    assert load(bench.QUICK, path) == dataclasses.replace(bench.QUICK, datasets=("digits",), sizes=(8,))
    assert bench.FULL.learning_rates == (1e-6, 5e-6, 1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2)
