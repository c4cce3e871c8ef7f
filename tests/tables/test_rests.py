"""Lines of reports about all other rows: against a plain loop, and with a truth that they make known."""

import datetime
import itertools

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bagwise import tables
from bagwise.cli import app

EVENTS = {
    "campaign": ["A", "A", "A", "A", "B", "B", "C", "C", None],
    "day": [1, 1, 2, 3, 1, 2, 1, 2, 1],
    "x": list(range(9)),
}
DUCK = tables.connect(threads=1)
DAYS = {**EVENTS, "day": [f"d{day}" for day in EVENTS["day"]]}


def join(*given, **options):
    return tables.join(*given, **options, connection=DUCK)


def bags_of(data):
    """The rows of each bag, by its key."""
    rows = data.rows().fetch().to_pylist()
    ordered = sorted(rows, key=lambda row: (row["bag_number"], row["x"]))
    of = itertools.groupby(ordered, key=lambda row: tuple(row[key] for key in data.keys))
    return {key: [row["x"] for row in group] for key, group in of}


@pytest.mark.parametrize("text", [True, False])
def test_the_line_that_leaves_fewest_keys_open_has_a_row(text):
    """Exact lines first, then the campaign's rest, then all others, a row without a campaign among them."""
    day = ["d1", "*", "d1", "*"] if text else [1, None, 1, None]
    lines = {"campaign": ["A", "A", "B", "*" if text else None], "day": day, "count": [1, 1, 0, 2]}
    given = {} if text else {"null_keys": "rest"}
    data = join(DAYS if text else EVENTS, lines, **given)
    one = "d1" if text else "1"
    assert bags_of(data) == {("A", one): [0, 1], ("A", "*"): [2, 3], ("B", one): [4], ("*", "*"): [5, 6, 7, 8]}
    assert (data.summary.rests, data.summary.rest_rows) == (2, 6)
    assert "6 rows in 2 bags of all others (*)" in str(data.summary)
    assert data.summary.mismatches == ()


def placed_by_hand(row, lines):
    """The plain loop: of the lines that fit a row, the one with the fewest stars."""
    fit = [line for line in lines if all(there in ("*", own) for own, there in zip(row, line, strict=True))]
    return min(fit, key=lambda line: line.count("*"), default=None)


def test_three_keys_against_a_plain_loop():
    rng = np.random.default_rng(0)
    rows = [tuple(rng.choice(["a", "b", "c"], 3)) for _ in range(400)]
    lines = [("a", "b", "c"), ("a", "a", "a"), ("a", "b", "*"), ("b", "c", "*"), ("a", "*", "*"), ("b", "*", "*")]
    lines += [("c", "c", "c"), ("*", "*", "*")]
    columns = dict(zip(("first", "second", "third"), zip(*rows, strict=True), strict=True))
    told = dict(zip(columns, zip(*lines, strict=True), strict=True))
    data = join({**columns, "x": range(400)}, {**told, "count": [1] * len(lines)})
    expected = {line: [] for line in lines}
    for number, row in enumerate(rows):
        expected[placed_by_hand(row, lines)].append(number)
    assert bags_of(data) == expected


def test_dates_and_numbers_with_a_point():
    days = [datetime.date(2026, 1, day) for day in (1, 1, 2, 3)]
    lines = {"day": pd.array([days[0], None], dtype="object"), "rate": [0.5, None], "count": [1, 1]}
    data = join({"day": days, "rate": [0.5] * 4, "x": range(4)}, lines, null_keys="rest")
    assert sorted(bags_of(data).values()) == [[0, 1], [2, 3]]


def test_without_the_option_a_missing_key_is_none_and_the_way_is_told():
    lines = {"campaign": ["A", "B", None], "count": [1, 0, 2]}
    with pytest.raises(ValueError, match=r"without a key|with rows but no report") as raised:
        join({**EVENTS, "campaign": list("AAAABBCCC")}, lines, keys="campaign")
    assert "null_keys='rest'" in str(raised.value)
    dropped = join(EVENTS, lines, keys="campaign", on_mismatch="drop", null_keys="none").summary
    assert {one.kind for one in dropped.mismatches} == {"unreported", "keyless_reports", "keyless_events"}
    assert dropped.rests == 0


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ({"campaign": ["A", "*", "B"], "day": ["*", "d1", "*"], "count": [1, 1, 1]}, "3 rows of the events would be"),
        ({"campaign": ["A", "*", "*"], "day": ["d1", "*", "*"], "count": [1, 1, 1]}, "more than one report"),
        ({"campaign": ["A", "A"], "day": ["d1", "*"], "count": [1, 1]}, "with rows but no report"),
    ],
)
def test_bad_rests_get_one_sentence(lines, words):
    with pytest.raises(ValueError, match=words) as raised:
        join(DAYS, lines)
    assert "\n" not in str(raised.value)


def test_rests_that_would_share_rows_may_be_settled_by_an_exact_line():
    lines = {"campaign": ["A", "*", "B", "A"], "day": ["*", "d1", "d2", "d1"], "count": [1, 1, 1, 1]}
    data = join(DAYS, lines, on_mismatch="drop")
    assert bags_of(data)["A", "d1"] == [0, 1]
    assert bags_of(data)["*", "d1"] == [4, 6, 8]


@pytest.fixture(scope="module")
def thresholded():
    """Groups of two keys, of which small ones are reported together, by campaign or all in one."""
    rng = np.random.default_rng(3)
    rows = pd.DataFrame({"campaign": rng.choice(list("ABCDEFGH"), 6000), "city": rng.zipf(1.5, 6000) % 40})
    rows["city"] = "c" + rows["city"].astype(str)
    rows["x"] = rng.normal(size=6000) + 0.5 * (rows["city"] == "c1")
    y = rng.random(6000) < 1 / (1 + np.exp(1 - 1.5 * rows["x"]))
    groups = rows.assign(y=y).groupby(["campaign", "city"], as_index=False)["y"].agg(size="size", count="sum")
    shown = groups[groups["size"] >= 25]
    small = groups[groups["size"] < 25]
    rest = small.groupby("campaign", as_index=False)[["size", "count"]].sum().assign(city="*")
    return rows, y.to_numpy(), pd.concat([shown, rest]), shown


def test_rests_make_all_rows_count(thresholded, tmp_path):
    """The mean label is that of all rows, sizes are as reported, and scores add up to every line, rests too."""
    rows, y, lines, shown = thresholded
    data = join(rows, lines)
    assert data.summary.used_rows == len(rows)
    assert data.summary.prior[0] == pytest.approx(y.mean())
    assert data.summary.rest_rows == len(rows) - shown["size"].sum()
    train, held_out = tables.split(data, 0.3)
    assert train.summary.rest_rows + held_out.summary.rest_rows == data.summary.rest_rows
    model = tables.fit(data, "ridge", random_state=0)
    out = tmp_path / "scored.parquet"
    scored = tables.write_scores(model, rows, out, reports=lines)
    assert scored.reported_rows == len(rows)
    found = pd.read_parquet(out)
    pd.testing.assert_frame_equal(found[list(rows)], rows)  # keys as they were, in the order they had
    known = {(one.campaign, one.city) for one in shown.itertuples()}
    inside = [pair in known for pair in zip(rows["campaign"], rows["city"], strict=True)]
    total = found[~np.array(inside)].groupby("campaign")["prediction"].sum()
    expected = lines[lines["city"] == "*"].set_index("campaign")["count"]
    assert total.to_numpy() == pytest.approx(expected[total.index].to_numpy(), abs=0.05)


def test_the_option_on_the_command_line_is_kept_with_the_model(thresholded, tmp_path):
    rows, _, lines, _ = thresholded
    rows, lines = (one.assign(city=one["city"].str[1:].replace("", None).astype("Int64")) for one in (rows, lines))
    rows.to_parquet(tmp_path / "events.parquet")
    lines.to_parquet(tmp_path / "reports.parquet")
    both, place = [str(tmp_path / f"{one}.parquet") for one in ("events", "reports")], str(tmp_path / "model")

    def call(*arguments):
        return CliRunner().invoke(app, [*arguments])

    refused = call("fit", *both, "--model", "ridge", "--out", place)
    assert refused.exit_code == 1
    assert "--null-keys='rest'" in refused.stderr
    fitted = call("fit", *both, "--model", "ridge", "--null-keys", "rest", "--hold-out", "0", "--out", place)
    assert fitted.exit_code == 0, fitted.output
    assert "in 8 bags of all others (*)" in fitted.stdout
    assert "--null_keys" not in fitted.stdout
    assert "--null-keys rest" in fitted.stdout
    later = call("predict", place, both[0], "--reports", both[1], "--out", str(tmp_path / "scores.csv"))
    assert later.exit_code == 0, later.output
    assert "6,000 of them in" in later.stdout
