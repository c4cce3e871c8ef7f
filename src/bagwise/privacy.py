r"""Releasing the proportions of bags with label differential privacy.

Two data sets are neighbours if they differ in the label of one row; rows, features and bags are the same. A release is
(ε, δ)-differentially private if no outcome is more than :math:`e^\varepsilon` times as likely (plus δ) under one of
them as under the other. Labels go in, noised reports come out: everything about labels that leaves this module went
through OpenDP (``pip install 'bagwise[privacy]'``), never through a generator of ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, sqrt
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise import segment
from bagwise.bags import Bags
from bagwise.bags.reading import as_labels, encode_rows, keep, sum_labels
from bagwise.theory import laplace_variance
from bagwise.utils.parameters import (
    LEVEL,
    NONE,
    AdviceError,
    NamesParameters,
    Parameter,
    check_parameters,
    number,
    whole,
)
from bagwise.utils.typing import ArrayLike, Booleans, Floats, Integers, NDArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Budget", "Release", "SelectedBagsWarning", "noise_variance", "release"]

_BUDGET = {"epsilon": number(above=0), "delta": LEVEL | NONE}  # without a delta noise is Laplace

# Beyond that a sum of noise and count may leave the whole numbers that double precision holds.
_LARGEST_SCALE = 2.0**40

_one_at_a_time = Lock()  # what is agreed to with OpenDP holds for the whole process


@dataclass(frozen=True)
class Budget:
    r"""What a release spends, and what noise that buys.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee, for all bags together; delta is None where it is 0.
    mechanism : str
        "discrete Laplace" or "discrete Gaussian".
    scale, noise_variance : float
        b of probabilities in proportion to :math:`e^{-|x|/b}`, or σ of :math:`e^{-x^2/2\sigma^2}`, over the whole
        numbers x; and the exact variance of the noise on every count.
    sensitivity : float
        By how much one label moves the vector of counts, in L1 for Laplace and in L2 for Gaussian noise.
    neighbours : str
        Between which data sets the guarantee holds, in words.
    """

    epsilon: float
    delta: float | None
    mechanism: str
    scale: float
    sensitivity: float
    noise_variance: float
    neighbours: str = "data sets that differ in the label of one row, with the same rows in the same bags"

    def __str__(self) -> str:
        spent = f"ε = {self.epsilon:g}" + ("" if self.delta is None else f", δ = {self.delta:g}")
        norm = "L1" if self.delta is None else "L2"
        return (
            f"{spent} between {self.neighbours}; {self.mechanism} noise of scale {self.scale:.4g} on counts of "
            f"sensitivity {self.sensitivity:.4g} ({norm}), variance {self.noise_variance:.4g}."
        )


def noise_variance(epsilon: float, *, delta: float | None = None, counts: int = 1) -> float:
    r"""Variance of the noise that `release` puts on every count.

    Discrete Laplace noise of scale b = sensitivity/ε has, with :math:`q = e^{-1/b}`, the variance

    .. math:: 2q / (1 - q)^2

    a little less than the :math:`2b^2` of continuous noise. With a delta it is that of the discrete Gaussian whose
    scale OpenDP finds; only that needs OpenDP.

    Parameters
    ----------
    epsilon, delta : float
        As in `release`.
    counts : int
        Counts that a bag reports: 1 for labels 0 and 1, otherwise the number of classes.

    Returns
    -------
    float
        The exact variance.

    Examples
    --------
    >>> round(noise_variance(1.0), 4), round(noise_variance(1.0, counts=3), 4)
    (1.8413, 7.8354)
    """
    check_parameters({"epsilon": epsilon, "delta": delta, "counts": counts}, {**_BUDGET, "counts": whole(1)})
    if delta is not None:
        return budget_for(epsilon, delta, classes=counts > 1).noise_variance
    scale = _sensitivity(None, counts > 1) / epsilon
    _check_scale(scale, epsilon, None)
    return laplace_variance(1 / scale)


def budget_for(epsilon: float, delta: float | None, *, classes: bool) -> Budget:
    """The least noise that OpenDP's own accounting allows for ε and δ; classes: whether a bag reports several counts.

    With a delta: the discrete Gaussian satisfies zero-concentrated differential privacy, which OpenDP converts.
    """
    check_parameters({"epsilon": epsilon, "delta": delta}, _BUDGET)
    return _calibrated(float(epsilon), None if delta is None else float(delta), _sensitivity(delta, classes))


def budget_for_tables(epsilon: float, delta: float | None, *, tables: int) -> Budget:
    r"""The same for counts and sums of labels 0 and 1 in several tables, where rows are protected, not labels alone.

    A row more is one more in one cell of every table, and so may be its label: 2 for each table in :math:`L_1`, and
    :math:`\sqrt{2}` times the root of their number in :math:`L_2`.
    """
    check_parameters({"epsilon": epsilon, "delta": delta}, _BUDGET)
    moved = 2 * tables if delta is None else float(np.nextafter(sqrt(2.0 * tables), np.inf))
    found = _calibrated(float(epsilon), None if delta is None else float(delta), moved)
    return replace(found, neighbours="data sets of which one has one row more, with its features and its label")


@lru_cache(maxsize=256)  # the search for a scale takes longer than a thousand draws
def _calibrated(epsilon: float, delta: float | None, sensitivity: float) -> Budget:
    wanted = epsilon if delta is None else (epsilon, delta)
    with _opendp() as dp:
        try:
            scale = dp.mod.binary_search_param(
                lambda scale: _measurement(dp, scale, delta), d_in=sensitivity, d_out=wanted, T=float
            )
        except (dp.mod.OpenDPException, ValueError, OverflowError):
            scale = float("inf")
    _check_scale(scale, epsilon, delta)
    variance = laplace_variance(1 / scale) if delta is None else gaussian_variance(scale)
    return Budget(epsilon, delta, _mechanism(delta), scale, float(sensitivity), variance)


def add_noise(counts: NDArray[np.int64], budget: Budget) -> NDArray[np.int64]:
    """Counts (m,) or (m, classes) with independent noise on each, from OpenDP's secure generator."""
    with _opendp() as dp:
        drawn = _measurement(dp, budget.scale, budget.delta)(counts.ravel().tolist())
    return np.array(drawn, dtype=np.int64).reshape(counts.shape)


def gaussian_variance(scale: float) -> float:
    """Variance of the discrete Gaussian law: less than σ², and σ² to double precision from σ = 2 on.

    By Poisson's summation formula the two differ by a factor of 1 − O(σ² exp(−2π²σ²)).

    >>> round(gaussian_variance(0.5), 6), gaussian_variance(3.0)
    (0.215013, 9.0)
    """
    if scale > 2:
        return scale**2
    square = np.arange(-ceil(40 * scale), ceil(40 * scale) + 1, dtype=float) ** 2
    weight = np.exp(-square / (2 * scale**2))
    return float((square * weight).sum() / weight.sum())


def _mechanism(delta: float | None) -> str:
    return "discrete Laplace" if delta is None else "discrete Gaussian"


def _check_scale(scale: float, epsilon: float, delta: float | None) -> None:
    if scale > _LARGEST_SCALE:
        also = "" if delta is None else f" and delta {delta:g}"
        raise ValueError(
            f"there is no usable {_mechanism(delta)} noise for epsilon {epsilon:g}{also}: take an epsilon nearer to 1."
        )


def _sensitivity(delta: float | None, classes: bool) -> float | int:
    """The norm of what one label moves, see `release`; OpenDP wants a whole number for L1. sqrt(2) is rounded up."""
    if delta is None:
        return 2 if classes else 1
    return sqrt(2.0) if classes else 1.0


def _measurement(dp: Any, scale: float, delta: float | None) -> Any:
    """OpenDP's measurement of a vector of counts."""
    counts = dp.domains.vector_domain(dp.domains.atom_domain(T="i64"))
    if delta is None:
        return dp.measurements.make_laplace(counts, dp.metrics.l1_distance(T="i64"), scale=scale)
    concentrated = dp.measurements.make_gaussian(counts, dp.metrics.l2_distance(T="f64"), scale=scale)
    return dp.combinators.make_fix_delta(dp.combinators.make_zCDP_to_approxDP(concentrated), delta)


@contextmanager
def _opendp() -> Iterator[Any]:
    """The parts of OpenDP that are used here; what it asks the user to agree to is agreed to inside the block only."""
    try:
        from opendp import combinators, domains, measurements, metrics, mod  # its prelude takes seconds to load
    except ImportError as error:
        raise ModuleNotFoundError("noise needs OpenDP: pip install 'bagwise[privacy]'.", name="opendp") from error
    # Everything that OpenDP has not finished vetting, these mechanisms included, is called "contrib".
    parts = {"combinators": combinators, "domains": domains, "measurements": measurements, "metrics": metrics}
    with _one_at_a_time:
        agreed = "contrib" in mod.GLOBAL_FEATURES
        mod.enable_features("contrib")
        try:
            yield SimpleNamespace(**parts, mod=mod)
        finally:
            if not agreed:
                mod.disable_features("contrib")


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
    label moves the vector of counts by 1 in both norms, however many bags there are, since they are disjoint (for
    classes: one count down, another up, which is 2 in :math:`L_1` and :math:`\sqrt{2}` in :math:`L_2`): ε holds for the
    whole release. It protects a row: somebody with r rows has rε, and releasing the same labels twice costs the sum of
    both budgets.

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
