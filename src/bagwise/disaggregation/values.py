r"""Mean values of groups from a model and the sums that bags of real labels report.

With :math:`\mu_i = a f_i + \delta_{g(i)} + b`, f the model's prediction, the sum of bag j is

.. math:: c_j = \sum_{i \in j} w_i \mu_i + r_j, \quad \mathrm{Var}(r_j) = s_j^2 = \phi \sum_{i \in j} w_i \mu_i^q + e_j,

w the people whom a row stands for and e the variance of noise. Least squares with weights :math:`1/s_j^2` finds a, δ
and b; q is 0, or of values that are never negative 0, 1 or 2, whichever makes residuals likeliest. Of the residual of a
bag a group has its share of the variance, so that values of groups add up to what bags report. The sum of a group then
varies

- as values do inside of bags whose sums are known;
- as a, δ and b do, by the sandwich over bags;
- where bags have unseen effects, so that :math:`s_j^2` grows with the square of their size, as those do that go along
  with the shares of groups, with a correlation ρ: by :math:`\rho\sqrt{m}\,\|\omega\|` (see `shifts`).

That all of a residual is taken for the chance of single values leaves more of it open than if it were an effect of the
bag or of the group in it, since how values of a bag spread is not told by their sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.optimize import minimize_scalar

from bagwise.bags import Bags
from bagwise.disaggregation.bounds import sums_in_bags
from bagwise.disaggregation.members import Groups, but_largest, members, of_these_alone, people_of, told_by_groups
from bagwise.disaggregation.rates import CONTRADICTED, by_identity, check_not_too_many, group_lines
from bagwise.disaggregation.refitting import Refit, cross_fitted
from bagwise.disaggregation.result import GroupRates
from bagwise.disaggregation.shifts import bending
from bagwise.formation import Told
from bagwise.utils.parameters import ParameterError
from bagwise.utils.text import number_of
from bagwise.utils.typing import Booleans, Floats

_TIGHT = 1e-9  # of a sum, between bounds that say the number
_POWERS = (0, 1, 2)
_ROUNDS = 4
_SMALL = 0.05  # of the mean value, below which what is expected of a row does not make its variance smaller
_FAR = 12.0  # e-fold changes of a variance that are looked through
_CLEARLY = 3.3  # log-likelihoods, by which sums of effects are more likely: a level of 1%
_MOST_LEVERAGE = 0.9
_WITHHELD = "where bags differ in labels alone, their means do not tell which rows have which"


def means_of(
    h: Floats,
    bags: Bags,
    groups: Groups,
    *,
    told: Told,
    refit: Refit | None,
    related: float,
    level: float,
    nonnegative: bool,
    rng: np.random.Generator,
) -> GroupRates:
    """As `group_rates`, of predictions, bags of real labels and groups.

    refit: of a model that has learned from these bags.  nonnegative: whether no value is negative.
    """
    if bags.overlap is not None:
        raise ParameterError("bags", "of several groupings tell rates of labels, not means of values: give one.")
    n, known_by_groups = groups.divisor, told_by_groups(h, groups.code, groups.people)
    apart = h if refit is None or known_by_groups else cross_fitted(h, bags, refit, rng)
    ends = sums_in_bags(groups.code, len(groups), bags, level, nonnegative=nonnegative)
    least, most = (end / n for end in ends)
    prediction = groups.total(h) / n
    known = np.isfinite(most) & (most - least <= _TIGHT * np.maximum(np.abs(least), np.abs(most)))
    open_ = ~known & (groups.size > 0)
    table = np.column_stack([prediction, np.clip(prediction, least, most), least, most, least, most])
    found: _Found | str = _WITHHELD
    if not open_.any():
        found = _Found(*table[:, 1:4].T)
    elif told.name != "rates":
        check_not_too_many(int(open_.sum()), bags, "mean values")
        found = _of_random(apart, bags, groups, level)
        if told.name != "random":
            found = _by_shifts(apart, bags, groups, known, told.name, related, level, nonnegative=nonnegative)
    doubt = found if isinstance(found, str) else None
    told_more: tuple[float, float, float | None] = (0.0, related, None)
    if not isinstance(found, str):
        for place, one in zip((1, 2, 3), (found.mean, found.low, found.high), strict=True):
            table[open_, place] = np.clip(one, least, most)[open_]
        told_more = (found.effect_variance, found.related, found.contradiction)
    rows, noised, of_people = int(groups.rows.sum()), bool(bags.declared_noise.any()), bags.weight is not None
    about = (told, len(bags), rows, level, *told_more, noised, doubt, of_people)
    return GroupRates(tuple(group_lines(groups, table)), *about, target="value")


@dataclass(frozen=True, eq=False)
class _Found:
    """Means (groups,), ends of their intervals, and what these rest on: see `GroupRates`."""

    mean: Floats
    low: Floats
    high: Floats
    effect_variance: float = 0.0
    related: float = 0.0
    contradiction: float | None = None


def _of_random(h: Floats, bags: Bags, groups: Groups, level: float) -> _Found | str:
    found = by_identity(h, bags, groups, "random", level)
    return found if isinstance(found, str) else _Found(*found)


def _by_shifts(
    h: Floats,
    bags: Bags,
    groups: Groups,
    known: Booleans,
    formation: str,
    related: float,
    level: float,
    *,
    nonnegative: bool,
) -> _Found | str:
    """The same where bags are formed by features, and may have effects."""
    code, n, number = groups.code, groups.divisor, len(groups)
    some = bags.take(np.flatnonzero(~of_these_alone(bags, code, known)))
    people = people_of(some)
    open_ = np.flatnonzero(~known & (groups.size > 0))
    shifted, alone = but_largest(open_, groups.size, known), told_by_groups(h, code, people)
    score = h / max(np.sqrt(people @ h**2 / people.sum()), 1e-300)
    inside = np.column_stack([np.zeros((len(h), 0)), *((code == g).astype(float)[:, None] for g in shifted)])
    forms = [np.column_stack([inside, *([] if alone else [score]), np.ones(len(h))])]
    if nonnegative and not alone:  # what adds, or what multiplies
        forms.append(np.column_stack([inside * score[:, None], score, np.ones(len(h))]))
    if len(some) - forms[0].shape[1] < 1:
        return f"{number_of(len(some), 'bag')} are too few for {number_of(len(open_), 'group')}"
    tried = [_Sums.fit(z, some, effects=formation == "effects", nonnegative=nonnegative) for z in forms]
    fitted = tried[-1] if tried[-1].log_likelihood > tried[0].log_likelihood + _CLEARLY else tried[0]
    p_value = fitted.contradicted(members(code, number, some))
    against = p_value if p_value < CONTRADICTED else None
    related, effects = (1.0 if against else related), fitted.effects or against is not None
    total, variance, drift = fitted.of_groups(groups, people)
    wide = float(stats.t.ppf((1 + level) / 2, fitted.freedom)) * np.sqrt(variance)
    wide = (wide + related * drift) / n if effects else wide / n
    found = total / n
    of_effects = fitted.effect_variance if effects else 0.0
    return _Found(found, found - wide, found + wide, of_effects, related, against)


@dataclass(frozen=True, eq=False)
class _Sums:
    """A fit of shifts to the sums of bags.

    z: (n_rows, d) features.  bags: with sums.  beta: (d,).  own: (n_rows,) variances of values, up to effects.  factor:
    (m,) by which these are larger in each bag.  effects: whether variances grow as those of effects of bags do.
    """

    z: Floats
    bags: Bags
    beta: Floats
    own: Floats
    factor: Floats
    effects: bool

    @classmethod
    def fit(cls, z: Floats, bags: Bags, *, effects: bool, nonnegative: bool) -> _Sums:
        """The likeliest of all variances.  effects: whether they surely grow as those of effects do."""
        sums, c, noise = bags.sum(z[bags.order]), bags.size * bags.proportion, bags.declared_noise
        freedom, powers = len(bags) - z.shape[1], _POWERS if nonnegative else _POWERS[:1]
        beta = _solved(sums, c, np.sqrt(bags.size + noise / max(float(bags.size.mean()), 1e-300)))
        mean = max(abs(float(c.sum() / bags.size.sum())), 1e-300)
        grows = {False: np.ones(len(bags)), True: bags.size / bags.size.mean()}
        for _ in range(_ROUNDS):
            least, residual = _SMALL * mean, c - sums @ beta
            tried = []
            for power in powers:
                own = np.maximum(z @ beta, least) ** power / mean**power
                for of_effects in (False, True):
                    shape = bags.sum(own[bags.order]) * grows[of_effects]
                    tried.append((*_scale(residual, shape, noise, freedom), own, of_effects))
            chance, beside = (max((one for one in tried if one[3] == kind), key=lambda one: one[0]) for kind in grows)
            best = beside if effects or beside[0] > chance[0] + _CLEARLY else chance
            own, factor = best[2], best[1] * grows[best[3]]
            beta = _solved(sums, c, np.sqrt(factor * bags.sum(own[bags.order]) + noise))
        return cls(z, bags, beta, own, factor, effects or best[3])

    @property
    def log_likelihood(self) -> float:
        """Of the residuals, up to a constant."""
        variance = self.spread + self.bags.declared_noise
        return -float((np.log(variance) + self.residual**2 / variance).sum()) / 2

    @property
    def freedom(self) -> float:
        """Bags beyond the number of weights; fewer where residuals have long tails, whose squares tell less."""
        m, square = len(self.bags), self.residual**2 / (self.spread + self.bags.declared_noise)
        kurtosis = float((square**2).mean() / max(square.mean() ** 2, 1e-300))
        return max(min(m - len(self.beta), 2 * m / max(kurtosis - 1, 1e-9)), 1.0)

    @property
    def spread(self) -> Floats:
        """(m,) variances of sums, without noise."""
        return np.asarray(self.factor * self.bags.sum(self.own[self.bags.order]))

    @property
    def effect_variance(self) -> float:
        """That of the means of bags, if all that varies are effects."""
        return float((self.spread / self.bags.size).sum() / self.bags.size.sum())

    @property
    def residual(self) -> Floats:
        """(m,) of sums."""
        bags = self.bags
        return np.asarray(bags.size * bags.proportion - bags.sum((self.z @ self.beta)[bags.order]))

    def of_groups(self, groups: Groups, people: Floats) -> tuple[Floats, Floats, Floats]:
        """(groups,) sums, their variances, and by how much effects that go along with shares of groups move them."""
        bags, number = self.bags, len(groups)
        sums, spread = bags.sum(self.z[bags.order]), self.spread
        variance = spread + bags.declared_noise
        inside = members(groups.code, number, bags, self.own) * self.factor[:, None]  # (m, groups)
        share = inside / variance[:, None]
        total = np.bincount(groups.code, people * (self.z @ self.beta), minlength=number) + share.T @ self.residual
        each = [np.bincount(groups.code, people * one, minlength=number) for one in self.z.T]
        change = np.column_stack(each) - share.T @ sums
        inverse = np.linalg.pinv(sums.T @ (sums / variance[:, None]))
        leverage = np.clip(np.einsum("ij,jk,ik->i", sums, inverse, sums) / variance, 0.0, _MOST_LEVERAGE)
        outward = sums * (self.residual / variance / (1 - leverage))[:, None]
        steps = change @ inverse
        left = (inside - inside * share).sum(axis=0) + ((steps @ outward.T) ** 2).sum(axis=1)
        pulls = sums * (np.sqrt(spread) / variance)[:, None]
        return total, left, np.sqrt(len(bags)) * np.sqrt(((steps @ pulls.T) ** 2).sum(axis=1))

    def contradicted(self, people: Floats) -> float:
        """The p-value of the shares of groups telling nothing of sums beyond the fit.  people: (m, groups)."""
        bags, root = self.bags, np.sqrt(self.spread + self.bags.declared_noise)
        linear = bags.sum(self.z[bags.order])
        bent = np.column_stack([linear, people**2 / bags.size[:, None]])
        p_value = bending(self.residual / root, linear / root[:, None], bent / root[:, None])
        return float(np.nan_to_num(p_value, nan=1.0))


def _solved(sums: Floats, c: Floats, root: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(sums / root[:, None], c / root)[0])


def _scale(residual: Floats, shape: Floats, noise: Floats, freedom: int) -> tuple[float, float]:
    """The log-likelihood of residuals (m,) of variance φ·shape + noise, and the likeliest φ."""
    m = len(residual)

    def value(of: float) -> float:
        variance = of * shape + noise
        return -float((np.log(variance) + residual**2 / variance).sum()) / 2

    found = max(float((residual**2 / shape).mean()), 1e-12 * float((1 / shape).mean()))
    if noise.any():
        bounds = (np.log(found) - _FAR, np.log(found) + 1)
        found = float(np.exp(minimize_scalar(lambda t: -value(float(np.exp(t))), bounds=bounds, method="bounded").x))
    return value(found), found * m / freedom
