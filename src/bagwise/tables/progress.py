"""What an estimator says of its work while it is fitted, as steps done, steps in all and a few words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Tell = Callable[[int, int | None, str], None]
"""Called with steps done, steps in all (None where nobody knows) and what is going on."""


@contextmanager
def telling(estimator: Any, tell: Tell) -> Iterator[None]:
    """While this lasts, the estimator tells of every step."""
    silent = estimator.get_params(deep=False).get("callback", tell) is None
    if silent:
        estimator.set_params(callback=lambda line: tell(*_step(estimator, line)))
    try:
        yield
    finally:
        if silent:
            estimator.set_params(callback=None)


def _step(estimator: Any, line: Mapping[str, Any]) -> tuple[int, int | None, str]:
    """A line as candidates, trees or networks give it."""
    if "candidate" in line:
        from bagwise.auto import default_candidates

        names = list(estimator.candidates or default_candidates())
        done = len(estimator.trials_)
        comes = f"trying {names[done]}" if done < len(names) else "fitting to all bags"
        return done, len(names), f"{comes} ({line['candidate']}: {line['note'] or 'tried'})"
    chooses = line["stage"] == "choice"
    what = "choosing settings" if chooses else "fitting to all bags"
    if "fits" in line:
        return line["fit"], line["fits"], f"{what}: fit {line['fit']} of {line['fits']}"
    epochs = estimator.max_epochs if chooses else estimator.n_epochs_
    also = " at most" if chooses else ""
    return line["epoch"], epochs, f"{what}: epoch {line['epoch']} of {epochs}{also}"
