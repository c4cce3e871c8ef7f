"""What a fitted estimator says of itself: in the log, and in a notebook."""

from __future__ import annotations

import html
import logging
import math
from typing import Any

import numpy as np

from bagwise.utils.text import number_of, with_error

logger = logging.getLogger(__name__)

_CHOSEN = {
    "best_name_": "candidate",
    "loss_": "loss",
    "power_": "power",
    "alpha_": "alpha",
    "scaling_": "scaling",
    "learning_rate_": "learning_rate",
    "n_epochs_": "epochs",
    "n_estimators_": "n_estimators",
    "reg_lambda_": "reg_lambda",
    "stretch_": "stretch",
    "effect_variance_": "effect_variance",
}
"""Attributes that hold what was chosen, and what each is called."""


def facts(model: Any) -> dict[str, str]:
    """What was told of its bags, what was chosen, and what held-out bags say of it; empty before `fit`.

    >>> from types import SimpleNamespace
    >>> facts(SimpleNamespace(formation_="random: shuffled", alpha_=0.1, gain_=0.25, gain_error_=0.01))
    {'formation': 'random: shuffled', 'chosen': 'alpha 0.1',
     'gain': '+0.250 ± 0.010 by log-likelihood of a held-out bag'}
    """
    told = {}
    if (formation := getattr(model, "formation_", None)) is not None:
        told["formation"] = str(formation)
    if chosen := [f"{name} {_shown(getattr(model, one))}" for one, name in _CHOSEN.items() if hasattr(model, one)]:
        told["chosen"] = ", ".join(chosen)
    if math.isfinite(gain := getattr(model, "gain_", math.nan)):
        told["gain"] = f"{with_error(gain, model.gain_error_)} by log-likelihood of a held-out bag"
    return told


def log_fit(model: Any, bags: int, rows: int, seconds: float) -> None:
    """Tell the log of a fit that is over."""
    if not logger.isEnabledFor(logging.INFO):
        return
    name = type(model).__name__
    logger.info("%s: fitted to %s of %s in %.1f s", name, number_of(bags, "bag"), number_of(rows, "row"), seconds)
    for what, said in facts(model).items():
        logger.info("%s: %s: %s", name, what, said)


def as_html(model: Any, diagram: str) -> str:
    """scikit-learn's diagram, and below it what the model says of itself."""
    told = [f"<li><b>{what}</b> {html.escape(said)}</li>" for what, said in facts(model).items()]
    return f'{diagram}<ul class="bagwise-facts">{"".join(told)}</ul>' if told else diagram


def _shown(value: Any) -> str:
    """A number to three digits, whatever holds it."""
    if isinstance(value, dict):
        return " ".join(f"{_shown(one)} ({name})" for name, one in value.items())
    return f"{value:.3g}" if isinstance(value, (float, np.floating)) else str(value)
