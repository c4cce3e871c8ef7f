"""Choosing among given hypotheses: the two-function test, its tournament, and clipped empirical risk.

The paper's Algorithm 1 tells which of two models is the true one, from bags, of which it needs as many as any test must
but for a constant factor: it is rate-optimal. Clipped empirical risk minimisation over a finite set of hypotheses is
its main theorem.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

from bagwise import segment
from bagwise.bags import Bags
from bagwise.dispersion import NOT_RANDOM, proportion_spread
from bagwise.evaluation import BagsNotRandomWarning
from bagwise.losses import clip_threshold, residual
from bagwise.means import prior as overall
from bagwise.predictions import Hypothesis, as_hypotheses, hypothesis_values
from bagwise.risk import bag_losses, own_risk
from bagwise.utils.parameters import LEVEL, NONE, Parameter, ParameterError, check_parameters, number, one_of
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats, Integers, NDArray

__all__ = ["ClippedERM", "TwoFunctionTest", "clipped_erm", "tournament", "two_function_test"]

_Read = tuple[Floats, Floats]  # the predictions of a hypothesis, and their sums over bags
_BLOCK_BYTES = 2**26  # predictions, or their sums, held at a time
_OF_TEST = {"delta": number(least=-1, most=1), "beta": number(least=0, most=1)}
_OF_RISK = {
    "regret": number(above=0, most=1),
    "prior": number(least=0, most=1) | NONE,
    "split": one_of(True, False),
    "level": LEVEL,
}


@dataclass(frozen=True)
class TwoFunctionTest:
    r"""What the test decided and on which statistic.

    Attributes
    ----------
    choice : int
        0 or 1, the model chosen.
    branch : {"totals", "bags"}
        "totals" where the models' means differ enough to count positives, otherwise "bags".
    statistic : float
        \|A₁\| − \|A₂\| on totals, Q on bags; negative chooses model 0.
    delta, beta : float
        Bias Δ = E[h₀ − h₁] and separation β = E[(h₀ − h₁)²].
    """

    choice: int
    branch: Literal["totals", "bags"]
    statistic: float
    delta: float
    beta: float


def two_function_test(
    h0: Hypothesis, h1: Hypothesis, bags: Bags, *, X: Any = None, delta: float | None = None, beta: float | None = None
) -> TwoFunctionTest:
    """Choose between two models, one of which is the true conditional probability (Algorithm 1).

    It is rate-optimal, not optimal: the bags it needs grow with size, separation and error as those of the best test
    do, by a constant factor more. It asks each bag only which way it points; `clipped_erm` weighs a bag by how far the
    models differ on it, and where their means agree and bags are large, needs π/2 times fewer.

    Bags of unequal size are allowed; the rule that picks the statistic then uses their mean size.

    Parameters
    ----------
    h0, h1 : array of shape (n_rows,), function or fitted model
        Predictions in table order, or what is applied to `X`.
    bags : Bags
        Random bags of the rows.
    X : array or table, optional
        The rows that functions or models predict.
    delta, beta : float, optional
        E[h₀ − h₁] and E[(h₀ − h₁)²]; where not given they are estimated on all rows, which needs no label.

    Returns
    -------
    TwoFunctionTest

    Examples
    --------
    >>> bags = Bags.from_rows([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1])
    >>> good, bad = np.array([0.1, 0.2, 0.9, 0.8]), np.array([0.9, 0.8, 0.1, 0.2])
    >>> two_function_test(good, bad, bags).choice
    0
    """
    first, second = (_read(h, bags, X) for h in as_hypotheses([h0, h1], bags))
    return _decide(first, second, bags, delta, beta)


def _read(hypothesis: Hypothesis, bags: Bags, X: Any) -> _Read:
    h = hypothesis_values(hypothesis, bags, X)
    return h, bags.sum_table(h)


def _decide(
    first: _Read, second: _Read, bags: Bags, delta: float | None = None, beta: float | None = None
) -> TwoFunctionTest:
    gap = first[0] - second[0]
    delta = float(gap.mean()) if delta is None else delta
    beta = float((gap**2).mean()) if beta is None else beta
    check_parameters({"delta": delta, "beta": beta}, _OF_TEST)
    totals = counts_decide(delta=delta, beta=beta, size=bags.n_bagged / len(bags))
    statistic = float(two_function_statistic(first[1], second[1], bags.size * bags.proportion, totals=totals))
    return TwoFunctionTest(int(statistic >= 0), "totals" if totals else "bags", statistic, delta, beta)


def counts_decide(*, delta: float, beta: float, size: float) -> bool:
    r"""Whether the models' means differ enough for the total count of positives: \|Δ\| ≥ √(β/2k)."""
    return bool(abs(delta) >= np.sqrt(beta / (2 * size)))


def two_function_statistic(sums0: ArrayLike, sums1: ArrayLike, counts: ArrayLike, *, totals: bool) -> Floats:
    r"""The statistic of Algorithm 1 from bag sums, over the last axis; negative chooses model 0.

    With totals :math:`|A_1| - |A_2|`, :math:`A_s = \sum_j (k\alpha_j - E_{j,s})`; otherwise
    :math:`Q = \sum_j \pm(k\alpha_j - \mu_j)`, :math:`\mu_j = (E_{j,1}+E_{j,2})/2`, with + where
    :math:`E_{j,1} \le E_{j,2}`.

    sums0, sums1: (…, m) sums of each model's predictions.  counts: (…, m) reported counts k_j α_j.

    >>> float(two_function_statistic([0.3, 1.7], [1.7, 0.3], [0, 2], totals=False))
    -2.0
    """
    e0, e1, count = (np.asarray(a, dtype=float) for a in (sums0, sums1, counts))
    if totals:
        return np.asarray(abs((count - e0).sum(axis=-1)) - abs((count - e1).sum(axis=-1)))
    return np.asarray((np.where(e0 <= e1, 1.0, -1.0) * (count - (e0 + e1) / 2)).sum(axis=-1))


def tournament(hypotheses: Sequence[Hypothesis] | NDArray[Any], bags: Bags, *, X: Any = None) -> int:
    """Number of the hypothesis that survives an elimination tournament of two-function tests.

    The champion so far meets each hypothesis in turn, so that two columns of predictions are held at a time.
    As the paper says, the guarantee is for classes that contain the truth.

    Parameters
    ----------
    hypotheses : sequence of functions or fitted models, or array of shape (n_rows, H)
        Applied to `X`, or predictions in table order.
    bags, X
        As for `two_function_test`.

    Returns
    -------
    int

    Examples
    --------
    >>> bags = Bags.from_rows([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1])
    >>> tournament(np.array([[0.5, 0.9, 0.1], [0.5, 0.8, 0.2], [0.5, 0.1, 0.9], [0.5, 0.2, 0.8]]), bags)
    2
    """
    given = as_hypotheses(hypotheses, bags)
    columns: Sequence[Any] = list(given.T) if isinstance(given, np.ndarray) else given
    best, champion = 0, _read(columns[0], bags, X)
    for place, column in enumerate(columns[1:], start=1):
        challenger = _read(column, bags, X)
        if _decide(champion, challenger, bags).choice == 1:
            best, champion = place, challenger
    return best


@dataclass(frozen=True, eq=False)
class ClippedERM:
    """The hypothesis chosen, and what all of them scored.

    Attributes
    ----------
    choice : int
        Number of the hypothesis with the least clipped risk.
    risks : array of shape (H,)
        Mean clipped loss of each, which estimates E[(y − h)²]; the effect of declared noise is subtracted.
    standard_errors, low, high : array of shape (H,)
        Of the risks, one by one.
    n_clipped : array of shape (H,)
        Bags whose residual was beyond the threshold.
    prior : float
        p, as given or estimated.
    means : array of shape (H,)
        E[h], as given or estimated.
    n_bags : int
        Bags the risks were measured on: all, or half of them where they were split.
    """

    choice: int
    risks: Floats
    standard_errors: Floats
    low: Floats
    high: Floats
    n_clipped: Integers
    prior: float
    means: Floats
    n_bags: int


def clipped_erm(
    hypotheses: Sequence[Hypothesis] | NDArray[Any],
    bags: Bags,
    *,
    X: Any = None,
    regret: float = 0.01,
    prior: float | None = None,
    means: ArrayLike | None = None,
    split: bool = False,
    level: float = 0.95,
    random_state: RandomState = None,
) -> ClippedERM:
    r"""Choose the hypothesis with the least clipped debiased square loss.

    p and E[h] are taken from the same bags, all of which measure the risk, with the divisor m − 1 that makes up for it
    (see `evaluation.risk`). It needs as few bags as if p and E[h] were known; with `split`, as in the paper's appendix,
    twice as many.

    Parameters
    ----------
    hypotheses : sequence of functions or fitted models, or array of shape (n_rows, H)
        Applied to `X`, or predictions in table order (a memory map will do). They are read piece by piece: thousands of
        hypotheses over millions of rows need little memory.
    bags : Bags
        At least 3 of them; 2 where p and E[h] are given, 4 where bags are split.
    X : array or table, optional
        The rows that functions or models predict.
    regret : float
        Target β; the clipping threshold follows from :math:`\theta = \beta/16k^2` (see `losses.clip_threshold`).
    prior, means : float and array of shape (H,), optional
        p, and E[h] of each hypothesis, where they are known: both or neither.
    split : bool
        Whether p and E[h] are estimated on a random half of the bags (rows in no bag help with E[h]) and the risk is
        measured on the other half, as in the paper's appendix.
    level : float
        Of the intervals.
    random_state : int, Generator or None
        For the split.

    Returns
    -------
    ClippedERM

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(size=6400)
    >>> from bagwise import aggregate, random_bags
    >>> ids = random_bags(6400, size=32, random_state=0)
    >>> bags = Bags.from_rows(aggregate(rng.random(6400) < x**2, ids), ids)
    >>> powers = [lambda x, a=a: x**a for a in (0.5, 1, 2, 4)]
    >>> clipped_erm(powers, bags, X=x).choice
    2
    """
    given = as_hypotheses(hypotheses, bags)
    count = given.shape[1] if isinstance(given, np.ndarray) else len(given)
    check_parameters({"regret": regret, "prior": prior, "level": level, "split": split}, _OF_RISK)
    known = _known(prior, means, count, split=split)
    if len(bags) < (least := 2 if known is not None else 4 if split else 3):
        raise ValueError(f"there are {len(bags)} bags only: {least} are needed at least.")

    _warn_of_formation(bags)
    order = generator(random_state).permutation(len(bags)) if split else np.arange(len(bags))
    aside, used = np.split(order, [len(bags) // 2 if split else 0])
    used = np.sort(used)
    apart, measured = bags.take(aside), bags.take(used)
    noise = measured.noise_per_row * measured.size
    clip = clip_threshold(measured.size, regret=regret, estimated=known is None, noise_variance=noise)

    parts: list[tuple[Floats, ...]] = []
    for start, sums in _bag_sums(given, count, bags, X):
        if known is not None:
            mean = known[1][start : start + sums.shape[1]]
            found = _risks(known[0], mean, sums[:-1], measured, clip)
        elif split:
            mean, found = _split_risks(sums, apart, aside, measured, used, clip)
        else:
            mean, found = _own_risks(sums[:-1], measured, clip)
        risk, error, r = found
        parts.append((risk, error, (abs(r) > clip[:, None]).sum(axis=0), mean))

    risks, errors, n_clipped, mean = (np.concatenate(column) for column in zip(*parts, strict=True))
    half_width = errors * stats.t.ppf((1 + level) / 2, len(used) - 1)
    return ClippedERM(
        choice=int(np.argmin(risks)),
        risks=risks,
        standard_errors=errors,
        low=risks - half_width,
        high=risks + half_width,
        n_clipped=n_clipped.astype(int),
        prior=float(overall(apart if split else bags) if known is None else known[0]),
        means=mean,
        n_bags=len(used),
    )


def _known(prior: float | None, means: ArrayLike | None, count: int, *, split: bool) -> tuple[float, Floats] | None:
    """p and E[h] of each hypothesis, where they are given."""
    if prior is None and means is None:
        return None
    if prior is None or means is None:
        missing, other = ("prior", "means") if prior is None else ("means", "prior")
        raise ParameterError(missing, "is missing, which belongs to ", Parameter(other), ": pass both, or neither.")
    if split:
        raise ParameterError("split", "leaves nothing to estimate where ", Parameter("means"), " are given.")
    found = np.asarray(means, dtype=float)
    if found.shape != (count,) or not np.isfinite(found).all():
        raise ParameterError("means", f"must hold one finite number per hypothesis ({count}), got {means}.")
    return prior, found


_Risks = tuple[Floats, Floats, Floats]  # (H,) risks, (H,) their standard errors, (m, H) residuals of bags


def _risks(prior: Any, mean: Floats, sums: Floats, bags: Bags, clip: Floats) -> _Risks:
    """Of hypotheses with these sums over bags (m, H), with p and E[h] from elsewhere."""
    given = {"prior": prior, "mean": mean}
    loss = bag_losses(sums, bags.size, bags.proportion, clip=clip, noise=bags.noise_per_row, **given)
    r = residual(sums, bags.size[:, None], bags.proportion[:, None], **given)
    return loss.mean(axis=0), loss.std(axis=0, ddof=1) / np.sqrt(len(bags)), r


def _own_risks(sums: Floats, bags: Bags, clip: Floats) -> tuple[Floats, _Risks]:
    """The means of h in these bags, and the risks with these means."""
    gap = (bags.size * bags.proportion)[:, None] - sums
    risk, influence = own_risk(gap, bags.size, bags.noise_variance, clip=clip)
    r = gap - bags.size[:, None] * gap.sum(axis=0) / bags.n_bagged
    return sums.sum(axis=0) / bags.n_bagged, (risk, influence.std(axis=0, ddof=1) / np.sqrt(len(bags)), r)


def _split_risks(
    sums: Floats, apart: Bags, aside: Integers, bags: Bags, used: Integers, clip: Floats
) -> tuple[Floats, _Risks]:
    """The means of h in bags set apart, and the risks in the others with these means.

    sums: (all bags + 1, H); rows in no bag, whose sum comes last, help with E[h].
    """
    mean = (sums[aside].sum(axis=0) + sums[-1]) / (bags.n_rows - bags.n_bagged)
    p = overall(apart)
    risk, error, r = _risks(p, mean, sums[used], bags, clip)
    # The error of E[h] − p, measured on the bags set apart, moves all losses together.
    gap = sums[aside] - apart.size[:, None] * (apart.proportion[:, None] + mean - p)
    moved = (gap**2).sum(axis=0) / apart.n_bagged**2 * len(apart) / max(len(apart) - 1, 1)
    return mean, (risk, np.sqrt(error**2 + (2 * r.mean(axis=0) + 2 * (mean - p)) ** 2 * moved), r)


def _warn_of_formation(bags: Bags) -> None:
    """Tell where bags cannot be random, since their proportions differ too much."""
    found = proportion_spread(bags)
    if found.p_value < NOT_RANDOM and found.ratio > 1:
        warnings.warn(
            f"bags are not random ({found}), so that the clipped risk is not that of single rows: compare models by "
            "the likelihood of held-out bags, as BagAutoClassifier or label_free_scorer('gain') do.",
            BagsNotRandomWarning,
            stacklevel=3,
        )


def _bag_sums(
    hypotheses: Sequence[Hypothesis] | NDArray[Any], count: int, bags: Bags, X: Any
) -> Iterator[tuple[int, Floats]]:
    """(m + 1, b) sums over each bag, and over the rows in no bag, of a few hypotheses; with the first's number.

    An array is read in stretches of rows, as many columns at a time as their sums leave room for.
    """
    outside = np.where(bags.code < 0, len(bags), bags.code)
    rows = len(bags) + 1 if isinstance(hypotheses, np.ndarray) else bags.n_rows
    width = max(1, _BLOCK_BYTES // (8 * rows))
    for start in range(0, count, width):
        if isinstance(hypotheses, np.ndarray):
            block = hypotheses[:, start : start + width]
        else:
            block = np.stack([hypothesis_values(h, bags, X) for h in hypotheses[start : start + width]], axis=1)
        sums = segment.sum_table(block, outside, len(bags) + 1)
        if not np.isfinite(sums).all():
            for row, column in np.argwhere(~np.isfinite(np.asarray(block, dtype=float))):
                raise ValueError(f"the prediction of row {row} of hypothesis {start + column} is NaN or infinite.")
        yield start, sums
