"""How a network learns from bags, whatever it predicts: choice, training, in memory or on blocks, epoch by epoch."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import nn

from bagwise.bags import Bags
from bagwise.bags.weights import standing_for
from bagwise.data.rows import BagRows, InMemory, in_one_piece, subset
from bagwise.data.rows import prior as prior_of_rows
from bagwise.data.sparse import as_dense
from bagwise.folds import Fold, folds_of
from bagwise.formation import Told
from bagwise.gains import tell_gain
from bagwise.means import prior
from bagwise.neural.batches import BagTensors, cut
from bagwise.neural.devices import check_together
from bagwise.neural.mixing import check_mixing, rate_covariance
from bagwise.neural.network import Network
from bagwise.neural.networks import Standardise
from bagwise.neural.tuning import candidates_of, choose, expected_prior, hidden_beyond
from bagwise.utils.parameters import ParameterError, check_parameters
from bagwise.utils.rng import generator
from bagwise.utils.typing import ArrayLike, Floats

if TYPE_CHECKING:
    from bagwise.distributed import Distributed

logger = logging.getLogger(__name__)

LEARNING_RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
_PLAIN_RATE = 1e-3  # where "auto" cannot choose: too few bags, or partial_fit first
_SETTLED = ("learning_rate_", "n_epochs_", "risk_", "loss_", "effect_variance_", "stretch_", "gain_", "gain_error_")
_BESIDES = ("callback", "device")  # parameters on which nothing that is learned depends


class NetworkFit(Network):
    """The fit of classifiers and regressors; what differs is said by the abstract methods."""

    @abstractmethod
    def _tell_loss(self, X: Floats, bags: Bags) -> None:
        """The formation and the loss that suits it; raises where the loss makes no sense for these bags."""

    @abstractmethod
    def _compared_by(self, X: Floats, bags: Bags) -> float | None:
        """τ² of the likelihood that held-out bags are compared by; None where that is the label-free risk."""

    @abstractmethod
    def _held_out(self, scores: Sequence[Floats], bags: Bags, folds: Sequence[Fold]) -> Floats:
        """(m,) gains of held-out bags by the networks chosen, whose stretch is set.  scores: of all bags, by fold."""

    @abstractmethod
    def _mean_of(self, data: BagTensors) -> Any:
        """What makes E[h] = p in these bags, as numbers that `_move` takes."""

    @abstractmethod
    def _move(self, found: Any) -> None:
        """Let E[h] be p, as `_mean_of` found it."""

    @abstractmethod
    def _given(self, y: Any, bags: Any, n_rows: int, classes: Any, *, first: bool) -> Bags:
        """What `partial_fit` was given, as bags."""

    def _learned(self, data: BagRows) -> BagRows:
        """The data, with reports as the network learns them."""
        return data

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        rng = generator(self.random_state)
        body, data = self._choose(X, bags, rng)
        self.prior_, self._rows_seen = expected_prior(bags, self._beyond), bags.n_people
        self._training = self._run(body, self.learning_rate_, self.prior_, rng)
        for epoch in range(1, self.n_epochs_ + 1):
            self._trained(epoch, self._training.epoch(data, self.batch_rows), stage="final")
        self._keep()
        self._move(self._mean_of(data))

    def _choose(self, X: Floats, bags: Bags, rng: np.random.Generator) -> tuple[nn.Module, BagTensors]:
        """Choose loss, learning rate, number of epochs and stretch; the network before training, and its data."""
        rates = self._rates()
        self.history_ = []
        body = self._start(X, bags, rng)
        data = BagTensors(self._as_read(X[bags.order]), bags)
        self._tell_loss(X, bags)
        self._tell_mixing(bags)
        folds = folds_of(len(bags), self.cv, rng, shared=bags.shared) if self.early_stopping or len(rates) > 1 else []
        self.learning_rate_, self.n_epochs_, self.risk_ = rates[0], self.max_epochs, float("nan")
        gains, self._beyond = None, hidden_beyond(X, bags, self.formation_.name)
        if folds:
            candidates = candidates_of(
                partial(self._run, body),
                rates,
                data,
                folds,
                self.batch_rows,
                rng,
                stackable=self._stackable and bags.proportion.ndim == 1,
                effect_variance=self._compared_by(X, bags),
                values=self._of_values,
                beyond=self._beyond,
            )
            patience = self.patience if self.early_stopping else self.max_epochs
            found = choose(candidates, max_epochs=self.max_epochs, patience=patience, record=self._record)
            self.learning_rate_, self.n_epochs_, self.risk_, scores = found
            gains = self._held_out(scores, data.bags, folds)
        elif len(rates) > 1 and self.learning_rate == "auto":
            self.learning_rate_ = _PLAIN_RATE
        self.gain_, self.gain_error_ = tell_gain(gains, stacklevel=6)
        return body, data

    @property
    def _stackable(self) -> bool:
        """Whether networks like it can be trained beside each other."""
        return self.module is None and self.optimizer is None and not self.consistency and not self.mix_bags

    def _tell_mixing(self, bags: Bags) -> None:
        """How much rates of bags vary, which mixed bags are made by; raises where they would say something else."""
        self.rate_covariance_ = None
        if not self.mix_bags:
            return
        most = int(np.diff(cut(bags.rows, self.batch_rows)).max())
        check_mixing(self.loss_, self.formation_.name, bags, values=self._of_values, batch_bags=most)
        self.rate_covariance_ = rate_covariance(bags) * (self.formation_.name == "rates")

    def _rates(self) -> tuple[float, ...]:
        """The learning rates to try."""
        given = LEARNING_RATES if isinstance(self.learning_rate, str) else self.learning_rate
        return tuple(np.atleast_1d(np.asarray(given, dtype=float)).tolist())

    def fit_rows(self, data: BagRows, *, distributed: Distributed | None = None) -> Self:
        """Learn from bags of rows, in memory or in blocks on disk.

        Learning rate and number of steps are chosen on a sample of whole bags that fits into memory; then the network
        is trained on all bags, one pass over the blocks after the other, as many as make that number of steps. Memory
        holds the sample and a few blocks, however many there are.

        Parameters
        ----------
        data : BagRows
            Rows as finite numbers, such as `bagwise.data.rows.InMemory`, or shards with their encoding.
        distributed : Distributed, optional
            With which other processes, and where checkpoints go. Without it, and where the sample holds all bags, this
            is `fit`.

        Returns
        -------
        Self
        """
        self._fit_named(self._begin(data), distributed)
        return self

    def _fit_data(self, data: BagRows, distributed: Distributed | None = None) -> None:
        self._consistency()
        if distributed is not None:
            check_together(self._device, distributed.processes.world)
            if self.mix_bags and distributed.processes.world > 1:
                raise ParameterError("mix_bags", "mixes bags of one process: leave it out, or start one process.")
        data = self._learned(data)
        if distributed is None:
            some = data if in_one_piece(data) else data.sample()
            if len(some.bags) == len(data.size):
                self._fit_bags(some.X, some.bags)
                return
        elif in_one_piece(data):  # in blocks, rows stand in bag order
            data = InMemory(data.X[data.bags.order], subset(data, np.arange(len(data.bags)), coded=True))
        from bagwise.distributed.options import Distributed, settle
        from bagwise.neural.distributed import BlockLoader, train

        options = distributed or Distributed()
        depends = {name: value for name, value in self.get_params(deep=False).items() if name not in _BESIDES}
        settings = settle(data, depends, options, lambda: self._settle(data))
        self.history_ = list(settings["history"])
        for attribute in _SETTLED:
            setattr(self, attribute, settings[attribute])
        self.formation_ = Told.of(settings["formation"])
        self.rate_covariance_ = None if settings["rates"] is None else np.array(settings["rates"])
        p = settings["prior"]
        self.prior_, self._rows_seen = np.array(p) if isinstance(p, list) else p, data.size.sum().item()
        self._scale = None
        self.feature_means_ = np.asarray(settings["mean"], dtype=float)
        if settings["scale"] is not None:
            scale = Standardise(settings["mean"], settings["scale"], getattr(torch, self.dtype))
            self._scale = scale.to(self._device)
        body, order = self._body(self._shape[0], settings["outputs"], settings["weights"]), settings["order"]
        self._training = self._run(body, self.learning_rate_, self.prior_, np.random.default_rng(order))
        loader = BlockLoader(data, self._as_read, options, rows=self.batch_rows, seed=order)
        record = partial(self._trained, stage="final")
        train(self._training, loader, options, epochs=self.n_epochs_, seed=order, record=record)
        self._keep()
        found = None
        if options.processes.leads:
            some = data.sample()
            found = self._mean_of(BagTensors(self._as_read(some.X[some.bags.order]), some.bags))
            found = np.asarray(found).tolist()
        self._move(options.processes.share(found))

    def _settle(self, data: BagRows) -> dict[str, Any]:
        """What is decided before training on blocks begins, as plain data."""
        rng, some = generator(self.random_state), data.sample()
        self._choose(some.X, some.bags, rng)
        p = prior_of_rows(data) if data.interval is None else expected_prior(data.bags, self._beyond)
        chosen, share, scale = not np.isnan(self.risk_), some.bags.n_bagged / int(data.rows.sum()), self._scale
        self.n_epochs_ = math.ceil(self.n_epochs_ * share) if chosen else self.n_epochs_
        return {
            **{name: getattr(self, name) for name in _SETTLED},
            "formation": asdict(self.formation_),
            "rates": None if self.rate_covariance_ is None else self.rate_covariance_.tolist(),
            "history": self.history_,
            "prior": p if isinstance(p, float) else p.tolist(),
            "outputs": some.bags.outputs.shape[1],
            "weights": self._seed,
            "order": int(rng.integers(2**63)),
            "mean": self.feature_means_.tolist(),
            "scale": None if scale is None else scale.scale.tolist(),
        }

    def _one_more_epoch(self, X: Any, y: Any, bags: Any, sample_weight: ArrayLike | None, classes: Any) -> None:
        """Train one more epoch, on the bags given; the first call starts a network."""
        first = not hasattr(self, "_training")
        X = self._check_features(as_dense(X, "an update"), fitting=first)
        check_parameters(self, self._constraints)
        consistency = self._consistency()
        given = self._given(y, bags, len(X), classes, first=first)
        given = standing_for(given, sample_weight, alone=bags is None)
        rates = self._rates()
        if first:
            rng = generator(self.random_state)
            body = self._start(X, given, rng)
            self._tell_loss(X, given)
            self._tell_mixing(given)
            self.history_, self.risk_, self.n_epochs_ = [], float("nan"), 0
            self.learning_rate_ = _PLAIN_RATE if self.learning_rate == "auto" else rates[0]
            self.prior_, self._rows_seen = prior(given), given.n_people
            self._training = self._run(body, self.learning_rate_, self.prior_, rng)
        else:
            seen = self._rows_seen + given.n_people
            self.prior_ = self.prior_ + (prior(given) - self.prior_) * (given.n_people / seen)
            self._training.objective.prior, self._rows_seen = self.prior_, seen
            if self.mix_bags and self._training.mixing is None:
                self._tell_mixing(given)
            self._training.consistency, self._training.mixing = consistency, self._mixing(self.prior_)
        self.n_epochs_ += 1
        loss = self._training.epoch(BagTensors(self._as_read(X[given.order]), given), self.batch_rows)
        self._trained(self.n_epochs_, loss, stage="partial_fit")
        self._keep()

    def _trained(self, epoch: int, loss: float, *, stage: str) -> None:
        """An epoch is over."""
        self._record(stage=stage, learning_rate=self.learning_rate_, epoch=epoch, loss=loss)
        if not np.isfinite(loss):
            raise ValueError(
                f"training diverged with learning rate {self.learning_rate_:g} (the loss is {loss} in epoch {epoch}): "
                "give a smaller learning_rate, or scale the features."
            )

    def _record(
        self, *, learning_rate: float, epoch: int, loss: float, risk: float | None = None, stage: str = "choice"
    ) -> None:
        line = {"stage": stage, "learning_rate": learning_rate, "epoch": epoch, "loss": loss, "risk": risk}
        self.history_.append(line)
        logger.debug("%s", line)
        if self.callback is not None:
            self.callback(dict(line))
