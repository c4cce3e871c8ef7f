"""Events joined with reports: one sentence for everything that can be wrong, keys of any kind, nothing left behind."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise import BagAutoClassifier, BagBoostingClassifier, BagRidgeClassifier
from bagwise.tables import Mismatch, connect, fit, join
from bagwise.tables.engines.duckdb import DuckDB
from bagwise.utils.parameters import AdviceError

EVENTS = {"bag": [1, 1, 2, 2, 2, 3], "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
REPORTS = {"bag": [1, 2, 3], "count": [1, 2, 0]}


@pytest.fixture(scope="module")
def duck() -> Any:
    return connect(threads=1)


# -- one sentence for everything that can be wrong --------------------------------------------------------------------


def wrong(**columns: Any) -> dict[str, Any]:
    return {**REPORTS, **columns}


MISMATCHES = {
    "unreported": (EVENTS, {"bag": [1, 2], "count": [1, 2]}, Mismatch("unreported", 1, 1, "3")),
    "eventless": (EVENTS, {"bag": [1, 2, 3, 9], "count": [1, 2, 0, 0]}, Mismatch("eventless", 1, 0, "9")),
    "repeated": (EVENTS, {"bag": [1, 2, 3, 3], "count": [1, 2, 0, 0]}, Mismatch("repeated", 1, 1, "3")),
    "null": (EVENTS, wrong(count=[1, None, 0]), "no_value"),
    "NaN": (EVENTS, pa.table(wrong(count=[1, float("nan"), 0])), "no_value"),
    "infinite": (EVENTS, wrong(count=[1, float("inf"), 0]), "no_value"),
    "above": (EVENTS, wrong(count=[1, 4, 0]), "impossible"),
    "below": (EVENTS, wrong(count=[1, -1, 0]), "impossible"),
    "size": (EVENTS, wrong(size=[2, 3, 2]), Mismatch("other_size", 1, 1, "3")),
    "epsilon 0": (EVENTS, wrong(epsilon=[1, 0, 1]), "wrong_noise"),
    "epsilon −1": (EVENTS, wrong(epsilon=[1, -1, None]), "wrong_noise"),
    "tiny epsilon": (EVENTS, wrong(epsilon=[1, 1e-200, 1]), "wrong_noise"),
    "scale −1": (EVENTS, wrong(noise_scale=[1, -1, 0]), "wrong_noise"),
    "variance −1": (EVENTS, wrong(noise_variance=[1, -1, 0]), "wrong_noise"),
    "no end of variance": (EVENTS, wrong(noise_variance=[1, float("inf"), 0]), "wrong_noise"),
    "marker": (EVENTS, wrong(suppressed=["no", "perhaps", "no"]), "unclear"),
    "keyless": (EVENTS, {"bag": [1, 2, 3, None], "count": [1, 2, 0, 0]}, Mismatch("keyless_reports", 0, 1)),
}


@pytest.mark.filterwarnings("default:.* which biases")
@pytest.mark.parametrize("case", MISMATCHES)
def test_mismatch_names_the_bag(duck: Any, case: str) -> None:
    events, reports, expected = MISMATCHES[case]
    mismatch = Mismatch(expected, 1, 3, "2") if isinstance(expected, str) else expected
    with pytest.raises(AdviceError, match=f"^{re.escape(str(mismatch))}: ") as raised:
        join(events, reports, keys="bag", connection=duck)
    assert "on_mismatch" in raised.value.parts
    assert "\n" not in str(raised.value)
    assert join(events, reports, keys="bag", connection=duck, on_mismatch="drop").summary.mismatches == (mismatch,)


def test_kinds_of_mismatch_are_left_out_by_name(duck: Any) -> None:
    reports = {"bag": [1, 2, 9], "count": [1, 2, 0]}
    found = join(EVENTS, reports, connection=duck, on_mismatch=["unreported", "eventless"])
    assert (found.summary.bags, found.summary.used_rows) == (2, 5)
    assert {one.kind for one in found.summary.mismatches} == {"unreported", "eventless"}
    with pytest.raises(ValueError, match=r"^1 bag with a report but no rows, for example bag 9: repair"):
        join(EVENTS, reports, connection=duck, on_mismatch=["unreported"])
    with pytest.raises(ValueError, match="on_mismatch must be one of 'error', 'drop', or of the kinds unreported, ev"):
        join(EVENTS, reports, connection=duck, on_mismatch=["unheard"])


@pytest.mark.parametrize("value", ["count", pytest.param("proportion", marks=pytest.mark.slow)])
def test_leaving_out_what_noise_made_impossible_says_which_way_it_biases(duck: Any, value: str, seed: int) -> None:
    """Undeclared noise on rare labels takes counts below 0: without these bags, the mean label is too high."""
    rng = np.random.default_rng(seed)
    size, bags = 10, 2_000
    noised = rng.binomial(size, 0.05, bags) + rng.normal(0, 2, bags)
    events = {"bag": np.repeat(np.arange(bags), size), "x": rng.normal(size=bags * size)}
    for side, p, way in ((noised, 0.05, "much"), (size - noised, 0.95, "little")):
        reports = {"bag": np.arange(bags), value: side if value == "count" else side / size}
        low, high = int((side < 0).sum()), int((side > size).sum())
        words = rf"{low:,} of them report less than 0 and {high:,} more than all of their rows, so .* too {way}; if"
        with pytest.warns(bw.privacy.SelectedBagsWarning, match=words):
            found = join(events, reports, connection=duck, on_mismatch="drop")
        error = np.sqrt((p * (1 - p) * size + 4) / bags) / size
        prior = found.summary.prior[0]
        assert (prior - p if way == "much" else p - prior) > 5 * error  # as it says
        declared = join(events, reports, connection=duck, noise_variance=4)
        assert abs(declared.summary.prior[0] - p) < 5 * error
    hidden = {"bag": np.arange(bags), "count": np.where(noised < 1, np.nan, np.clip(np.round(noised), 0, size))}
    with pytest.warns(bw.privacy.SelectedBagsWarning, match="where small counts are hidden, .* left report too much"):
        join(events, pa.table(hidden), connection=duck, on_mismatch=["no_value"])


def test_a_part_of_the_keys_is_refused(duck: Any) -> None:
    """Whatever is asked for: nearly all rows would be left out."""
    day, campaign = np.arange(600) % 10, np.arange(600) // 10 % 12
    events = pd.DataFrame({"campaign": campaign, "day": day, "x": 1.0})
    reports = events.groupby(["campaign", "day"], as_index=False).agg(count=("x", "size"), size=("x", "size"))
    for few in (reports, reports[(reports["campaign"] > 0) | (reports["day"] == 0)]):
        for on_mismatch in ("error", "drop"):
            with pytest.raises(
                ValueError, match=r"^most rows are of bags with several reports, by key campaign .*: both "
            ):
                join(events, few, keys="campaign", on_mismatch=on_mismatch, connection=duck)
    with pytest.raises(AdviceError, match=r"tables have 'day', too: name all columns that tell reports apart \(keys\)"):
        join(events, reports, keys="campaign", connection=duck)
    with pytest.raises(
        ValueError, match="the reports have 'day', too, which the events lack: add it to the events, or"
    ):
        join(events.drop(columns="day"), reports, on_mismatch="drop", connection=duck)
    with pytest.raises(ValueError, match="add the reports up, to one line per bag"):
        join(events, reports.drop(columns="day"), on_mismatch="drop", connection=duck)
    with pytest.raises(
        ValueError, match=r"^1 bag \(5 rows\) with more than one report, for example bag 0 / 0: add the"
    ):
        join(events, pd.concat([reports, reports[:1]]), connection=duck)


@pytest.mark.filterwarnings("default:.* which biases")
def test_several_mismatches_are_counted_in_one_sentence(duck: Any) -> None:
    reports = {"bag": [1, 3, 9], "count": [1, 5, 0]}
    with pytest.raises(ValueError, match=r"with rows but no report, .*bag 2 \(and 2 more kinds of mismatch\)"):
        join(EVENTS, reports, connection=duck)
    assert "1 bag (3 rows) with rows but no report, for example bag 2" in str(
        join(EVENTS, {"bag": [1, 3], "count": [1, 0]}, connection=duck, on_mismatch="drop").summary
    )


PERCENT = {"bag": [1, 2, 3], "proportion": [50.0, 66.7, 0.0]}
CALLS = {
    "percent": ((EVENTS, PERCENT), {}, "if these are percentages, divide them by 100"),
    "percent, drop": ((EVENTS, PERCENT), {"on_mismatch": "drop"}, "far beyond those of labels.* divide them by 100"),
    "counts": ((EVENTS, {"bag": [1, 2, 3], "proportion": [2, 2, 0]}), {}, "if these are counts, name the column"),
    "outside": ((EVENTS, {"bag": [1, 2, 3], "proportion": [0.5, 1.2, 0.1]}), {}, "bag 2: repair the tables or declare"),
    "no keys": ((EVENTS, {"Bag": [1], "count": [1]}), {}, "no column in common: give keys the same names"),
    "missing key": ((EVENTS, REPORTS), {"keys": "day"}, "the events have no key column 'day': they have bag, x"),
    "key twice": ((EVENTS, REPORTS), {"keys": ["bag", "bag"]}, "keys names column 'bag' twice"),
    "kinds": ((EVENTS, wrong(bag=["1", "2", "3"])), {}, "'bag' is numbers in the events and text in the reports"),
    "lists": (({"bag": [[1], [2]], "x": [1, 2]}, {"bag": [[1], [2]], "count": [1, 1]}), {}, "'bag' holds array"),
    "no value": ((EVENTS, {"bag": [1, 2, 3], "n": [1, 1, 1]}), {}, "^count or proportion must name a column"),
    "both": ((EVENTS, wrong(p=[1, 1, 1])), {"count": "count", "proportion": "p"}, "one of the two"),
    "no column": ((EVENTS, REPORTS), {"size": "rows"}, "the reports have no column 'rows': they have bag, count"),
    "a number": ((EVENTS, REPORTS), {"size": 3}, "^size must be the name of a column.* got 3"),
    "count a number": ((EVENTS, REPORTS), {"count": 3}, "^count must be the name of a column.* got 3"),
    "said twice": ((EVENTS, REPORTS), {"count": "count", "size": "count"}, "'count' of the reports is named for two"),
    "key and count": ((EVENTS, REPORTS), {"keys": "bag", "count": "bag"}, "'bag' of the reports is named for two"),
    "one class": ((EVENTS, REPORTS), {"count": ["count"]}, "at least two columns, one per class"),
    "class twice": ((EVENTS, REPORTS), {"count": ["count", "count"]}, "'count' of the reports is named for two"),
    "text": ((EVENTS, wrong(count=["1", "2", "few"])), {}, "'count' of the reports holds 'few' in line 3: a count is"),
    "dates": ((EVENTS, wrong(suppressed=[datetime.date(2020, 1, 1)] * 3)), {}, "'suppressed'.*holds date.*truth val"),
    "two noises": ((EVENTS, REPORTS), {"epsilon": 1, "noise_scale": 1}, "noise_scale and epsilon say the same"),
    "s² and ε": ((EVENTS, REPORTS), {"epsilon": 1, "noise_variance": 1}, "noise_variance and epsilon say the same"),
    "s² and b": ((EVENTS, REPORTS), {"noise_scale": 1, "noise_variance": 1}, "noise_variance and noise_scale say the"),
    "s² < 0": ((EVENTS, REPORTS), {"noise_variance": -1}, "^noise_variance must be .* got -1"),
    "s² infinite": ((EVENTS, REPORTS), {"noise_variance": float("inf")}, "^noise_variance must be .* got inf"),
    "no s²": ((EVENTS, REPORTS), {"noise_variance": "s"}, "the reports have no column 's': they have bag, count"),
    "ε = 0": ((EVENTS, REPORTS), {"epsilon": 0}, "^epsilon must be .*, got 0"),
    "ε < 0": ((EVENTS, REPORTS), {"epsilon": -1.0}, "^epsilon must be .*, got "),
    "ε NaN": ((EVENTS, REPORTS), {"epsilon": float("nan")}, "^epsilon must be .*, got "),
    "ε true": ((EVENTS, REPORTS), {"epsilon": True}, "^epsilon must be .*, got "),
    "ε list": ((EVENTS, REPORTS), {"epsilon": [1.0]}, "^epsilon must be .*, got "),
    "b < 0": ((EVENTS, REPORTS), {"noise_scale": -1}, "^noise_scale must be .*, got -1"),
    "on_mismatch": ((EVENTS, REPORTS), {"on_mismatch": "skip"}, "^on_mismatch must be .*'drop', or of .* got 'skip'"),
    "ignore": ((EVENTS, REPORTS), {"ignore": ["y"]}, "the events have no column 'y' to ignore"),
    "no features": ((EVENTS, REPORTS), {"ignore": ["x"]}, "no column left to learn from"),
    "case": (({**EVENTS, "X": [1] * 6}, REPORTS), {}, "events: columns 'x' and 'X' are the same to the engine"),
    "one bag": (({"bag": [1, 1], "x": [1, 2]}, {"bag": [1], "count": [1]}), {}, "one bag can be used.*more bags"),
    "no match": ((EVENTS, wrong(bag=[7, 8, 9])), {"on_mismatch": "drop"}, "no bag of the events has a report"),
    "no rows": (({"bag": pa.array([], pa.string()), "x": pa.array([], pa.int64())}, REPORTS), {}, "events are empty"),
    "no lines": ((EVENTS, {"bag": [], "count": []}), {"on_mismatch": "drop"}, "the reports are empty"),
    "empty": (({"bag": [], "x": []}, {"bag": [], "count": []}), {}, "the events are empty: there must be one"),
    "aligned, no keys": ((EVENTS,), {"proportion": "x"}, "^keys must name .*, where there are no reports"),
    "aligned, no column": ((EVENTS,), {"keys": "bag"}, "^proportion must name .*, where there are no reports"),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_bad_call_gets_one_sentence(duck: Any, case: str) -> None:
    tables, options, sentence = CALLS[case]
    with pytest.raises(ValueError, match=sentence) as raised:
        join(*tables, connection=duck, **options)
    assert str(raised.value).endswith(".")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["bag_size", "BAG_NUMBER", "bag_proportion", "bag_proportion_2", "bag_noise_variance"])
def test_names_of_ours_are_refused_or_ignored(duck: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"column '{name}' of the events has a name that bagwise uses"):
        join({**EVENTS, name: EVENTS["x"]}, REPORTS, connection=duck)
    with pytest.raises(ValueError, match=f"column '{name}' of the events has a name that bagwise uses"):
        join({name: EVENTS["bag"], "x": EVENTS["x"]}, {name: [1, 2, 3], "count": [1, 2, 0]}, connection=duck)


def test_other_names_are_free(duck: Any) -> None:
    names = ["value_0", "used", "usable", "keyed", "key_0", "key_0_right", "reports", "noise", "withheld", "f0", "self",
             "n", "level", "Count", "x y", "a.b", "%s", "{}", 'q"', "it's", "ü", "bag_right", "differs"]  # fmt: skip
    names = [name for name in names if not set(DuckDB.unsaid) & set(name)]
    events = {
        "key_1": EVENTS["bag"],
        "usable": ["u"] * 6,
        **{name: list(range(6)) for name in names if name != "usable"},
    }
    reports = {"key_1": [1, 2, 3], "usable": ["u"] * 3, "used": [1, 2, 0], "differs": [2, 3, 1]}
    found = join(events, reports, keys=["key_1", "usable"], count="used", size="differs", connection=duck)
    assert found.features == tuple(name for name in names if name != "usable")
    rows = found.rows().fetch().to_pydict()
    assert {name: sorted(rows[name]) for name in found.features} == {name: list(range(6)) for name in found.features}
    assert sorted(rows["key_1"]) == EVENTS["bag"]
    ignored = join({**EVENTS, "bag_size": [9] * 6}, REPORTS, ignore="bag_size", connection=duck)
    assert set(ignored.rows().fetch()["bag_size"].to_pylist()) == {1, 2, 3}


# -- keys -------------------------------------------------------------------------------------------------------------

DAYS = [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), datetime.date(2024, 3, 1)]
TIMES = [datetime.datetime(day.year, day.month, day.day) for day in DAYS]
BERLIN = pd.to_datetime(TIMES).tz_localize("Europe/Berlin")
KEYS = {
    "negative": ([-3, 0, 5], [-3, 0, 5]),
    "int32": (pa.array([1, 2, 3], pa.int32()), [1, 2, 3]),
    "uint8": (pa.array([1, 2, 3], pa.uint8()), [1, 2, 3]),
    "float": ([0.1, 2.0, -7.5], [0.1, 2.0, -7.5]),
    "float and whole": ([1.0, 2.0, 3.0], [1, 2, 3]),
    "decimal": ([Decimal("0.10"), Decimal("2.5"), Decimal("3")], [Decimal("0.1"), Decimal("2.500"), Decimal("3")]),
    "decimal and float": ([Decimal("0.1"), Decimal("2.5"), Decimal("3")], [0.1, 2.5, 3.0]),
    "text": (["", "ü'\"%", "a / b"], ["", "ü'\"%", "a / b"]),
    "categories": (pd.Categorical(["u", "v", "w"]), ["u", "v", "w"]),
    "dates": (DAYS, DAYS),
    "dates and times": (DAYS, TIMES),
    "nanoseconds": (pa.array(TIMES, pa.timestamp("ns")), pa.array(TIMES, pa.timestamp("s"))),
    "time zones": (BERLIN, BERLIN.tz_convert("America/Lima")),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_any_type(duck: Any, kind: str) -> None:
    mine, theirs = KEYS[kind]
    place = np.array([0, 1, 1, 2, 2, 2])
    events = pa.table({"bag": pa.array(mine).take(pa.array(place)), "x": place})
    found = join(events, pa.table({"bag": pa.array(theirs), "proportion": [0.0, 0.5, 1.0]}), connection=duck)
    if "float" in kind or "decimal" in kind:
        assert found.events.schema["bag"] == found.bags.schema["bag"]
    rows = found.rows().fetch().to_pydict()
    assert sorted(zip(rows["x"], rows["bag_size"], rows["bag_proportion"], strict=True)) == sorted(
        zip(place, place + 1, place / 2, strict=True)
    )


def test_truth_values_as_keys(duck: Any) -> None:
    found = join({"bag": [True, False, True], "x": [1, 2, 3]}, {"bag": [False, True], "count": [0, 2]}, connection=duck)
    assert found.summary.bags == 2


def test_times_with_and_without_a_zone_are_not_compared(duck: Any) -> None:
    events = pa.table({"bag": pa.array(TIMES, pa.timestamp("us")), "x": [1, 2, 3]})
    with pytest.raises(ValueError, match="'bag' is dates in the events and times of a time zone in the reports"):
        join(events, pa.table({"bag": pa.array(BERLIN), "count": [0, 1, 1]}), connection=duck)


def test_keys_with_equal_texts_are_different_bags(duck: Any) -> None:
    events = {"k": ["a / b", "a", "a"], "l": ["c", "b / c", "b / c"], "x": [1, 2, 3]}
    found = join(events, {"k": ["a / b", "a"], "l": ["c", "b / c"], "count": [1, 0]}, connection=duck)
    bags = found.bags.fetch().to_pylist()
    assert {(line["k"], line["bag_size"], line["bag_proportion"]) for line in bags} == {
        ("a / b", 1, 1.0),
        ("a", 2, 0.0),
    }
    assert sorted(line["bag_number"] for line in bags) == [0, 1]


def test_numbers_of_bags_do_not_depend_on_the_order_of_rows(duck: Any) -> None:
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(200), 3)
    events = pd.DataFrame({"bag": bag, "bag 2": [f"{b % 7} / {b % 3}" for b in bag], "x": 1.0})
    reports = events.drop(columns="x").drop_duplicates().assign(count=1)
    numbers = []
    for connection in (duck, connect(threads=2)):
        found = join(events, reports, connection=connection)
        lines = found.bags.fetch().to_pandas().sort_values("bag")
        numbers.append(lines["bag_number"].to_numpy())
        events, reports = (table.sample(frac=1, random_state=int(rng.integers(9))) for table in (events, reports))
    assert (numbers[0] == numbers[1]).all()
    assert sorted(numbers[0]) == list(range(200))
    assert abs(np.corrcoef(np.arange(200), numbers[0])[0, 1]) < 5 / np.sqrt(200)


# -- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "variances"),
    [
        ({"epsilon": 0.5}, [8.0, 8.0, 8.0]),
        ({"noise_scale": 3}, [18.0, 18.0, 18.0]),
        ({"noise_scale": 0.0}, [None, None, None]),
        ({"epsilon": "e"}, [2.0, None, 0.5]),
        ({"noise_variance": 7}, [7.0, 7.0, 7.0]),
        ({"noise_variance": 0}, [None, None, None]),
        ({"noise_variance": "e"}, [1.0, None, 2.0]),
    ],
)
def test_noise_as_number_or_column(duck: Any, given: dict[str, Any], variances: list[float | None]) -> None:
    reports = {**REPORTS, "e": [1.0, None, 2.0]}
    if variances != [None] * 3:
        reports["count"] = [-4, 2, 99]  # noise takes counts anywhere
    found = join(EVENTS, reports, connection=duck, **given)
    lines = sorted(found.bags.fetch().to_pylist(), key=lambda line: line["bag"])
    assert [line["bag_noise_variance"] for line in lines] == variances
    assert found.summary.noised == (variances != [None] * 3)
    assert ("noise" in str(found.summary)) == found.summary.noised


def test_the_exact_variance_is_taken_before_what_it_was_made_from(duck: Any) -> None:
    """Noise for classes has another scale than 1/ε, and discrete noise another variance than 2b²."""
    noised = wrong(count=[-4, 2, 99], noise_variance=[3.5] * 3, noise_scale=[9.0] * 3, epsilon=[1.0] * 3)
    found = join(EVENTS, noised, connection=duck)
    assert found.bags.fetch()["bag_noise_variance"].to_pylist() == [3.5] * 3
    told = join(EVENTS, noised, noise_scale="noise_scale", connection=duck)  # unless another one is asked for
    assert told.bags.fetch()["bag_noise_variance"].to_pylist() == [162.0] * 3


def test_the_record_of_a_release_holds_no_keys(duck: Any) -> None:
    events = {**EVENTS, "delta": [0.5] * 6, "mechanism": ["m"] * 6}
    record = {"epsilon": [1.0] * 3, "delta": [1e-6] * 3, "mechanism": ["discrete Gaussian"] * 3}
    found = join(events, wrong(noise_variance=[3.5] * 3, **record), connection=duck)
    assert (found.keys, found.features) == (("bag",), ("x", "delta", "mechanism"))
    plain = join(events, wrong(delta=[0.5] * 3), connection=duck)  # elsewhere it is a name like any other
    assert plain.keys == ("bag", "delta")


def test_noise_on_one_bag_excuses_no_other(duck: Any) -> None:
    with pytest.raises(ValueError, match=r"count below 0 or above the number of rows.*bag 3"):
        join(EVENTS, wrong(count=[9, 2, 9], epsilon=[1.0, None, None]), connection=duck)


# -- one table --------------------------------------------------------------------------------------------------------


def test_row_aligned_proportions(duck: Any) -> None:
    events = {"bag": [1, 1, 2, None, 3], "x": [1, 2, 3, 4, 5], "size": [5, 6, 7, 8, 9], "count": [1, 2, 3, 4, 5]}
    found = join({**events, "proportion": [0.5, 0.5 + 1e-13, 0.25, 7.0, 1.0]}, keys="bag", connection=duck)
    assert found.features == ("x", "size", "count")  # what bags would report under these names is not guessed
    assert (found.summary.rows, found.summary.reports, found.summary.bags, found.summary.used_rows) == (5, 3, 3, 4)
    assert str(found.summary).endswith("Left out: 1 row of the events without a key.")
    proportions = {line["bag"]: line["bag_proportion"] for line in found.bags.fetch().to_pylist()}
    assert proportions == pytest.approx({1: 0.5, 2: 0.25, 3: 1.0})


ALIGNED = {
    "two": ({"proportion": [0.5, 0.6, 1.0, 0.0]}, {}, Mismatch("differing", 1, 2, "1")),
    "null": ({"proportion": [0.5, None, 1.0, 0.0]}, {}, Mismatch("differing", 1, 2, "1")),
    "NaN": (pa.table({"proportion": [0.5, float("nan"), 1.0, 0.0]}), {}, Mismatch("differing", 1, 2, "1")),
    "none": ({"proportion": [None, None, 1.0, 0.0]}, {}, Mismatch("no_value", 1, 2, "1")),
    "outside": ({"proportion": [0.5, 0.5, 1.1, 0.0]}, {}, Mismatch("outside", 1, 1, "2")),
    "size": ({"n": [2, 3, 1, 1]}, {"size": "n"}, Mismatch("differing", 1, 2, "1")),
    "noise": ({"n": [2, 3, 1, 1]}, {"epsilon": "n"}, Mismatch("differing", 1, 2, "1")),
    "s²": ({"n": [2, 3, 1, 1]}, {"noise_variance": "n"}, Mismatch("differing", 1, 2, "1")),
    "marker": ({"s": [True, False, False, False]}, {"suppressed": "s"}, Mismatch("differing", 1, 2, "1")),
    "classes": ({"b": [0.5, 0.5, 0, 0.5]}, {"proportion": ["proportion", "b"]}, Mismatch("no_sum", 1, 1, "3")),
}


@pytest.mark.filterwarnings("default:.* which biases")
@pytest.mark.parametrize("case", ALIGNED)
def test_row_aligned_table_that_is_wrong(duck: Any, case: str) -> None:
    columns, options, mismatch = ALIGNED[case]
    columns = columns if isinstance(columns, dict) else {name: columns[name] for name in columns.column_names}
    events = {"bag": [1, 1, 2, 3], "x": [1, 2, 3, 4], "proportion": [0.5, 0.5, 1, 0], **columns}
    if case == "two":
        with pytest.raises(ValueError, match=f"^{re.escape(str(mismatch))}: "):
            join(events, keys="bag", connection=duck, **options)
    dropped = join(events, keys="bag", connection=duck, on_mismatch="drop", **options)
    assert dropped.summary.bags == 2
    assert dropped.summary.mismatches == (mismatch,)


# -- what comes out ---------------------------------------------------------------------------------------------------


def test_one_class_only_is_refused_where_models_are_fitted(duck: Any) -> None:
    for count, label in (([0, 0, 0], "0"), ([2, 3, 1], "1")):
        found = join(EVENTS, {"bag": [1, 2, 3], "count": count}, connection=duck)
        with pytest.raises(ValueError, match=f"every row has label {label}: a classifier needs 2 classes"):
            found.check_two_classes()
    join(EVENTS, {"bag": [1, 2, 3], "count": [0, 0, 0]}, epsilon=1, connection=duck).check_two_classes()
    classes = {"bag": [1, 2, 3], "no": [0, 0, 0], "yes": [2, 3, 1]}
    with pytest.raises(ValueError, match="every row has label yes"):
        join(EVENTS, classes, count=["no", "yes"], connection=duck).check_two_classes()
    join(EVENTS, REPORTS, connection=duck).check_two_classes()


def test_second_trials_are_told_as_first_ones_are():
    """Bags whose rates differ: a candidate that was fitted for effects is tried again for rates."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"bag": np.arange(1600) // 40})
    y = pd.Series(rng.random(1600) < rng.uniform(0, 1, 40)[frame["bag"]])
    frame = frame.assign(x=rng.normal(size=1600) + 3 * y, z=rng.normal(size=1600))
    count = y.groupby(frame["bag"]).sum()
    data = join(frame, pd.DataFrame({"bag": count.index, "count": count.to_numpy()}))
    own = {"one": BagRidgeClassifier(formation="rates", alphas=1.0), "two": BagRidgeClassifier(alphas=1.0, cv=2)}
    told: list[tuple[int, int | None, str]] = []
    chosen = BagAutoClassifier(candidates=own, cv=2, random_state=0)
    fit(data, chosen, progress=lambda *line: told.append(line))
    assert told[2:] == [
        (1, 2, "trying two (one: tried)"),
        (2, 3, "trying two again, for bags formed by rates (two: tried)"),
        (3, 3, "fitting to all bags (two: tried)"),
    ]


@pytest.mark.parametrize(
    "kind", ["boosting", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("auto", "network"))]
)
def test_long_fits_tell_how_far_they_are(kind):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"bag": np.arange(800) // 8, "x": rng.normal(size=800), "z": rng.normal(size=800)})
    count = (frame["x"] > 0).groupby(frame["bag"]).sum()
    data = join(frame, pd.DataFrame({"bag": count.index, "count": count.to_numpy()}))
    told: list[tuple[int, int | None, str]] = []
    chosen: Any = {
        "auto": lambda: BagAutoClassifier(candidates={"one": BagRidgeClassifier(), "two": BagRidgeClassifier(cv=3)}),
        "boosting": lambda: BagBoostingClassifier(n_estimators=5, random_state=0),
        "network": lambda: bw.BagNeuralClassifier(learning_rate=0.03, max_epochs=5, cv=2, random_state=0),
    }[kind]()
    model = fit(data, chosen, random_state=0, progress=lambda *line: told.append(line))
    assert model.estimator.callback is None
    steps = [(done, total, text) for done, total, text in told if total is not None]
    assert steps
    assert all(1 <= done <= total for done, total, _ in steps)
    assert all(str(done) in text or kind == "auto" for done, _, text in steps)
    if kind == "boosting":  # a fit of each kind and fold
        assert [done for done, total, _ in steps] == [*range(1, 11)]
    if kind == "network":
        assert steps[-1][:2] == (model.estimator.n_epochs_, model.estimator.n_epochs_)
