"""Clipped empirical risk minimisation over a finite set of hypotheses (the paper's main theorem)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from bagwise._rng import RandomState, generator
from bagwise.bags import Bags
from bagwise.losses import clip_threshold, debiased_square_of_sums, residual
from bagwise.selection.hypotheses import check_finite_predictions, predictions

_BLOCK_BYTES = 2**26  # predictions held at a time

Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class ClippedERM:
    """The hypothesis chosen, and what all of them scored.

    choice: number of the hypothesis with the least clipped risk.
    risks: (H,) mean clipped loss of each, which estimates E[(y − h)²]; the effect of declared noise is subtracted.
    standard_errors, low, high: (H,) of the risks, one by one.
    n_clipped: (H,) bags whose residual was beyond the threshold.
    prior, means: p and E[h] (H,), as given or estimated.
    n_bags: bags the risks were measured on (half of them if p or E[h] had to be estimated).
    """

    choice: int
    risks: Floats
    standard_errors: Floats
    low: Floats
    high: Floats
    n_clipped: NDArray[np.integer]
    prior: float
    means: Floats
    n_bags: int


def clipped_erm(
    hypotheses: Sequence[Callable[[Any], ArrayLike]] | NDArray[Any],
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

    hypotheses: callables applied to `X`, or an array (n_rows, H) of predictions in table order (a memory map will do).
        A block of them is held at a time, so thousands of hypotheses over millions of rows need little memory.
    bags: at least 2 of them, at least 4 where p or E[h] is estimated.
    regret: target β; the clipping threshold follows from :math:`\theta = \beta/16k^2` (see `losses.clip_threshold`).
    prior, means: p and E[h] of each hypothesis (H,). What is not given is estimated on a random half of the bags
        (rows in no bag help with E[h]) and the risk is measured on the other half, as in the paper's appendix.
    level: of the intervals.
    random_state: for the split.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(size=6400)
    >>> from bagwise import aggregate, random_bags
    >>> ids = random_bags(6400, size=32, random_state=0)
    >>> bags = Bags.from_rows(aggregate(rng.random(6400) < x**2, ids), ids)
    >>> powers = [lambda x, a=a: x**a for a in (0.5, 1, 2, 4)]
    >>> clipped_erm(powers, bags, X=x, random_state=0).choice
    2
    """
    if bags.proportion.ndim != 1:
        raise ValueError("clipped_erm compares predictions of one label: the bags must report one proportion each.")
    n_hypotheses = hypotheses.shape[1] if isinstance(hypotheses, np.ndarray) else len(hypotheses)
    if n_hypotheses == 0:
        raise ValueError("there are no hypotheses to choose from.")
    known = prior is not None and means is not None
    if len(bags) < (2 if known else 4):
        raise ValueError(
            f"there are {len(bags)} bags only: at least 2 are needed, or 4 if p or E[h] is to be estimated."
        )
    if means is not None:
        means = np.asarray(means, dtype=float)
        if means.shape != (n_hypotheses,):
            raise ValueError(f"means must hold one number per hypothesis, shape ({n_hypotheses},), got {means.shape}.")
    split = generator(random_state).permutation(len(bags))
    half = 0 if known else len(bags) // 2
    aside, used = split[:half], np.sort(split[half:])
    size, proportion = bags.size[used], bags.proportion[used]
    if prior is None:
        prior = float((bags.size * bags.proportion)[aside].sum() / bags.size[aside].sum())
    clip = clip_threshold(size, regret=regret, estimated=not known)
    noise = 0.0 if bags.noise_variance is None else float((bags.noise_variance / bags.size)[used].mean())

    parts: list[tuple[Floats, ...]] = []
    for start, block in _blocks(hypotheses, bags, X):
        sums = bags.sum_table(block)
        if not np.isfinite(sums).all():
            check_finite_predictions(block)
        if means is None:
            outside = block.sum(axis=0) - sums.sum(axis=0)
            rows = bags.size[aside].sum() + bags.n_rows - bags.n_bagged
            mean = (sums[aside].sum(axis=0) + outside) / rows
        else:
            mean = means[start : start + block.shape[1]]
        centre = {"prior": prior, "mean": mean}
        bag = (sums[used], size[:, None], proportion[:, None])
        loss = debiased_square_of_sums(*bag, clip=clip[:, None], **centre)
        clipped = abs(residual(*bag, **centre)) > clip[:, None]
        parts.append((loss.mean(axis=0) - noise, loss.std(axis=0, ddof=1), clipped.sum(axis=0), mean))

    risks, spread, n_clipped, mean = (np.concatenate(column) for column in zip(*parts, strict=True))
    error = spread / np.sqrt(len(used))
    half_width = error * stats.t.ppf((1 + level) / 2, len(used) - 1)
    return ClippedERM(
        choice=int(np.argmin(risks)),
        risks=risks,
        standard_errors=error,
        low=risks - half_width,
        high=risks + half_width,
        n_clipped=n_clipped.astype(int),
        prior=float(prior),
        means=mean,
        n_bags=len(used),
    )


def _blocks(
    hypotheses: Sequence[Callable[[Any], ArrayLike]] | NDArray[Any], bags: Bags, X: Any
) -> Iterator[tuple[int, Floats]]:
    """Predictions (n_rows, b) of a few hypotheses at a time, with the number of the first."""
    width = max(1, _BLOCK_BYTES // (8 * bags.n_rows))
    if isinstance(hypotheses, np.ndarray):
        if hypotheses.ndim != 2 or hypotheses.shape[0] != bags.n_rows:
            raise ValueError(
                f"hypotheses must be an array of shape ({bags.n_rows}, number of hypotheses), got {hypotheses.shape}."
            )
        for start in range(0, hypotheses.shape[1], width):
            yield start, np.ascontiguousarray(hypotheses[:, start : start + width], dtype=float)
    else:
        for start in range(0, len(hypotheses), width):
            yield start, np.stack([predictions(h, bags, X) for h in hypotheses[start : start + width]], axis=1)
