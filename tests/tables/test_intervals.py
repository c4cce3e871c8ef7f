"""Reports whose counts are hidden, rounded or clamped, and noise by its mechanism, in tables."""

import re

import numpy as np
import pandas as pd
import pytest

from bagwise import tables
from bagwise.data.shards import Shards
from bagwise.tables import gather
from bagwise.tables.columns import Features
from bagwise.tables.intervals import Hidden
from bagwise.tables.reports import ReportColumns

EVENTS = {"bag": np.repeat(["a", "b", "c", "d"], 12), "x": np.arange(48) % 7}


def reported(count, **options):
    joined = tables.join(EVENTS, {"bag": ["a", "b", "c", "d"], "count": count}, **options)
    found, keys = joined.reported, joined.bags.sort("bag_number").fetch().column("bag").to_pylist()
    order = np.argsort(keys)
    if found.interval is None:
        return joined, None
    return joined, [(found.interval.low[j], found.interval.high[j]) for j in order]


@pytest.mark.parametrize(
    ("written", "options", "ends"),
    [
        (["3", "<10", "1-7", "5"], {}, [(3, 3), (0, 9), (1, 7), (5, 5)]),
        (["≤4", ">=8", "10+", " 2 to 6 "], {}, [(0, 4), (8, np.inf), (10, np.inf), (2, 6)]),
        (["*", "", "n/a", "11"], {"hidden": "0-9"}, [(0, 9), (0, 9), (0, 9), (11, 11)]),
        ([None, 4.0, 5.0, 6.0], {"hidden": "0-3"}, [(0, 3), (4, 4), (5, 5), (6, 6)]),
        ([0, 5, 10, 5], {"rounded": 5}, [(0, 2), (3, 7), (8, 12), (3, 7)]),
        (["*", "5", "10", "5"], {"rounded": 5, "hidden": "0-4"}, [(0, 4), (5, 7), (8, 12), (5, 7)]),
        ([2, 3, 8, 5], {"clamped": "2-8"}, [(-np.inf, 2), (3, 3), (8, np.inf), (5, 5)]),
    ],
)
def test_counts_as_they_are_written(written, options, ends):
    joined, found = reported(written, **options)
    assert found == ends
    assert joined.summary.inexact == sum(low < high for low, high in ends)
    assert "known to lie between two numbers only" in str(joined.summary)


def test_columns_of_ends():
    lines = {"bag": ["a", "b", "c", "d"], "least": [0, 4, 1, 2], "most": [3, 4, 5, 2]}
    joined = tables.join(EVENTS, lines, low="least", high="most")
    assert joined.summary.inexact == 2


def test_text_that_holds_numbers_is_as_numbers():
    joined, found = reported(["3", "4", "1", "5"])
    assert found is None
    assert joined.summary == tables.join(EVENTS, {"bag": ["a", "b", "c", "d"], "count": [3, 4, 1, 5]}).summary


@pytest.mark.parametrize(
    ("written", "options", "words"),
    [
        (["3", "few", "1", "5"], {}, "'few' in line 2: a count is a number, or <10"),
        (["3", "*", "1", "5"], {}, "say between which numbers they lie"),
        (["3", "12%", "1", "5"], {}, "'12%'"),
        (["3", "14-20", "1", "5"], {}, "count below 0 or above the number of rows"),
        ([3, 4, 5, 6], {"hidden": "9-0"}, "hidden must be two counts"),
        ([3, 4, 5, 6], {"rounded": 0}, "rounded"),
        ([3, 4, 5, 6], {"low": "count"}, "go together"),
        ([3, 4, 5, 6], {"mechanism": "uniform"}, "mechanism"),
        ([3, 4, 5, 6], {"sensitivity": 2.0}, "sensitivity is what epsilon is about"),
        ([3, 4, 5, 6], {"mechanism": "gaussian"}, "mechanism is how noise was made, and no noise is told: give"),
        ([3, 4, 5, 6], {"epsilon": 1.0, "mechanism": "gaussian"}, "does not tell the scale of Gaussian noise"),
    ],
)
def test_bad_forms_get_one_sentence(written, options, words):
    with pytest.raises(ValueError, match=words) as caught:
        reported(written, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "variance", "words"),
    [
        ({"epsilon": 0.5}, 8.0, r"Laplace noise \(sensitivity taken as 1\)"),
        ({"epsilon": 0.5, "sensitivity": 3.0}, 72.0, r"sensitivity 3"),
        ({"noise_scale": 2.0}, 8.0, "Laplace noise"),
        ({"noise_scale": 2.0, "mechanism": "gaussian"}, 4.0, "Gaussian noise"),
        ({"epsilon": 0.5, "mechanism": "discrete-laplace"}, 2 * np.exp(-0.5) / (1 - np.exp(-0.5)) ** 2, "discrete"),
    ],
)
def test_noise_by_its_mechanism(options, variance, words):
    joined, _ = reported([3, 4, 5, 6], **options)
    assert joined.reported.noise == pytest.approx(np.full(4, variance))
    assert re.search(words, str(joined.summary))


def test_discrete_laplace_has_the_variance_declared():
    """Against the distribution: P(z) proportional to exp(−ε|z|/Δ)."""
    z = np.arange(-2000, 2001)
    p = np.exp(-0.3 * np.abs(z) / 2)
    joined, _ = reported([3, 4, 5, 6], epsilon=0.3, sensitivity=2.0, mechanism="discrete-laplace")
    assert joined.reported.noise[0] == pytest.approx((p * z**2).sum() / p.sum())


def test_sensitivities_of_bags():
    lines = {"bag": ["a", "b", "c", "d"], "count": [3.0, 4, 5, 6], "epsilon": [1.0] * 4, "most": [1.0, 2, 1, 2]}
    noise = tables.join(EVENTS, lines, sensitivity="most").reported.noise
    assert sorted(noise) == [2, 2, 8, 8]


def test_what_is_shown_is_none_of_what_is_hidden():
    """Ten, rounded to fives, would be eight to twelve; where counts below ten are hidden it is ten to twelve."""
    how = Hidden.of(ReportColumns(hidden="0-9", rounded=5.0))
    low, high, unknown = how.ends(np.array([10.0, np.nan]), np.array([10.0, np.nan]), np.array([True, False]))
    assert (list(low), list(high), unknown.any()) == ([10, 0], [12, 9], False)


def test_models_know_how_counts_were_hidden(tmp_path):
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(60), 30)
    x = rng.normal(size=1800)
    y = rng.random(1800) < 1 / (1 + np.exp(2 - 1.5 * x))
    counts = np.bincount(bag, weights=y).astype(int)
    shown = ["*" if count < 5 else str(count) for count in counts]
    events, reports = {"bag": bag, "x": x}, {"bag": np.arange(60), "count": shown}
    model = tables.fit(tables.join(events, reports, hidden="0-4"), "logistic", random_state=0)
    assert model.reports.hidden == "0-4"
    found = tmp_path / "scored.parquet"
    scored = tables.write_scores(model, events, found, reports=reports)
    assert scored.bags == 60
    total = pd.read_parquet(found).groupby("bag")["prediction"].sum().to_numpy()
    assert np.allclose(total[counts >= 5], counts[counts >= 5], atol=0.01)
    assert (total[counts < 5] <= 4.01).all()


# -- several classes --------------------------------------------------------------------------------------------------

CLASSES = ["red", "blue", "green"]


def of_classes(*columns, **options):
    """Four bags of twelve rows; one column of counts for each class."""
    lines = {"bag": ["a", "b", "c", "d"], **dict(zip(CLASSES, columns, strict=True))}
    joined = tables.join(EVENTS, lines, count=CLASSES, **options)
    return joined, joined.reported, np.argsort(joined.bags.sort("bag_number").fetch().column("bag").to_pylist())


def test_counts_of_classes_as_they_are_written():
    columns = ["3", "*", "*", "5"], ["<3", "2", "*", "3"], [7, 6, 8, 4]
    joined, found, order = of_classes(*columns, hidden="0-4")
    low, high = found.interval.low[order], found.interval.high[order]
    # What is hidden of one class is known by the others; of two, each leaves so much to the other.
    np.testing.assert_array_equal(low, [[3, 2, 7], [4, 2, 6], [0, 0, 8], [5, 3, 4]])
    np.testing.assert_array_equal(high, [[3, 2, 7], [4, 2, 6], [4, 4, 8], [5, 3, 4]])
    assert joined.summary.inexact == 1
    assert "counts of 1 bag known to lie between two numbers only" in str(joined.summary)
    np.testing.assert_allclose(found.proportion[order][[0, 1, 3]] * 12, [[3, 2, 7], [4, 2, 6], [5, 3, 4]])


def test_rounded_counts_of_classes_need_not_add_up():
    _, found, order = of_classes([5, 5, 0, 10], [5, 5, 5, 0], [0, 5, 5, 5], rounded=5)
    assert (found.interval.low[order].sum(axis=1) <= 12).all()
    np.testing.assert_array_equal(found.interval.high[order][0], [7, 7, 2])
    np.testing.assert_array_equal(found.interval.low[order][0], [3, 3, 0])


def test_columns_of_ends_of_classes():
    ends = {"l0": [3, 4, 1, 2], "l1": [0, 1, 2, 3], "h0": [3, 6, 1, 4], "h1": [9, 8, 11, 8]}
    joined = tables.join(EVENTS, {"bag": ["a", "b", "c", "d"], **ends}, low=["l0", "l1"], high=["h0", "h1"])
    assert joined.classes == ("l0", "l1")
    assert joined.summary.inexact == 1  # the last can add up to twelve in one way only
    low, high = joined.reported.interval.low, joined.reported.interval.high
    np.testing.assert_array_equal(low.sum(axis=1) + (high - low)[:, 0], 12)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ((["3", "*", "1", "5"], ["3", "2", "1", "3"], [6, 6, 10, 4]), {}, "say between which numbers they lie"),
        ((["3", "*", "1", "5"], ["3", "2", "1", "3"], [3, 6, 10, 4]), {"hidden": "0-4"}, "do not sum to the whole bag"),
        ((["<3", "4", "1", "5"], ["<3", "2", "1", "3"], ["<3", "6", "10", "4"]), {}, "do not sum to the whole bag"),
        ((["14+", "4", "1", "5"], ["<3", "2", "1", "3"], ["<3", "6", "10", "4"]), {}, "above the number of rows"),
        (
            (["3", "few", "1", "5"], ["3", "2", "1", "3"], [6, 6, 10, 4]),
            {},
            "'red' of the reports holds 'few'",
        ),
        (([3, 4, 1, 5], [3, 2, 1, 3], [6, 6, 10, 4]), {"low": "red", "high": "blue"}, "low must name 3 columns"),
    ],
)
def test_bad_forms_of_classes_get_one_sentence(columns, options, words):
    with pytest.raises(ValueError, match=words) as caught:
        of_classes(*columns, **options)
    assert "\n" not in str(caught.value)


def party_register(m=60, k=30):
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(m), k)
    x = rng.normal(size=(m * k, 2)) + 0.5 * rng.normal(size=(m, 2))[bag]
    s = np.column_stack([0.5 + x[:, 0], x[:, 1], -1 - x[:, 0]])
    y = (s + rng.gumbel(size=s.shape)).argmax(axis=1)
    counts = np.stack([np.bincount(bag[y == c], minlength=m) for c in range(3)], axis=1)
    shown = {
        name: ["*" if count < 5 else str(count) for count in column]
        for name, column in zip(CLASSES, counts.T, strict=True)
    }
    return {"bag": bag, "x0": x[:, 0], "x1": x[:, 1]}, {"bag": np.arange(m), **shown}, counts


@pytest.mark.filterwarnings("ignore::bagwise.evaluation.measures.BagsNotRandomWarning")
def test_models_of_classes_know_how_counts_were_hidden(tmp_path):
    events, reports, counts = party_register()
    joined = tables.join(events, reports, count=CLASSES, hidden="0-4")
    model = tables.fit(joined, "logistic", random_state=0)
    found = tmp_path / "scored.parquet"
    tables.write_scores(model, events, found, reports=reports)
    sums = pd.read_parquet(found).groupby("bag")[[f"prediction_{name}" for name in CLASSES]].sum().to_numpy()
    hidden = counts < 5
    known = ~hidden | (hidden.sum(axis=1) == 1)[:, None]
    assert (~known).any()
    assert np.allclose(sums[known], counts[known], atol=0.01)
    assert (sums[hidden] < 4.01).all()
    measured = tables.evaluate(model, tables.join(events, reports, like=model))
    assert measured.bags.gain.value > 0


def test_shards_keep_the_ends_of_classes(tmp_path):
    events, reports, _ = party_register()
    joined = tables.join(events, reports, count=CLASSES, hidden="0-4")
    shards = gather.write_shards(
        joined, Features.of(joined.events, joined.features), tmp_path / "shards", group_rows=300
    )
    held = joined.reported.interval
    np.testing.assert_array_equal(shards.interval.low, held.low)
    np.testing.assert_array_equal(Shards.open(tmp_path / "shards").bags.interval.high, held.high)
