"""Log-likelihoods of reports by several models at once are those by each alone."""

import numpy as np
import pytest

from bagwise.bags import Bags, aggregate
from bagwise.losses import log_likelihood as module
from bagwise.losses.log_likelihood import log_likelihoods, log_likelihoods_by_each


@pytest.mark.parametrize("kind", ["counts", "noised", "effects", "classes"])
@pytest.mark.parametrize("at_once", [1, 200, 10_000])  # rows: one model, two, all
def test_models_together_say_what_each_says_alone(kind, at_once, monkeypatch):
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    large = kind == "effects"  # small bags with effects are computed as finely as the largest among them needs
    rng, size = np.random.default_rng(0), np.array([30, 40, 50, 60, 35] if large else [1, 4, 30, 2, 60])
    ids, y = np.repeat(np.arange(5), size), rng.integers(0, 3, size=size.sum())
    labels = (y[:, None] == np.arange(3)).astype(float) if kind == "classes" else (y > 1).astype(float)
    bags = Bags.from_rows(aggregate(labels, ids), ids, noise_variance=2.0 if kind == "noised" else None)
    scores = [scale * rng.normal(size=labels.shape) for scale in (0.1, 1.0, 1.5 if large else 10.0, 0.5, 0.0)]
    variance = 0.3 if large else 0.0
    together = log_likelihoods_by_each(scores, bags, effect_variance=variance)
    alone = [log_likelihoods(s, bags, effect_variance=variance) for s in scores]
    np.testing.assert_allclose(together, alone, rtol=1e-9)
