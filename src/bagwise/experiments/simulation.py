r"""Four problems in which to count the bags a learner needs: finite classes of hypotheses on a few levels of x.

Rows are never drawn: a bag is its vector v = (count of positives, rows on each level of x), and every sum of h over a
bag is an inner product with v.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bagwise.utils.typing import Booleans, Floats, Integers

PIECE = 2**17
"""Numbers of one piece of work: small enough to stay in the processor's cache."""
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
        h = self.hypotheses
        return (h**2) @ self.weight + (self.truths * self.weight) @ (1 - 2 * h.T)

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
    even = np.full(len(LEVELS), 1 / len(LEVELS))
    truth = TRUTH[None]
    with_truth = _family(exponents=(0.5, 1, 2, 3, 4), contrasts=(0.4, 0.6, 0.8, 1), errors=(-0.25, -0.06, 0.06, 0.3))
    without = _family(
        exponents=(0.5, 0.75, 1, 1.5, 3), contrasts=(0.25, 0.5, 0.75, 1), errors=(-0.25, -0.05, 0.06, 0.3)
    )
    found = {
        "i": symmetric_pair(regret),
        "ii": Simulation(
            title="the truth among hypotheses whose means differ",
            weight=even,
            truths=truth,
            hypotheses=_apart(np.concatenate([truth, _off(with_truth, 0.02)]), regret),
        ),
        "iii": Simulation(
            title="no truth in the class, every mean off",
            weight=even,
            truths=truth,
            hypotheses=_apart(_off(without, 0.04), regret),
        ),
        # From the constant p, whose mean is right, to the truth shifted by 0.05, which is the best of the class.
        # Matching weighs that shift k times and prefers the constant once bags are large.
        "iv": Simulation(
            title="the best mean is off, a worse hypothesis has it right",
            weight=even,
            truths=truth,
            hypotheses=np.array([TRUTH.mean() + t * (TRUTH - TRUTH.mean() + 0.05) for t in (0, 0.25, 0.5, 0.75, 1)]),
        ),
    }
    for name, simulation in found.items():
        if simulation.regrets.max() < regret * (1 - 1e-9):
            raise ValueError(
                f"in problem {name} every hypothesis meets a target regret of {regret}: choose a smaller one."
            )
    return found


def symmetric_pair(regret: float) -> Simulation:
    """The two functions of the lower-bound proof: equal means, and the wrong one has exactly the target regret."""
    up, down = 0.5 + np.sqrt(regret) / 2, 0.5 - np.sqrt(regret) / 2
    pair = np.array([[down, up], [up, down]])
    return Simulation(
        title="two symmetric functions, equal means", weight=np.array([0.5, 0.5]), truths=pair, hypotheses=pair
    )


def _family(*, exponents: tuple[float, ...], contrasts: tuple[float, ...], errors: tuple[float, ...]) -> Floats:
    """Powers of x, flattened by a contrast and moved to a mean error of their own, kept in [0, 1]."""
    return np.array(
        [
            np.clip(TRUTH.mean() + error + contrast * (LEVELS**b - (LEVELS**b).mean()), 0, 1)
            for b in exponents
            for contrast in contrasts
            for error in errors
        ]
    )


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
        step = max(1, PIECE // trials)
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
