"""Networks from bags, as a scikit-learn estimator."""

from __future__ import annotations

import math
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from torch import nn

from bagwise.bags import Bags
from bagwise.data.rows import BagRows, InMemory, in_one_piece, subset
from bagwise.data.rows import prior as prior_of_rows
from bagwise.folds import folds_of
from bagwise.formation import FORMATIONS, Told
from bagwise.gains import best_stretch, effects_beside_model, tell_gain
from bagwise.log_odds import prior_of, prior_of_classes, shift_to, shift_to_classes
from bagwise.losses import LOSSES
from bagwise.means import prior
from bagwise.neural.batches import BagTensors
from bagwise.neural.classifier import NetworkClassifier
from bagwise.neural.networks import Standardise
from bagwise.neural.training import score
from bagwise.neural.tuning import candidates_of, choose, held_out, linear_effect_variance
from bagwise.updatable import preferred
from bagwise.updates import Forgetting, Step, check_together
from bagwise.utils.parameters import ParameterError, check_parameters, one_of
from bagwise.utils.rng import generator
from bagwise.utils.text import number_of
from bagwise.utils.typing import ArrayLike, Floats

if TYPE_CHECKING:
    from bagwise.neural.distributed import Distributed

LEARNING_RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
_PLAIN_RATE = 1e-3  # where "auto" cannot choose: too few bags, or partial_fit first
_UPDATE_RATES = (1.0, 0.2)  # of the learning rate of before
_MOST_CLASSES = 10  # beyond which the count likelihood takes too long
_OFFSET_ROWS = 200_000
_SETTLED = ("learning_rate_", "n_epochs_", "risk_", "loss_", "effect_variance_", "stretch_", "gain_", "gain_error_")
_BESIDES = ("callback", "device")  # parameters on which nothing that is learned depends


class BagNeuralClassifier(NetworkClassifier):
    r"""A network from bags: any `torch.nn.Module`, any loss of `bagwise.losses`.

    The learning rate and the number of epochs are those that held-out bags prefer: by their label-free risk where bags
    are random, by the likelihood of their counts where not. Then the network is trained once more, on all bags, and its
    log odds are stretched as held-out bags expect it, and moved so that E[h] = p (see `bagwise.gains`). Batches hold
    whole bags, two or more (see `neural.batches`).

    Parameters
    ----------
    module : torch.nn.Module, optional
        Returns logits, (n,) or (n, 1) for two classes, (n, classes) for more. It is copied, and training starts from
        its weights; with it, X may have any shape (n, …). None takes fully connected layers (`neural.mlp`) on
        standardised features.
    hidden : sequence of int, default (32,)
        Widths of the hidden layers, where module is None.
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about (see `bagwise.formation`); "auto" lets the bags tell.
    loss : str, default "auto"
        A name of `bagwise.losses.LOSSES`; "auto" takes the debiased square where bags are random or classes are more
        than 10, and the count likelihood elsewhere.
    means : str or callable, default "running"
        How E[h] is estimated: a name of `bagwise.means.MEANS`, or a strategy, copied for every run.
    learning_rate : float, sequence of float or "auto", default "auto"
        A number; several to choose from; "auto" chooses among `LEARNING_RATES`.
    optimizer : callable, optional
        Called as ``optimizer(parameters, lr=…, weight_decay=…)``; None takes `torch.optim.Adam`.
    weight_decay : float, default 0
        For the optimizer.
    batch_rows : int, default 1024
        About how many rows a batch has.
    max_epochs : int, default 100
        Most passes over the bags; with ``early_stopping=False`` and one learning rate, their number.
    early_stopping : bool, default True
        Whether to stop a run after `patience` epochs without a new least held-out risk.
    patience : int, default 10
        See `early_stopping`.
    cv : int, default 5
        Folds of bags, held out in turn until 512 bags have been, or all. With fewer than 4 bags nothing is held out:
        the learning rate is the first given, or 0.001, and the epochs are `max_epochs`.
    average : bool, default False
        Predict with the mean of the weights over the steps of the last epoch.
    callback : callable, optional
        Called with each line of `history_` as it is made.
    device : str or torch.device, optional
        Where to train, as torch names it; None is the CPU.
    dtype : {"float32", "float64"}, default "float32"
        Of the weights.
    random_state : int, numpy.random.Generator or None
        For initial weights (where module is None), folds, the order of bags, and dropout.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained module, standardisation included.
    prior_ : float or array of shape (classes,)
        p.
    formation_ : Told
        The formation that was used, and why.
    loss_ : str
        The loss that was used.
    effect_variance_ : float
        τ² of the bags' effects; 0 where none were looked for or found.
    learning_rate_, n_epochs_ : float, int
        What was chosen.
    risk_ : float
        Its held-out risk, or mean negative log-likelihood of a bag where bags are not random; NaN where none was
        measured.
    stretch_, offset_ : float, and float or array of shape (classes,)
        Predictions are `σ(stretch_ · s + offset_)`, s what `module_` returns, and the like for classes.
    gain_, gain_error_ : float
        Log-likelihood of a held-out bag over that of the mean label, and its standard error; NaN where none was held
        out.
    history_ : list of dict
        One per epoch of every run: stage ("choice", "final" or "partial_fit"), learning_rate, epoch, loss (mean over
        training bags), risk (held out, None where not measured).

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6400, 2))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)  # no linear model learns this
    >>> ids = bw.random_bags(6400, size=8, random_state=0)
    >>> model = BagNeuralClassifier(learning_rate=0.03, max_epochs=30, random_state=0)
    >>> bool(model.fit(X, bw.aggregate(y, ids), bags=ids).score(X, y) > 0.9)
    True
    """

    n_epochs_: int
    risk_: float
    gain_: float
    gain_error_: float

    def _fit_bags(self, X: Floats, bags: Bags) -> None:
        rng = generator(self.random_state)
        body, data = self._choose(X, bags, rng)
        self.prior_, self._rows_seen = prior(bags), bags.n_bagged
        self._training = self._run(body, self.learning_rate_, self.prior_, rng)
        for epoch in range(1, self.n_epochs_ + 1):
            self._trained(epoch, self._training.epoch(data, self.batch_rows), stage="final")
        self._keep()
        self.offset_ = self._offset(data)

    def _choose(self, X: Floats, bags: Bags, rng: np.random.Generator) -> tuple[nn.Module, BagTensors]:
        """Choose loss, learning rate, number of epochs and stretch; the network before training, and its data."""
        rates = self._rates()
        self.history_: list[dict[str, Any]] = []
        body = self._start(X, bags, rng)
        data = BagTensors(self._as_read(X[bags.order]), bags)
        self._tell_loss(X, bags)
        folds = folds_of(len(bags), self.cv, rng, shared=bags.shared) if self.early_stopping or len(rates) > 1 else []
        self.learning_rate_, self.n_epochs_, self.risk_ = rates[0], self.max_epochs, float("nan")
        gains = None
        if folds:
            by_likelihood = FORMATIONS[self.formation_.name].choice == "likelihood"
            if self._may_have_effects(bags):
                self.effect_variance_ = linear_effect_variance(X, bags, self.formation_.name)
            start = partial(self._run, body)
            stackable = self.module is None and self.optimizer is None and bags.proportion.ndim == 1
            tau = self.effect_variance_ if by_likelihood else None
            candidates = candidates_of(
                start, rates, data, folds, self.batch_rows, rng, stackable=stackable, effect_variance=tau
            )
            patience = self.patience if self.early_stopping else self.max_epochs
            found = choose(candidates, max_epochs=self.max_epochs, patience=patience, record=self._record)
            self.learning_rate_, self.n_epochs_, self.risk_, scores = found
            parts = [held_out(one, data.bags, fold) for one, fold in zip(scores, folds, strict=True)]
            if self._may_have_effects(bags):
                self.effect_variance_ = effects_beside_model(parts)
            self.stretch_, gains = best_stretch(parts, effect_variance=self.effect_variance_)
        elif len(rates) > 1 and self.learning_rate == "auto":
            self.learning_rate_ = _PLAIN_RATE
        self.gain_, self.gain_error_ = tell_gain(gains, stacklevel=6)
        return body, data

    def _tell_loss(self, X: Floats, bags: Bags) -> None:
        """The formation and the loss that suits it; raises where the loss makes no sense for these bags."""
        self._tell_formation(X, bags)
        self.effect_variance_, self.stretch_, self.offset_ = 0.0, 1.0, 0.0
        self.gain_ = self.gain_error_ = float("nan")
        self.loss_, classes = self.loss, bags.outputs.shape[1]
        if self.loss == "auto":
            plain = self.formation_.name == "random" or classes > _MOST_CLASSES
            self.loss_ = "debiased_square" if plain else "count_likelihood"
        if bags.proportion.ndim == 2 and not LOSSES[self.loss_].classes:
            others = ", ".join(each for each, loss in LOSSES.items() if loss.classes)
            raise ParameterError(
                "loss", f"{self.loss_!r} is for two classes but there are {classes}: choose one of {others}."
            )

    def _may_have_effects(self, bags: Bags) -> bool:
        return self.formation_.name in ("features", "effects") and bags.proportion.ndim == 1

    def _offset(self, data: BagTensors) -> float | Floats:
        """What makes E[h] = p in these bags."""
        few = data.X[:: -(-len(data.X) // _OFFSET_ROWS)]
        scores = self.stretch_ * score(self._training.reading, few, self.batch_rows).astype(float)
        if scores.ndim == 1:
            return shift_to(prior_of(data.bags), scores)
        return shift_to_classes(prior_of_classes(data.bags), scores)

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
        self._fit_data(self._begin(data), distributed)
        return self

    def _fit_data(self, data: BagRows, distributed: Distributed | None = None) -> None:
        if distributed is None:
            some = data if in_one_piece(data) else data.sample()
            if len(some.bags) == len(data.size):
                self._fit_bags(some.X, some.bags)
                return
        elif in_one_piece(data):  # in blocks, rows stand in bag order
            data = InMemory(data.X[data.bags.order], subset(data, np.arange(len(data.bags)), coded=True))
        from bagwise.neural.distributed.training import BlockLoader, Distributed, settle, train

        options = distributed or Distributed()
        depends = {name: value for name, value in self.get_params(deep=False).items() if name not in _BESIDES}
        settings = settle(data, depends, options, lambda: self._settle(data))
        self.history_ = list(settings["history"])
        for attribute in _SETTLED:
            setattr(self, attribute, settings[attribute])
        self.formation_ = Told(**settings["formation"])
        self.prior_, self._rows_seen = prior_of_rows(data), int(data.size.sum())
        self._scale = None
        if settings["scale"] is not None:
            scale = Standardise(settings["mean"], settings["scale"], getattr(torch, self.dtype))
            self._scale = scale.to(self._device)
        body, order = self._body(self._shape[0], settings["outputs"], settings["weights"]), settings["order"]
        self._training = self._run(body, self.learning_rate_, self.prior_, np.random.default_rng(order))
        loader = BlockLoader(data, self._as_read, options, rows=self.batch_rows, seed=order)
        record = partial(self._trained, stage="final")
        train(self._training, loader, options, epochs=self.n_epochs_, seed=order, record=record)
        self._keep()
        offset = None
        if options.processes.leads:
            some = data.sample()
            offset = np.asarray(self._offset(BagTensors(self._as_read(some.X[some.bags.order]), some.bags))).tolist()
        offset = options.processes.share(offset)
        self.offset_ = np.array(offset) if isinstance(offset, list) else float(offset)

    def _settle(self, data: BagRows) -> dict[str, Any]:
        """What is decided before training on blocks begins, as plain data."""
        rng, some = generator(self.random_state), data.sample()
        self._choose(some.X, some.bags, rng)
        chosen, share, scale = not np.isnan(self.risk_), some.bags.n_bagged / int(data.size.sum()), self._scale
        self.n_epochs_ = math.ceil(self.n_epochs_ * share) if chosen else self.n_epochs_
        return {
            **{name: getattr(self, name) for name in _SETTLED},
            "formation": asdict(self.formation_),
            "history": self.history_,
            "outputs": some.bags.outputs.shape[1],
            "weights": self._seed,
            "order": int(rng.integers(2**63)),
            "mean": None if scale is None else scale.mean.tolist(),
            "scale": None if scale is None else scale.scale.tolist(),
        }

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        bags: ArrayLike | Bags | None = None,
        classes: ArrayLike | None = None,
        epochs: Literal[1, "auto"] = 1,
    ) -> Self:
        """Train one more epoch, on the bags given; the first call starts a network, standardised by its rows.

        The prior is that of all rows given so far. The learning rate is the one `fit` chose, or the first given, or
        0.001; the formation is that of the first bags given. Nothing is held out: stretch and offset of predictions
        stay those of `fit`.

        Parameters
        ----------
        X, y, bags
            As for `fit`.
        classes : array, optional
            All classes, in the first call without `bags` that does not show them all.
        epochs : 1 or "auto"
            "auto" updates a network that was fitted: as many epochs, from its weights, as held-out new bags like, with
            stretch and offset anew; it stays as it was where these do not clearly prefer another. `update_` says what
            it came to.

        Returns
        -------
        Self
        """
        check_parameters({"epochs": epochs}, {"epochs": one_of(1, "auto")})
        if epochs == "auto" and hasattr(self, "_training"):
            X = self._check_features(X, fitting=False)
            return self.update_rows(InMemory(X, self._more_bags(y, bags, len(X))))
        if epochs == "auto":
            return self.fit(X, y, bags=bags)
        first = not hasattr(self, "_training")
        X = self._check_features(X, fitting=first)
        check_parameters(self, self._constraints)
        given = self._read_bags(y, bags, len(X), classes, first=first)
        rates = self._rates()
        if first:
            rng = generator(self.random_state)
            body = self._start(X, given, rng)
            self._tell_loss(X, given)
            self.history_, self.risk_, self.n_epochs_ = [], float("nan"), 0
            self.learning_rate_ = _PLAIN_RATE if self.learning_rate == "auto" else rates[0]
            self.prior_, self._rows_seen = prior(given), given.n_bagged
            self._training = self._run(body, self.learning_rate_, self.prior_, rng)
        else:
            seen = self._rows_seen + given.n_bagged
            self.prior_ = self.prior_ + (prior(given) - self.prior_) * (given.n_bagged / seen)
            self._training.objective.prior, self._rows_seen = self.prior_, seen
        self.n_epochs_ += 1
        loss = self._training.epoch(BagTensors(self._as_read(X[given.order]), given), self.batch_rows)
        self._trained(self.n_epochs_, loss, stage="partial_fit")
        self._keep()
        return self

    def cannot_update(self) -> str | None:
        """Nothing: its weights suffice."""
        return None

    def _update_bags(self, X: Floats, bags: Bags, forgetting: Forgetting) -> Step:
        """As many epochs as held-out new bags like, from the weights as they are."""
        check_together(forgetting, "networks")
        rng = generator(self.random_state)
        if not (folds := folds_of(len(bags), self.cv, rng)):
            return Step(f"kept as it was, as of {len(bags)} bags none can be held out", learned=False)
        data, old = BagTensors(self._as_read(X[bags.order]), bags), self._scores(X[bags.order])
        rates = [factor * self.learning_rate_ for factor in _UPDATE_RATES]
        by_likelihood = FORMATIONS[self.formation_.name].choice == "likelihood"
        body, start = self._training.reading, partial(self._run, self._training.reading)
        candidates = candidates_of(
            start,
            rates,
            data,
            folds,
            self.batch_rows,
            rng,
            stackable=self.module is None and self.optimizer is None and bags.proportion.ndim == 1,
            effect_variance=self.effect_variance_ if by_likelihood else None,
        )
        tried = choose(candidates, max_epochs=self.max_epochs, patience=self.patience, record=self._record)
        said = ([old] * len(folds), tried.scores)
        parts = [[held_out(one, data.bags, fold) for one, fold in zip(each, folds, strict=True)] for each in said]
        found = preferred(*parts, effect_variance=self.effect_variance_)
        if found.which == 0:
            return Step("kept as it was, which held-out new bags like as well as what was learned from them", False)
        self.prior_, self._rows_seen = prior(bags), self._rows_seen + bags.n_bagged
        self.gain_, self.gain_error_ = tell_gain(found.gains, stacklevel=5)
        if found.which == 1:
            self.stretch_, how = found.stretch * self.stretch_, "log odds stretched and moved to the new bags"
        else:
            self.stretch_, how = found.stretch, f"{number_of(tried.n_epochs, 'further epoch')} on new bags"
            self._training = self._run(body, tried.learning_rate, self.prior_, rng)
            for _ in range(tried.n_epochs):
                self.n_epochs_ += 1
                self._trained(self.n_epochs_, self._training.epoch(data, self.batch_rows), stage="partial_fit")
            self._keep()
        self.offset_ = self._offset(data)
        return Step(how)

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
        if self.callback is not None:
            self.callback(dict(line))
