"""The label-free risk of held-out bags."""

from __future__ import annotations

from bagwise.bags import Bags
from bagwise.folds import Fold
from bagwise.losses import debiased_square_of_sums
from bagwise.segment import per_bag
from bagwise.utils.typing import Floats


def held_out_risk(h: Floats, bags: Bags, fold: Fold) -> float:
    """Label-free risk of the held-out bags; p and E[h] come from the training bags, declared noise is subtracted.

    h: (n_bagged,) or (n_bagged, classes) predictions for all bags, in bag order.
    """
    sums = bags.sum(h.astype(float))
    size = per_bag(bags.size, sums)
    rows = bags.size[fold.train].sum()
    mean = sums[fold.train].sum(axis=0) / rows
    prior = (size * bags.proportion)[fold.train].sum(axis=0) / rows
    held = fold.held_out
    loss = debiased_square_of_sums(sums[held], size[held], bags.proportion[held], prior=prior, mean=mean)
    outputs = 1 if loss.ndim == 1 else loss.shape[1]
    return float(loss.sum() / len(held) - outputs * bags.noise_per_row[held].mean())
