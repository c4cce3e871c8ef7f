"""What a model of single rows adds: whether bags differ in rates, have effects of their own, or neither."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats
from scipy.special import expit, log_expit, logit, logsumexp

from bagwise.formation.formations import Told
from bagwise.gains import HeldOut
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats

SPREADS = np.geomspace(0.05, 3.0, 13)
"""Standard deviations of effects, or of the log odds of rates, that are tried."""

_ROWS = 60_000  # of held-out bags that settle a formation
_FARTHEST = 6.0  # log odds that a bag may be away from what a model says
_COARSE, _FINE = 61, 1201  # points of effects at which sums over rows are computed, and between which they are drawn
_CLEARLY = 3.0  # log-likelihood that bags which differ in more than their features have to gain
_RATHER = 1.0  # that rates have to gain over effects, which assume less


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


def support(parts: Sequence[HeldOut]) -> Support:
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

    Returns
    -------
    Support
    """
    rates, rows, effects = np.sum([moved(part.some(_ROWS // len(parts))) for part in parts], axis=0)
    spread = float(SPREADS[int(np.argmax(effects))]) if effects.max() > 0 else 0.0
    most = [max(float(one.max()), 0.0) for one in (rates, effects, rates + rows)]
    return Support(most[0], most[1], most[2], spread)


def moved(part: HeldOut) -> tuple[Floats, Floats, Floats]:
    """(spreads,) log-likelihoods, over those without: of counts by rates, of rows by rates, of counts by effects."""
    bags, p = part.bags, float(np.asarray(part.prior))
    start = logit(p)
    s = part.scores + part.shift()
    coarse, u = np.linspace(-_FARTHEST, _FARTHEST, _COARSE), np.linspace(-_FARTHEST, _FARTHEST, _FINE)
    value = np.stack([bags.sum(np.logaddexp(0, s + one)) for one in coarse], axis=1)
    value -= value[:, [_COARSE // 2]]
    rise = np.stack([bags.sum(expit(s + one)) for one in coarse], axis=1)
    count, size = (bags.size * bags.proportion)[:, None], bags.size[:, None]
    rates, rows, effects = np.zeros((3, len(SPREADS)))
    for some in np.array_split(np.arange(len(bags)), max(1, len(bags) // 256)):
        check_time()
        sums = _between(coarse, value[some], rise[some], u)
        given_x = sums + size[some] * (log_expit(-start - u) - log_expit(-start))
        given_u = count[some] * u - sums
        for i, spread in enumerate(SPREADS):
            weight = stats.norm.logpdf(u, scale=spread)
            weight -= logsumexp(weight)
            of_rows = logsumexp(weight + given_x, axis=1)
            effects[i] += logsumexp(weight + given_u, axis=1).sum()
            rates[i] += (logsumexp(weight + given_x + given_u, axis=1) - of_rows).sum()
            rows[i] += of_rows.sum()
    return rates, rows, effects


def _between(x: Floats, value: Floats, rise: Floats, at: Floats) -> Floats:
    """(m, at) functions known at x with their derivatives, by cubics."""
    step = x[1] - x[0]
    left = np.clip(((at - x[0]) / step).astype(int), 0, len(x) - 2)
    f = (at - x[left]) / step
    ends = (2 * f**3 - 3 * f**2 + 1, -2 * f**3 + 3 * f**2, step * (f**3 - 2 * f**2 + f), step * (f**3 - f**2))
    columns = (value[:, left], value[:, left + 1], rise[:, left], rise[:, left + 1])
    return np.asarray(sum(one * column for one, column in zip(ends, columns, strict=True)))


def settled(found: Told, parts: Sequence[HeldOut]) -> Told:
    """The formation that is left when a model has been asked, too.

    Parameters
    ----------
    found : Told
        As told without a model.
    parts : sequence of HeldOut
        What a model says of bags it was not fitted to. It should have been fitted for the weakest of the formations in
        question: one that was fitted for rates is drawn to p where bags have effects, and these then look like rates.

    Returns
    -------
    Told
        The same where a model has nothing to say: nothing else was possible, or there are several classes.
    """
    if not found.others or any(part.scores.ndim != 1 for part in parts):
        return found
    say = support(parts)
    if found.name == "features":
        if say.effects < _CLEARLY:
            return replace(found, others=())
        return Told(
            "effects",
            f"{found.reason}, and, as a model tells, in something unseen (sd {say.effects_spread:.2g} on log odds)",
        )
    if max(say.effects, say.rates) < _CLEARLY:
        return Told("features", f"{found.reason}, as a model of single rows explains")
    if say.rates_of_rows > say.effects + _RATHER:
        return replace(found, others=())
    return Told("effects", f"{found.reason}, which features do not tell, as a model shows")
