r"""Four problems in which to count the bags a learner needs: finite classes of hypotheses on a few levels of x.

Learners choose a hypothesis from bags, in many independent trials at once. Rows are never drawn: a bag is its vector
v = (count of positives, rows on each level of x), and every sum of h over a bag is an inner product with v. The losses
without clipping are quadratic in v, so their empirical risks need only :math:`\sum_j v_j v_j^\top / k` and
:math:`\sum_j v_j`, however many bags there were. Clipped losses and Algorithm 1 read every bag.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from bagwise.losses import clip_threshold, debiased_square_of_sums
from bagwise.plotting import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, Look
from bagwise.selection import counts_decide, two_function_statistic
from bagwise.utils.typing import Booleans, Floats, Integers, NDArray

_PIECE = 2**17  # numbers of one piece of work: small enough to stay in the processor's cache
LEVELS = (np.arange(16) + 0.5) / 16
"""The values of x in problems (ii) to (iv), equally likely."""
TRUTH = LEVELS**2
"""P(y = 1 | x) there."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Simulation:
    """A problem: choose, from bags alone, a hypothesis whose regret is below a target.

    title: what is particular about it.
    weight: (levels,) probability of each level of x.
    truths: (truths, levels) functions P(y = 1 | x), each equally often the true one; all have mean `prior`.
    hypotheses: (hypotheses, levels) predictions of the class.
    """

    title: str
    weight: Floats
    truths: Floats
    hypotheses: Floats

    @property
    def prior(self) -> float:
        """p = E[y], the same whichever function is true."""
        return float(self.truths[0] @ self.weight)

    @property
    def means(self) -> Floats:
        """(hypotheses,) mean prediction E[h]."""
        return self.hypotheses @ self.weight

    @property
    def risks(self) -> Floats:
        """(truths, hypotheses) E[(y − h)²]."""
        return (self.hypotheses**2) @ self.weight + (self.truths * self.weight) @ (1 - 2 * self.hypotheses.T)

    @property
    def regrets(self) -> Floats:
        """(truths, hypotheses) risk above that of the best of the class."""
        regrets: Floats = self.risks - self.risks.min(axis=1, keepdims=True)
        return regrets


def simulations(regret: float) -> dict[str, Simulation]:
    """The four problems for a target regret β, by the numeral they carry in tables and figures.

    >>> {name: len(one.hypotheses) for name, one in simulations(0.01).items()}
    {'i': 2, 'ii': 66, 'iii': 68, 'iv': 5}

    Classes (ii) to (iv) are made for targets near 0.01; a target that no hypothesis misses is an error.
    """
    levels = {"weight": np.full(len(LEVELS), 1 / len(LEVELS)), "truths": TRUTH[None]}
    with_truth = _family((0.5, 1, 2, 3, 4), contrasts=(0.4, 0.6, 0.8, 1), errors=(-0.25, -0.06, 0.06, 0.3))
    without = _family((0.5, 0.75, 1, 1.5, 3), contrasts=(0.25, 0.5, 0.75, 1), errors=(-0.25, -0.05, 0.06, 0.3))
    found = {
        "i": symmetric_pair(regret),
        "ii": Simulation(
            title="the truth among hypotheses whose means differ",
            hypotheses=_apart(np.concatenate([TRUTH[None], _off(with_truth, 0.02)]), regret),
            **levels,
        ),
        "iii": Simulation(
            title="no truth in the class, every mean off", hypotheses=_apart(_off(without, 0.04), regret), **levels
        ),
        # From the constant p, whose mean is right, to the truth shifted by 0.05, which is the best of the class.
        # Matching weighs that shift k times and prefers the constant once bags are large.
        "iv": Simulation(
            title="the best mean is off, a worse hypothesis has it right",
            hypotheses=np.array([TRUTH.mean() + t * (TRUTH - TRUTH.mean() + 0.05) for t in (0, 0.25, 0.5, 0.75, 1)]),
            **levels,
        ),
    }
    for name, simulation in found.items():
        if simulation.regrets.max() < regret * (1 - 1e-9):
            met = f"in problem {name} every hypothesis meets a target regret of {regret}"
            raise ValueError(f"{met}: choose a smaller one.")
    return found


def symmetric_pair(regret: float) -> Simulation:
    """The two functions of the lower-bound proof: equal means, and the wrong one has exactly the target regret."""
    up, down = 0.5 + np.sqrt(regret) / 2, 0.5 - np.sqrt(regret) / 2
    pair, title = np.array([[down, up], [up, down]]), "two symmetric functions, equal means"
    return Simulation(title=title, weight=np.array([0.5, 0.5]), truths=pair, hypotheses=pair)


def _family(exponents: tuple[float, ...], *, contrasts: tuple[float, ...], errors: tuple[float, ...]) -> Floats:
    """Powers of x, flattened by a contrast and moved to a mean error of their own, kept in [0, 1]."""
    made = [
        TRUTH.mean() + error + contrast * (LEVELS**b - (LEVELS**b).mean())
        for b, contrast, error in product(exponents, contrasts, errors)
    ]
    return np.array(made).clip(0, 1)


def _off(hypotheses: Floats, error: float) -> Floats:
    """The hypotheses whose mean still is at least so far from p after clipping."""
    off: Booleans = abs(hypotheses.mean(axis=1) - TRUTH.mean()) >= error
    return hypotheses[off]


def _apart(hypotheses: Floats, regret: float) -> Floats:
    """The hypotheses clearly below or above the target: one within a hair of it would decide the count alone."""
    risk = ((hypotheses**2) + TRUTH * (1 - 2 * hypotheses)).mean(axis=1)
    ratio: Floats = (risk - risk.min()) / regret
    return hypotheses[(ratio < 2 / 3) | (ratio > 2)]


# -- bags ----------------------------------------------------------------------------------------------------------


class Sample:
    """Growing samples of bags of one size, one for each of a number of independent trials.

    bags: number of bags m drawn in every trial.
    square: (trials, 1 + levels, 1 + levels) Σ v vᵀ / k.  total: (trials, 1 + levels) Σ v.
    vectors: (trials, m, 1 + levels) the bags themselves, as long as `keep` is set.
    """

    def __init__(self, simulation: Simulation, size: int, trials: int, rng: np.random.Generator):
        width = 1 + len(simulation.weight)
        self.simulation, self.size, self.rng = simulation, size, rng
        self.truth = np.arange(trials) % len(simulation.truths)
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
            v = draw(self.simulation, self.size, self.truth, min(step, bags - start), self.rng)
            if self.keep:
                blocks.append(v.astype(self.vectors.dtype))
            v = v.astype(float)
            self.square += v.transpose(0, 2, 1) @ v / self.size
            self.total += v.sum(axis=1)
        self.vectors = np.concatenate(blocks, axis=1) if self.keep else self.vectors[:0]
        self.bags = bags


def draw(simulation: Simulation, size: int, truth: Integers, bags: int, rng: np.random.Generator) -> Integers:
    """(trials, bags, 1 + levels) vectors of random bags; `truth` (trials,) says which function is true in each."""
    levels = rng.multinomial(size, simulation.weight, size=(len(truth), bags))
    positives = rng.binomial(levels, simulation.truths[truth][:, None]).sum(axis=-1, keepdims=True)
    return np.concatenate([positives, levels], axis=-1)


# -- empirical risks, from moments or from every bag ---------------------------------------------------------------


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
    direction = np.insert(-sample.simulation.hypotheses, 0, 1, axis=1).T
    return np.asarray(((sample.square @ direction) * direction).sum(axis=1)) / sample.bags


def _label_linear(sample: Sample) -> tuple[Floats, Floats, Floats]:
    """Means over bags of mean ℓ0, of mean d, and of kα · mean d, for the square loss: ℓ0 = h², d = 1 − 2h."""
    h = sample.simulation.hypotheses.T
    levels = sample.total[:, 1:] / (sample.size * sample.bags)
    return levels @ h**2, levels @ (1 - 2 * h), sample.square[:, 0, 1:] / sample.bags @ (1 - 2 * h)


def clipped_risks(sample: Sample, *, regret: float, estimated: bool) -> Floats:
    """(trials, hypotheses) clipped debiased risk; with `estimated`, p and E[h] come from the second half of bags."""
    simulation, k = sample.simulation, sample.size
    h = simulation.hypotheses.T
    clip = clip_threshold(k, regret=regret, estimated=estimated)
    used = sample.bags // 2 if estimated else sample.bags
    risks = np.empty((len(sample.vectors), h.shape[1]))
    step = max(1, _PIECE // (used * h.shape[1]))
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


@dataclass(frozen=True)
class Learner:
    """A rule that chooses a hypothesis from a sample of bags.

    label, look: its name in figures and notes, and how it is drawn.
    choose: (sample, target regret) → (trials,) number of the hypothesis chosen.
    reads_bags: whether moments do not suffice.
    limit: (simulation, k) → (truths, hypotheses) mean of its loss, whose minimiser it chooses in the end.
    """

    label: str
    look: Look
    choose: Callable[[Sample, float], NDArray[np.intp]]
    reads_bags: bool = False
    limit: Callable[[Simulation, int], Floats] = lambda simulation, size: simulation.risks

    def limit_regret(self, simulation: Simulation, size: int) -> float:
        """Regret of what it chooses given any number of bags; the largest over the functions that may be true."""
        chosen = self.limit(simulation, size).argmin(axis=1)
        return float(simulation.regrets[np.arange(len(chosen)), chosen].max())


def _minimise(risks: Callable[[Sample], Floats]) -> Callable[[Sample, float], NDArray[np.intp]]:
    return lambda sample, _: risks(sample).argmin(axis=1)


def _clipped(sample: Sample, regret: float, estimated: bool = False) -> NDArray[np.intp]:
    return np.asarray(clipped_risks(sample, regret=regret, estimated=estimated).argmin(axis=1))


def _matching_limit(simulation: Simulation, size: int) -> Floats:
    """E[(ᾱ − α)²] = Var(y − h)/k + (E[h] − p)²: the error of the mean weighs k times as much as in the risk."""
    off = (simulation.means - simulation.prior) ** 2
    return (simulation.risks - off) / size + off


LEARNERS: dict[str, Learner] = {
    "algorithm_1": Learner(
        "Algorithm 1", Look(BLACK, "s"), lambda sample, _: two_function_choice(sample), reads_bags=True
    ),
    "ours": Learner("ours, exact means", Look(BLUE, "o"), _clipped, reads_bags=True),
    "ours_estimated": Learner(
        "ours, means from half of the bags", Look(SKY, "h", "--"), partial(_clipped, estimated=True), reads_bags=True
    ),
    "centred": Learner("centred", Look(GREEN, "X"), _minimise(centred_risks)),
    "li": Learner("Li", Look(RED, "^"), _minimise(li_risks)),
    "easyllp": Learner("EasyLLP", Look(ORANGE, "D"), _minimise(easyllp_risks)),
    "matching": Learner("matching", Look(PURPLE, "P", "-."), _minimise(matching_risks), limit=_matching_limit),
}
"""Every learner by name. `ours` knows p and E[h]; `ours_estimated` takes them from the second half of its bags."""
