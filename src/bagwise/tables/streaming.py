"""Boosting and networks over shards: more rows than memory holds.

Settings are chosen on a sample of whole bags that fits into memory, by the estimators' own cross-validation; then the
models are fitted to all bags. What memory that takes:

========== =======================================================================================================
boosting   one byte per number, since LightGBM keeps the number of its bin, and about 100 bytes per row (with classes,
           about 60 more for each), or, while bins are found, five megabytes per column; rows are read twice, and fits
           come one after the other
networks   the sample and a few blocks, however many there are; rows are read in every pass
========== =======================================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bagwise.bags import Bags
from bagwise.data.features import Encoding
from bagwise.data.rows import SAMPLE_NUMBERS, SAMPLE_ROWS, prior
from bagwise.data.shards import Shards
from bagwise.utils.typing import Floats, Integers

if TYPE_CHECKING:
    from bagwise.boosting import BagBoostingClassifier
    from bagwise.neural import BagNeuralClassifier
    from bagwise.neural.distributed.training import Together


def fit_boosting(shards: Shards, estimator: BagBoostingClassifier, *, sample_rows: int | None = None) -> None:
    """Fit to all bags of the shards; the estimator reads numbers and codes as `Shards.block` gives them.

    Penalty, number of trees and stretch are chosen on the sample. Where it holds all bags, this is `estimator.fit`.
    """
    estimator.set_params(categorical_features=shards.categorical)
    some = shards.sample(_rows(sample_rows, len(shards.columns)))
    X, bags = some.X, some.bags
    if len(X) == shards.n_rows:
        estimator.fit(X, bags=bags)
        return
    estimator.classes_ = _classes(shards)
    X = estimator._check_features(X, fitting=True)
    estimator._fit_streamed(X, bags, shards, shards.bags)


def fit_network(
    shards: Shards,
    estimator: BagNeuralClassifier,
    *,
    sample_rows: int | None = None,
    together: Together | None = None,
) -> Encoding:
    """Fit to all bags of the shards; the encoding of numbers and codes that the estimator reads.

    Learning rate and number of steps are chosen on the sample; then the network is trained on all bags, one pass over
    the shards after the other.
    together: with which other processes, and where checkpoints go. Without it, and where the sample holds all bags,
        this is `estimator.fit`.
    """
    from bagwise.neural.distributed.estimator import fit_streamed

    encoding = shards.encoding()
    width = encoding.width
    rows = _rows(sample_rows, width)
    if together is None and rows >= shards.n_rows:
        some = shards.encoded(encoding).sample(rows)
        estimator.fit(some.X, bags=some.bags)
        return encoding

    def sample() -> tuple[Floats, Bags]:
        some = shards.encoded(encoding).sample(rows)
        return some.X, some.bags

    estimator.classes_ = _classes(shards)
    estimator.n_features_in_ = width
    task = {"checksum of the shards": shards.fingerprint}
    fit_streamed(estimator, sample, shards, encoding, p=prior(shards), width=width, together=together, task=task)
    return encoding


def _rows(given: int | None, width: int) -> int:
    return min(SAMPLE_ROWS, SAMPLE_NUMBERS // width) if given is None else given


def _classes(shards: Shards) -> Integers:
    """The classes that `fit` would find."""
    return np.arange(2 if shards.proportion.ndim == 1 else shards.proportion.shape[1])
