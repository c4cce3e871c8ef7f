r"""Before any data: the regret that rows in bags of k with noise ε allow, in four answers.

*Guaranteed*: a theorem's bound for random bags (`two_function_bound` for two candidates, `erm_bound` for more).
*Likely*: kept with the same probability, as far as sums over bags are normal. *Expected*: the mean, so far as they are.
*Impossible below*: the information bound (`information_bound`). The second and the third follow from what a bag is
worth (`bag_information`) and are for every formation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log, sqrt
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from bagwise.theory.bounds import HYPOTHESES, REGRET, least_bags, least_regret
from bagwise.theory.erm import HypothesisClass, erm_bound
from bagwise.theory.formations import EFFECTS, RANDOM, RATES, PlannedBags, bag_information, information_limit
from bagwise.theory.two_function import (
    SymmetricPair,
    TwoFunctions,
    binary_entropy,
    information_bound,
    information_regret,
    two_function_bound,
)
from bagwise.utils.parameters import NONE, Constraint, Parameter, ParameterError, check_parameters, number, whole

_CONSTRAINTS = {
    "hypotheses": HYPOTHESES,
    "error": number(above=0, below=0.5),
    "parameters": whole(1) | NONE,
    "further": Constraint(
        "sizes of bags, whole numbers from 1 on",
        lambda sizes: isinstance(sizes, tuple) and all(isinstance(k, int) and k >= 1 for k in sizes),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Setting(PlannedBags):
    """What would be published, and what would be learned from it.

    Parameters
    ----------
    size, epsilon, prior, risk, formation, rates_sd, effects_sd, between
        As in `PlannedBags`.
    noise_scale, mechanism, sensitivity, hidden, rounded, clamped, value_sd
        As in `PlannedBags`.
    hypotheses, error : int, float
        Candidates to choose from, the truth among them, and δ, the allowed probability of a worse choice.
    parameters : int or None
        Numbers fitted by least squares, of a linear model; the likely and the expected regret are then those of the
        fit.
    further : tuple of int
        Sizes of the bags of further tables about the same rows, whose groupings are crossed with the first and with
        each other, reported in the same way (see `together`). A table that groups rows as another does adds nothing.
    """

    hypotheses: int = 100
    error: float = 0.05
    parameters: int | None = None
    further: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parameters(self, _CONSTRAINTS)
        if self.further and self.formation in (RATES, EFFECTS):
            said = " is random or features: where rates or effects differ by table, what these share is not known."
            raise ParameterError("further", "tables are planned where ", Parameter("formation"), said)

    def together(self, bags: float, information: Callable[[PlannedBags], float] = bag_information) -> float:
        r"""As many bags of the first table alone as tell what those of all tables do.

        Counts :math:`c = A y` of bags that share rows have covariance :math:`r A A^\top` given the rows, so that for a
        function that differs from the truth by independent D they hold :math:`\mathrm{rank}(A)\,\beta/r`: where
        groupings are crossed, so that all bags hang together, :math:`\sum_t m_t - (T - 1)` bags, since the total is
        known from one. A table that another one implies adds nothing to the rank. Noise leaves the sum of what tables
        tell at most, which large bags reach.

        Parameters
        ----------
        bags : float
            Of the first table.
        information : callable
            Of a bag.

        Returns
        -------
        float

        Examples
        --------
        >>> Setting(size=64, further=(128,)).together(1000)
        1499.0
        """
        if not self.further:
            return bags
        own, rows = information(self), bags * self.size
        others = [(information(replace(self, size=k)) / own, rows / k) for k in self.further]
        return bags + sum(worth * max(m - 1, 0.0) for worth, m in others)

    def problem(self, regret: float) -> dict[str, Any]:
        """What the descriptions of problems share, for a target β."""
        return {"size": self.size, "regret": regret, "error": self.error, "epsilon": self.count_epsilon}

    @property
    def count_epsilon(self) -> float | None:
        """ε of the discrete Laplace noise on counts."""
        return None if self.epsilon is None else self.epsilon / (self.sensitivity or 1.0)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Four numbers of one kind, regrets or bags. Infinite: nothing is promised, or nothing suffices.

    Attributes
    ----------
    guaranteed : float
        By a theorem with probability 1 − δ, for every distribution and random bags; with more than two candidates for
        the split of `clipped_erm`. Infinite where the theorem promises no more than a constant guess does.
    likely : float
        The quantile 1 − δ of the regret, among candidates that make it largest.
    expected : float
        The mean of the regret, among candidates that make it largest.
    impossible : float
        Below it no method can be sure to come, with probability 1 − δ.
    """

    guaranteed: float
    likely: float
    expected: float
    impossible: float


# -- what is likely and what is expected ---------------------------------------------------------------------------


def likely_bags(setting: Setting, regret: float) -> float:
    r"""Bags with which a `regret` β is kept with probability 1 − δ, as far as sums over bags are normal.

    Between the truth and a function at distance β, the losses of a bag differ by DS/k (see `theory.erm`), which in
    random bags has mean β and, as D and S are nearly normal and independent, variance 4βr; in general 4β/J, J the
    `bag_information`. All of \|H\| − 1 others at distance β lose with probability 1 − δ if
    :math:`m = 4 z^2/(J\beta)`, z the normal quantile of δ/(\|H\| − 1). Others are farther, which helps, or nearer,
    which does not matter: no class needs more.

    With `parameters` d: see `likely_regret`.

    Parameters
    ----------
    setting : Setting
    regret : float
        Target β.

    Returns
    -------
    float

    Examples
    --------
    >>> likely_bags(Setting(size=64, hypotheses=2), 0.01)
    271.0
    >>> likely_bags(Setting(size=64, hypotheses=2, formation="rates", rates_sd=0.2), 0.01)
    25.0
    """
    return _bags_for(setting, regret, likely_regret)


def likely_regret(setting: Setting, bags: float) -> float:
    r"""The quantile 1 − δ of the regret with so many `bags`, see `likely_bags`; p(1 − p) at most.

    With `parameters` d, least squares on m centroids of normal features leaves a regret distributed like
    :math:`\tfrac{1}{J} \tfrac{d}{m-d+1} F_{d,\,m-d+1}`. Under rates it is the slopes on proportions that are estimated,
    and m bags are enough for any number of them: :math:`\tfrac{1}{J} \tfrac{d}{m-1} F_{d,\,m-1}`.
    """
    _check_bags(bags)
    if setting.parameters is None:
        z = float(stats.norm.isf(setting.error / (setting.hypotheses - 1)))
        return _at_most(setting, 4 * z**2 / (_information(setting) * setting.together(bags)))
    d, left = setting.parameters, _left(setting, bags)
    if left <= 0:
        return setting.label_variance
    return _at_most(setting, d / left * float(stats.f.isf(setting.error, d, left)) / _information(setting))


def expected_bags(setting: Setting, regret: float) -> float:
    """Bags with which the mean of the regret is β, the `regret`, among candidates that make it largest.

    See `expected_regret`.

    Parameters
    ----------
    setting : Setting
    regret : float
        Target β.

    Returns
    -------
    float

    Examples
    --------
    >>> expected_bags(Setting(size=64), 0.01)
    368.0
    """
    return _bags_for(setting, regret, expected_regret)


def expected_regret(setting: Setting, bags: float) -> float:
    r"""The mean of the regret with so many `bags`, among candidates that make it largest; p(1 − p) at most.

    If all others are at distance β in directions of their own, one of them is chosen with probability
    :math:`1 - \Phi(\sqrt{m \beta J}/2)^{|H|-1}` and the regret is β. Candidates that are nearer cost less, those that
    are farther are chosen less often: the mean is largest for one β between, and it is :math:`4C/(Jm)` there,
    :math:`C = \max_u u\,(1 - \Phi(\sqrt{u})^{|H|-1})`, 0.17 for 2 candidates, 1.05 for 10, 3.7 for 100. Where distances
    are spread at random, the mean is 0.4 to 0.9 of it at the scale of distances at which it is largest, and much less
    where few candidates are in question or all are near (`benchmarks/choice.py`).

    With `parameters` d the mean of least squares, see `likely_regret`: :math:`\tfrac{1}{J} \tfrac{d}{m-d-1}`, under
    rates :math:`\tfrac{1}{J} \tfrac{d}{m-3}`.

    Parameters
    ----------
    setting : Setting
    bags : float

    Returns
    -------
    float

    Examples
    --------
    >>> round(expected_regret(Setting(size=64), 368), 4)
    0.01
    """
    _check_bags(bags)
    if setting.parameters is None:
        spread = 4 * _largest_mean(setting.hypotheses)
        return _at_most(setting, spread / (_information(setting) * setting.together(bags)))
    left = _left(setting, bags) - 2
    return _at_most(setting, setting.parameters / (_information(setting) * left) if left > 0 else inf)


def _information(setting: Setting) -> float:
    """J; slopes do not know what a model explains."""
    slopes = setting.parameters is not None and setting.formation == RATES
    return bag_information(replace(setting, risk=None) if slopes else setting)


def _left(setting: Setting, bags: float) -> float:
    """Degrees of freedom that least squares leaves to its residuals, plus one; under rates, those of proportions."""
    assert setting.parameters is not None
    return setting.together(bags) - (1 if setting.formation == RATES else setting.parameters - 1)


def _check_bags(bags: float) -> None:
    check_parameters({"bags": bags}, {"bags": number(above=0)})


def _at_most(setting: Setting, regret: float) -> float:
    return min(regret, setting.label_variance)


def _bags_for(setting: Setting, regret: float, regret_of: Callable[[Setting, float], float]) -> float:
    """Least whole number of bags whose regret is β at most."""
    check_parameters({"regret": regret}, {"regret": REGRET if setting.value_sd is None else number(above=0)})
    if regret >= setting.label_variance:  # a constant guess will do
        return 1.0
    return least_bags(lambda bags: regret_of(setting, bags) <= regret * (1 + 1e-12))


@lru_cache
def _largest_mean(hypotheses: int) -> float:
    """C of `expected_regret`."""

    def less(root: float) -> float:
        return float(root**2 * np.expm1((hypotheses - 1) * special.log_ndtr(root)))

    return -float(optimize.minimize_scalar(less, bounds=(0.1, 2 + sqrt(2 * log(hypotheses))), method="bounded").fun)


# -- all answers ---------------------------------------------------------------------------------------------------


def regrets(setting: Setting, bags: float) -> Answer:
    """The regret that so many `bags` guarantee, make likely, let expect, and make impossible to go below.

    Examples
    --------
    >>> answer = regrets(Setting(size=64, epsilon=1.0, hypotheses=2), 15_625)
    >>> [f"{value:.2g}" for value in (answer.guaranteed, answer.likely, answer.expected, answer.impossible)]
    ['0.0045', '0.00019', '1.2e-05', '7.1e-05']

    The mean may be below what is impossible with probability 1 − δ: most choices between two cost nothing.
    """
    _check_bags(bags)
    return Answer(
        guaranteed=least_regret(lambda regret: _guaranteed_bags(setting, regret), bags, most=setting.label_variance),
        likely=likely_regret(setting, bags),
        expected=expected_regret(setting, bags),
        impossible=_impossible_regret(setting, bags),
    )


def bags_needed(setting: Setting, regret: float) -> Answer:
    """The bags that guarantee a `regret` β, make it likely, let it expect, and below which it is impossible.

    Examples
    --------
    >>> answer = bags_needed(Setting(size=64, epsilon=1.0), 0.01)
    >>> [f"{value:,.0f}" for value in (answer.guaranteed, answer.likely, answer.expected, answer.impossible)]
    ['910,545', '1,206', '410', '111']
    """
    return Answer(**{name: bags_for(setting, regret) for name, bags_for in _BAGS.items()})


def largest_size(setting: Setting, rows: int, regret: float, sizes: Sequence[int]) -> dict[str, int | None]:
    """The largest of some sizes at which rows in bags reach a regret: guaranteed, likely, expected, not impossible.

    Parameters
    ----------
    setting : Setting
        Its size does not count.
    rows, regret, sizes : int, float, sequence of int
        Rows that can be put in bags, target β, and bag sizes to compare.

    Returns
    -------
    dict of str to int or None
        By the fields of `Answer`; None where no size does.

    Examples
    --------
    >>> largest_size(Setting(size=1, epsilon=1.0), 300_000, 0.01, [2**i for i in range(11)])
    {'guaranteed': None, 'likely': 256, 'expected': 512, 'impossible': 1024}
    """
    found: dict[str, int | None] = {}
    for name, bags_for in _BAGS.items():
        enough = (k for k in sorted(sizes, reverse=True) if rows // k >= bags_for(replace(setting, size=k), regret))
        found[name] = next(enough, None)
    return found


def _guaranteed_bags(setting: Setting, regret: float) -> float:
    """Two candidates: Algorithm 1, whatever Δ is; more: clipped risk with estimated means.

    For random bags and counts that are exact or have discrete Laplace noise; of several tables, by the first alone.
    """
    if setting.formation != RANDOM or not setting.plain:
        return inf
    given = setting.problem(regret)
    if setting.hypotheses == 2:
        return two_function_bound(TwoFunctions(**given)).value
    several = HypothesisClass(hypotheses=setting.hypotheses, known=False, risk=setting.best_risk, **given)
    return erm_bound(several).value


def _pair_prior(setting: Setting) -> float:
    """The share of positives whose p(1 − p) is r: a symmetric pair around it is as noisy as the best model."""
    return (1 - sqrt(max(0.0, 1 - 4 * setting.best_risk))) / 2


def _possible_bags(setting: Setting, regret: float) -> float:
    """Of a symmetric pair of functions; where formations differ, or p leaves no room for a pair, from J at the most.

    A binary choice seen through normal noise tells at most ½ log₂(1 + βJ/4) bits.
    """
    prior, alone = _pair_prior(setting), setting.plain and not setting.further
    if setting.formation == RANDOM and alone and regret <= 4 * prior**2:
        return information_bound(SymmetricPair(prior=prior, **setting.problem(regret))).value
    bits = np.log1p(regret * information_limit(setting) / 4) / (2 * log(2))
    needed = float((1 - binary_entropy(setting.error)) / bits)
    return needed if not setting.further else least_bags(lambda m: setting.together(m, information_limit) >= needed)


def _impossible_regret(setting: Setting, bags: float) -> float:
    bits = (1 - binary_entropy(setting.error)) / setting.together(bags, information_limit)
    limit = 4 * np.expm1(2 * log(2) * bits) / information_limit(setting)
    prior, alone = _pair_prior(setting), setting.plain and not setting.further
    if setting.formation == RANDOM and alone and limit <= 4 * prior**2:
        noise = setting.count_epsilon
        limit = information_regret(bags, size=setting.size, error=setting.error, epsilon=noise, prior=prior)
    return _at_most(setting, float(limit))


_BAGS = {
    "guaranteed": _guaranteed_bags,
    "likely": likely_bags,
    "expected": expected_bags,
    "impossible": _possible_bags,
}
"""Bags for a regret, by the kind of answer."""
