"""Updates of a model by bags that came later: what they may be asked, what they came to, and who can have none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, Literal, NamedTuple, TypeAlias

from bagwise.utils.parameters import ParameterError, number, one_of
from bagwise.utils.text import number_of, with_error

__all__ = ["CannotUpdateError", "Update"]

Forgetting: TypeAlias = float | Literal["auto"]
"""The weight of what was learned before, or "auto" to let new bags choose it."""

FORGETTING = one_of("auto") | number(least=0, most=1)
"""What the parameter `forgetting` of an update may be."""

WEIGHTS = (1.0, 0.6, 0.3, 0.1, 0.0)
"""Weights of what was learned before that new bags choose from, where they are asked."""

MOST_KEPT = 2**23
"""Numbers, 64 megabytes, that a linear model keeps for updates at most."""

OLD_FOLDER = (
    "this model cannot be updated, as it keeps nothing of the bags that it was fitted to (its folder is of an earlier "
    "version, or was saved redacted, or it has too many columns): fit one to the reports of both months together"
)
"""Why a model that could be updated cannot."""


class Step(NamedTuple):
    """What an estimator did with new bags; the words are those of `Update`."""

    how: str
    learned: bool = True
    forgetting: float = 1.0
    apart: bool = False


@dataclass(frozen=True)
class Update:
    """What an update came to.

    Attributes
    ----------
    bags, rows : int
        Those that were new.
    how : str
        What was done, in words.
    learned : bool
        Whether the model learned from them; False where held-out new bags did not prefer that, and it is as it was.
    forgetting : float
        The weight of what was learned before beside that of the new bags.
    apart : bool
        Whether the mean prediction is that of the new bags alone.
    before, before_error : float
        Log-likelihood of a new bag by the model as it was, over that of their mean label, and its standard error; NaN
        where it is not known.
    after, after_error : float
        The same by the model after the update, of new bags that were held out for it.

    Examples
    --------
    >>> unknown = [float("nan")] * 4
    >>> print(Update(40, 2560, "moments of bags added to those of the old ones", True, 0.3, False, *unknown))
    40 new bags of 2,560 rows: moments of bags added to those of the old ones (what was learned before weighs 0.3).
    """

    bags: int
    rows: int
    how: str
    learned: bool
    forgetting: float
    apart: bool
    before: float
    before_error: float
    after: float
    after_error: float

    @property
    def weights(self) -> str:
        """How much the old counts, in words; empty where all counts alike."""
        if not self.learned or (self.forgetting == 1 and not self.apart):
            return ""
        mean = ", and the mean prediction is that of the new bags" if self.apart else ""
        return f" (what was learned before weighs {self.forgetting:.2g}{mean})"

    def __str__(self) -> str:
        said = f"{number_of(self.bags, 'new bag')} of {number_of(self.rows, 'row')}: {self.how}{self.weights}"
        if not (math.isfinite(self.before) and math.isfinite(self.after)):
            return f"{said}."
        after, before = with_error(self.after, self.after_error), with_error(self.before, self.before_error)
        measured = f"log-likelihood of a new bag over their mean label {after} held out, {before} as it was"
        return f"{said}; {measured}."


CANNOT = "cannot be updated: fit it to the reports of both months together, or take ridge, logistic or boosting"
"""What is said of estimators that keep nothing to go on from."""


class CannotUpdateError(AttributeError, ValueError):
    """An estimator has no `partial_fit`, or not for what it was fitted to."""


class UnlessRefused:
    """A method that an estimator has unless `refuses_updates` says why not: scikit-learn sees none then.

    A user who calls it reads the reason.  method: None where there is none at all.
    """

    def __init__(self, method: Callable[..., Any] | None = None) -> None:
        self.method = method

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.method
        if (reason := instance.refuses_updates()) is not None or self.method is None:
            raise CannotUpdateError(f"{reason}.")
        return MethodType(self.method, instance)


def check_together(forgetting: Forgetting, name: str) -> None:
    """Raise where a model that goes on from what it is was asked to forget."""
    if forgetting not in ("auto", 1):
        way = "new bags choose how far these leave what they were: leave it out, or take ridge or logistic"
        raise ParameterError("forgetting", f"is for linear models, not for {name}; {way}.")
