"""Parameters of the network estimator: what makes no sense is an error in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from bagwise.bags import Bags
from bagwise.losses import LOSSES, by_name
from bagwise.neural.batches import check_rows
from bagwise.neural.training import own_means
from bagwise.utils.parameters import check_whole

if TYPE_CHECKING:
    from bagwise.neural.estimator import BagNeuralClassifier

LEARNING_RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)


def check_parameters(model: BagNeuralClassifier, bags: Bags) -> tuple[float, ...]:
    """Raise where a parameter makes no sense for these bags; the learning rates to try."""
    check_rows(model.batch_rows, "batch_rows")
    for parameter, least in (("max_epochs", 1), ("patience", 1), ("cv", 2)):
        check_whole(getattr(model, parameter), parameter, least=least)
    if not (isinstance(model.weight_decay, Real) and 0 <= float(model.weight_decay) < np.inf):
        raise ValueError(f"weight_decay must be a finite number of at least 0, got {model.weight_decay!r}.")
    if model.dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {model.dtype!r}.")
    if model.module is not None and not isinstance(model.module, nn.Module):
        raise ValueError(f"module must be a torch.nn.Module or None, got {model.module!r}.")
    widths = model.hidden if isinstance(model.hidden, (Sequence, np.ndarray)) else [None]
    if not all(isinstance(width, Integral) and int(width) >= 1 for width in widths):
        raise ValueError(f"hidden must be whole numbers of at least 1, got {model.hidden!r}.")
    own_means(model.means)
    if by_name(model.loss).takes_logits and bags.proportion.ndim == 2:
        several = ", ".join(each for each, loss in LOSSES.items() if not loss.takes_logits)
        raise ValueError(
            f"loss={model.loss!r} is for two classes but there are {bags.proportion.shape[1]}: choose one of {several}."
        )
    return _learning_rates(model.learning_rate)


def _learning_rates(given: Any) -> tuple[float, ...]:
    if isinstance(given, str) and given == "auto":
        return LEARNING_RATES
    try:
        rates = np.atleast_1d(np.asarray(given, dtype=float))
    except (TypeError, ValueError):
        rates = np.array([np.nan])
    if rates.ndim != 1 or len(rates) == 0 or not (np.isfinite(rates) & (rates > 0)).all():
        raise ValueError(f"learning_rate must be 'auto' or one or more finite numbers above 0, got {given!r}.")
    return tuple(rates.tolist())
