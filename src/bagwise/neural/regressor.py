"""Networks for real labels, from bags, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from bagwise.bags import Bags
from bagwise.base import BagRegressor
from bagwise.data.rows import BagRows, InMemory, in_one_piece
from bagwise.data.shards import Shards
from bagwise.explanation.contributions import VALUE, Contributions
from bagwise.folds import Fold
from bagwise.linear.moments import telling, told_variance, worth
from bagwise.losses import LOSSES
from bagwise.means import prior
from bagwise.neural.batches import BagTensors
from bagwise.neural.fitting import NetworkFit
from bagwise.neural.training import score
from bagwise.nonnegative import NONNEGATIVE, factor_of, never_negative
from bagwise.risk import HeldOutValues
from bagwise.utils.parameters import Constraint, one_of
from bagwise.utils.typing import ArrayLike, Floats

_OFFSET_ROWS = 200_000
_STRETCH_BOUNDS = (0.5, 2.0)  # what lies outside is due to chance


@dataclass(kw_only=True, eq=False, repr=False)
class BagNeuralRegressor(NetworkFit, BagRegressor):
    r"""A network for real labels from bags. Parameters and attributes as `BagNeuralClassifier`, but for some.

    Any `torch.nn.Module` learns by the square form as it stands.

    Labels are standardised inside, by p and the variance of a label as bags show it, so that learning rates mean the
    same whatever they are measured in. Learning rate and number of epochs are those with the least held-out label-free
    risk, which in bags that are not random is the held-out error of bags; then the network is trained once more, on all
    bags, stretched as held-out bags expect it, and moved so that E[h] = p. Predictions of labels that are never
    negative are not either. With one row per bag this is ordinary regression.

    Bags with declared noise that together are worth no more than a twentieth of the others are left out; beyond that,
    bags count alike.

    Parameters
    ----------
    module : torch.nn.Module, optional
        Returns one number per row, (n,) or (n, 1), the standardised prediction.
    loss : str, default "auto"
        "debiased_square", which "auto" is, "li_square" or "matching_square".
    nonnegative : bool or "auto"
        Whether labels are never negative; "auto" takes them for that where no bag reports less than 0.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained module, from features to standardised predictions.
    feature_means_ : array
        The mean row, which `explain` measures from.
    centre_, scale_ : float
        What labels are standardised by: about p, and the standard deviation of a label.
    prior_ : float
        p, standardised like labels.
    nonnegative_, factor_ : bool, float
        Whether labels were taken for never negative; what predictions are multiplied by then, so that their mean in the
        training rows is p.
    stretch_, offset_ : float
        Predictions are ``centre_ + scale_ * (stretch_ * s + offset_)``, s what `module_` returns.
    risk_ : float
        The held-out risk in units of the labels' variance; NaN where none was measured.
    gain_, gain_error_ : float
        As of `BagTweedieRegressor`.

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6400, 2))
    >>> y = 100 * np.abs(X[:, 0])  # no linear model learns this
    >>> ids = bw.random_bags(6400, size=8, random_state=0)
    >>> model = BagNeuralRegressor(learning_rate=0.03, max_epochs=30, random_state=0)
    >>> bool(model.fit(X, bw.aggregate(y, ids), bags=ids).score(X, y) > 0.9)
    True
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **NetworkFit._constraints,
        "loss": one_of("auto", *(name for name, loss in LOSSES.items() if loss.values)),
        "nonnegative": NONNEGATIVE,
    }
    _of_values: ClassVar[bool] = True

    nonnegative: bool | str = "auto"

    def _learned(self, data: BagRows) -> BagRows:
        if isinstance(data, InMemory):
            bags = telling(data.bags) if in_one_piece(data) else data.bags
            starts = None if in_one_piece(data) else data.starts
            self._standardise(bags)
            told = (data.categorical, starts, data.codes_to_numbers, data.names)
            return InMemory(data.X, self._standardised(bags), *told)
        assert isinstance(data, Shards)
        self._standardise(data)
        seen: Shards = self._standardised(data)
        return seen

    def _standardise(self, bags: Bags | BagRows) -> None:
        """Set what labels are standardised by, and whether they are never negative."""
        size, outputs = bags.size, bags.proportion[:, None]
        noise = np.zeros(len(size)) if bags.noise_variance is None else bags.noise_variance / size
        variance = told_variance(size, outputs, noise, labels=False)
        self.centre_ = float(np.average(bags.proportion, weights=worth(noise, variance) * size))
        # Labels that are all the same, but for rounding, have no scale.
        same = variance <= 1e-12 or variance <= (1e-9 * self.centre_) ** 2
        self.scale_ = 1.0 if same else float(np.sqrt(variance))
        self.nonnegative_, self.factor_ = self._never_negative(bags), 1.0

    def _never_negative(self, bags: Bags | BagRows) -> bool:
        return never_negative(self.nonnegative, bags.size, bags.proportion, bags.noise_variance)

    def _standardised(self, bags: Any) -> Any:
        """Bags, or shards of them, with standardised reports."""
        noise = None if bags.noise_variance is None else bags.noise_variance / self.scale_**2
        return replace(bags, proportion=(bags.proportion - self.centre_) / self.scale_, noise_variance=noise)

    def _tell_loss(self, X: Floats, bags: Bags) -> None:
        self._tell_formation(X, bags)
        self.effect_variance_, self.stretch_, self.offset_ = 0.0, 1.0, 0.0
        self.gain_ = self.gain_error_ = float("nan")
        self.loss_ = "debiased_square" if self.loss == "auto" else self.loss

    def _compared_by(self, X: Floats, bags: Bags) -> None:
        return None

    def _held_out(self, scores: Sequence[Floats], bags: Bags, folds: Sequence[Fold]) -> Floats:
        parts = []
        for said, fold in zip(scores, folds, strict=True):
            sums, train = bags.sum(said.astype(float)), bags.take(fold.train)
            mean = float(sums[fold.train].sum() / train.n_people)
            held = bags.take(fold.held_out)
            parts.append(HeldOutValues(float(prior(train)), mean, sums[fold.held_out], held, 1.0))
        weights = [float(part.worth @ part.deviations**2) for part in parts]
        stretch = np.average([part.stretch for part in parts], weights=weights) if any(weights) else 1.0
        self.stretch_ = float(np.clip(stretch, *_STRETCH_BOUNDS))
        return np.concatenate([part.gains(np.array([self.stretch_]))[0] for part in parts])

    def _mean_of(self, data: BagTensors) -> tuple[float, float]:
        step = -(-len(data.X) // _OFFSET_ROWS)
        few, weight = data.X[::step], None if data.bags.weight is None else data.bags.weight[::step]
        s = self.stretch_ * score(self._training.reading, few, self.batch_rows).astype(float)
        offset = float(self.prior_ - np.average(s, weights=weight))
        h = self.centre_ + self.scale_ * (s + offset)
        return offset, factor_of(h, weight) if self.nonnegative_ else 1.0

    def _move(self, found: Any) -> None:
        self.offset_, self.factor_ = (float(one) for one in found)

    def _given(self, y: Any, bags: Any, n_rows: int, classes: Any, *, first: bool) -> Bags:
        given = self._given_bags(y, bags, n_rows)
        self._check_bags(given)
        if first:
            self._standardise(given)
        self.nonnegative_ = self.nonnegative_ and self._never_negative(given)
        seen: Bags = self._standardised(given)
        return seen

    def _contributions(self, X: Floats) -> Contributions:
        """To values; in proportion where these are kept above 0."""
        found = self._explained(X).stretched(self.scale_, self.centre_, VALUE)
        return found.through(lambda h: self.factor_ * np.maximum(h, 0), VALUE) if self.nonnegative_ else found

    def _predict_mean(self, X: Floats) -> Floats:
        h = self.centre_ + self.scale_ * self._finite_scores(X)
        return self.factor_ * np.maximum(h, 0) if self.nonnegative_ else h

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        bags: ArrayLike | Bags | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train one more epoch, on the bags given; the first call starts a network, standardised by its rows and bags.

        p is that of all rows given so far. The learning rate is the one `fit` chose, or the first given, or 0.001; what
        labels are standardised by stays as it was. Nothing is held out.

        Parameters
        ----------
        X, y, bags, sample_weight
            As for `fit`.

        Returns
        -------
        Self
        """
        self._one_more_epoch(X, y, bags, sample_weight, None)
        return self

    def refuses_updates(self) -> str | None:
        """None: there is `partial_fit`, one epoch at a time."""
        return None

    def cannot_update(self) -> str | None:
        """Why tables of later months do not refine it."""
        return (
            "a network of values learns from later bags by partial_fit alone, epoch by epoch: fit it to the reports of "
            "both months together, or take ridge"
        )
