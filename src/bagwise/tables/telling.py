"""What an estimator says of its work while it is fitted, as steps done, steps in all and a few words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Tell = Callable[[int, int | None, str], None]
"""Called with steps done, steps in all (None where nobody knows) and what is going on."""


@contextmanager
def telling(estimator: Any, tell: Tell, time_budget: float | None) -> Iterator[None]:
    """While this lasts, the estimator tells of every step; where it tries candidates, it minds the time."""
    own = estimator.get_params(deep=False)
    given: dict[str, Any] = {}
    if "callback" in own and own["callback"] is None:
        given["callback"] = lambda line: tell(*_step(estimator, line))
    if "time_budget" in own and time_budget is not None:
        given["time_budget"] = time_budget
    estimator.set_params(**given)
    try:
        yield
    finally:
        estimator.set_params(**{name: own[name] for name in given if name == "callback"})


def _step(estimator: Any, line: Mapping[str, Any]) -> tuple[int, int | None, str]:
    """A line as candidates, trees or networks give it."""
    if "candidate" in line:
        from bagwise.auto import default_candidates

        total = len(estimator.candidates or default_candidates())
        return len(estimator.trials_), total, f"tried {line['candidate']}"
    chooses = line["stage"] == "choice"
    what = "choosing settings" if chooses else "fitting to all bags"
    if "fits" in line:
        return line["fit"], line["fits"], f"{what}: fit {line['fit']} of {line['fits']}"
    epochs = estimator.max_epochs if chooses else estimator.n_epochs_
    also = " at most" if chooses else ""
    return line["epoch"], epochs, f"{what}: epoch {line['epoch']} of {epochs}{also}"
