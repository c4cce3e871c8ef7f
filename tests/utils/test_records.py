"""Records come back from plain data as they were, and nothing else does."""

import json
from dataclasses import dataclass, make_dataclass
from typing import Any, TypeVar

import numpy as np
import pytest

from bagwise.metrics import Estimate
from bagwise.utils.records import as_data, from_data
from bagwise.utils.typing import Floats


@dataclass(frozen=True, eq=False)
class Inner:
    values: Floats
    note: str | None


@dataclass(frozen=True, eq=False)
class Outer:
    count: int
    flag: bool
    names: tuple[str, ...]
    inner: Inner | None
    estimates: dict[str, Estimate]


def record():
    inner = Inner(np.array([0.1, -np.inf, np.nan]), None)
    return Outer(3, True, ("a", "b"), inner, {"brier": Estimate(0.1, 0.01, 0.08, 0.12)})


def test_arrays_may_be_declared_by_an_alias():
    """As NumPy's own are in Pythons newer than 3.11."""
    extensions = pytest.importorskip("typing_extensions")
    scalar = TypeVar("scalar", bound=np.generic)
    alias = extensions.TypeAliasType("alias", np.ndarray[Any, np.dtype[scalar]], type_params=(scalar,))
    kind = make_dataclass("Declared", [("values", alias[np.floating])], frozen=True, eq=False)
    np.testing.assert_array_equal(from_data(kind, {"values": [0.5, 2]}).values, [0.5, 2.0])


def test_records_come_back_through_json():
    given = record()
    found = from_data(Outer, json.loads(json.dumps(as_data(given), allow_nan=False)))
    assert (found.count, found.flag, found.names) == (given.count, given.flag, given.names)
    assert found.estimates == given.estimates
    np.testing.assert_array_equal(found.inner.values, given.inner.values)
    assert found.inner.note is None
    assert from_data(Outer, {**as_data(given), "inner": None}).inner is None


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 3.5},
        {"count": True},
        {"flag": 1},
        {"names": "ab"},
        {"names": [1]},
        {"inner": {"values": [0.1]}},
        {"inner": {"values": ["much"], "note": None}},
        {"estimates": {"brier": 0.1}},
        {"estimates": {"brier": {"value": float("inf"), "standard_error": 0.0, "low": 0.0, "high": 0.0}}},
        {"more": 1},
    ],
)
def test_other_data_are_refused(changes):
    with pytest.raises(ValueError, match=r"Outer|could not convert"):
        from_data(Outer, {**as_data(record()), **changes})
