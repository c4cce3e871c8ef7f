"""Rows that stand for several people, beside the same rows repeated: bags of every formation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from bagwise.bags import Bags

FORMATIONS = ("random", "rates", "features", "effects")
COEF, INTERCEPT = np.array([1.0, -0.7, 0.0]), -0.5


class Drawn(NamedTuple):
    """Rows with weights in bags, and the same with each row repeated; rows: which row each of those repeats."""

    X: Any
    weight: Any
    ids: Any
    bags: Bags
    repeated: Bags
    rows: Any


def drawn(formation: str, n: int = 1500, m: int = 50, seed: int = 0, most: int = 3) -> Drawn:
    """Rows of weights 1 to `most`, whose people have labels of their own; of "rates", all of a row have the same."""
    rng = np.random.default_rng(seed)
    X, weight = rng.normal(size=(n, 3)), rng.integers(1, most + 1, n)
    s, ids = INTERCEPT + X @ COEF, rng.permutation(n) % m
    if formation in ("features", "effects"):
        ids = np.argsort(np.argsort(X[:, 0] + 0.5 * rng.normal(size=n))) * m // n
    if formation == "effects":
        s = s + 0.5 * rng.normal(size=m)[ids]
    ones = rng.binomial(weight, expit(s))
    if formation == "rates":
        label, rate = rng.random(n) < expit(s), rng.uniform(0.1, 0.9, m)
        shares = (rate / rate.sum(), (1 - rate) / (1 - rate).sum())
        ids = np.where(label, rng.choice(m, n, p=shares[0]), rng.choice(m, n, p=shares[1]))
        ones = weight * label
    size = np.bincount(ids, weight, minlength=m)
    proportion = (np.bincount(ids, ones, minlength=m) / np.maximum(size, 1))[ids]
    rows = np.repeat(np.arange(n), weight)
    bags = Bags.from_rows(proportion, ids).with_weights(weight)
    return Drawn(X, weight, ids, bags, Bags.from_rows(proportion[rows], ids[rows]), rows)
