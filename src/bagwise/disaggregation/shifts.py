r"""Groups whose log odds have a shift each, as likely as the reports of bags make them, and how sure that is.

A model's scores may be shrunken, or know nothing of a group. With :math:`s_i = a f_i + \delta_{g(i)} + b + o_i`, f the
model's score and o the offset of rows, where they have one, the count likelihood without a penalty says what reports
tell of the groups. The number of positives in a group given all reports, :math:`T_g = \sum_{i \in g} w_i q_i`, w the
people whom a row stands for, then varies

- as labels do inside of bags whose counts are known: :math:`G^\top v G - G^\top v B (B^\top v B + e)^{-1} B^\top v G`,
  v = wq(1 − q), B and G the bags and groups of rows, e the variance of noise on counts;
- as a, δ and b do, by the sandwich over bags;
- where bags have unseen effects, as those of a group differ from those of the rest of its bag.

Effects that go along with the shares of groups cannot be told from rates of these. With a correlation ρ they move
T_g by :math:`\rho\tau\sqrt{m}\,\|\omega\|`, ω the change of its error by the effect of each of m bags.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse, stats
from scipy.sparse.linalg import splu
from scipy.special import expit

from bagwise.bags import Bags
from bagwise.disaggregation.members import members, one_by_one, people_of
from bagwise.gains import most_likely
from bagwise.linear.design import Design
from bagwise.linear.likelihood import Point, System, maximise, system
from bagwise.log_odds import prior_of
from bagwise.losses.log_likelihood import log_likelihoods
from bagwise.losses.tilting_intervals import tilted
from bagwise.predictions import given_reports
from bagwise.utils.typing import Floats, Integers

_LIGHT = 0.1  # a penalty that counts only where bags tell next to nothing of a weight: it then has a variance of 10
_EFFECTS, _ROUNDS, _SAME = 0.1, 6, 0.1  # where the search for τ² begins, and when it ends
_LEAST = 1e-9  # of a variance
_SUREST = 1e-9  # what probabilities are kept above, and as far below 1
_TWICE = 1e-9  # added to the curvature of counts, of which one may follow from others


@dataclass(frozen=True, eq=False)
class Shifts:
    """A fit of shifts to the reports of bags.

    table: (n_rows, d) indicators and scores.  design: of the rows of bags, once for each bag.  bags: as given.
    effect_variance: τ².  freedom: bags beyond the number of weights.
    """

    table: Floats
    design: Design
    bags: Bags
    at: Point
    sums: System
    effect_variance: float
    freedom: int

    @property
    def standardised(self) -> Floats:
        """(n_rows, d) features as weights are for them."""
        return (self.table - self.design.mean) / self.design.scale

    def given_reports(self) -> tuple[Floats, Floats]:
        """(n_rows,) probabilities with these shifts alone, and given the reports, too."""
        s = self.standardised @ self.at.w + self.at.intercept
        offset = self.bags.of_table(self.bags.offset)
        h = np.clip(expit(s if offset is None else s + offset), _SUREST, 1 - _SUREST)
        return h, given_reports(h, self.bags, self.effect_variance)


def fit_shifts(table: Floats, bags: Bags, *, effects: bool) -> Shifts:
    """The likeliest weights of features (n_rows, d).  effects: whether bags may have effects of their own."""
    apart, rows = bags, table
    if bags.overlap is not None:
        apart, rows = bags.apart(), table[bags.order]
    design, prior, (m, d) = Design.of(rows, apart), prior_of(apart), (len(bags), table.shape[1])
    penalty, freedom, tau, start = np.full(d, _LIGHT), m - d - 1, _EFFECTS if effects else 0.0, None
    for _ in range(_ROUNDS):
        at = maximise(design, prior, penalty, effect_variance=tau, start=start, close=1e-4)
        if not effects:
            break
        found = _effects_beside(at.s, apart) * m / max(freedom, 1)  # some of the effects were taken for shifts
        last, tau, start = tau, found, at.w
        if abs(tau - last) <= _SAME * tau:
            break
    return Shifts(table, design, bags, at, system(design, at), tau, freedom)


def _effects_beside(s: Floats, bags: Bags) -> float:
    return most_likely(lambda t: float(log_likelihoods(s, bags, effect_variance=t).sum()))


@dataclass(frozen=True, eq=False)
class Positives:
    """The positives of each group given the reports.

    count: (groups,).  variance: (groups,) of the count about the true one.  drift: (groups,) by how much effects that
    go along with the shares of groups move it, for a correlation of 1.  follows: (groups, groups) by how much the count
    of the first changes with that of the second, as weights do: what one group has less others have more.
    """

    count: Floats
    variance: Floats
    drift: Floats
    follows: Floats


def positives(fitted: Shifts, code: Integers, groups: int) -> Positives:
    """What a fit says of the groups of rows in bags.  code: (n_rows,)."""
    bags, m, n = fitted.bags, len(fitted.bags), len(code)
    h, q = fitted.given_reports()
    people, spread = people_of(bags), q * (1 - q)
    v = people * spread
    z = np.column_stack([fitted.standardised - fitted.sums.centre, np.ones(n)])
    group = sparse.csr_array((np.ones(n), (code, np.arange(n))), shape=(groups, n))
    bag = sparse.csr_array((np.ones(bags.n_bagged), bags.order, bags.offsets), shape=(m, n))
    extra = _extra(h, q, bags, fitted.effect_variance)
    known = np.isfinite(extra)
    # What is left of the spread of groups, and of their change by weights, once counts of bags are held.
    weighted = bag.multiply(v).tocsr()[known]
    curvature = (weighted @ bag[known].T + sparse.diags_array(extra[known] + _TWICE)).tocsc()
    solve = splu(curvature).solve
    shared = (weighted @ group.T).toarray()  # (bags, groups)
    held = solve(shared)
    count = np.bincount(code, people * q, minlength=groups)
    left = np.bincount(code, v, minlength=groups) - (shared * held).sum(axis=0)
    change = group @ (v[:, None] * z) - held.T @ (weighted @ z)  # (groups, d + 1)
    inverse, covariance = fitted.sums.sandwich(_LIGHT)
    tables = 1 if bags.overlap is None else len(np.unique(bags.overlap.table))  # sums vary at most so much
    variance = np.maximum(left, 0.0) + tables * np.einsum("gi,ij,gj->g", change, covariance, change)
    together = change @ covariance @ change.T
    follows = np.clip(together / np.maximum(np.diag(together), 1e-300), -1.0, 1.0)
    drift, tau = np.zeros(groups), np.sqrt(fitted.effect_variance)
    if tau > 0:
        variance += fitted.effect_variance * _own_effects(spread, code, groups, bags)
        drift = tau * np.sqrt(m) * np.sqrt(((change @ inverse @ _pulls(fitted).T) ** 2).sum(axis=1))
    return Positives(np.asarray(count, dtype=float), variance, drift, follows)


def contradiction(fitted: Shifts, code: Integers, groups: int) -> float:
    """The p-value of the shares of groups telling nothing of counts beyond the fit; NaN where bags are too few.

    If rates of a group changed with its share, counts would bend: squares of shares would tell of residuals.
    """
    bags, at = fitted.design.bags, fitted.at
    root = np.sqrt(np.maximum(at.found.variance, _LEAST))
    count = bags.size * bags.proportion if bags.interval is None else bags.sum(at.found.posterior)
    residual, v = (count - bags.sum(at.h)) / root, at.h * (1 - at.h)
    cell = bags.repeat(np.arange(len(bags))) * groups + code[fitted.bags.order]
    own, people = (
        np.bincount(cell, of, minlength=len(bags) * groups).reshape(len(bags), -1)
        for of in (bags.weighted(v), bags.weight)
    )
    linear = np.column_stack([bags.sum(v[:, None] * fitted.standardised[fitted.bags.order]), bags.sum(v)])
    bent = np.column_stack([linear, own * people / bags.size[:, None]])
    return bending(residual, linear / root[:, None], bent / root[:, None])


def bending(residual: Floats, linear: Floats, bent: Floats) -> float:
    """The p-value of residuals (m,) not following what `bent` (m, d) has beyond `linear`; NaN for too few bags."""
    m = len(residual)

    def left(features: Floats) -> tuple[float, int]:
        beta, _, rank, _ = np.linalg.lstsq(features, residual, rcond=1e-9)
        rest = residual - features @ beta
        return float(rest @ rest), int(rank)

    (before, some), (after, more) = left(linear), left(bent)
    if more == some or m <= more or after <= 0:
        return float("nan")
    return float(stats.f.sf((before - after) / (more - some) / (after / (m - more)), more - some, m - more))


def _extra(h: Floats, q: Floats, bags: Bags, effect_variance: float) -> Floats:
    """(m,) variance of what is reported beside that of labels; infinite where a report says nothing more."""
    own = bags.sum((h * (1 - h))[bags.order])
    noise = bags.declared_noise / (1 + effect_variance * own)
    if bags.interval is None:
        return np.asarray(noise)
    if bags.overlap is None:
        s = np.log(h) - np.log1p(-h)
        found = tilted(s[bags.order], bags, extra=noise)
        return np.asarray(np.maximum(found.variance - bags.sum(found.spread), 0.0))
    sums, ends = bags.sum(q[bags.order]), bags.interval
    between = ends.open & (sums > ends.low + 1e-6) & (sums < ends.high - 1e-6)
    return np.where(between, np.inf, noise)


def _own_effects(spread: Floats, code: Integers, groups: int, bags: Bags) -> Floats:
    r"""(groups,) :math:`\sum_j A^2 R^2 / (A^2 + R^2)`, A and R the spread of a group's rows in a bag and of the rest.

    An effect of the group alone and one of the rest, alike in size, whose sum the count tells. Groupings add up, which
    is at least what several of them leave.
    """
    found = []
    for part in one_by_one(bags):
        own = members(code, groups, part, spread)
        rest, total = own.sum(axis=1, keepdims=True) - own, own**2
        total = total + rest**2
        found.append((own**2 * rest**2 / np.maximum(total, _LEAST)).sum(axis=0))
    return np.asarray(np.sum(found, axis=0))


def _pulls(fitted: Shifts) -> Floats:
    """(m, d + 1) the change of gradients by the effect of each bag."""
    found = fitted.at.found
    own = fitted.design.bags.sum(found.spread)
    pulls = fitted.sums.pull * (own / np.sqrt(np.maximum(found.variance, _LEAST)))[:, None]
    pulls[:, -1] = own
    return np.asarray(pulls)
