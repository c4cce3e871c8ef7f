"""The learning rate and the number of epochs, chosen by the label-free risk of held-out bags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bagwise.folds import Fold
from bagwise.utils.typing import Floats


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the held-out risk it had."""

    learning_rate: float
    n_epochs: int
    risk: float


class Candidate(Protocol):
    """Models of one learning rate, one per fold, trained in step."""

    @property
    def learning_rate(self) -> float:
        """The learning rate."""

    def epochs(self) -> Iterator[tuple[float, float]]:
        """Train one epoch at a time: the mean training loss, and the held-out risk over all folds."""


def over_folds(risks: Sequence[float] | Floats, folds: Sequence[Fold]) -> float:
    """The risk of all held-out bags, from that of each fold."""
    return float(np.average(risks, weights=[len(fold.held_out) for fold in folds]))


def choose(candidates: Sequence[Candidate], *, max_epochs: int, patience: int, record: Callable[..., None]) -> Choice:
    """The candidate and the epoch with the least held-out risk.

    A candidate stops when `patience` epochs brought no new least risk, and is dropped when its loss is no longer a
    finite number. `record` gets each epoch's figures.
    """
    best: Choice | None = None
    for candidate in candidates:
        path: list[float] = []
        for loss, risk in candidate.epochs():
            path.append(risk)
            record(learning_rate=candidate.learning_rate, epoch=len(path), loss=loss, risk=risk)
            if not (np.isfinite(loss) and np.isfinite(risk)):
                path = []
                break
            if len(path) == max_epochs or len(path) - 1 - int(np.argmin(path)) >= patience:
                break
        if path and (best is None or min(path) < best.risk):
            best = Choice(candidate.learning_rate, int(np.argmin(path)) + 1, min(path))
    if best is None:
        tried = ", ".join(f"{candidate.learning_rate:g}" for candidate in candidates)
        raise ValueError(
            f"training diverged with every learning rate tried ({tried}): give a smaller learning_rate, "
            "or scale the features."
        )
    return best
