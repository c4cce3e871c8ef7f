r"""Before any data: the regret that rows in bags of k with noise ε allow, in three answers.

*Guaranteed*: a theorem's bound (`two_function_bound` for two candidates, `erm_bound` for more). *Expected*: from the
variance of the debiased loss. *Impossible below*: the information bound (`information_bound`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
from scipy import stats

from bagwise.theory.bounds import EPSILON, HYPOTHESES, REGRET, SIZE, laplace_variance, least_regret
from bagwise.theory.erm import HypothesisClass, erm_bound
from bagwise.theory.two_function import (
    SymmetricPair,
    TwoFunctions,
    information_bound,
    information_regret,
    two_function_bound,
)
from bagwise.utils.parameters import NONE, check_parameters, number, whole

_CONSTRAINTS = {
    "size": SIZE,
    "epsilon": EPSILON,
    "hypotheses": HYPOTHESES,
    "error": number(above=0, below=0.5),
    "risk": number(above=0, most=0.25),  # the range of p(1 − p)
    "parameters": whole(1) | NONE,
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What would be published, and what would be learned from it.

    Parameters
    ----------
    size : int
        Rows per bag k.
    epsilon : float or None
        Of discrete Laplace noise on the counts, None without noise.
    hypotheses, error : int, float
        Candidates to choose from, the truth among them, and δ, the allowed probability of a worse choice.
    risk : float
        E[(y − h)²] of the best candidate, at most; p(1 − p) always holds where the truth is among them.
    parameters : int or None
        Numbers fitted by least squares, of a linear model; the expected regret is then that of the fit.
    """

    size: int
    epsilon: float | None = None
    hypotheses: int = 100
    error: float = 0.05
    risk: float = 0.25
    parameters: int | None = None

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS)

    @property
    def bag_risk(self) -> float:
        """r + s²/k: what a bag's loss scatters around, the noise included."""
        return self.risk + laplace_variance(self.epsilon) / self.size

    def problem(self, regret: float) -> dict[str, Any]:
        """What the descriptions of problems share, for a target β."""
        return {"size": self.size, "regret": regret, "error": self.error, "epsilon": self.epsilon}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Three numbers of one kind, regrets or bags. Infinite: nothing is promised, or nothing suffices.

    Attributes
    ----------
    guaranteed, expected, impossible : float
        By a theorem, for every distribution; what usually happens; below it no method can be sure to come.
    """

    guaranteed: float
    expected: float
    impossible: float


def expected_bags(setting: Setting, regret: float) -> float:
    r"""Bags with which a `regret` β is to be expected.

    Between the truth and a function at distance β, the losses of a bag differ by DS/k (see `theory.erm`), which has
    mean β and, as D and S are nearly normal and independent, variance :math:`4\beta(r + s^2/k)`. All of \|H\| − 1
    others lose with probability 1 − δ if :math:`m = 4 (r + s^2/k) z^2/\beta`, z the normal quantile of δ/(\|H\| − 1).

    With `parameters` d: least squares on m centroids, whose residuals have variance r + s²/k, has excess risk
    :math:`(r + s^2/k)\, d/(m - d - 1)` for normal features.

    Examples
    --------
    >>> round(expected_bags(Setting(size=64, hypotheses=2), 0.01))
    271
    """
    check_parameters({"regret": regret}, {"regret": REGRET})
    if setting.parameters is not None:
        return float(np.ceil(setting.bag_risk * setting.parameters / regret + setting.parameters + 1))
    return float(np.ceil(_scatter(setting) / regret))


def expected_regret(setting: Setting, bags: float) -> float:
    """The regret to be expected with so many `bags`, see `expected_bags`; infinite where none is."""
    if setting.parameters is not None:
        left = bags - setting.parameters - 1
        return setting.bag_risk * setting.parameters / left if left > 0 else inf
    regret = _scatter(setting) / bags
    return regret if regret <= 1 else inf


def _scatter(setting: Setting) -> float:
    """4 (r + s²/k) z²: bags times regret."""
    z = float(stats.norm.isf(setting.error / (setting.hypotheses - 1)))
    return 4 * setting.bag_risk * z**2


def regrets(setting: Setting, bags: float) -> Answer:
    """The regret that so many `bags` guarantee, let expect, and make impossible to go below.

    Examples
    --------
    >>> answer = regrets(Setting(size=64, epsilon=1.0), 15_625)
    >>> [f"{value:.2g}" for value in (answer.guaranteed, answer.expected, answer.impossible)]
    ['0.45', '0.00077', '7.1e-05']
    """
    return Answer(
        guaranteed=least_regret(lambda regret: _guaranteed_bags(setting, regret), bags),
        expected=expected_regret(setting, bags),
        impossible=information_regret(bags, size=setting.size, error=setting.error, epsilon=setting.epsilon),
    )


def bags_needed(setting: Setting, regret: float) -> Answer:
    """The bags that guarantee a `regret` β, let it expect, and below which it is impossible.

    Examples
    --------
    >>> answer = bags_needed(Setting(size=64, epsilon=1.0), 0.01)
    >>> [f"{value:,.0f}" for value in (answer.guaranteed, answer.expected, answer.impossible)]
    ['910,545', '1,206', '111']
    """
    return Answer(**{name: bags_for(setting, regret) for name, bags_for in _BAGS.items()})


def largest_size(setting: Setting, rows: int, regret: float, sizes: Sequence[int]) -> dict[str, int | None]:
    """The largest of some sizes at which rows in bags reach a regret: guaranteed, expected, and not impossible.

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
    >>> largest_size(Setting(size=1, epsilon=1.0), 300_000, 0.01, [2**i for i in range(10)])
    {'guaranteed': None, 'expected': 256, 'impossible': 512}
    """
    found: dict[str, int | None] = {}
    for name, bags_for in _BAGS.items():
        enough = (k for k in sorted(sizes, reverse=True) if rows // k >= bags_for(replace(setting, size=k), regret))
        found[name] = next(enough, None)
    return found


def _guaranteed_bags(setting: Setting, regret: float) -> float:
    """Two candidates: Algorithm 1, whatever Δ is; more: clipped risk with estimated means."""
    given = setting.problem(regret)
    if setting.hypotheses == 2:
        return two_function_bound(TwoFunctions(**given)).value
    several = HypothesisClass(hypotheses=setting.hypotheses, known=False, risk=setting.risk, **given)
    return erm_bound(several).value


def _possible_bags(setting: Setting, regret: float) -> float:
    return information_bound(SymmetricPair(**setting.problem(regret))).value


_BAGS = {"guaranteed": _guaranteed_bags, "expected": expected_bags, "impossible": _possible_bags}
"""Bags for a regret, by the kind of answer."""
