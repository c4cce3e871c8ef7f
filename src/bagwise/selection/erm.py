"""Clipped empirical risk minimisation over a finite set of hypotheses (the paper's main theorem)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from bagwise import segment
from bagwise.bags import Bags
from bagwise.losses import clip_threshold, residual
from bagwise.means import prior as overall
from bagwise.predictions import Hypothesis, as_hypotheses, hypothesis_values
from bagwise.risk import bag_losses
from bagwise.utils.parameters import LEVEL, NONE, ParameterError, check_parameters, number
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import Floats, Integers

_BLOCK_BYTES = 2**26  # predictions, or their sums, held at a time
_CONSTRAINTS = {"regret": number(above=0, most=1), "prior": number(least=0, most=1) | NONE, "level": LEVEL}


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
        Bags the risks were measured on (half of them if p or E[h] had to be estimated).
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
    level: float = 0.95,
    random_state: RandomState = None,
) -> ClippedERM:
    r"""Choose the hypothesis with the least clipped debiased square loss.

    Parameters
    ----------
    hypotheses : sequence of functions or fitted models, or array of shape (n_rows, H)
        Applied to `X`, or predictions in table order (a memory map will do). They are read piece by piece: thousands of
        hypotheses over millions of rows need little memory.
    bags : Bags
        At least 2 of them, at least 4 where p or E[h] is estimated.
    X : array or table, optional
        The rows that functions or models predict.
    regret : float
        Target β; the clipping threshold follows from :math:`\theta = \beta/16k^2` (see `losses.clip_threshold`).
    prior, means : float and array of shape (H,), optional
        p, and E[h] of each hypothesis. What is not given is estimated on a random half of the bags (rows in no bag help
        with E[h]) and the risk is measured on the other half, as in the paper's appendix.
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
    >>> clipped_erm(powers, bags, X=x, random_state=0).choice
    2
    """
    given = as_hypotheses(hypotheses, bags)
    count = given.shape[1] if isinstance(given, np.ndarray) else len(given)
    check_parameters({"regret": regret, "prior": prior, "level": level}, _CONSTRAINTS)
    known = prior is not None and means is not None
    if len(bags) < (2 if known else 4):
        raise ValueError(f"there are {len(bags)} bags only: 2 are needed at least, or 4 if p or E[h] is estimated.")
    if means is not None:
        means = np.asarray(means, dtype=float)
        if means.shape != (count,) or not np.isfinite(means).all():
            raise ParameterError("means", f"must hold one finite number per hypothesis ({count}), got {means}.")

    split = generator(random_state).permutation(len(bags))
    half = 0 if known else len(bags) // 2
    aside, used = split[:half], np.sort(split[half:])
    size, proportion, noise = bags.size[used], bags.proportion[used], bags.noise_per_row[used]
    p = overall(bags.take(aside)) if prior is None else prior
    clip = clip_threshold(size, regret=regret, estimated=not known, noise_variance=noise * size)

    parts: list[tuple[Floats, ...]] = []
    for start, sums in _bag_sums(given, count, bags, X):
        if means is None:  # rows in no bag, whose sum comes last, help with E[h]
            rows = bags.size[aside].sum() + bags.n_rows - bags.n_bagged
            mean = (sums[aside].sum(axis=0) + sums[-1]) / rows
        else:
            mean = means[start : start + sums.shape[1]]
        r = residual(sums[used], size[:, None], proportion[:, None], prior=p, mean=mean)
        loss = bag_losses(sums[used], size, proportion, prior=p, mean=mean, clip=clip)
        variance = loss.var(axis=0, ddof=1) / len(used)
        if not known:  # the error of E[h] − p, measured on the bags set aside, moves all losses together
            gap = sums[aside] - (bags.size * bags.proportion)[aside, None]
            deviation = gap - bags.size[aside, None] * (mean - p)
            error = (deviation**2).sum(axis=0) / bags.size[aside].sum() ** 2 * half / max(half - 1, 1)
            variance = variance + (2 * r.mean(axis=0) + 2 * (mean - p)) ** 2 * error
        parts.append((loss.mean(axis=0) - noise.mean(), np.sqrt(variance), (abs(r) > clip[:, None]).sum(axis=0), mean))

    risks, error, n_clipped, mean = (np.concatenate(column) for column in zip(*parts, strict=True))
    half_width = error * stats.t.ppf((1 + level) / 2, len(used) - 1)
    return ClippedERM(
        choice=int(np.argmin(risks)),
        risks=risks,
        standard_errors=error,
        low=risks - half_width,
        high=risks + half_width,
        n_clipped=n_clipped.astype(int),
        prior=float(p),
        means=mean,
        n_bags=len(used),
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
