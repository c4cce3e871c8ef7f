"""Configs, tables on disk and figures."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from bagwise.experiments import figures, samples, store, variance
from bagwise.experiments.config import fingerprint, load
from bagwise.experiments.samples import SamplesConfig
from bagwise.experiments.variance import VarianceConfig


def test_config_from_toml(tmp_path):
    path = tmp_path / "samples.toml"
    path.write_text('sizes = [8, 16]\nproblems = ["i"]\nregret = 0.02\n')
    assert load(SamplesConfig, path) == SamplesConfig(sizes=(8, 16), problems=("i",), regret=0.02)
    path.write_text("size = 8\n")
    with pytest.raises(ValueError, match="unknown keys size: the keys are problems"):
        load(SamplesConfig, path)


def test_fingerprint_knows_what_matters():
    assert fingerprint(VarianceConfig()) == fingerprint(VarianceConfig(n_jobs=1))
    assert fingerprint(VarianceConfig()) != fingerprint(VarianceConfig(random_state=1))


def test_table_survives_parquet(tmp_path):
    frame = pd.DataFrame({"k": [2, 4], "bags": [1.5, np.nan], "successes": [[0.5, 1.0], [0.25]]})
    path = store.write_table(frame, tmp_path / "new" / "table.parquet")
    read = store.read_table(path)
    assert list(read["successes"][0]) == [0.5, 1.0]
    pd.testing.assert_frame_equal(read[["k", "bags"]], frame[["k", "bags"]])


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "table.parquet"
    path.write_text("old")

    def fail():
        with store.replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


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
    for name, draw in (("variance", figures.variance_figure), ("samples", figures.samples_figure)):
        frame = store.read_table(store.write_table(frames[name], tmp_path / f"{name}.parquet"))
        figure = draw(frame)
        assert isinstance(figure, Figure)
        image = store.save_figure(figure, tmp_path / f"{name}.png")
        assert image.read_bytes().startswith(b"\x89PNG")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "information lower bound" in labels
    assert "at the upper edge: no number of bags suffices" in labels
    assert "given up at the cap" in labels
