"""Configs, tables on disk and figures."""

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from bagwise.experiments import samples, variance
from bagwise.experiments.harness import as_json, fingerprint, load
from bagwise.experiments.results import read_table, save_figure, write_table
from bagwise.experiments.samples import SamplesConfig
from bagwise.experiments.variance import VarianceConfig
from bagwise.utils.files import replacing


def test_config_from_toml(tmp_path):
    path = tmp_path / "samples.toml"
    path.write_text('sizes = [8, 16]\nproblems = ["i"]\nregret = 0.02\n')
    base = SamplesConfig(trials=300)
    assert load(base, path) == SamplesConfig(trials=300, sizes=(8, 16), problems=("i",), regret=0.02)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size = 8", "unknown keys size: the keys are problems"),
        ("sizes = 8", "gives sizes = 8: it must be a list of one or more whole numbers"),
        ("sizes = [8.5]", r"gives sizes = \[8.5\]: it must"),
        ("sizes = []", r"gives sizes = \[\]: it must"),
        ("trials = true", "gives trials = true: it must be a whole number"),
        ("regret = 2020-01-01", 'gives regret = "2020-01-01": it must be a number'),
        ("ratio = 1", "ratio must be .* above 1"),
        ("sizes = [8", "is not TOML"),
    ],
)
def test_wrong_toml_is_refused(tmp_path, text, message):
    path = tmp_path / "samples.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load(SamplesConfig(), path)


def test_tables_hold_the_config_that_made_them():
    config = VarianceConfig(rows=2048, sizes=(2, 16), repetitions=2, n_jobs=1)
    (text,) = variance.run(config)["config"].unique()
    values = json.loads(text)
    assert VarianceConfig(**values | {"sizes": tuple(values["sizes"]), "n_jobs": 1}) == config
    assert text == as_json(config)


def test_fingerprint_knows_what_matters():
    assert fingerprint(VarianceConfig()) == fingerprint(VarianceConfig(n_jobs=1))
    assert fingerprint(VarianceConfig()) != fingerprint(VarianceConfig(random_state=1))


def test_table_survives_parquet(tmp_path):
    frame = pd.DataFrame({"k": [2, 4], "bags": [1.5, np.nan], "successes": [[0.5, 1.0], [0.25]]})
    path = write_table(frame, tmp_path / "new" / "table.parquet")
    read = read_table(path)
    assert list(read["successes"][0]) == [0.5, 1.0]
    pd.testing.assert_frame_equal(read[["k", "bags"]], frame[["k", "bags"]])


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "table.parquet"
    path.write_text("old")

    def fail():
        with replacing(path, tmp_path / "new" / "other") as (temporary, other):
            temporary.write_text("half")
            other.write_text("half")
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        fail()
    assert path.read_text() == "old"
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def test_files_take_their_places_together(tmp_path):
    one, two = tmp_path / "one.txt", tmp_path / "new" / "two.txt"
    with replacing(one, two) as temporary:
        for path in temporary:
            path.write_text("whole")
            assert path.suffix == ".txt"  # writers look at it
        assert not one.exists()
    assert [one.read_text(), two.read_text()] == ["whole", "whole"]
    assert len(list(tmp_path.rglob("*.txt"))) == 2


@pytest.mark.slow
def test_figures_are_drawn_from_stored_tables(tmp_path):
    small = SamplesConfig(
        problems=("i", "iii", "iv"), sizes=(8, 64), trials=60, fewest_trials=20, budget=2000, ratio=1.5, cap=300,
        cap_biased=50, n_jobs=1,
    )  # fmt: skip
    frames = {
        "variance": variance.run(VarianceConfig(rows=2048, sizes=(2, 16), repetitions=2, n_jobs=1)),
        "samples": samples.run(small),
    }
    assert frames["samples"]["censored"].any()
    for name, draw in (("variance", variance.figure), ("samples", samples.figure)):
        frame = read_table(write_table(frames[name], tmp_path / f"{name}.parquet"))
        figure = draw(frame.assign(label="my " + frame["label"]))  # words come from the table, too
        assert isinstance(figure, Figure)
        image = save_figure(figure, tmp_path / f"{name}.png")
        assert image.read_bytes().startswith(b"\x89PNG")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "information lower bound" in labels
    assert "at the upper edge: no number of bags suffices" in labels
    assert "given up at the cap" in labels
    assert "my Algorithm 1" in labels
    assert figure.axes[0].get_title() == "(i) two symmetric functions, equal means"
