"""Bags to learn from and bags to hold out: those that are the latest, and none of the rows with labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from bagwise.tables import connect, join, split, with_labels
from bagwise.tables.held_out import last_bags


@pytest.fixture(scope="module")
def duck() -> Any:
    return connect(threads=1)


def in_days(rng: np.random.Generator, kind: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Bags of a campaign and day: a column of times, and what it is called by."""
    day = np.repeat(np.arange(60), 8)
    moment = pd.Timestamp("2026-01-05") + pd.to_timedelta(day * 86_400 + rng.integers(0, 86_400, len(day)), unit="s")
    when = {"times": moment, "dates": moment.date, "zone": moment.tz_localize("Asia/Tokyo"), "numbers": day + 0.5}[kind]
    frame = pd.DataFrame({"bag": rng.permutation(60)[day], "when": when, "x": rng.normal(size=len(day)), "day": day})
    reports = pd.DataFrame({"bag": np.arange(60), "count": rng.integers(0, 9, 60)})
    return frame.sample(frac=1, random_state=0), reports


@pytest.mark.parametrize("kind", ["times", "dates", "zone", "numbers"])
def test_the_latest_bags_are_held_out(duck: Any, kind: str) -> None:
    events, reports = in_days(np.random.default_rng(0), kind)
    events.loc[events["day"] == 55, "when"] = None  # of which nobody knows
    data = join(events, reports, ignore="day", connection=duck)
    train, held_out = split(data, 0.25, latest="when")
    days = events.drop_duplicates("bag").set_index("bag")["day"]
    found = [sorted(days[part.bags.fetch()["bag"].to_pylist()]) for part in (train, held_out)]
    assert found == [[*range(44), 55], [*range(44, 55), *range(56, 60)]]
    for part, bags in ((train, 45), (held_out, 15)):
        assert part.summary.bags == bags
        lines = part.bags.fetch().to_pandas().sort_values("bag_number")
        assert lines["bag_number"].tolist() == list(range(bags))
        before = data.bags.fetch().to_pandas().set_index("bag")["bag_number"]
        assert before[lines["bag"]].is_monotonic_increasing  # numbers have nothing to do with time
        counts = reports.set_index("bag")["count"][lines["bag"]].to_numpy()
        np.testing.assert_allclose(lines["bag_proportion"] * 8, counts)
    again = last_bags(data, 15, latest="when").bags.fetch()["bag"].to_pylist()
    assert sorted(again) == sorted(held_out.bags.fetch()["bag"].to_pylist())


def test_held_out_bags_that_are_no_future_are_told(duck: Any) -> None:
    events, reports = in_days(np.random.default_rng(0), "times")
    mixed = events.assign(bag=np.random.default_rng(1).permutation(events["bag"]))
    data = join(mixed, reports, connection=duck)
    with pytest.warns(UserWarning, match=r"bags mix times: [1-4]\d% of the rows to learn from are later .* by 'when'"):
        split(data, 0.25, latest="when")
    with pytest.raises(ValueError, match="latest names 'then', which is no key or feature of the events: bag, when"):
        split(data, 0.25, latest="then")
    with pytest.raises(ValueError, match="latest names 'word', which holds text: it must hold times or numbers"):
        split(join(events.assign(word="a"), reports, connection=duck), 0.25, latest="word")


def test_labelled_rows_are_never_held_out(duck: Any) -> None:
    events, reports = in_days(np.random.default_rng(0), "times")
    data = join(events, reports, connection=duck)
    labels = events[events["day"] > 57].drop(columns="bag").assign(label=1)
    _, held_out = split(with_labels(data, labels), 0.1, latest="when")
    assert held_out.summary.smallest == 8
