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
from bagwise.base import BagClassifier
from bagwise.features import Encoding
from bagwise.tables.shards import Shards

if TYPE_CHECKING:
    from bagwise.boosting import BagBoostingClassifier
    from bagwise.neural import BagNeuralClassifier

SAMPLE_ROWS, SAMPLE_NUMBERS = 500_000, 2**25
"""Size of the sample that settings are chosen on: so many rows, or so many numbers if that is less."""


def fit_boosting(shards: Shards, estimator: BagBoostingClassifier, *, sample_rows: int | None = None) -> None:
    """Fit to all bags of the shards; the estimator reads numbers and codes as `Shards.block` gives them.

    Penalty, number of trees and stretch are chosen on the sample. Where it holds all bags, this is `estimator.fit`.
    """
    estimator.set_params(categorical_features=shards.categorical)
    X, bags = shards.sample(_rows(sample_rows, len(shards.columns)))
    if len(X) == shards.n_rows:
        estimator.fit(X, bags=bags)
        return
    _name_classes(estimator, bags)
    X = estimator._check_features(X, fitting=True)
    estimator._fit_streamed(X, bags, shards, shards.bags)


def fit_network(shards: Shards, estimator: BagNeuralClassifier, *, sample_rows: int | None = None) -> Encoding:
    """Fit to all bags of the shards; the encoding of numbers and codes that the estimator reads.

    Learning rate and number of steps are chosen on the sample; then the network is trained on all bags, one pass over
    the shards after the other. Where the sample holds all bags, this is `estimator.fit`.
    """
    encoding = shards.encoding()
    width = encoding(np.empty((0, len(shards.columns)))).shape[1]
    stored, bags = shards.sample(_rows(sample_rows, width))
    X = encoding(stored)
    if len(X) == shards.n_rows:
        estimator.fit(X, bags=bags)
        return encoding
    _name_classes(estimator, bags)
    X = estimator._check_features(X, fitting=True)
    estimator._fit_streamed(X, bags, shards, encoding, p=shards.prior, n_rows=shards.n_rows)
    return encoding


def _rows(given: int | None, width: int) -> int:
    return min(SAMPLE_ROWS, SAMPLE_NUMBERS // width) if given is None else given


def _name_classes(estimator: BagClassifier, bags: Bags) -> None:
    """As `fit` does; what it checks was checked when events were joined and gathered."""
    estimator.classes_ = np.arange(2 if bags.proportion.ndim == 1 else bags.proportion.shape[1])
