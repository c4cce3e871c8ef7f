r"""Means over single rows from sums over bags: E[a + y·g] for any functions a and g of a row.

Only E[y·g] needs labels. With :math:`\bar g_j` the mean of g in bag j, p and :math:`\bar g` the means of all rows and

.. math:: C_{\alpha g} = \sum_j k_j (\alpha_j - p)(\bar g_j - \bar g)

a label's part in it is told by how reports move with g:

- *residuals*, right where rows came to bags at random, also if bags have effects that features know nothing of:
  :math:`E[y\,g] = p\,\bar g + b\,\mathrm{Cov}(h, g) + (C_{\alpha g} - b\,C_{hg})/(m-1)`, with any model h and
  :math:`b = C_{\alpha h}/C_{hh}`. What h explains is known from all rows, what it does not from bags; b makes an
  overconfident or a wrong model do as well as its calibrated version.
- *slope*, right where a bag tells nothing of a row's features beyond its label, random bags among them:
  :math:`E[y\,g] = p\,\bar g + p(1-p)\,C_{\alpha g}/C_{\alpha\alpha}`, less declared noise in the denominator. Several
  classes are regressed on together.

Counts that are hidden, rounded or clamped take part as what they are on average, stretched to vary as counts do
(`bagwise.bags.expected_counts`): of random bags, these are binomial. Where rates differ nobody knows the law of rates,
and bags of which little is known say nothing of slopes, which are the same in the others whatever was hidden by their
counts; their mean label is the one by which their mean prediction differs from that of the others,
:math:`\alpha = p + (\bar h_j - \bar h) / \text{slope of } h`.

With one row per bag both equal the plain mean. Rows count as often as they stand for someone. Errors come from leaving
out each bag in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.expected_counts import stretched_counts
from bagwise.bags.intervals import Intervals
from bagwise.segment import per_bag
from bagwise.utils.typing import Floats, Integers

_LEAST = 1e-12  # of a sum of squares, beside what it is taken from


_Parts = tuple[Floats, ...]
_Estimate = Callable[..., Floats]


def check_enough(bags: Bags) -> None:
    """Raise where bags are too few for an interval."""
    if (m := len(bags)) < 3:
        some = "is 1 bag" if m == 1 else f"are {m} bags"
        raise ValueError(f"there {some} only: at least 3 are needed to estimate anything with an interval.")


class Expectations:
    """E[a + y·g] of rows of the bags, from predictions h.

    Every method returns an estimate and the influence of each bag on it, and works on sums per bag. Influences are what
    an estimate moves when a bag is left out, times m − 1.

    h: (n,) or (n, classes) predictions in table order.  by_slope: whether proportions may differ for other reasons than
    chance.  strata: (m,) the number of the stratum that each bag is in: what is assumed of bags then holds inside
    strata, whose sizes are taken as they are.  label: the class that is told from the rest, where there are several.
    """

    def __init__(
        self,
        h: Floats,
        bags: Bags,
        *,
        by_slope: bool = False,
        strata: Integers | None = None,
        label: int | None = None,
    ) -> None:
        check_enough(bags)
        self.m, self.n = len(bags), bags.n_people
        self.bags, self.by_slope, self.label = bags, by_slope, label
        self.strata = np.zeros(self.m, dtype=np.intp) if strata is None else strata
        self._all = h, per_bag(bags.size, bags.outputs) * bags.outputs
        self.noise: Floats = (bags.noise_per_row * bags.size)[:, None] * np.ones(bags.outputs.shape[1])
        self._shown = np.ones(self.m, dtype=bool)
        if bags.interval is not None:
            self._read(bags.interval)
        self.h: Floats = h if label is None else h[:, label]
        self.count: Floats = self._all[1] if h.ndim == 2 and label is None else self._all[1][:, label or 0]
        self.sums: Floats = bags.sum_table(self.h)
        self.gap: Floats = self.count - self.sums  # Σ(y − h) of each bag

    def _read(self, interval: Intervals) -> None:
        """Counts that are not known, as what they are on average; those of which little is, as predictions say."""
        h, size = self._all[0], self.bags.size
        self._shown = interval.narrow(size) if self.by_slope else self._shown
        some = np.flatnonzero(self._shown)
        told = interval.take(some), size[some], self.strata[some]
        count = self.bags.sum_table(h).reshape(self.m, -1)
        if len(some):
            made = stretched_counts(*told, rates_differ=self.by_slope)
            count[some], self.noise[some] = (one.reshape(len(some), -1) for one in made)
        self._all = h, count

    @cached_property
    def _mean_label(self) -> tuple[Any, Floats]:
        """The mean label, of each class if there are several, and the influence of each bag on it."""
        if self._shown.all():
            return self.mean(self.count)
        return self.positives(self.sums, per_bag(self.bags.size, self.sums) * np.ones_like(self.sums))

    @property
    def prior(self) -> Any:
        """The mean label, of each class if there are several."""
        return self._mean_label[0]

    @property
    def prior_influence(self) -> Floats:
        """The influence of each bag on the mean label."""
        return self._mean_label[1]

    @cached_property
    def levels(self) -> tuple[Floats, Integers, Integers]:
        """The distinct predictions in order, which of them each row has (bag order), and how many rows each has."""
        values, level, counts = np.unique(self.h[self.bags.order], return_inverse=True, return_counts=True)
        return values, level, counts if self.bags.weight is None else np.bincount(level, self.bags.weight)

    def of_class(self, label: int) -> Expectations:
        """Those of one class against the rest, where there are several."""
        return Expectations(self._all[0], self.bags, by_slope=self.by_slope, strata=self.strata, label=label)

    def expectation(self, a: Floats, g: Floats) -> tuple[Any, Floats]:
        """E[a + y·g]; a: (n,), g: (n,) or (n, classes) in table order, the product then summed over classes."""
        known, known_influence = self.mean(self.bags.sum_table(a))
        value, influence = self.positives(self.bags.sum_table(self.h * g), self.bags.sum_table(g))
        if g.ndim == 2:
            value, influence = value.sum(), influence.sum(axis=1)
        return known + value, known_influence + influence

    def mean(self, sums: Floats) -> tuple[Any, Floats]:
        """The mean over rows, from sums per bag (m,) or (m, q)."""
        size = per_bag(self.bags.size, sums)
        inside = np.equal.outer(np.arange(int(self.strata.max()) + 1), self.strata).astype(float)
        means = (inside @ sums) / per_bag(inside @ self.bags.size, sums)
        return sums.sum(axis=0) / self.n, (sums - size * means[self.strata]) * self.m / self.n

    def positives(self, hg: Floats, g: Floats) -> tuple[Any, Floats]:
        """E[y·g] from the bag sums of h·g and of g, (m,) or (m, q); with several classes, column c is of class c."""
        q = g[:1].size
        label = np.arange(q) if self.h.ndim == 2 else np.full(q, self.label or 0)
        value, influence = self._of_labels(hg.reshape(self.m, q), g.reshape(self.m, q), label)
        return (value[0], influence[:, 0]) if g.ndim == 1 else (value, influence)

    def _of_labels(self, hg: Floats, g: Floats, label: Integers) -> tuple[Floats, Floats]:
        """(q,) E[y_c·g] of columns (m, q), c being the label of each, and influences; strata are added up."""
        value, influence = np.zeros(g.shape[1]), np.zeros_like(g)
        pieces = self._slope_pieces if self.by_slope else self._residual_pieces
        for stratum in range(int(self.strata.max()) + 1):
            inside = np.flatnonzero(self.strata == stratum)
            share = float(self.bags.size[inside].sum()) / self.n
            found, moves = _jackknife(*pieces(hg[inside], g[inside], label, inside))
            value += share * found
            influence[inside] = share * moves * self.m / len(inside)
        return value, influence

    def _residual_pieces(self, hg: Floats, g: Floats, label: Integers, inside: Integers) -> tuple[_Parts, _Estimate]:
        k = self.bags.size[inside].astype(float)[:, None]
        a, h = self._all[1][inside][:, label], self.sums.reshape(self.m, -1)[inside]
        told = self.bags.weight is not None and self.bags.equal_size == 1  # reports say E[y g] of each row

        def estimate(m: Floats, n: Floats, a: Floats, h: Floats, ah: Floats, hh: Floats, *of_g: Floats) -> Floats:
            g, hg, ag, hg_of_bags = of_g
            squares = hh - h * h / n
            varies = squares > _LEAST * np.maximum(hh, _LEAST)
            b = np.where(varies, (ah - a * h / n) / np.where(varies, squares, 1.0), 0.0)
            explained = b * (hg - h * g / n) / n
            rest = (ag - a * g / n) - b * (hg_of_bags - h * g / n)
            share = 1 / n if told else (1 - 1 / n) / (m - 1)
            return np.asarray(a * g / n**2 + explained + share * rest)

        return (np.ones_like(k), k, a, h, a * h / k, h * h / k, g, hg, a * g / k, h * g / k), estimate

    def _slope_pieces(self, hg: Floats, g: Floats, label: Integers, inside: Integers) -> tuple[_Parts, _Estimate]:
        k, count = self.bags.size[inside].astype(float)[:, None], self._all[1][inside]
        r = max(1, count.shape[1] - 1)  # classes add up: the last one is known by the others
        shown = self._shown[inside][:, None]
        telling = 0 if shown.all() else r  # columns of predictions that tell the mean label where nothing else does
        x = np.column_stack([self._of_model[inside, :telling], g]) if telling else g
        n_shown, a, x_shown = (np.where(shown, one, 0.0) for one in (k, count[:, :r], x))
        noise = np.where(shown, self.noise[inside, :r] / k, 0.0)
        squares = (a[:, :, None] * a[:, None, :]).reshape(len(k), -1) / k
        cross = (a[:, :, None] * x_shown[:, None, :]).reshape(len(k), -1) / k

        def estimate(
            n: Floats,
            x: Floats,
            n_shown: Floats,
            a: Floats,
            squares: Floats,
            noise: Floats,
            x_shown: Floats,
            cross: Floats,
        ) -> Floats:
            p = _ratio(a, n_shown)[:, :, None]
            about = squares.reshape(-1, r, r) - p * a[:, None, :] - noise[:, :, None] * np.eye(r)
            moved = cross.reshape(-1, r, x.shape[1]) - p * x_shown[:, None, :]
            slopes = _solved(about, moved, n_shown)
            if telling:
                differ = (x / n - _ratio(x_shown, n_shown))[:, :telling, None]
                p = p + _divided(differ, slopes[:, :, :telling])
            spread = p * (np.eye(r) - p.transpose(0, 2, 1))
            mean = (x / n)[:, None, telling:]
            found = p * mean + spread @ slopes[:, :, telling:]
            if count.shape[1] > 1:
                found = np.concatenate([found, mean - found.sum(axis=1, keepdims=True)], axis=1)
            return np.asarray(found[:, label, np.arange(g.shape[1])])

        return (k, x, n_shown, a, squares, noise, x_shown, cross), estimate

    @cached_property
    def _of_model(self) -> Floats:
        """(m, classes) sums of the predictions of all classes."""
        return np.asarray(self.bags.sum_table(self._all[0]).reshape(self.m, -1))


def _jackknife(parts: _Parts, estimate: _Estimate) -> tuple[Floats, Floats]:
    """An estimate (q,) from the totals of parts (m, …), and (m, q) what it moves without each, times m − 1."""
    totals = [part.sum(axis=0, keepdims=True) for part in parts]
    value = estimate(*totals)[0]
    without = estimate(*(total - part for total, part in zip(totals, parts, strict=True)))
    return value, (len(without) - 1) * (value - without)


def _solved(about: Floats, moved: Floats, n: Floats) -> Floats:
    """Slopes (…, r, q); NaN where proportions do not differ, or not by more than noise."""
    if about.shape[-1] == 1:
        differ = about > _LEAST * n[:, :, None]
        return np.asarray(np.where(differ, moved / np.where(differ, about, 1.0), np.nan))
    try:
        return np.linalg.solve(about, moved)
    except np.linalg.LinAlgError:
        return np.full_like(moved, np.nan)


def _divided(differ: Floats, slopes: Floats) -> Floats:
    """Mean labels (…, r, 1) by which mean predictions differ (…, r, 1), given slopes of these by those (…, r, r)."""
    try:
        return np.linalg.solve(slopes.transpose(0, 2, 1), differ)
    except np.linalg.LinAlgError:
        return np.full_like(differ, np.nan)


def _ratio(sums: Floats, n: Floats) -> Floats:
    """Means over rows; NaN where there are none."""
    return np.asarray(np.divide(sums, n, out=np.full_like(sums, np.nan), where=n > 0))
