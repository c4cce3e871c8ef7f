"""What trees are grown on and their leaf values solved for: the debiased square, or the likelihood of the counts.

Both give the grower a gradient per row, and then solve for the values of its leaves at the level of bags: in bags that
are alike rows speak only through the sum of their bag, and a tree's own means would add up to nonsense.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from bagwise import means
from bagwise.bags import Bags
from bagwise.boosting import links
from bagwise.boosting.parts import Parts, joined
from bagwise.log_odds import centred
from bagwise.losses import residual
from bagwise.losses.likelihood import extra_by_predictions
from bagwise.losses.tilting import Tilted
from bagwise.losses.tilting_intervals import tilted
from bagwise.utils.typing import Floats, Integers

_SLOPES = 1e-4, 1e2  # over their mean: LightGBM counts rows by their curvature, and errs where it differs too much
_FLAT = 1e-9  # mean slope below which log odds can move no prediction
_HUGE = 4096  # rows of a bag, beyond which single precision is too little to add them up
_CLOSE = 1e-3  # of shift and tilts, which begin at those of the tree before; a last short step squares what is missing


class Objective(Protocol):
    """What a tree goes down on; rows are in bag order."""

    def gradient(self, scores: Floats) -> tuple[Floats, Floats | None] | None:
        """Gradient and curvature of each row at these scores, None for curvatures of 1; None if nothing can move."""

    def leaf_values(self, leaf: Integers, n_leaves: int, reg_lambda: float) -> Floats:
        """(n_leaves,) the best values at the scores of the last `gradient`.  leaf: (n,) the leaf of each row."""

    def follow(self, value: Floats) -> None:
        """Be told the values by which the scores then move."""

    def allow(self, effect_variance: float) -> None:
        """Be told the variance τ² of effects of bags from now on."""


class DebiasedSquare:
    """The paper's loss of one output.

    prior: p.  link: the scale of the scores.
    """

    def __init__(self, parts: Parts, output: int, prior: float, link: str) -> None:
        self.parts, self.output, self.prior, self.link = parts, output, prior, link
        weight = bag_weights(parts.whole, parts.whole.outputs[:, output], prior)
        self.weight = parts.of_whole(weight)  # what each bag counts; None: all the same

    def gradient(self, scores: Floats) -> tuple[Floats, Floats | None] | None:
        """−R_j + (E[h] − p), times the slope of the row's prediction."""
        parts, h = self.parts, links.prediction_of(scores, self.link)
        mean, self.r, pull = parts.average(h), [], []
        self.bias = mean - self.prior
        for (bags, some), weight in zip(parts.split(h), self.weight, strict=True):
            proportion = bags.outputs[:, self.output]
            self.r.append(residual(bags.sum(some), bags.size, proportion, prior=self.prior, mean=mean))
            pull.append(bags.repeat(self.bias - (self.r[-1] if weight is None else weight * self.r[-1])))
        down = joined(pull)
        self.slope = links.slope_of(h, self.link)
        if self.slope is None:
            return weighed(parts, down, None)
        if (average := parts.mean(self.slope)) < _FLAT:
            return None
        relative = np.clip(self.slope / average, *_SLOPES)
        return weighed(parts, down * relative, relative**2)

    def leaf_values(self, leaf: Integers, n_leaves: int, reg_lambda: float) -> Floats:
        """See `solve_leaves`."""
        told: Any = {"reg_lambda": reg_lambda, "slope": self.slope, "weight": self.weight}
        return solve_leaves(leaf, n_leaves, self.parts, self.r, self.bias, **told)

    def follow(self, value: Floats) -> None:
        """Nothing is kept from tree to tree."""

    def allow(self, effect_variance: float) -> None:
        """Bags count alike, whatever their effects."""


class CountLikelihood:
    r"""The likelihood of the counts of two classes, scores shifted so that E[h] = p (see `bagwise.losses.tilting`).

    A step v of the leaf values moves scores by :math:`v_{l(i)} - \mu \cdot v`, :math:`\mu` the shares of the leaves in
    Σh(1 − h), since the shift follows. With :math:`a_j` the sums over the leaves of the tilted variances of bag j,
    :math:`\tilde a_j = a_j - (\sum a_j)\mu`, and D the leaf sums of h(1 − h) less these variances, which is what
    single rows say, v solves

    .. math:: \Bigl(\sum_j \tilde a_j \tilde a_j^\top / W_j + (I - \mu 1^\top) D (I - 1\mu^\top) + \lambda\Bigr) v
              = \text{leaf sums of the gradient}

    prior: p.  effect_variance: τ² of effects of bags.
    """

    def __init__(self, parts: Parts, prior: float, effect_variance: float) -> None:
        self.parts, self.prior, self.effect_variance = parts, prior, effect_variance
        self.shift: float | None = None
        self.found: list[Tilted] = []
        self.start: list[Floats] = []  # of each part, (m,) about where the next tilts are
        self.cells: list[Any] = []  # of each part, as `_cells` gives them

    def gradient(self, scores: Floats) -> tuple[Floats, Floats | None] | None:
        """−dL/ds of each row, the shift held."""
        parts, before = self.parts, self.found
        if parts.whole.interval is not None and before:  # what is hidden is expected, as scores go
            self.prior = parts.average(joined([found.posterior for found in before]))
        s = scores.astype(np.float32)  # as LightGBM reads what comes of it
        self.shift, h = centred(self.prior, s, rows=parts, start=self.shift, close=_CLOSE)
        s += np.float32(self.shift)
        self.found = []
        for number, (bags, some) in enumerate(parts.split(s)):
            start, prediction = self.start[number] if self.start else None, h[parts.places[number]]
            told: Any = {"start": start, "close": _CLOSE, "value": False, "prediction": prediction}
            extra = extra_by_predictions(prediction, bags, self.effect_variance)
            self.found.append(tilted(some, bags, extra=extra, **told))
        self.start = [found.tilt for found in self.found]
        self.slope = [found.prediction * (1 - found.prediction) for found in self.found]
        if parts.mean(joined(self.slope)) < _FLAT:
            return None
        return weighed(parts, -joined([found.gradient for found in self.found]), None)

    def leaf_values(self, leaf: Integers, n_leaves: int, reg_lambda: float) -> Floats:
        """A step of Newton's."""
        each = zip(self.parts.split(leaf), self.found, self.slope, strict=True)
        self.cells = []
        sums = self.parts.total(self._leaf_sums(own, n_leaves, bags, found, h) for (bags, own), found, h in each)
        share, inside, total, gram, square, right = sums
        own = np.maximum(share - inside, 0)
        self.share = share = share / share.sum()
        across = np.outer(total + own - (square + own.sum()) / 2 * share, share)
        matrix = gram - across - across.T
        matrix.flat[:: n_leaves + 1] += own + (reg_lambda + 1e-9 * len(self.parts.whole))
        return np.asarray(np.linalg.solve(matrix, right - right.sum() * share))

    def allow(self, effect_variance: float) -> None:
        """Effects of bags from now on."""
        self.effect_variance = effect_variance

    def _leaf_sums(self, leaf: Integers, n_leaves: int, bags: Bags, found: Tilted, slope: Floats) -> tuple[Any, ...]:
        """What leaf values are solved from: sums over the rows and bags of a part.

        Leaf sums of h(1 − h) and of v; Σ a_j (Σa_j)/W_j, Σ a_j a_jᵀ/W_j and Σ (Σa_j)²/W_j; leaf sums of the gradient.
        """
        rows = (bags.weighted(one) for one in (found.spread, slope, found.gradient))
        cells, (share, right) = _cells(leaf, n_leaves, bags, *rows)
        self.cells.append(cells)
        whole = cells @ np.ones(n_leaves)  # Σa_j
        per = whole / found.variance
        inside = np.asarray(cells.sum(axis=0)).ravel()
        return share, inside, cells.T @ per, _gram(cells, 1 / found.variance), (whole * per).sum(), right

    def follow(self, value: Floats) -> None:
        """Shift and tilts go along, to first order, which is where those of the next scores are looked for."""
        assert self.shift is not None
        back = float(self.share @ value)
        self.shift -= back
        each = zip(self.start, self.cells, self.found, strict=True)
        self.start = [start - cells @ (value - back) / found.variance for start, cells, found in each]


def weighed(parts: Parts, gradient: Floats, curvature: Floats | None) -> tuple[Floats, Floats | None]:
    """Gradient and curvature (None: all 1) of rows as a tree is grown on them: those of all whom they stand for."""
    if parts.weight is None:
        return gradient, curvature
    relative = np.clip(parts.weight / parts.mean_weight(), 0, _SLOPES[1])  # LightGBM counts rows by their curvature
    own = np.maximum(relative, _SLOPES[0])
    return relative * gradient, own if curvature is None else own * curvature


def bag_weights(bags: Bags, proportion: Floats, prior: float) -> Floats | None:
    r"""(m,) V/(V + s²), what a noised bag counts beside an exact one; None where none is noised.

    V is the variance of a count without noise, :math:`k_j` times that of a row, as the bags themselves show it.
    """
    if bags.noise_variance is None or not bags.noise_variance.any():
        return None
    noise = bags.noise_per_row
    weight: Floats = np.ones(len(bags))
    spread = bags.size * (proportion - prior) ** 2
    for _ in range(3):  # the less a bag counts, the less its noise says of the variance
        variance = float((weight**2 * (spread - noise)).sum() / (weight**2).sum())
        variance = max(variance, 1e-3 * float((weight * spread).sum() / weight.sum()), 1e-12)
        weight = variance / (variance + noise)
    return weight


def worths(bags: Bags) -> tuple[Floats, Floats]:
    """(outputs,) p, and (m,) what each bag counts, noised ones less (see `bag_weights`), in that as in all else."""
    prior, weight = np.atleast_1d(means.prior(bags)), np.ones(len(bags))
    each = [bag_weights(bags, proportion, p) for proportion, p in zip(bags.outputs.T, prior, strict=True)]
    if known := [one for one in each if one is not None]:
        weight = np.mean(known, axis=0)
        prior = (weight * bags.size) @ bags.outputs / (weight @ bags.size)
    return prior, weight


def solve_leaves(
    leaf: Integers,
    n_leaves: int,
    parts: Parts,
    r: Sequence[Floats],
    bias: float,
    *,
    reg_lambda: float,
    slope: Floats | None = None,
    weight: Sequence[Floats | None] = (None,),
) -> Floats:
    r"""The leaf values v that minimise the penalised debiased loss.

    A tree adds :math:`v_{l(i)}` to the prediction of row i. With A the bags × leaves matrix of row counts, f the shares
    of rows in leaves and :math:`\tilde A = A - k f^T`, the debiased loss after the tree is quadratic in v:

    .. math:: \tfrac{1}{m} \sum_j (R_j - \tilde A_j v)^2 / k_j + (\bar h - p + f \cdot v)^2 + \tfrac{\lambda}{m} |v|^2

    Where trees add up on another scale than that of predictions, a row counts by the slope of its prediction instead of
    by 1, in A and in f, and λ by the square of the mean slope: a step of Gauss and Newton.
    The cost is that of one pass over the rows, plus leaves² per bag (or fewer where bags are small), plus leaves³.

    leaf: (n,) leaf of each row, in bag order.  r: of each part, (m,) R_j, which add up to 0 over all parts.
    bias: :math:`\bar h - p`.  reg_lambda: λ.  slope: (n,) how fast each prediction moves with its tree's value, in bag
    order; None: all 1.  weight: of each part, (m,) what each bag's square counts; None: all 1.
    Returns (n_leaves,).

    >>> parts = Parts.of(Bags.singletons([1.0, 0.0, 0.5]))
    >>> solve_leaves(np.array([0, 1, 1]), 2, parts, [np.array([0.5, -0.5, 0.0])], 0.0, reg_lambda=0.0).round(3)
    array([ 0.5 , -0.25])
    """
    m, n = len(parts.whole), parts.n_people
    if parts.weight is not None:
        slope = parts.weight if slope is None else parts.weight * slope
    slopes = [None if slope is None else slope[place] for place in parts.places]
    each = zip(parts.split(leaf), r, slopes, weight, strict=True)
    sums = parts.total(_square_sums(own, n_leaves, bags, r_, s, w) for (bags, own), r_, s, w in each)
    share, total, gram, square, right, moved, mean_slope = sums
    share, unit = share / n, 1.0 if slope is None else (mean_slope / n) ** 2
    matrix = gram - np.outer(total, share) - np.outer(share, total) + square * np.outer(share, share)
    right = right - moved * share
    matrix = matrix / m + np.outer(share, share)
    matrix[np.diag_indices(n_leaves)] += unit * (reg_lambda / m + 1e-12)  # an empty leaf gets the value 0
    return np.asarray(np.linalg.solve(matrix, right / m - share * bias))


def _square_sums(
    leaf: Integers, n_leaves: int, bags: Bags, r: Floats, slope: Floats | None, weight: Floats | None
) -> tuple[Any, ...]:
    """What leaf values of the square are solved from, sums over the rows and bags of a part; w: what bags count.

    ΣA_j, Σ w_j A_j, Σ w_j A_j A_jᵀ/k_j, Σ w_j k_j, Σ w_j A_j R_j/k_j, Σ w_j R_j, and the sum of slopes.
    """
    cells, _ = _cells(leaf, n_leaves, bags, np.ones(len(leaf), dtype=np.float32) if slope is None else slope)
    each = np.ones(len(bags)) if weight is None else weight
    gram, square = _gram(cells, each / bags.size), (each * bags.size).sum()
    right, slopes = cells.T @ (each * r / bags.size), 0.0 if slope is None else slope.sum()
    return np.asarray(cells.sum(axis=0)).ravel(), cells.T @ each, gram, square, right, (each * r).sum(), slopes


def _cells(leaf: Integers, n_leaves: int, bags: Bags, values: Floats, *others: Floats) -> tuple[Any, list[Floats]]:
    """(m, n_leaves) A: sums of values (n,) of the rows of each bag in each leaf; and (n_leaves,) of those of others.

    A is sparse where bags have fewer rows than leaves. Rows in single precision are added up in it inside of bags, as
    far as these are not huge.
    """
    m, n = len(bags), len(leaf)
    if n > m * _HUGE:
        values, others = values.astype(float), tuple(one.astype(float) for one in others)
    rows: Any = sparse.csr_array((values, leaf, bags.offsets.astype(leaf.dtype)), shape=(m, n_leaves))
    if m * n_leaves > 4 * n:  # equal entries of a row add up
        return rows.astype(float), [np.asarray(np.bincount(leaf, one, n_leaves), dtype=float) for one in others]
    cells, sums = rows.toarray().astype(float), []
    for one in others:
        rows.data = one
        sums.append(rows.toarray().sum(axis=0, dtype=float))
    return cells, sums


def _gram(cells: Any, scale: Floats) -> Floats:
    """Σ_j scale_j A_j A_jᵀ."""
    scaled = cells * np.sqrt(scale)[:, None]
    gram = scaled.T @ scaled
    return np.asarray(gram.toarray() if sparse.issparse(gram) else gram)
