"""The quick model of a diagnosis."""

import numpy as np
import pytest
from scipy.special import expit

from bagwise import Bags, aggregate
from bagwise.linear.quick import quick_model
from bagwise.ranks import compared


def asked(X, y, ids, *, differing=False, seed=0):
    bags = Bags.from_rows(aggregate(y, ids), ids)
    _, columns = compared(X, bags)
    return quick_model(columns, [differing] * len(columns), [], bags, np.random.default_rng(seed))


def test_it_speaks_of_bags_that_it_was_not_fitted_to(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6400, 3))
    y, ids = (rng.random(6400) < expit(2 * X[:, 0])).astype(float), np.arange(6400) // 16
    model = asked(X, y, ids)
    assert sorted(np.concatenate([part.bags.keys for part in model.parts])) == list(range(400))
    h, held = model.predictions(effects=False)
    assert len(held) == 400
    truth = np.concatenate([y[part.bags.order] for part in model.parts])
    assert np.corrcoef(h, expit(2 * X[np.concatenate([part.bags.order for part in model.parts]), 0]))[0, 1] > 0.9
    assert h.mean() == pytest.approx(truth.mean(), abs=0.02)


def test_steps_follow_what_a_line_misses():
    """Bags sorted by a column that matters above a threshold only."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6400, 1))
    y, ids = (rng.random(6400) < 0.1 + 0.7 * (X[:, 0] > 1)).astype(float), np.argsort(np.argsort(X[:, 0])) // 64
    errors = []
    for differing in (False, True):
        h, held = asked(X, y, ids, differing=differing).predictions(effects=False)
        errors.append(((held.mean(h) - held.proportion) ** 2).mean())
    assert errors[1] < 0.6 * errors[0]


@pytest.mark.parametrize(
    "case", ["few bags", "classes", "rounded proportions", "real labels", "one row each", "constant"]
)
def test_there_is_none_where_it_would_say_nothing(case):
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(640, 1)), np.arange(640) // 16
    y = (rng.random(640) < 0.5).astype(float)
    if case == "few bags":
        ids = ids // 4
    elif case == "one row each":
        ids = np.arange(640)
    y = np.column_stack([y, 1 - y]) if case == "classes" else y
    proportion = aggregate(y, ids)
    if case == "rounded proportions":
        proportion = proportion.round(1)
    elif case == "real labels":
        proportion = 2 + proportion
    bags = Bags.from_rows(proportion, ids)
    _, columns = compared(np.zeros((640, 1)) if case == "constant" else X, bags)
    assert quick_model(columns, [False], [], bags, rng) is None
