import dataclasses

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure

from bagwise import demo
from bagwise.bags import Bags
from bagwise.datasets import synthetic

ROWS, SIZES = 20_000, (4, 16, 64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "new" / "folder"


@pytest.fixture(scope="module")
def steps():
    return []


@pytest.fixture(scope="module")
def result(folder, steps):
    return demo.run(folder, rows=ROWS, sizes=SIZES, random_state=1, progress=lambda *step: steps.append(step))


def test_table_has_every_method_and_size(result):
    assert [(row.size, row.method) for row in result.rows] == [
        (1, "individual labels"),
        *((size, method) for size in SIZES for method in ("ridge on bags", "bag mean as label")),
        (None, "constant guess"),
    ]
    assert (result.size, result.impressions) == (16, ROWS)
    assert result.bags == 15_000 // 16 + 5_000 // 16


def five_errors(*means):
    """Five standard errors of a mean loss on the 5,000 held-out rows, or of a difference of two.

    Losses lie in [0, 1], so their variance is at most mean (1 − mean). Those of two methods on the same rows vary
    together, so that the sum of their variances is more than that of the difference.
    """
    return 5 * np.sqrt(sum(mean * (1 - mean) for mean in means) / (ROWS // 4))


def test_bags_teach_and_the_naive_way_does_not(result):
    (ceiling,), (constant,) = result.of("individual labels"), result.of("constant guess")
    ridge, naive = (result.of(method)[1] for method in ("ridge on bags", "bag mean as label"))
    assert ridge.accuracy - constant.accuracy > five_errors(ridge.accuracy, constant.accuracy)
    assert naive.brier - ridge.brier > five_errors(naive.brier, ridge.brier)
    # The label of a bag holds 1/k of what a row says: nothing the naive way predicts from p = 0.24 on passes 1/2, ...
    assert naive.accuracy == constant.accuracy
    # ... and of the Brier score that individual labels gain it gets 2/k − 1/k², which is 12%.
    assert 0 < constant.brier - naive.brier < (constant.brier - ceiling.brier) / 4


def test_nobody_beats_the_true_probabilities(result):
    probability = synthetic(ROWS, random_state=np.random.default_rng(1)).probability
    brier = (probability * (1 - probability)).mean()
    for row in result.rows:
        assert row.accuracy < result.best_accuracy + five_errors(row.accuracy)
        assert row.brier > brier - five_errors(row.brier)


def test_estimates_agree_with_the_truth(result):
    """A 5 standard error tolerance; the truth is that of the same held-out rows, so it is generous."""
    measured = [row for row in result.rows if row.size != 1]
    assert len(measured) == 7
    for row in measured:
        for truth, estimate in ((row.accuracy, row.estimated_accuracy), (row.brier, row.estimated_brier)):
            assert estimate.low < estimate.value < estimate.high
            assert abs(estimate.value - truth) < 5 * estimate.standard_error


def test_events_hold_features_and_bag_and_no_label(result, folder):
    events, reports = (pq.read_table(folder / name) for name in ("events.parquet", "reports.parquet"))
    log = synthetic(ROWS, random_state=np.random.default_rng(1))
    assert events.column_names == [*log.events.columns, "bag"]
    assert reports.column_names == ["bag", "size", "count"]
    for name in events.column_names:  # not under another name either
        column = events[name].fill_null(-1).to_pandas() if name == "bag" else events[name].to_pandas()
        numbers = (column.cat.codes if isinstance(column.dtype, pd.CategoricalDtype) else column).to_numpy()
        assert abs(np.corrcoef(numbers, log.y)[0, 1]) < 0.5
    for word in (b"label", b"probability", b"convert", b'"y"'):
        assert word not in (folder / "events.parquet").read_bytes().lower()


def test_reports_are_the_bags_counts(result, folder):
    events, reports = (pd.read_parquet(folder / name) for name in ("events.parquet", "reports.parquet"))
    y = synthetic(ROWS, random_state=np.random.default_rng(1)).y
    inside = events["bag"].notna().to_numpy()
    assert (~inside).sum() == 15_000 % 16 + 5_000 % 16
    counts = pd.Series(y[inside], dtype=int).groupby(events.loc[inside, "bag"].to_numpy(int)).agg(["size", "sum"])
    assert (counts.index == reports["bag"]).all()
    assert (counts.to_numpy() == reports[["size", "count"]].to_numpy()).all()
    assert (reports["size"] == 16).all()
    assert len(Bags.from_reports(events["bag"], reports, count="count", size="size")) == result.bags


def test_no_bag_lies_on_both_sides_of_the_split(result, folder):
    bag = pd.read_parquet(folder / "events.parquet", columns=["bag"])["bag"]
    assert not set(bag[:15_000].dropna()) & set(bag[15_000:].dropna())


def test_progress_counts_up_to_the_end(result, steps):
    done, total, _ = zip(*steps, strict=True)
    assert list(done) == list(range(len(SIZES) + 4))
    assert set(total) == {len(SIZES) + 3}


def test_figure(result, folder):
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    picture = demo.figure(result)
    assert isinstance(picture, Figure)
    words = {text.get_text() for axes in picture.axes for text in axes.texts}
    assert words == {"individual labels", "constant guess", "ridge on bags", "bag mean as label"}


@pytest.mark.slow
def test_same_seed_same_result(result, tmp_path, folder):
    again = demo.run(tmp_path, rows=ROWS, sizes=SIZES, random_state=1)
    assert dataclasses.replace(again, files=()) == dataclasses.replace(result, files=())
    for name in ("events.parquet", "reports.parquet"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 10_239}, "rows must be at least 10,240"),
        ({"sizes": ()}, "sizes must be one or more"),
        ({"sizes": (1, 4)}, "sizes must be one or more"),
    ],
)
def test_wrong_values_write_nothing(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        demo.run(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_folders(tmp_path):
    demo.check_folder(tmp_path / "new")
    demo.check_folder(tmp_path)
    (tmp_path / ".hidden").touch()
    demo.check_folder(tmp_path)
    (tmp_path / "events.parquet").touch()  # somebody else's table may have this name
    with pytest.raises(FileExistsError, match=r"holds 'events\.parquet', which is not .*force"):
        demo.check_folder(tmp_path)
    demo.check_folder(tmp_path, force=True)
    for name in (*demo.FILES, "notes.txt"):
        (tmp_path / name).touch()
    demo.check_folder(tmp_path)
    with pytest.raises(NotADirectoryError, match="is a file"):
        demo.check_folder(tmp_path / "notes.txt", force=True)


def test_nothing_is_half_written(tmp_path, monkeypatch):
    before = {name: name.encode() for name in demo.FILES}
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo.run(tmp_path, rows=640, sizes=(4, 16))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
