"""What a model of single rows adds: whether bags differ in rates, have effects of their own, or neither."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit, logit, logsumexp

from bagwise.formation.formations import Told
from bagwise.gains import HeldOut
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats

SPREADS = np.geomspace(0.05, 3.0, 13)
"""Standard deviations of effects, or of the log odds of rates, that are tried."""

_FACTORS = np.array([-3.0, -1.5, -0.7, -0.3, 0.0, 0.3, 0.7, 1.0, 1.5, 3.0, 6.0])  # of log odds, to begin with
_VARIANCES = (0.01, 0.1, 0.5, 2.0)  # of effects, beside which a factor is looked for
_ROWS = 60_000  # of held-out bags that settle a formation
_FARTHEST = 6.0  # log odds that a bag may be away from what a model says
_COARSE, _FINE = 61, 1201  # points of effects at which sums over rows are computed, and between which they are drawn
_TOO_FAR = -600.0  # a logarithm near the smallest that numbers have
_CLEARLY = 3.0  # log-likelihood that bags which differ in more than their features have to gain
_UNSEEN = 6.0  # the same, where they differ in features that a model may not quite have understood
_RATHER = 10.0  # that rates have to gain over effects, which assume less, where no feature differs between bags


@dataclass(frozen=True)
class Support:
    """Log-likelihoods of held-out bags over those of the model as it is, each with the spread that suits it best.

    Attributes
    ----------
    rates, effects : float
        Of counts given the features of their rows, where rates of bags differ, and where bags have effects.
    rates_of_rows : float
        Of counts and rows together, where rates differ, over that of rows drawn at random and their counts: what
        effects of random rows have to be compared with.
    effects_spread : float
        The standard deviation of effects, on log odds; 0 where there are none.
    """

    rates: float
    effects: float
    rates_of_rows: float
    effects_spread: float


def support(parts: Sequence[HeldOut], *, factors: Sequence[float] = (1.0,)) -> Support:
    r"""What held-out bags say for rates or effects, beside a model of their rows.

    In both, the log odds of all rows of a bag move by an :math:`u \sim N(0, \tau^2)`. Of effects, features tell
    nothing; of rates they do, since they are those of more or fewer rows of either label. With
    :math:`G(u) = \sum_i \log\frac{1 + e^{s_i+u}}{1 + e^{s_i}}` and r the rate that u moves p to, a count c has

    .. math:: \frac{P(c \mid x, u)}{P(c \mid x, 0)} = e^{uc - G(u)}, \qquad
              \frac{P(x \mid u)}{P(x \mid 0)} = e^{G(u)} \Bigl(\frac{1-r}{1-p}\Bigr)^k

    Parameters
    ----------
    parts : sequence of HeldOut
        What a model of labels 0 and 1 says of bags it was not fitted to; some of them serve where they are many.
    factors : sequence of float
        Of the model's log odds, each case takes the one of these that suits it best.

    Returns
    -------
    Support
    """
    some = [part.some(_ROWS // len(parts)) for part in parts]
    alone = np.zeros((len(factors), 1))
    if len(factors) > 1:
        alone += np.sum([part.log_likelihoods(np.asarray(factors)).sum(axis=1) for part in some], axis=0)[:, None]
        alone -= alone.max()
    # (factors, spreads), each
    rates, rows, effects = np.stack([np.sum([moved(part, one) for part in some], axis=0) for one in factors], axis=1)
    spread = float(SPREADS[int(np.argmax((effects + alone).max(axis=0)))]) if (effects + alone).max() > 0 else 0.0
    most = [max(float((one + alone).max()), 0.0) for one in (rates, effects, rates + rows)]
    return Support(most[0], most[1], most[2], spread)


def likeliest_factors(parts: Sequence[HeldOut]) -> tuple[float, float]:
    """The factors of a model's log odds that held-out counts make likeliest, without effects of bags and with them.

    They are below 0 where the model has it the wrong way round.

    Parameters
    ----------
    parts : sequence of HeldOut
        What a model of labels 0 and 1 says of bags it was not fitted to; some of them serve where they are many.

    Returns
    -------
    float, float

    Examples
    --------
    >>> from bagwise.bags import Bags
    >>> rng = np.random.default_rng(0)
    >>> s = rng.normal(size=6400)
    >>> y = (rng.random(6400) < expit(2 * s)).reshape(-1, 8).mean(axis=1)
    >>> found = likeliest_factors([HeldOut(0.5, s, s, Bags.from_rows(np.repeat(y, 8), np.arange(6400) // 8))])
    >>> 1.5 < found[0] < 2.5
    True
    """
    some = [part.some(_ROWS // (4 * len(parts))) for part in parts]

    def total(factors: Floats, variance: float) -> Floats:
        each = [one.log_likelihoods(factors, effect_variance=variance).sum(axis=1) for one in some]
        return np.asarray(np.sum(each, axis=0))

    found = []
    for variances in ((0.0,), _VARIANCES):
        totals = np.array([total(_FACTORS, one) for one in variances])
        which, best = (int(one) for one in np.unravel_index(int(np.argmax(totals)), totals.shape))
        finer = minimize_scalar(
            lambda factor, variance: -total(np.array([factor]), variance)[0],
            args=(variances[which],),
            bounds=(float(_FACTORS[max(best - 1, 0)]), float(_FACTORS[min(best + 1, len(_FACTORS) - 1)])),
            method="bounded",
            options={"xatol": 0.02 * max(abs(float(_FACTORS[best])), 0.2)},
        )
        found.append(float(finer.x) if -finer.fun > totals.max() else float(_FACTORS[best]))
    return found[0], found[1]


def moved(part: HeldOut, factor: float = 1.0) -> tuple[Floats, Floats, Floats]:
    """(spreads,) log-likelihoods, over those without: of counts by rates, of rows by rates, of counts by effects."""
    bags, p = part.bags, float(np.asarray(part.prior))
    start = logit(p)
    s = part.stretched(np.array([factor]))[0]
    coarse, u = np.linspace(-_FARTHEST, _FARTHEST, _COARSE), np.linspace(-_FARTHEST, _FARTHEST, _FINE)
    value = np.stack([bags.sum(np.logaddexp(0, s + one)) for one in coarse], axis=1)
    value -= value[:, [_COARSE // 2]]
    rise = np.stack([bags.sum(expit(s + one)) for one in coarse], axis=1)
    count, size = (bags.size * bags.proportion)[:, None], bags.size[:, None]
    noise = None if bags.noise_variance is None else bags.noise_variance[:, None]
    weights = stats.norm.logpdf(u, scale=SPREADS[:, None])
    weights -= logsumexp(weights, axis=1, keepdims=True)
    rates, rows, effects = np.zeros((3, len(SPREADS)))
    for some in np.array_split(np.arange(len(bags)), max(1, len(bags) // 256)):
        check_time()
        sums = _between(coarse, value[some], rise[some], u)
        given_x = sums + size[some] * (log_expit(-start - u) - log_expit(-start))
        given_u = count[some] * u - sums if noise is None else _noised(coarse, rise[some], u, count[some], noise[some])
        of_rows = _log_means(given_x, weights)
        effects += _log_means(given_u, weights).sum(axis=0)
        rates += (_log_means(given_x + given_u, weights) - of_rows).sum(axis=0)
        rows += of_rows.sum(axis=0)
    return rates, rows, effects


def _log_means(values: Floats, log_weights: Floats) -> Floats:
    """(m, spreads) the logarithm of means of exp(values), of shape (m, u), by weights of shape (spreads, u)."""
    top = values.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        found = np.log(np.exp(values - top) @ np.exp(log_weights).T)
    far = np.flatnonzero((found < _TOO_FAR).any(axis=1))
    found += top
    for i, weight in enumerate(log_weights if len(far) else ()):  # where what counts is lost beside the greatest
        found[far, i] = logsumexp(weight + values[far], axis=1)
    return np.asarray(found)


def _noised(x: Floats, rise: Floats, at: Floats, count: Floats, noise: Floats) -> Floats:
    """(m, at) log-likelihood ratios of counts with noise, by normal laws; rise: expected counts at x."""
    curve = np.maximum(np.gradient(rise, x, axis=1), 1e-9)
    left = np.clip(((at - x[0]) / (x[1] - x[0])).astype(int), 0, len(x) - 2)
    f = (at - x[left]) / (x[1] - x[0])
    mean, variance = ((1 - f) * one[:, left] + f * one[:, left + 1] for one in (rise, curve))
    found = stats.norm.logpdf(count, mean, np.sqrt(variance + noise))
    return np.asarray(found - found[:, [len(at) // 2]])


def _between(x: Floats, value: Floats, rise: Floats, at: Floats) -> Floats:
    """(m, at) functions known at x with their derivatives, by cubics."""
    step = x[1] - x[0]
    left = np.clip(((at - x[0]) / step).astype(int), 0, len(x) - 2)
    f = (at - x[left]) / step
    ends = (2 * f**3 - 3 * f**2 + 1, -2 * f**3 + 3 * f**2, step * (f**3 - 2 * f**2 + f), step * (f**3 - f**2))
    columns = (value[:, left], value[:, left + 1], rise[:, left], rise[:, left + 1])
    return np.asarray(sum(one * column for one, column in zip(ends, columns, strict=True)))


def settled(found: Told, parts: Sequence[HeldOut], *, factors: Sequence[float] = (1.0,)) -> Told:
    """The formation that is left when a model has been asked, too.

    Parameters
    ----------
    found : Told
        As told without a model.
    parts : sequence of HeldOut
        What a model says of bags it was not fitted to. It should have been fitted for the weakest of the formations in
        question: one that was fitted for rates is drawn to p where bags have effects, and these then look like rates.
    factors : sequence of float
        As in `support`.

    Returns
    -------
    Told
        The same where a model has nothing to say: nothing else was possible, or there are several classes.
    """
    if not found.others or any(part.scores.ndim != 1 for part in parts):
        return found
    return settled_by(found, support(parts, factors=factors))


def settled_by(found: Told, say: Support) -> Told:
    """The same, from what held-out bags say.

    Parameters
    ----------
    found : Told
        As told without a model.
    say : Support
        As `support` measures it.

    Returns
    -------
    Told
    """
    if found.name == "features":
        if say.effects < _UNSEEN:
            return replace(found, others=())
        return Told(
            "effects",
            f"{found.reason}, and, as a model tells, in something unseen (sd {say.effects_spread:.2g} on log odds)",
        )
    if max(say.effects, say.rates) < _CLEARLY:
        return Told("features", f"{found.reason}, as a model of single rows explains")
    # Where features differ as proportions do, a model that knows little speaks for neither: then bags themselves have.
    needed = -_CLEARLY if "features" in found.others else _RATHER
    if say.rates_of_rows > say.effects + needed:
        return replace(found, others=())
    return Told("effects", f"{found.reason}, which features do not tell, as a model shows")
