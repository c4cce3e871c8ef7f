"""Labels in, noised reports out: everything about labels that leaves this module went through OpenDP."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise import segment
from bagwise.bags import Bags
from bagwise.bags.reading import as_labels, encode_rows, keep, sum_labels
from bagwise.privacy.mechanism import Budget, add_noise, budget_for
from bagwise.utils.parameters import NONE, AdviceError, NamesParameters, Parameter, check_parameters, number, whole
from bagwise.utils.typing import ArrayLike, Booleans, Floats, Integers, NDArray

if TYPE_CHECKING:
    import pandas as pd


class SelectedBagsWarning(NamesParameters, UserWarning):
    """Bags are withheld because of what they would report: those that are left are a biased sample."""


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """Proportions with noise, ready to be published and learned from.

    Attributes
    ----------
    bags : Bags
        What was reported, with the variance of its noise; rows of withheld bags are in no bag.
    reports : pandas.DataFrame
        The same as a table, one line per bag: `bag`, `size`, `count` (or `count_0`, …; never clipped, missing where
        withheld), `suppressed`, and what was spent: `noise_variance`, `epsilon`, `mechanism`, where used also `delta`
        and `threshold`.
    budget : Budget
        What was spent, and for what.
    """

    bags: Bags
    reports: pd.DataFrame
    budget: Budget

    def __repr__(self) -> str:
        withheld = len(self.reports) - len(self.bags)
        return f"<Release: {len(self.bags)} bags, {withheld} withheld; {self.budget}>"


def release(
    y: ArrayLike,
    ids: ArrayLike,
    *,
    epsilon: float,
    delta: float | None = None,
    min_size: int = 1,
    threshold: float | None = None,
) -> Release:
    r"""Report the bags' counts with label differential privacy.

    Neighbouring data sets differ in one label; rows, features, bags and their sizes are the same and not protected. One
    label moves the vector of counts by 1 (for classes: one count down, another up, which is 2 in :math:`L_1` and
    :math:`\sqrt{2}` in :math:`L_2`). Bags are disjoint, so ε holds for the whole release. It protects a row: somebody
    with r rows has rε, and releasing the same labels twice costs the sum of both budgets.

    Noise is drawn by OpenDP from the system's secure generator, which cannot be seeded: there is no `random_state`, on
    purpose, since whoever knew it could take the noise off. Counts may leave 0 … k. Their noise has mean zero and its
    variance is declared in the bags, which is all that `fit` and `evaluate` need.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, classes)
        Labels 0 and 1, or indicators of classes; two classes are better given as one column, with half the noise. The
        number of classes is published: it must not depend on which labels occur.
    ids : array-like of shape (n,)
        Bag ids, −1, None or NaN for rows in no bag, whose labels are not read.
    epsilon : float
        ε of the guarantee.
    delta : float, optional
        None for discrete Laplace noise; otherwise discrete Gaussian noise that is (ε, δ)-private. One label moves one
        or two counts only, and then Laplace noise varies less unless δ is large; Gaussian noise pays where releases of
        the same labels are composed.
    min_size : int
        Smaller bags get no report; sizes are not labels, so that costs nothing.
    threshold : float, optional
        Reports with a noised count below it are withheld. That costs nothing either, but the bags that are left were
        selected by their labels and their noise: training and evaluation on them are biased, and a
        `SelectedBagsWarning` says so.

    Returns
    -------
    Release
        The bags to learn from, the table to publish, and what was spent.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(9600, 3))
    >>> y = (rng.random(9600) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    >>> released = bw.release(y[:6400], bw.random_bags(6400, size=64, random_state=0), epsilon=1.0)
    >>> model = bw.BagRidgeClassifier().fit(X[:6400], bags=released.bags)  # knows of the noise
    >>> bool(model.score(X, y) > 0.6)
    True
    >>> others = bw.release(y[6400:], bw.random_bags(3200, size=64, random_state=0), epsilon=1.0)  # ε = 1 for all rows
    >>> bw.evaluate(model, X[6400:], bags=others.bags).n_bags
    50
    >>> print(released.budget)
    ε = 1 between data sets that differ in the label of one row, with the same rows in the same bags; discrete Laplace
    noise of scale 1 on counts of sensitivity 1 (L1), variance 1.841.
    """
    import pandas as pd

    labels = as_labels(y)
    budget = budget_for(epsilon, delta, classes=labels.ndim == 2)
    codes, keys = encode_rows(ids, len(labels))
    counts = _counts(labels, codes, len(keys))
    size = np.bincount(codes[codes >= 0], minlength=len(keys))
    noised, shown = report_counts(counts, size, budget, min_size=min_size, threshold=threshold)
    kept, known = keep(codes, keys, shown)
    order, offsets = segment.group(kept, len(known))
    proportion = noised[shown] / segment.per_bag(size[shown], noised)
    variance = np.full(len(known), budget.noise_variance)
    bags = Bags.build(known, order, offsets, proportion, variance, len(labels), kept)
    columns = {"count": noised} if noised.ndim == 1 else {f"count_{c}": one for c, one in enumerate(noised.T)}
    table = {
        "bag": keys,
        "size": size,
        **{name: pd.arrays.IntegerArray(column.copy(), ~shown) for name, column in columns.items()},
        "suppressed": ~shown,
        "noise_variance": np.where(shown, budget.noise_variance, np.nan),
        **record(budget, threshold),
    }
    return Release(bags, pd.DataFrame(table), budget)


def report_counts(
    counts: NDArray[np.int64],
    size: Integers,
    budget: Budget,
    *,
    min_size: int,
    threshold: float | None,
    stacklevel: int = 3,
) -> tuple[NDArray[np.int64], Booleans]:
    """The noised counts, 0 where they are withheld, and which are not. There must be one such bag at least.

    Where a threshold withholds reports of bags that are large enough, the caller (see `stacklevel`) is warned.
    """
    given = {"min_size": min_size, "threshold": threshold}
    check_parameters(given, {"min_size": whole(1), "threshold": number() | NONE})
    shown = size >= min_size
    if not shown.any():
        raise AdviceError(
            f"every bag has fewer than {min_size} rows: make larger bags, or lower ", Parameter("min_size"), "."
        )
    noised = np.zeros_like(counts)
    noised[shown] = add_noise(counts[shown], budget)
    if threshold is not None:
        large, shown = shown, shown & ((noised if noised.ndim == 1 else noised.min(axis=1)) >= threshold)
        if not shown.any():
            raise ValueError(f"every noised count is below the threshold {threshold:g}: lower it, or make larger bags.")
        noised[~shown] = 0
        if (large & ~shown).any():
            warning = SelectedBagsWarning(
                f"{int((large & ~shown).sum()):,} of {int(large.sum()):,} bags are withheld because a noised count is "
                f"below the threshold {threshold:g}: those that are left report too much on average, and what is "
                "trained or evaluated on them is biased; ", Parameter("min_size"), " alone does not do that.",
            )  # fmt: skip
            warnings.warn(warning, stacklevel=stacklevel)
    return noised, shown


def record(budget: Budget, threshold: float | None) -> dict[str, Any]:
    """The columns of a table of reports that say what was spent, the same on every line."""
    said = {"epsilon": budget.epsilon, "delta": budget.delta, "mechanism": budget.mechanism, "threshold": threshold}
    return {name: value for name, value in said.items() if value is not None}


def _counts(labels: Floats, codes: Integers, m: int) -> NDArray[np.int64]:
    """(m,) or (m, classes) exact counts of labels that are 0 or 1."""
    total = sum_labels(labels, codes, m)
    binary = (labels == 0) | (labels == 1)
    wrong = (codes >= 0) & ~(binary if labels.ndim == 1 else binary.all(axis=1) & (labels.sum(axis=1) == 1))
    if wrong.any():
        i = int(np.argmax(wrong))
        wanted = "0 or 1" if labels.ndim == 1 else "one 1 among zeros"
        raise ValueError(f"y is {labels[i]} in row {i}: individual labels must be {wanted} for noise to protect them.")
    return np.rint(total).astype(np.int64)
