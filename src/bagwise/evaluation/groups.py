"""The mean label of each group of rows, as random bags tell it: E[y·1_group]/P(group)."""

from typing import Any

import numpy as np

from bagwise.evaluation.result import GroupRate
from bagwise.expectations import Expectations
from bagwise.metrics import estimated
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import NDArray


def group_means(rows: Expectations, by: NDArray[Any], level: float) -> tuple[GroupRate, ...]:
    """The mean label of every group, the largest first.  by: (n,) in table order."""
    import pandas as pd

    if rows.h.ndim == 2:
        raise ParameterError("by", "asks for rates of positive labels, of which there are several classes here.")
    bags = rows.bags
    codes, names = pd.factorize(by[bags.order], use_na_sentinel=False)
    cell = bags.repeat(np.arange(rows.m)) * len(names) + codes
    inside, h = (
        np.bincount(cell, weights, minlength=rows.m * len(names)).reshape(rows.m, -1).astype(float)
        for weights in (bags.weight, bags.weighted(rows.h[bags.order]))
    )
    share, share_influence = rows.mean(inside)
    value, influence = rows.positives(h, inside)
    rate, influence = value / share, (influence - value / share * share_influence) / share
    n, said = inside.sum(axis=0), h.sum(axis=0) / inside.sum(axis=0)
    return tuple(
        GroupRate(str(names[g]), int(n[g]), estimated(rate[g], influence[:, g], level), float(said[g]))
        for g in np.argsort(-n, kind="stable")
    )
