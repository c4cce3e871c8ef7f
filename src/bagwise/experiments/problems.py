r"""Four problems in which to count the bags a learner needs: finite classes of hypotheses on a few levels of x."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bagwise.utils.typing import Floats

LEVELS = (np.arange(16) + 0.5) / 16
"""The values of x in problems (ii) to (iv), equally likely."""
TRUTH = LEVELS**2
"""P(y = 1 | x) there."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Choose, from bags alone, a hypothesis whose regret is below a target.

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
        return self.risks - self.risks.min(axis=1, keepdims=True)


def problems(regret: float) -> dict[str, Problem]:
    """The four problems for a target regret β, by the numeral they carry in tables and figures.

    >>> {name: len(problem.hypotheses) for name, problem in problems(0.01).items()}
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
        "ii": Problem(
            title="the truth among hypotheses whose means differ",
            weight=even,
            truths=truth,
            hypotheses=_apart(np.concatenate([truth, _off(with_truth, 0.02)]), regret),
        ),
        "iii": Problem(
            title="no truth in the class, every mean off",
            weight=even,
            truths=truth,
            hypotheses=_apart(_off(without, 0.04), regret),
        ),
        # From the constant p, whose mean is right, to the truth shifted by 0.05, which is the best of the class.
        # Matching weighs that shift k times and prefers the constant once bags are large.
        "iv": Problem(
            title="the best mean is off, a worse hypothesis has it right",
            weight=even,
            truths=truth,
            hypotheses=np.array([TRUTH.mean() + t * (TRUTH - TRUTH.mean() + 0.05) for t in (0, 0.25, 0.5, 0.75, 1)]),
        ),
    }
    for name, problem in found.items():
        if problem.regrets.max() < regret * (1 - 1e-9):
            raise ValueError(
                f"in problem {name} every hypothesis meets a target regret of {regret}: choose a smaller one."
            )
    return found


def symmetric_pair(regret: float) -> Problem:
    """The two functions of the lower-bound proof: equal means, and the wrong one has exactly the target regret."""
    up, down = 0.5 + np.sqrt(regret) / 2, 0.5 - np.sqrt(regret) / 2
    pair = np.array([[down, up], [up, down]])
    return Problem(
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
    return hypotheses[abs(hypotheses.mean(axis=1) - TRUTH.mean()) >= error]


def _apart(hypotheses: Floats, regret: float) -> Floats:
    """The hypotheses clearly below or above the target: one within a hair of it would decide the count alone."""
    risk = ((hypotheses**2) + TRUTH * (1 - 2 * hypotheses)).mean(axis=1)
    ratio = (risk - risk.min()) / regret
    return hypotheses[(ratio < 2 / 3) | (ratio > 2)]
