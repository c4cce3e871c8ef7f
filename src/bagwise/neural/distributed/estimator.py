"""The network estimator on blocks of bags: settings are chosen on a sample, then all blocks are trained on."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bagwise.bags import Bags
from bagwise.data.rows import BagRows
from bagwise.neural.distributed.batches import Encode, Lanes, check_lanes
from bagwise.neural.distributed.training import Together, train
from bagwise.neural.networks import Standardise
from bagwise.utils.rng import generator
from bagwise.utils.typing import Floats

if TYPE_CHECKING:
    from bagwise.neural.estimator import BagNeuralClassifier

_DEPENDS_ON = (
    *("module", "hidden", "loss", "means", "learning_rate", "optimizer", "weight_decay", "batch_rows", "max_epochs"),
    *("early_stopping", "patience", "cv", "average", "dtype", "random_state"),
)


def fit_streamed(
    model: BagNeuralClassifier,
    sample: Callable[[], tuple[Floats, Bags]],
    source: BagRows,
    encode: Encode,
    *,
    p: float | Floats,
    width: int,
    together: Together | None = None,
    task: dict[str, Any] | None = None,
) -> None:
    """Learn from blocks of bags, which are read in every pass; see `neural.together`.

    sample: gives X and whole bags, on which the learning rate and the number of steps are chosen: passes over `source`
        are as many as make that number of steps, and at least one. Only the leading process calls it.
    encode: what it makes of rows of `source` is what X holds.  width: columns of it.  p: prior of `source`.
    task: tells `source` from others, for checkpoints.
    """
    together = together or Together()
    ranks, checkpoints = together.ranks, together.checkpoints
    task = {**(task or {}), "lanes": together.lanes, **{name: _told(getattr(model, name)) for name in _DEPENDS_ON}}
    check_lanes(source, together.lanes, ranks.world)
    ranks.agree({**task, "every": None if checkpoints is None else checkpoints.every})
    n_rows = int(source.size.sum())
    model.history_ = []
    settings = None
    if checkpoints is not None and ranks.leads:
        checkpoints.check_place()
        settings = checkpoints.decided(task)
    if settings is None and ranks.leads:
        settings = _settle(model, *sample(), n_rows)
        if checkpoints is not None:
            checkpoints.decide(task, settings)
    settings = ranks.share(settings)
    model.learning_rate_, model.n_epochs_, model.risk_ = (settings[name] for name in ("rate", "epochs", "risk"))
    model.prior_, model._rows_seen, model._shape = p, n_rows, (width,)
    model._scale = None
    if settings["scale"] is not None:
        mean, scale = (np.array(settings[name]) for name in ("mean", "scale"))
        model._scale = Standardise(mean, scale, getattr(torch, model.dtype)).to(model._device)
    body = model._body(width, settings["outputs"], settings["weights"])
    model._training = model._run(body, model.learning_rate_, p, np.random.default_rng(settings["order"]))
    lanes = Lanes(
        source,
        lambda rows: model._as_read(encode(rows)),
        width=width,
        rows=model.batch_rows,
        seed=settings["order"],
        lanes=together.lanes,
        rank=ranks.rank,
        world=ranks.world,
    )
    train(
        model._training,
        lanes,
        together,
        epochs=model.n_epochs_,
        seed=settings["order"],
        record=lambda epoch, loss: model._trained(loss, stage="final", epoch=epoch),
    )
    model._keep()


def _told(value: Any) -> str:
    """A parameter in words that are the same in every process: without the addresses of functions."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _settle(model: BagNeuralClassifier, X: Floats, bags: Bags, n_rows: int) -> dict[str, Any]:
    """What is decided before training begins, as plain data; n_rows are to be trained on."""
    rng = generator(model.random_state)
    model._choose(model._check_features(X, fitting=True), bags, rng)
    chosen = not np.isnan(model.risk_)
    scale = model._scale
    return {
        "rate": model.learning_rate_,
        "epochs": math.ceil(model.n_epochs_ * bags.n_bagged / n_rows) if chosen else model.n_epochs_,
        "risk": model.risk_,
        "outputs": 1 if bags.proportion.ndim == 1 else bags.proportion.shape[1],
        "weights": model._seed,
        "order": int(rng.integers(2**63)),
        "mean": None if scale is None else scale.mean.tolist(),
        "scale": None if scale is None else scale.scale.tolist(),
    }
