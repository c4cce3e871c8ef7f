r"""Learners that choose a hypothesis from bags, for many independent trials at once.

Rows are never drawn: a bag is its vector v = (count of positives, rows on each level of x), and every sum of h over a
bag is an inner product with v. The losses without clipping are quadratic in v, so their empirical risks need only
:math:`\sum_j v_j v_j^\top / k` and :math:`\sum_j v_j`, however many bags there were. Clipped losses and Algorithm 1
read every bag.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bagwise.experiments.problems import Problem
from bagwise.losses import clip_threshold, debiased_square_of_sums
from bagwise.selection.two_function import counts_decide, two_function_statistic
from bagwise.utils.typing import Floats, Integers

# Numbers of one piece of work: small enough to stay in the processor's cache.
_PIECE = 2**17


class Sample:
    """Growing samples of bags of one size, one for each of a number of independent trials.

    bags: number of bags m drawn in every trial.
    square: (trials, 1 + levels, 1 + levels) Σ v vᵀ / k.  total: (trials, 1 + levels) Σ v.
    vectors: (trials, m, 1 + levels) the bags themselves, as long as `keep` is set.
    """

    def __init__(self, problem: Problem, size: int, trials: int, rng: np.random.Generator):
        width = 1 + len(problem.weight)
        self.problem, self.size, self.rng = problem, size, rng
        self.truth = np.arange(trials) % len(problem.truths)
        self.bags = 0
        self.square = np.zeros((trials, width, width))
        self.total = np.zeros((trials, width))
        self.vectors = np.zeros((trials, 0, width), dtype=np.int16 if size < 2**15 else np.int64)
        self.keep = True

    def grow(self, bags: int, trials: int) -> None:
        """Draw bags until each trial has `bags` of them, in the first `trials` trials; the others end here."""
        self.truth, self.square, self.total = self.truth[:trials], self.square[:trials], self.total[:trials]
        blocks = [self.vectors[:trials]]
        step = max(1, _PIECE // trials)
        for start in range(self.bags, bags, step):
            v = draw(self.problem, self.size, self.truth, min(step, bags - start), self.rng)
            if self.keep:
                blocks.append(v.astype(self.vectors.dtype))
            v = v.astype(float)
            self.square += v.transpose(0, 2, 1) @ v / self.size
            self.total += v.sum(axis=1)
        self.vectors = np.concatenate(blocks, axis=1) if self.keep else self.vectors[:0]
        self.bags = bags


def draw(problem: Problem, size: int, truth: Integers, bags: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """(trials, bags, 1 + levels) vectors of random bags; `truth` (trials,) says which function is true in each."""
    levels = rng.multinomial(size, problem.weight, size=(len(truth), bags))
    positives = rng.binomial(levels, problem.truths[truth][:, None]).sum(axis=-1, keepdims=True)
    return np.concatenate([positives, levels], axis=-1)


# -- empirical risks from moments ----------------------------------------------------------------------------------


def li_risks(sample: Sample) -> Floats:
    """(trials, hypotheses) empirical risk of Li's loss with exact means."""
    p = sample.problem
    return _residual_squares(sample) - (sample.size - 1) * (p.means - p.prior) ** 2


def matching_risks(sample: Sample) -> Floats:
    """(trials, hypotheses) empirical risk of proportion matching."""
    return _residual_squares(sample) / sample.size


def easyllp_risks(sample: Sample) -> Floats:
    """(trials, hypotheses) empirical risk of EasyLLP with the square loss."""
    p, k = sample.problem.prior, sample.size
    loss0, d, cross = _label_linear(sample)
    return loss0 + cross + (p - k * p) * d


def centred_risks(sample: Sample) -> Floats:
    """(trials, hypotheses) empirical risk of EasyLLP's centred form with the square loss and the exact E[d]."""
    p, k = sample.problem.prior, sample.size
    mean = 1 - 2 * sample.problem.means
    loss0, d, cross = _label_linear(sample)
    count = sample.total[:, :1] / sample.bags
    return loss0 + cross - p * k * d - mean * (count - k * p) + p * mean


def _residual_squares(sample: Sample) -> Floats:
    """Mean over bags of (kα − Σh)² / k."""
    h = sample.problem.hypotheses
    direction = np.concatenate([np.ones((len(h), 1)), -h], axis=1).T
    return ((sample.square @ direction) * direction).sum(axis=1) / sample.bags


def _label_linear(sample: Sample) -> tuple[Floats, Floats, Floats]:
    """Means over bags of mean ℓ0, of mean d, and of kα · mean d, for the square loss: ℓ0 = h², d = 1 − 2h."""
    h = sample.problem.hypotheses.T
    levels = sample.total[:, 1:] / (sample.size * sample.bags)
    return levels @ h**2, levels @ (1 - 2 * h), sample.square[:, 0, 1:] / sample.bags @ (1 - 2 * h)


# -- empirical risks from every bag --------------------------------------------------------------------------------


def clipped_risks(sample: Sample, *, regret: float, estimated: bool) -> Floats:
    """(trials, hypotheses) clipped debiased risk; with `estimated`, p and E[h] come from the second half of bags."""
    problem, k = sample.problem, sample.size
    h = problem.hypotheses.T
    clip = clip_threshold(k, regret=regret, estimated=estimated)
    used = sample.bags // 2 if estimated else sample.bags
    risks = np.empty((len(sample.vectors), h.shape[1]))
    step = max(1, _PIECE // (used * h.shape[1]))
    for start in range(0, len(risks), step):
        v = sample.vectors[start : start + step]
        prior, mean = np.float64(problem.prior), problem.means
        if estimated:
            average = v[:, used:].mean(axis=1, keepdims=True) / k
            prior, mean = average[..., :1], average[..., 1:] @ h
        head = v[:, :used].astype(float)
        loss = debiased_square_of_sums(head[..., 1:] @ h, k, head[..., :1] / k, prior=prior, mean=mean, clip=clip)
        risks[start : start + step] = loss.mean(axis=1)
    return risks


def two_function_choice(sample: Sample) -> NDArray[np.intp]:
    """(trials,) choice of Algorithm 1, Δ and β known."""
    problem = sample.problem
    gap = problem.hypotheses[0] - problem.hypotheses[1]
    totals = counts_decide(delta=gap @ problem.weight, beta=gap**2 @ problem.weight, size=sample.size)
    sums = sample.vectors[..., 1:] @ problem.hypotheses.T
    statistic = two_function_statistic(sums[..., 0], sums[..., 1], sample.vectors[..., 0], totals=totals)
    return (statistic >= 0).astype(np.intp)


# -- the learners --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A rule that chooses a hypothesis from a sample of bags.

    label: its name in figures and notes.
    choose: (sample, target regret) → (trials,) number of the hypothesis chosen.
    reads_bags: whether moments do not suffice.
    limit: (problem, k) → (truths, hypotheses) mean of its loss, whose minimiser it chooses in the end.
    """

    label: str
    choose: Callable[[Sample, float], NDArray[np.intp]]
    reads_bags: bool = False
    limit: Callable[[Problem, int], Floats] = lambda problem, size: problem.risks

    def limit_regret(self, problem: Problem, size: int) -> float:
        """Regret of what it chooses given any number of bags; the largest over the functions that may be true."""
        chosen = self.limit(problem, size).argmin(axis=1)
        return float(problem.regrets[np.arange(len(chosen)), chosen].max())


def _minimise(risks: Callable[[Sample], Floats]) -> Callable[[Sample, float], NDArray[np.intp]]:
    return lambda sample, regret: risks(sample).argmin(axis=1)


def _clipped(estimated: bool) -> Callable[[Sample, float], NDArray[np.intp]]:
    return lambda sample, regret: clipped_risks(sample, regret=regret, estimated=estimated).argmin(axis=1)


def _matching_limit(problem: Problem, size: int) -> Floats:
    """E[(ᾱ − α)²] = Var(y − h)/k + (E[h] − p)²: the error of the mean weighs k times as much as in the risk."""
    off = (problem.means - problem.prior) ** 2
    return (problem.risks - off) / size + off


LEARNERS: dict[str, Learner] = {
    "algorithm_1": Learner(
        label="Algorithm 1", choose=lambda sample, regret: two_function_choice(sample), reads_bags=True
    ),
    "ours": Learner(label="ours, exact means", choose=_clipped(estimated=False), reads_bags=True),
    "ours_estimated": Learner(
        label="ours, means from half of the bags", choose=_clipped(estimated=True), reads_bags=True
    ),
    "centred": Learner(label="centred", choose=_minimise(centred_risks)),
    "li": Learner(label="Li", choose=_minimise(li_risks)),
    "easyllp": Learner(label="EasyLLP", choose=_minimise(easyllp_risks)),
    "matching": Learner(label="matching", choose=_minimise(matching_risks), limit=_matching_limit),
}
"""Every learner by name. `ours` knows p and E[h]; `ours_estimated` takes them from the second half of its bags."""
