"""Programs of torch tell what networks and linear models tell, of any number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.export import CannotExportError, code_inputs, to_torch
from tests.export.conftest import KINDS, expected, later

pytestmark = [
    pytest.mark.filterwarnings("ignore::bagwise.tables.UnseenValuesWarning"),
    pytest.mark.usefixtures("torch"),
]


@pytest.mark.parametrize(
    ("kind", "target", "classes"),
    [("network", "label", 2), ("network", "label", 3), ("network", "value", 2), ("ridge", "label", 3)]
    + [(kind, "label", 2) for kind in ("ridge", "logistic", "sgd", "mean-map")],
)
def test_programs_of_tables(of_kind: Any, torch: Any, tmp_path: Any, kind: str, target: str, classes: int) -> None:
    model, rows = of_kind(kind, target, classes), later()
    torch.export.save(to_torch(model), tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    codes = torch.tensor(code_inputs(model, rows))
    whole = program(codes).detach().numpy()
    np.testing.assert_allclose(whole.reshape(len(rows), -1), expected(model, rows), rtol=1e-5, atol=1e-6)
    assert whole.ndim == (2 if classes == 3 else 1)
    np.testing.assert_allclose(program(codes[:1]).detach().numpy(), whole[:1], atol=1e-6)


def test_a_module_of_your_own(torch: Any) -> None:
    X = np.random.default_rng(0).normal(size=(320, 4, 3)).astype(np.float32)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    model = bw.BagNeuralClassifier(module=module, max_epochs=1, learning_rate=0.01, random_state=0)
    model.fit(X, (X[:, 0, 0] > 0).astype(int))
    found = to_torch(model).module()(torch.tensor(X[:7]).double()).detach().numpy()
    np.testing.assert_allclose(found, model.predict_proba(X[:7])[:, 1], atol=1e-6)


def test_trees_are_refused_in_a_sentence(of_kind: Any) -> None:
    with pytest.raises(CannotExportError, match=r"^trees are no network .*: take onnx, sql or lightgbm\.$"):
        to_torch(of_kind("boosting"))
    bags = bw.random_bags(320, size=8, random_state=0)
    X = np.random.default_rng(0).normal(size=(320, 1))
    given = bw.Bags.from_rows(bw.aggregate(X[:, 0] > 0, bags), bags).with_offset(np.full(320, 0.1))
    model = KINDS["logistic"]().fit(X, bags=given)
    with pytest.raises(CannotExportError, match="that was fitted with an offset cannot be exported"):
        to_torch(model)
