"""Networks that classify, from bags, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import expit, softmax

from bagwise.bags import Bags
from bagwise.bags.weights import standing_for
from bagwise.data.rows import InMemory, Reads
from bagwise.data.sparse import as_dense
from bagwise.explanation.contributions import Contributions
from bagwise.folds import Fold, folds_of
from bagwise.formation import FORMATIONS
from bagwise.gains import best_stretch, effects_beside_model, tell_gain
from bagwise.log_odds import SUREST
from bagwise.losses import LOSSES
from bagwise.means import prior
from bagwise.neural.batches import BagTensors
from bagwise.neural.fitting import NetworkFit
from bagwise.neural.tuning import candidates_of, choose, held_out, linear_effect_variance, offset
from bagwise.updatable import UpdatableClassifier, preferred
from bagwise.updates import Forgetting, Step, check_together
from bagwise.utils.parameters import ParameterError, check_parameters, one_of
from bagwise.utils.rng import generator
from bagwise.utils.text import number_of
from bagwise.utils.typing import ArrayLike, Floats

_UPDATE_RATES = (1.0, 0.2)  # of the learning rate of before
_MOST_CLASSES = 10  # beyond which the count likelihood takes too long


class BagNeuralClassifier(NetworkFit, UpdatableClassifier):
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
    augment : callable, optional
        Changes rows in ways that leave their labels as they were, such as small shifts of images: a tensor (n, …) of
        rows as the network reads them (standardised, where module is None) in, one of the same shape out. What it draws
        from torch's global generator depends on `random_state` alone. It is code, which no model on disk holds: one
        that was loaded predicts without it.
    consistency : float, default 0
        Weight of the mean square of what predictions of rows and of what `augment` makes of them differ by, which is
        added to the loss (see `neural.consistency`); 0 leaves `augment` aside.
    mix_bags : float, default 0
        Weight of the mean loss of mixed bags, which is added to the loss: two bags of a batch at a time, of which
        random shares of rows make one whose count both tell, with a noise of known variance (see `neural.mixing`). For
        random bags and rates that differ, in one process; where it was measured, it did not help. 0 mixes none.
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
    feature_means_ : array
        The mean row, which `explain` measures from.
    prior_ : float or array of shape (classes,)
        p.
    formation_ : Told
        The formation that was used, and why.
    loss_ : str
        The loss that was used.
    effect_variance_ : float
        τ² of the bags' effects; 0 where none were looked for or found.
    rate_covariance_ : array of shape (outputs, outputs) or None
        Of the rates of bags beyond chance, where bags are mixed.
    learning_rate_, n_epochs_ : float, int
        What was chosen; `n_iter_` is the latter by the name it has in scikit-learn.
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
    >>> X = rng.uniform(-1, 1, size=(3200, 2))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)  # no linear model learns this
    >>> ids = bw.random_bags(3200, size=8, random_state=0)
    >>> model = BagNeuralClassifier(learning_rate=0.03, max_epochs=30, random_state=0)
    >>> bool(model.fit(X, bw.aggregate(y, ids), bags=ids).score(X, y) > 0.9)
    True
    """

    reads: ClassVar[Reads] = replace(NetworkFit.reads, offset=True)

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

    def _compared_by(self, X: Floats, bags: Bags) -> float | None:
        if self._may_have_effects(bags):
            self.effect_variance_ = linear_effect_variance(X, bags, self.formation_.name)
        return self.effect_variance_ if FORMATIONS[self.formation_.name].choice == "likelihood" else None

    def _held_out(self, scores: Sequence[Floats], bags: Bags, folds: Sequence[Fold]) -> Floats:
        parts = [held_out(one, bags, fold, self._beyond) for one, fold in zip(scores, folds, strict=True)]
        if self._may_have_effects(bags):
            self.effect_variance_ = effects_beside_model(parts)
        self.stretch_, gains = best_stretch(parts, effect_variance=self.effect_variance_)
        return gains

    def _mean_of(self, data: BagTensors) -> float | Floats:
        told = {"stretch": self.stretch_, "effect_variance": self.effect_variance_}
        return offset(self._training.reading, data, rows=self.batch_rows, **told)

    def _move(self, found: Any) -> None:
        self.offset_ = np.array(found) if np.ndim(found) else float(found)

    def _given(self, y: Any, bags: Any, n_rows: int, classes: Any, *, first: bool) -> Bags:
        return self._read_bags(y, bags, n_rows, classes, first=first)

    def _decision(self, X: Floats) -> Floats:
        return self._finite_scores(X)

    def _contributions(self, X: Floats) -> Contributions:
        return self._explained(X)

    def _predict_mean(self, X: Floats) -> Floats:
        scores = self._finite_scores(X)
        h: Floats = expit(np.clip(scores, -SUREST, SUREST)) if scores.ndim == 1 else softmax(scores, axis=1)
        return h

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        bags: ArrayLike | Bags | None = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        epochs: Literal[1, "auto"] = 1,
    ) -> Self:
        """Train one more epoch, on the bags given; the first call starts a network, standardised by its rows.

        The prior is that of all rows given so far. The learning rate is the one `fit` chose, or the first given, or
        0.001; the formation is that of the first bags given. Nothing is held out: stretch and offset of predictions
        stay those of `fit`.

        Parameters
        ----------
        X, y, bags, sample_weight
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
            X = self._check_features(as_dense(X, "an update"), fitting=False)
            more = standing_for(self._more_bags(y, bags, len(X)), sample_weight, alone=bags is None)
            return self.update_rows(InMemory(X, more))
        if epochs == "auto":
            return self.fit(X, y, bags=bags, sample_weight=sample_weight)
        self._one_more_epoch(X, y, bags, sample_weight, classes)
        return self

    def cannot_update(self) -> str | None:
        """None, as its weights suffice, unless it was fitted with an offset."""
        return super().cannot_update() if getattr(self, "has_offset_", False) else None

    def _update_bags(self, X: Floats, bags: Bags, forgetting: Forgetting) -> Step:
        """As many epochs as held-out new bags like, from the weights as they are."""
        check_together(forgetting, "networks")
        self._consistency()
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
            stackable=self._stackable and bags.proportion.ndim == 1,
            effect_variance=self.effect_variance_ if by_likelihood else None,
        )
        tried = choose(candidates, max_epochs=self.max_epochs, patience=self.patience, record=self._record)
        said = ([old] * len(folds), tried.scores)
        parts = [[held_out(one, data.bags, fold) for one, fold in zip(each, folds, strict=True)] for each in said]
        found = preferred(*parts, effect_variance=self.effect_variance_)
        if found.which == 0:
            return Step("kept as it was, which held-out new bags like as well as what was learned from them", False)
        self.prior_, self._rows_seen = prior(bags), self._rows_seen + bags.n_people
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
        self._move(self._mean_of(data))
        return Step(how)
