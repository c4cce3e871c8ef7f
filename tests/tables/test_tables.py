"""Joins of random tables, in which everything that can be wrong is wrong somewhere, against plain Python."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bagwise as bw
from bagwise.tables import connect, join
from bagwise.tables.bag_table import MISMATCHES
from bagwise.tables.sources import read


@pytest.fixture(scope="module")
def duck() -> Any:
    return connect(threads=1)


WORDS = {"bool": (True, False, None), "number": (1, 0, None), "text": ("Yes", "no", ""), "none": (None, None, None)}


def random_tables(rng: np.random.Generator, *, classes: int, counts: bool, marker: str) -> tuple[Any, Any]:
    """Events and reports in which everything that can be wrong is wrong somewhere."""
    texts = ["a", "b", "a / b", "b / c", "c", "", "ü'\"%"]
    all_keys = [(int(number), text) for number in range(-2, 7) for text in texts]
    rng.shuffle(all_keys)
    events, reports = [], []
    for number, key in enumerate(all_keys):
        size = int(rng.integers(1, 6))
        kind = (
            "fine"
            if number > 45
            else ["fine", "no rows", "no report", "twice", "wrong size", "wild", "empty"][number % 7]
        )
        events += [] if kind == "no rows" else [(*key, rng.normal()) for _ in range(size)]
        if kind == "no report":
            continue
        count = rng.multinomial(size, np.full(classes + 1, 1 / (classes + 1)))[:classes].astype(float)
        if classes > 1:
            count = rng.multinomial(size, np.full(classes, 1 / classes)).astype(float)
        scale = rng.choice([None, None, 0.0, 0.5, 3.0, -1.0]) if number % 3 == 0 else None
        if kind == "wild":
            count[rng.integers(classes)] += rng.choice([-7, 7])
        value = count if counts else count / size
        line = {"number": key[0], "text": key[1], **{f"value {i}": v for i, v in enumerate(value)}}
        if kind == "empty":
            line["value 0"] = rng.choice([None, float("nan"), float("inf")])
        line["size"] = None if rng.random() < 0.2 else size + (kind == "wrong size")
        line["scale"] = scale
        line["hidden"] = WORDS[marker][0 if rng.random() < 0.1 else rng.integers(1, 3)]
        reports += [line] * (2 if kind == "twice" else 1)
    events += [(None, "a", 0.0), (3, None, 0.0), (None, None, 0.0)]
    reports += [{**reports[0], "text": None}] * int(rng.integers(0, 3))
    frame = pd.DataFrame(events, columns=["number", "text", "x"]).astype({"number": "Int64"})
    lines = pd.DataFrame(reports).astype({"number": "Int64", "scale": float, "size": float})
    lines = lines.astype({f"value {i}": float for i in range(classes)})
    if marker in ("bool", "number"):
        lines = lines.astype({"hidden": "boolean" if marker == "bool" else "Int64"})
    return frame.sample(frac=1, random_state=int(rng.integers(99))), lines.sample(frac=1, random_state=1)


def plain_join(events: Any, reports: Any, *, classes: int, counts: bool) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Used bags (size, proportions, noise), and the figures of the summary."""
    sizes: dict[Any, int] = defaultdict(int)
    lines: dict[Any, list[Any]] = defaultdict(list)
    mismatches: dict[str, list[int]] = {name: [] for name in MISMATCHES}
    keyless = {"events": 0, "reports": 0}
    for line in events.itertuples():
        key = (line.number, line.text)
        sizes[key] += 1 if not any(map(pd.isna, key)) else 0
        keyless["events"] += any(map(pd.isna, key))
    for line in reports.to_dict("records"):
        key = (line["number"], line["text"])
        if any(map(pd.isna, key)):
            keyless["reports"] += 1
        else:
            lines[key].append(line)
    sizes = {key: size for key, size in sizes.items() if size}
    used = {}
    for key in {*sizes, *lines}:
        size = sizes.get(key, 0)
        if key not in lines:
            mismatches["unreported"].append(size)
            continue
        line = lines[key][0]
        hidden = line["hidden"]
        if len(lines[key]) > 1:
            mismatches["repeated"].append(size)
        elif not pd.isna(hidden) and hidden in (True, 1, "Yes"):
            mismatches["withheld"].append(size)
        elif not size:
            mismatches["eventless"].append(0)
        else:
            value = np.array([line[f"value {i}"] for i in range(classes)]) / (size if counts else 1)
            scale = line["scale"]
            noised = not pd.isna(scale) and scale != 0
            wrong = {
                "no_value": not np.isfinite(value).all(),
                "impossible" if counts else "outside": np.isfinite(value).all()
                and not noised
                and ((value < -1e-6) | (value > 1 + 1e-6)).any(),
                "no_sum": np.isfinite(value).all() and not noised and classes > 1 and abs(value.sum() - 1) > 1e-6,
                "other_size": not pd.isna(line["size"]) and line["size"] != size,
                "wrong_noise": noised and scale < 0,
            }
            for name, so in wrong.items():
                if so:
                    mismatches[name].append(size)
            if not any(wrong.values()):
                used[key] = (size, value, 2 * scale**2 if noised else None)
    rows = np.array([size for size, _, _ in used.values()])
    figures = {
        "rows": len(events),
        "reports": len(reports),
        "bags": len(used),
        "used_rows": rows.sum(),
        "smallest": rows.min(),
        "largest": rows.max(),
        "prior": tuple(np.average([value for _, value, _ in used.values()], axis=0, weights=rows)),
        "noised": any(noise is not None for _, _, noise in used.values()),
        "mismatches": {name: (len(found), sum(found)) for name, found in mismatches.items() if found},
        "keyless": keyless,
    }
    return used, figures


@pytest.mark.filterwarnings("default:.* which biases")
@pytest.mark.parametrize(
    ("marker", "classes", "counts"),
    [
        pytest.param(marker, classes, counts, marks=[] if (place + classes // 2 + counts) % 2 else pytest.mark.slow)
        for place, marker in enumerate(WORDS)  # each of them with one and several classes, by default, and all in all
        for classes in (1, 3)
        for counts in (True, False)
    ],
)
def test_join_is_the_plain_join(duck: Any, classes: int, counts: bool, marker: str, seed: int) -> None:
    rng = np.random.default_rng([seed, classes, counts, list(WORDS).index(marker)])
    events, reports = random_tables(rng, classes=classes, counts=counts, marker=marker)
    names = [f"value {i}" for i in range(classes)]
    value = {"count" if counts else "proportion": names if classes > 1 else names[0]}
    options = {**value, "size": "size", "noise_scale": "scale", "suppressed": "hidden", "connection": duck}
    used, figures = plain_join(events, reports, classes=classes, counts=counts)
    assert len(used) > 5
    assert len(figures["mismatches"]) >= 5
    found = join(events, reports, on_mismatch="drop", **options)
    bags = found.bags.fetch().to_pylist()
    assert {(line["number"], line["text"]) for line in bags} == set(used)
    for line in bags:
        size, proportion, noise = used[line["number"], line["text"]]
        assert line["bag_size"] == size
        np.testing.assert_allclose([line[name] for name in found.proportions], proportion, rtol=0, atol=1e-12)
        assert line["bag_noise_variance"] == (None if noise is None else pytest.approx(noise))
    assert sorted(line["bag_number"] for line in bags) == list(range(len(used)))
    summary = found.summary
    for name in ("rows", "reports", "bags", "used_rows", "smallest", "largest", "noised"):
        assert getattr(summary, name) == figures[name], name
    assert summary.prior == pytest.approx(figures["prior"])
    said = {one.kind: (one.bags, one.rows) for one in summary.mismatches}
    keyless = {f"keyless_{name}": (0, rows) for name, rows in figures["keyless"].items() if rows}
    assert said == {**figures["mismatches"], **keyless}
    assert found.rows().fetch().num_rows == figures["used_rows"]
    first = next(one for one in summary.mismatches if not one.expected)
    if marker == "none":  # the same tables with on_mismatch="error": the first kind, and an example
        with pytest.raises(ValueError, match=f"^{re.escape(str(first))} "):
            join(events, reports, **options)


def test_the_index_of_a_pandas_table_is_neither_learned_from_nor_published(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.normal(size=400), "bag": np.arange(400) // 20})
    rows["y"] = (rng.random(400) < 1 / (1 + np.exp(-2 * rows["x"]))).astype(int)
    shuffled = rows.sample(frac=1, random_state=0)  # whose index tells the order of before
    shuffled.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"column '__index_level_0__' is the index of a pandas table"):
        bw.tables.put_in_bags(tmp_path / "rows.parquet", tmp_path / "out", label="y", size=20)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
    shuffled.drop(columns="y").to_parquet(tmp_path / "events.parquet")
    reports = rows.groupby("bag", as_index=False)["y"].sum().rename(columns={"y": "count"})
    model = bw.tables.fit(bw.tables.join(tmp_path / "events.parquet", reports, keys="bag", count="count"), "ridge")
    assert [made.name for made in model.features.made] == ["x"]
    (ignored,) = (column for column in model.features.columns if column.name == "__index_level_0__")
    assert ignored.note == "the index of a pandas table"


def test_bags_cut_inside_campaigns_are_random_in_these(tmp_path):
    rng = np.random.default_rng(0)
    campaign = rng.integers(6, size=9_600)
    frame = pd.DataFrame({"age": rng.normal(40 + 4 * campaign, 10), "campaign": np.array(list("abcdef"))[campaign]})
    frame["y"] = (rng.random(9_600) < 1 / (1 + np.exp(-0.1 * (frame["age"] - 50)))).astype(int)
    held = bw.tables.put_in_bags(frame, tmp_path, label="y", size=64, by=["campaign"], random_state=0)
    found = bw.tables.diagnose(join(str(held.events), str(held.reports)))
    assert found.strata == ("campaign",)
    assert found.verdict.startswith("random inside strata of 'campaign'; all together features")


def test_strata_and_groups_of_tables_are_those_of_arrays(tmp_path):
    """A model of bags cut inside campaigns, measured on others: numbers of rows need the strata."""
    rng = np.random.default_rng(1)
    campaign = rng.integers(6, size=19_200)
    frame = pd.DataFrame({"age": rng.normal(40 + 4 * campaign, 10), "campaign": np.array(list("abcdef"))[campaign]})
    frame["old"] = np.where(frame["age"] > 50, "yes", "no")
    frame["y"] = (rng.random(len(frame)) < 1 / (1 + np.exp(-0.1 * (frame["age"] - 50)))).astype(int)
    tables = []
    for place, part in zip(("train", "test"), (frame[:9_600], frame[9_600:]), strict=True):
        held = bw.tables.put_in_bags(part, tmp_path / place, label="y", size=64, by=["campaign"], random_state=0)
        tables.append(join(str(held.events), str(held.reports)))
    model = bw.tables.fit(tables[0], "ridge", random_state=0)
    with pytest.warns(bw.evaluation.BagsNotRandomWarning):
        assert bw.tables.evaluate(model, tables[1]).withheld
    found = bw.tables.evaluate(model, tables[1], strata=["campaign"], by="old", threshold=0.4)
    assert (found.n_strata, found.formation.name) == (6, "random")
    events = pd.read_parquet(tmp_path / "test" / "events.parquet").astype({"campaign": str})
    reports = pd.read_parquet(tmp_path / "test" / "reports.parquet").astype({"campaign": str})
    key = ["campaign", "bag"]
    rows = events.merge(reports.assign(share=reports["count"] / reports["size"]), on=key)
    duck = connect(ordered=True)
    scores = pd.concat([batch.to_pandas() for batch in model.score(read(rows, duck))])["prediction"]
    ids = pd.factorize(rows["campaign"] + rows["bag"].astype(str))[0]
    asked = {"strata": rows["campaign"], "by": rows["old"], "threshold": 0.4, "formation": "random"}
    plain = bw.evaluate(scores.to_numpy(), None, rows["share"].to_numpy(), bags=ids, **asked)
    assert found.accuracy.value == pytest.approx(plain.accuracy.value, abs=1e-9)
    assert found.accuracy.low == pytest.approx(plain.accuracy.low, abs=1e-9)
    assert {one.value: one.rate.value for one in found.groups} == pytest.approx(
        {one.value: one.rate.value for one in plain.groups}
    )
    with pytest.raises(
        ValueError, match="by names 'new', which is no key or feature of the events: campaign, bag, age"
    ):
        bw.tables.evaluate(model, tables[1], by="new")
    with pytest.raises(ValueError, match="strata has several values in bag"):
        bw.tables.evaluate(model, tables[1], strata="old")
