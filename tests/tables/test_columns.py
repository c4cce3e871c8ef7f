"""Roles of columns, and the matrices that models read: against pandas, whatever the types, batches and engines."""

from __future__ import annotations

import datetime
import hashlib
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bagwise.tables import connect, read
from bagwise.tables.columns import Column, Features, Role

DAY, MOMENT = datetime.date(1969, 12, 31), datetime.datetime(1969, 12, 31, 23, 30, 0, 500_000)
COLUMNS: dict[str, Any] = {
    "whole": pa.array([3, None]),
    "unsigned": pa.array([2**64 - 1, 0], pa.uint64()),
    "float": pa.array([1.5, float("nan")]),
    "half": pa.array(np.array([1.5, 2.0], np.float16)),
    "decimal": pa.array([Decimal("1.50"), None]),
    "truth": pa.array([True, None]),
    "text": pa.array(["b", None]),
    "dictionary": pa.array(["b", "a"]).dictionary_encode(),
    "date": pa.array([DAY, None]),
    "time": pa.array([MOMENT, None]),
    "zone": pa.array([MOMENT, None], pa.timestamp("us", "Asia/Tokyo")),
    "list": pa.array([[1], [2]]),
    "struct": pa.array([{"a": 1}] * 2),
    "bytes": pa.array([b"a", b"b"]),
    "clock": pa.array([datetime.time(1, 2)] * 2),
    "duration": pa.array([1, 2], pa.duration("s")),
}
INFERRED = {
    "number": ["whole", "unsigned", "float", "half", "decimal", "truth"],
    "category": ["text", "dictionary"],
    "time": ["date", "time", "zone"],
    "ignored": ["list", "struct", "bytes", "clock", "duration"],
}


@pytest.fixture(scope="module")
def duck() -> Any:
    return connect(threads=1)


def learned(columns: Any, duck: Any, **options: Any) -> tuple[Features, Any]:
    """Features of a table, and the matrix of the same table in the order of its rows."""
    table = read(columns, duck)
    features = Features.of(table, table.columns, **options)
    return features, features.matrix(features.select(table).fetch())


# -- roles ------------------------------------------------------------------------------------------------------------


def test_roles_by_type(duck: Any) -> None:
    features, _ = learned(COLUMNS, duck)
    found: dict[str, list[str]] = {}
    for column in features.columns:
        found.setdefault(column.role, []).append(column.name)
    assert {role: sorted(names) for role, names in found.items()} == {r: sorted(n) for r, n in INFERRED.items()}
    notes = {column.name: column.note for column in features.columns if column.role is Role.ignored}
    assert notes["list"] == "nothing is made of array<int64>"
    assert all(note.startswith("nothing is made of ") for note in notes.values())


FITS = {
    "number": {*INFERRED["number"]},
    "category": {*COLUMNS} - {"list", "struct", "bytes"},
    "hashed": {*COLUMNS} - {"list", "struct", "bytes"},
    "time": {*INFERRED["time"]},
    "ignored": {*COLUMNS},
}


@pytest.mark.parametrize("role", FITS)
def test_roles_can_be_given_where_they_fit(duck: Any, role: str) -> None:
    table = read({"other": [1, 2], **COLUMNS}, duck)
    fitting = Features.of(table, table.columns, roles=dict.fromkeys(FITS[role], role))
    assert {column.name for column in fitting.columns if column.role == role} >= FITS[role]
    assert fitting.matrix(fitting.select(table).fetch()).shape == (2, len(fitting.made))
    for name in {*COLUMNS} - FITS[role]:
        with pytest.raises(ValueError, match=f"column '{name}' holds .* and cannot be (a )?{role}: convert it or ign"):
            Features.of(table, table.columns, roles={name: role})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"roles": {"x": "numeric"}}, "column 'x' cannot be 'numeric': a role is one of number, category, hashed,"),
        ({"roles": {"y": "number"}}, "there is no column 'y' to give a role to: there are x"),
        ({"roles": {"key": "number"}}, "there is no column 'key' to give a role to: there are x"),
        ({"roles": {"x": "ignored"}}, r"there is no column to learn from \(x: ignored\)"),
        ({"max_levels": 0}, "max_levels must be a whole number of at least 1, got 0"),
        ({"max_levels": 2.5}, "max_levels must be a whole number of at least 1, got 2.5"),
    ],
)
def test_wrong_roles_get_one_sentence(duck: Any, options: dict[str, Any], sentence: str) -> None:
    table = read({"x": [1, 2], "key": [1, 2]}, duck)
    with pytest.raises(ValueError, match=sentence):
        Features.of(table, ["x"], **options)


def test_nothing_to_learn_from_says_why(duck: Any) -> None:
    table = read({"x": [[1], [2]], "y": pa.nulls(2, pa.string())}, duck)
    with pytest.raises(ValueError, match=r"\(x: nothing is made of array<int64>; y: it is empty\)"):
        Features.of(table, table.columns)


@pytest.mark.parametrize("limit", [1, 64, 300])
@pytest.mark.parametrize("beyond", [-1, 0, 1, 2])
def test_the_number_of_levels_is_exact_at_the_limit(duck: Any, limit: int, beyond: int) -> None:
    levels = [f"level {number}" for number in range(limit + beyond)] or [None]
    features, _ = learned(
        {"x": pa.array([*levels, *levels, None], pa.string()), "y": 1.0 * np.ones(2 * len(levels) + 1)},
        duck,
        max_levels=limit,
    )
    expected = "hashed" if beyond > 0 else "category" if limit + beyond else "ignored"
    assert features.columns[0].role == expected
    if expected == "category":
        assert features.columns[0].levels == tuple(sorted(levels))


def test_given_categories_have_no_limit(duck: Any) -> None:
    features, _ = learned(
        {"x": [f"level {number}" for number in range(99)]}, duck, max_levels=5, roles={"x": "category"}
    )
    assert len(features.columns[0].levels) == 99


# -- matrices ---------------------------------------------------------------------------------------------------------


def md5_code(text: str) -> int:
    return int(hashlib.md5(text.encode()).hexdigest()[:2], 16)


def random_frame(rng: np.random.Generator, n: int = 500) -> pd.DataFrame:
    def holes(values: Any, kind: str) -> Any:
        return pd.Series(values, dtype=kind).where(rng.random(n) > 0.1)

    seconds = rng.integers(-3_000_000_000, 3_000_000_000, n)
    return pd.DataFrame(
        {
            "number": holes(rng.normal(size=n), "Float64"),
            "whole": holes(rng.integers(-9, 9, n), "Int32"),
            "truth": holes(rng.random(n) < 0.5, "boolean"),
            "constant": 7.25,
            "few": holes(rng.choice(["b", "a", "ü", "", "'\"%"], n), "str"),
            "many": holes([f"user {u}" for u in rng.integers(0, 400, n)], "str"),
            "moment": holes(pd.to_datetime(seconds * 1000 + 250, unit="ms"), "datetime64[ms]"),
            "zoned": pd.to_datetime(seconds, unit="s", utc=True).tz_convert("America/Lima"),
            "day": holes(pd.to_datetime(seconds // 86_400, unit="D"), "datetime64[s]").dt.date,
        }
    )


def plain_matrix(frame: pd.DataFrame) -> pd.DataFrame:
    """What `Features.matrix` makes of the frame, by pandas."""
    made: dict[str, Any] = {}
    for name in ("number", "whole", "truth", "constant"):
        made[name] = frame[name].astype("Float64")
    levels = sorted(frame["few"].dropna().unique())
    made["few"] = frame["few"].map({level: code for code, level in enumerate(levels)})
    made["many"] = frame["many"].map(md5_code, na_action="ignore")
    for name in ("moment", "zoned", "day"):
        moment = pd.to_datetime(frame[name], utc=True)
        if name != "day":
            made[f"{name}: hour"] = moment.dt.hour
        made[f"{name}: weekday"] = moment.dt.day_of_week
        made[f"{name}: days"] = (moment - moment.min()) / pd.Timedelta(days=1)
    return pd.DataFrame(
        {name: np.asarray(pd.array(column, "Float64").to_numpy(float, np.nan)) for name, column in made.items()}
    )


def test_matrix_is_the_plain_matrix(duck: Any, seed: int) -> None:
    frame = random_frame(np.random.default_rng(seed))
    assert frame.isna().any().sum() == 7
    features, matrix = learned(frame, duck)
    expected = plain_matrix(frame)
    assert [made.name for made in features.made] == list(expected.columns)
    np.testing.assert_allclose(matrix, expected.to_numpy(), rtol=0, atol=1e-9)
    assert features.categorical == [
        i for i, name in enumerate(expected) if "hour" in name or "weekday" in name or name in ("few", "many")
    ]


def test_matrix_does_not_depend_on_batches(duck: Any) -> None:
    frame = random_frame(np.random.default_rng(0)).assign(row=np.arange(500.0))
    table = read(frame, duck)
    features = Features.of(table, table.columns)
    whole = features.select(table).sort(features.names[-1]).fetch()
    matrix = features.matrix(whole)
    assert matrix.shape == (500, len(features.made))
    cut = pa.concat_tables([whole.slice(0, 1), whole.slice(1, 0), whole.slice(1, 200), whole.slice(201)])
    np.testing.assert_array_equal(features.matrix(cut), matrix)
    pieces = [features.matrix(batch) for batch in whole.to_batches(max_chunksize=7)]
    np.testing.assert_array_equal(np.concatenate(pieces), matrix)
    streamed = np.concatenate([features.matrix(batch) for batch in features.select(table).batches(64)])
    np.testing.assert_array_equal(streamed[np.argsort(streamed[:, -1])], matrix)
    assert features.matrix(whole.slice(0, 0)).shape == (0, matrix.shape[1])


def test_what_was_not_seen_in_training_is_missing(duck: Any) -> None:
    features, _ = learned({"c": ["a", "b", None], "x": [1, 2, 3]}, duck)
    new = read({"x": [4.5, None], "more": [1, 2], "c": ["radio", "b"]}, duck)
    # Of gaps in x training knew nothing: they count as its mean.
    np.testing.assert_array_equal(features.matrix(features.select(new).fetch()), [[np.nan, 4.5], [1, 2]])
    assert features.select(new, "more").fetch().column_names == ["more", *features.names]


def test_trends_are_held_at_the_ends_of_what_was_seen(duck: Any) -> None:
    days = pd.to_datetime(["2026-01-05", "2026-01-11 12:00", None, "2026-01-19"], format="ISO8601")
    features, matrix = learned({"t": days, "x": [1, 2, 3, 4]}, duck)
    place = [made.name for made in features.made].index("t: days")
    np.testing.assert_array_equal(matrix[:, place], [0, 6.5, np.nan, 14])
    new = read({"t": pd.to_datetime(["2020-01-01", "2026-01-12", None, "2026-02-16"]), "x": [1, 2, 3, 4]}, duck)
    found = features.matrix(features.select(new).fetch())
    np.testing.assert_array_equal(found[:, place], [0, 7, np.nan, 14])
    assert found[3, place - 1] == matrix[3, place - 1] == 0  # weekdays go on


def test_categories_are_told_by_value_not_by_type(duck: Any) -> None:
    """A column of whole numbers with gaps is one of floats to some libraries, and one of decimals to others."""
    numbers = [1, 2, 10, None]
    for role in ("category", "hashed"):
        features, matrix = learned({"x": pa.array(numbers, pa.int64())}, duck, roles={"x": role})
        for kind in (pa.float64(), pa.float32(), pa.decimal128(9, 3), pa.int8(), pa.string()):
            new = read(
                {
                    "x": pa.array(numbers, pa.int64()).cast(pa.float64()).cast(kind)
                    if kind != pa.string()
                    else pa.array(["1", "2", "10", None])
                },
                duck,
            )
            np.testing.assert_array_equal(features.matrix(features.select(new).fetch()), matrix)
    wild = [0.5, 1e300, -1e300, float("inf"), float("nan"), 2.0**60]
    features, matrix = learned(pl.DataFrame({"x": wild}), duck, roles={"x": "category"})
    assert len(features.columns[0].levels) == 5
    assert np.isnan(matrix[4, 0])


def test_hashed_values_are_md5_in_python(duck: Any) -> None:
    texts = ["", "a", "ü", "日本", "x" * 1000, "'\"%"]
    _, matrix = learned({"x": texts}, duck, roles={"x": "hashed"})
    assert matrix[:, 0].tolist() == [md5_code(text) for text in texts]


def test_empty_and_infinite_columns(duck: Any) -> None:
    columns = {"x": [1, 2], "numbers": pa.nulls(2, pa.float64()), "days": pa.nulls(2, pa.date32()), "none": pa.nulls(2)}
    features, matrix = learned({**columns, "texts": pa.nulls(2, pa.string())}, duck)
    assert features.columns[-1] == Column("texts", Role.ignored, note="it is empty", kind="text")
    assert np.isnan(matrix[:, 1:]).all()
    assert matrix.shape == (2, 5)
    for value in (float("inf"), -float("inf")):
        with pytest.raises(ValueError, match="column 'price' contains infinity: replace such values first"):
            learned({"x": [1, 2], "price": [1.0, value]}, duck)


def test_made_columns_do_not_overwrite_others(duck: Any) -> None:
    columns = {"bagwise_f1": [1, 2], "bagwise_f0": ["b", "a"]}
    features, matrix = learned(columns, duck)
    np.testing.assert_array_equal(matrix, [[1, 1], [2, 0]])
    with pytest.raises(ValueError, match="column 'bagwise_f0' has a name that bagwise uses: rename it"):
        features.select(read(columns, duck), "bagwise_f0")


TRAINED = {"number": [1.0], "text": ["a"], "day": [DAY], "moment": [MOMENT]}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"number": ["1"]}, "column 'number' held numbers in training and text now: convert it first"),
        ({"day": ["x"]}, "column 'day' held dates in training and text now"),
        ({"moment": [DAY]}, "column 'moment' held times of day in training and dates now"),
        ({"text": [["a"]]}, "column 'text' held text in training and array<string> now"),
        ({"text": None}, "column 'text' is missing: the model was trained with it"),
    ],
)
def test_other_columns_than_in_training_get_one_sentence(duck: Any, changed: dict[str, Any], sentence: str) -> None:
    features, _ = learned(TRAINED, duck)
    new = {name: values for name, values in {**TRAINED, **changed}.items() if values is not None}
    with pytest.raises(ValueError, match=sentence):
        features.select(read(new, duck))
    features.check(read({**TRAINED, "number": [True], "day": [MOMENT], "text": [3]}, duck))


def test_text_that_is_different_in_every_row_is_left_out():
    """Hashed, it would be noise in 256 levels; so where nearly every row has a value of its own. Roles overrule it."""
    n = 1000
    ids = [f"id-{number * 7919 % 10_007}" for number in range(n)]
    often = [f"id-{number * 7919 % 10_007}" for number in np.arange(n) * 85 // 100]  # 850 values
    frame = pd.DataFrame({"x": range(n), "id": ids, "near": ["same", *ids[1:-1], "same"], "few": ["a"] * n})
    frame = frame.assign(often=often, hashed=ids, category=ids, half=np.where(np.arange(n) % 2, ids, None))
    frame.loc[5, "id"] = None
    duck = connect()
    features = Features.of(read(frame, duck), frame.columns, roles={"hashed": "hashed", "category": "category"})
    roles = {column.name: (column.role.value, column.note) for column in features.columns}
    keeps = "a value of its own; the role hashed or category keeps it"
    assert roles["id"] == roles["half"] == ("ignored", f"taken for an id, since every row has {keeps}")
    assert roles["near"] == ("ignored", f"taken for an id, since nearly every row has {keeps}")
    assert roles["often"] == roles["hashed"] == ("hashed", "")
    assert roles["few"] == roles["category"] == ("category", "")
    small = read(frame[:50], duck)  # few values are levels, whatever they are
    assert Features.of(small, ["id"]).columns[0].role == "category"
