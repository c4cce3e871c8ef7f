"""Options in a file, parameters of estimators by name, and a run that is repeated from what its model tells."""

import filecmp
import re

import numpy as np
import pandas as pd
import pytest

from bagwise import saving
from bagwise.cli.configuration import parse_settings
from tests.cli.test_tables import call, sentence


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """60 bags of 20 rows."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("configured")
    events = pd.DataFrame({"x": rng.normal(size=1200), "bag": np.repeat(np.arange(60), 20)})
    y = rng.random(1200) < 1 / (1 + np.exp(-events["x"]))
    paths = folder / "events.parquet", folder / "reports.parquet"
    events.to_parquet(paths[0])
    pd.DataFrame({"bag": np.arange(60), "count": y.groupby(events["bag"]).sum()}).to_parquet(paths[1])
    return paths


def written(folder, text):
    path = folder / "fit.toml"
    path.write_text(text)
    return path


def same(one, other):
    """Whether two folders hold the same bytes."""
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(other) for path in other.rglob("*") if path.is_file())
    return all(filecmp.cmp(one / name, other / name, shallow=False) for name in names)


def test_a_fit_is_repeated_by_what_its_model_prints(tables, tmp_path):
    given = ("--model", "ridge", "--hold-out", 0.3, "--set", "cv=4", "--set", "alphas=[0.1, 1.0]", "--seed", 7)
    assert call("fit", *tables, *given, "--out", tmp_path / "one").exit_code == 0
    told = call("inspect", tmp_path / "one", "--toml").stdout
    assert told.splitlines()[2:5] == ['model = "ridge"', 'hold-out = "0.3"', "seed = 7"]
    assert told.splitlines()[5:] == ["", "[set]", "cv = 4", "alphas = [0.1, 1.0]"]
    path = written(tmp_path, told)
    assert call("fit", "--config", path, "--out", tmp_path / "two").exit_code == 0
    assert same(tmp_path / "one", tmp_path / "two")
    estimator = saving.load(tmp_path / "two").estimator
    assert (estimator.cv, estimator.alphas) == (4, [0.1, 1.0])


def test_the_command_line_goes_before_the_file(tables, tmp_path):
    path = written(tmp_path, 'model = "ridge"\nhold-out = 0.3\n[set]\ncv = 4\n')
    assert call("fit", *tables, "--config", path, "--set", "cv=3", "--out", tmp_path / "m").exit_code == 0
    told = call("inspect", tmp_path / "m", "--toml").stdout
    assert 'hold-out = "0.3"' in told
    assert "cv = 3" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('modell = "ridge"', "says 'modell', which is no option for a file"),
        ('out = "elsewhere"', "says 'out', which is no option for a file"),
        ("model = ", "is no TOML file"),
        ("set = 3", r"must have settings in a table, \[set\]"),
        ("[model]\nname = 3", r"has a table \[model\], where a value is expected"),
        ("[set]\ndepth = 3", "--set names 'depth', which is no such parameter of a BagRidgeClassifier"),
        ("[set]\nrandom_state = 3", "--set names 'random_state', which is no such parameter"),
        ("[set]\ncv = 1", "cv must be a whole number of at least 2, got 1"),
    ],
)
def test_what_a_file_may_not_say(tables, tmp_path, text, said):
    path = written(tmp_path, text)
    model = () if "model" in text else ("--model", "ridge")
    result = call("fit", *tables, "--config", path, *model, "--out", tmp_path / "m")
    assert re.search(said, sentence(result, result.exit_code))
    assert result.exit_code in (1, 2)
    assert not (tmp_path / "m").exists()


def test_a_file_that_is_not_there(tables, tmp_path):
    assert "cannot be read" in sentence(call("fit", *tables, "--config", tmp_path / "no.toml"), 2)


def test_settings_are_values_of_toml_or_words():
    given = ["a=1", "b = 0.5", "c=true", "d=[3, 4]", "e=square", 'f="x=y"']
    assert parse_settings(given) == {"a": 1, "b": 0.5, "c": True, "d": [3, 4], "e": "square", "f": "x=y"}


@pytest.mark.parametrize("given", [("--set", "cv"), ("--set", "cv=3", "--set", "cv=4"), ("--loss", "li_square")])
def test_settings_that_are_none(tables, tmp_path, given):
    assert given[0] in sentence(call("fit", *tables, "--model", "ridge", *given, "--out", tmp_path / "m"), 2)


def test_a_model_made_in_python_tells_no_options(tmp_path):
    import bagwise as bw

    X = np.arange(8.0)[:, None]
    model = bw.BagRidgeClassifier(alphas=1.0).fit(X, (X[:, 0] > 3).astype(int))
    bw.save(model, tmp_path / "m")
    assert "does not tell its options" in sentence(call("inspect", tmp_path / "m", "--toml"), 2)


def test_predictions_have_intervals_on_demand(tables, tmp_path):
    assert call("fit", *tables, "--model", "ridge", "--out", tmp_path / "m").exit_code == 0
    given = ("--intervals", "--keep", "x", "--out", tmp_path / "scored.parquet")
    assert call("predict", tmp_path / "m", tables[0], *given).exit_code == 0
    found = pd.read_parquet(tmp_path / "scored.parquet")
    model = saving.load(tmp_path / "m")
    expected = model.estimator.predict_interval(model.encoding(found[["x"]].to_numpy(np.float32)))
    np.testing.assert_allclose(found[["prediction_low", "prediction_high"]], np.transpose(expected), atol=1e-5)
    assert (found["prediction_low"] < found["prediction"]).all()
    assert (found["prediction"] < found["prediction_high"]).all()


def test_predictions_of_classes_have_intervals_of_each(tables, tmp_path):
    events = pd.read_parquet(tables[0])
    label = np.random.default_rng(1).integers(0, 3, len(events))
    counts = pd.DataFrame(np.eye(3)[label], columns=["a", "b", "c"]).groupby(events["bag"]).sum().reset_index()
    counts.to_parquet(tmp_path / "classes.parquet")
    given = ("--count", "a,b,c", "--formation", "random", "--model", "logistic", "--set", "alphas=1.0")
    assert call("fit", tables[0], tmp_path / "classes.parquet", *given, "--out", tmp_path / "m").exit_code == 0
    kept = ("--intervals", "--level", 0.9, "--keep", "x", "--out", tmp_path / "scored.parquet")
    assert call("predict", tmp_path / "m", tables[0], *kept).exit_code == 0
    found = pd.read_parquet(tmp_path / "scored.parquet")
    model = saving.load(tmp_path / "m")
    low, high = model.estimator.predict_interval(model.encoding(found[["x"]].to_numpy(np.float32)), level=0.9)
    for number, name in enumerate("abc"):
        ends = found[[f"prediction_{name}_low", f"prediction_{name}_high"]]
        np.testing.assert_allclose(ends, np.column_stack([low[:, number], high[:, number]]), atol=1e-5)
        assert found[f"prediction_{name}"].between(ends.iloc[:, 0], ends.iloc[:, 1]).all()
    trees = (*given[:4], "--model", "boosting", "--set", "n_estimators=5", "--out", tmp_path / "trees")
    assert call("fit", tables[0], tmp_path / "classes.parquet", *trees).exit_code == 0
    refused = call("predict", tmp_path / "trees", tables[0], *kept[:-1], tmp_path / "other.parquet")
    assert "trees of several classes are fitted to all bags" in sentence(refused, 1)
    assert not (tmp_path / "other.parquet").exists()
