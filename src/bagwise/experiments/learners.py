r"""Learners that choose a hypothesis from bags, for many independent trials at once.

A bag is its vector v (see `simulation`). The losses without clipping are quadratic in v, so their empirical risks need
only :math:`\sum_j v_j v_j^\top / k` and :math:`\sum_j v_j`, however many bags there were. Clipped losses and
Algorithm 1 read every bag.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bagwise.experiments.simulation import PIECE, Sample, Simulation
from bagwise.losses import clip_threshold, debiased_square_of_sums
from bagwise.selection.two_function import counts_decide, two_function_statistic
from bagwise.utils.typing import Floats

# -- empirical risks from moments ----------------------------------------------------------------------------------


def li_risks(sample: Sample) -> Floats:
    """(trials, hypotheses) empirical risk of Li's loss with exact means."""
    p = sample.simulation
    return _residual_squares(sample) - (sample.size - 1) * (p.means - p.prior) ** 2


def matching_risks(sample: Sample) -> Floats:
    """(trials, hypotheses) empirical risk of proportion matching."""
    return _residual_squares(sample) / sample.size


def easyllp_risks(sample: Sample) -> Floats:
    """(trials, hypotheses) empirical risk of EasyLLP with the square loss."""
    p, k = sample.simulation.prior, sample.size
    loss0, d, cross = _label_linear(sample)
    return loss0 + cross + (p - k * p) * d


def centred_risks(sample: Sample) -> Floats:
    """(trials, hypotheses) empirical risk of EasyLLP's centred form with the square loss and the exact E[d]."""
    p, k = sample.simulation.prior, sample.size
    mean = 1 - 2 * sample.simulation.means
    loss0, d, cross = _label_linear(sample)
    count = sample.total[:, :1] / sample.bags
    return loss0 + cross - p * k * d - mean * (count - k * p) + p * mean


def _residual_squares(sample: Sample) -> Floats:
    """Mean over bags of (kα − Σh)² / k."""
    h = sample.simulation.hypotheses
    direction = np.concatenate([np.ones((len(h), 1)), -h], axis=1).T
    squares: Floats = ((sample.square @ direction) * direction).sum(axis=1)
    return squares / sample.bags


def _label_linear(sample: Sample) -> tuple[Floats, Floats, Floats]:
    """Means over bags of mean ℓ0, of mean d, and of kα · mean d, for the square loss: ℓ0 = h², d = 1 − 2h."""
    h = sample.simulation.hypotheses.T
    levels = sample.total[:, 1:] / (sample.size * sample.bags)
    return levels @ h**2, levels @ (1 - 2 * h), sample.square[:, 0, 1:] / sample.bags @ (1 - 2 * h)


# -- empirical risks from every bag --------------------------------------------------------------------------------


def clipped_risks(sample: Sample, *, regret: float, estimated: bool) -> Floats:
    """(trials, hypotheses) clipped debiased risk; with `estimated`, p and E[h] come from the second half of bags."""
    simulation, k = sample.simulation, sample.size
    h = simulation.hypotheses.T
    clip = clip_threshold(k, regret=regret, estimated=estimated)
    used = sample.bags // 2 if estimated else sample.bags
    risks = np.empty((len(sample.vectors), h.shape[1]))
    step = max(1, PIECE // (used * h.shape[1]))
    for start in range(0, len(risks), step):
        v = sample.vectors[start : start + step]
        prior, mean = np.float64(simulation.prior), simulation.means
        if estimated:
            average = v[:, used:].mean(axis=1, keepdims=True) / k
            prior, mean = average[..., :1], average[..., 1:] @ h
        head = v[:, :used].astype(float)
        loss = debiased_square_of_sums(head[..., 1:] @ h, k, head[..., :1] / k, prior=prior, mean=mean, clip=clip)
        risks[start : start + step] = loss.mean(axis=1)
    return risks


def two_function_choice(sample: Sample) -> NDArray[np.intp]:
    """(trials,) choice of Algorithm 1, Δ and β known."""
    simulation = sample.simulation
    gap = simulation.hypotheses[0] - simulation.hypotheses[1]
    totals = counts_decide(delta=gap @ simulation.weight, beta=gap**2 @ simulation.weight, size=sample.size)
    sums = sample.vectors[..., 1:] @ simulation.hypotheses.T
    statistic = two_function_statistic(sums[..., 0], sums[..., 1], sample.vectors[..., 0], totals=totals)
    return (statistic >= 0).astype(np.intp)


# -- the learners --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A rule that chooses a hypothesis from a sample of bags.

    label: its name in figures and notes.
    choose: (sample, target regret) → (trials,) number of the hypothesis chosen.
    reads_bags: whether moments do not suffice.
    limit: (simulation, k) → (truths, hypotheses) mean of its loss, whose minimiser it chooses in the end.
    """

    label: str
    choose: Callable[[Sample, float], NDArray[np.intp]]
    reads_bags: bool = False
    limit: Callable[[Simulation, int], Floats] = lambda simulation, size: simulation.risks

    def limit_regret(self, simulation: Simulation, size: int) -> float:
        """Regret of what it chooses given any number of bags; the largest over the functions that may be true."""
        chosen = self.limit(simulation, size).argmin(axis=1)
        return float(simulation.regrets[np.arange(len(chosen)), chosen].max())


def _minimise(risks: Callable[[Sample], Floats]) -> Callable[[Sample, float], NDArray[np.intp]]:
    return lambda sample, regret: risks(sample).argmin(axis=1)


def _clipped(estimated: bool) -> Callable[[Sample, float], NDArray[np.intp]]:
    return lambda sample, regret: clipped_risks(sample, regret=regret, estimated=estimated).argmin(axis=1)


def _matching_limit(simulation: Simulation, size: int) -> Floats:
    """E[(ᾱ − α)²] = Var(y − h)/k + (E[h] − p)²: the error of the mean weighs k times as much as in the risk."""
    off = (simulation.means - simulation.prior) ** 2
    return (simulation.risks - off) / size + off


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
