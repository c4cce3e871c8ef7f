"""The network inside an estimator: how it is made, read with, kept and saved."""

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from bagwise.bags import Bags
from bagwise.base import BagEstimator
from bagwise.data.rows import Reads
from bagwise.explanation.contributions import LOG_ODDS, LOGITS, Contributions, mean_row_of
from bagwise.formation import FORMATION
from bagwise.losses import LOSSES
from bagwise.means import Means
from bagwise.neural.consistency import Augment, Consistency
from bagwise.neural.devices import can_be_used, device_of
from bagwise.neural.gradients import integrated_gradients
from bagwise.neural.mixing import Mixing, label_covariance
from bagwise.neural.networks import Standardise, check_sizes, mlp
from bagwise.neural.training import MEANS_CONSTRAINT, Objective, Training, as_rows, check_outputs, score
from bagwise.numeric import NumericFeatures, check_finite_features
from bagwise.utils.parameters import (
    FLAG,
    FUNCTION,
    LARGEST,
    NONE,
    Constraint,
    ParameterError,
    check_parameters,
    instance,
    number,
    one_of,
    several,
    whole,
)
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.threads import was_forked
from bagwise.utils.typing import Floats


def _are_widths(value: Any) -> bool:
    given = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str)
    return given and all(whole(1).holds(width) for width in value)


class Learned:
    """What a network holds once it has learned."""

    module_: nn.Module
    feature_means_: Floats
    prior_: float | Floats
    learning_rate_: float
    n_epochs_: int
    risk_: float
    loss_: str
    effect_variance_: float
    stretch_: float
    offset_: float | Floats
    gain_: float
    gain_error_: float
    history_: list[dict[str, Any]]
    rate_covariance_: Floats | None
    _scale: Standardise | None
    _shape: tuple[int, ...]
    _rows_seen: float
    _seed: int
    _training: Training


@dataclass(kw_only=True, eq=False, repr=False)
class Network(Learned, NumericFeatures, BagEstimator):
    """An estimator that reads with a network; how it learns is left to a class of its own.

    `_scale` standardises the features, None for a module of the user's; `_training` goes on from what was learned.
    """

    reads: ClassVar[Reads] = Reads(blocks=True, weights=True)
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "module": instance(nn.Module, "a torch.nn.Module") | NONE,
        "hidden": Constraint("whole numbers of at least 1", _are_widths),
        "formation": FORMATION,
        "loss": one_of("auto", *LOSSES),
        "means": MEANS_CONSTRAINT,
        "learning_rate": one_of("auto") | several(number(above=0), "one or more finite numbers above 0"),
        "weight_decay": number(least=0),
        "batch_rows": whole(1, LARGEST),
        "max_epochs": whole(1),
        "patience": whole(1),
        "cv": whole(2),
        "augment": Constraint("a function of rows", callable) | NONE,
        "consistency": number(least=0),
        "mix_bags": number(least=0),
        "optimizer": Constraint("a function that makes an optimizer, such as torch.optim.Adam", callable) | NONE,
        "callback": FUNCTION,
        **dict.fromkeys(("early_stopping", "average"), FLAG),
        "dtype": one_of("float32", "float64"),
    }
    _of_values: ClassVar[bool] = False

    module: nn.Module | None = None
    hidden: Sequence[int] = (32,)
    formation: str = "auto"
    loss: str = "auto"
    means: str | Means = "running"
    learning_rate: float | Sequence[float] | Literal["auto"] = "auto"
    optimizer: Callable[..., torch.optim.Optimizer] | None = None
    weight_decay: float = 0.0
    batch_rows: int = 1024
    max_epochs: int = 100
    early_stopping: bool = True
    patience: int = 10
    cv: int = 5
    average: bool = False
    augment: Augment | None = None
    consistency: float = 0.0
    mix_bags: float = 0.0
    callback: Callable[[dict[str, Any]], object] | None = None
    device: str | torch.device | None = None
    dtype: Literal["float32", "float64"] = "float32"
    random_state: RandomState = None

    def _start(self, X: Floats, bags: Bags, rng: np.random.Generator) -> nn.Module:
        """The network before training, without standardisation, which `_scale` keeps."""
        self._seed = int(rng.integers(2**63))  # drawn whatever the module: folds and orders do not depend on it
        self._scale, outputs = None, bags.outputs.shape[1]
        body = self._body(X.shape[1], outputs, self._seed)
        rows, weight = X[bags.order] if bags.n_bagged < len(X) else X, bags.weight
        if weight is not None and rows is X:  # in the order of the table
            weight = bags.of_table(weight)
        flat, names = rows.reshape(len(rows), -1), getattr(self, "feature_names_in_", None)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow is found here, with the column's name
            check_finite_features(flat.sum(axis=0), X.reshape(len(X), -1), names)
            if self.module is None:
                self._scale = Standardise.of(flat, getattr(torch, self.dtype), weight).to(self._device)
                check_finite_features(self._scale.scale.nan_to_num(posinf=0).cpu().numpy(), flat, names)
        self.feature_means_ = np.average(rows, axis=0, weights=weight) if self._scale is None else self._scale.row
        if self.module is not None:
            check_outputs(body, self._as_read(rows[:2]), outputs)
        return body

    def _body(self, width: int, outputs: int, seed: int) -> nn.Module:
        """A network that has not been trained."""
        made = mlp(width, self.hidden, outputs, random_state=seed) if self.module is None else self.module
        return copy.deepcopy(made).to(self._device, getattr(torch, self.dtype))

    def _as_read(self, X: Floats) -> torch.Tensor:
        """Rows as the body reads them: standardised once, rather than in every step."""
        rows = self._rows(X)
        return self._scale(rows) if self._scale is not None else rows

    def _rows(self, X: Floats) -> torch.Tensor:
        """Rows as the whole network reads them."""
        if self._scale is not None:
            return as_rows(X, device=self._scale.mean.device)
        return as_rows(X, getattr(torch, self.dtype), self._device)

    def _run(self, body: nn.Module, rate: float, p: float | Floats, rng: np.random.Generator) -> Training:
        """A training that has not begun, of a copy of the network."""
        optimizer = self.optimizer or torch.optim.Adam
        return Training(
            copy.deepcopy(body),
            Objective(self.loss_, self.means, p, effect_variance=self.effect_variance_, values=self._of_values),
            make_optimizer=partial(optimizer, lr=rate, weight_decay=self.weight_decay),
            rng=rng,
            average=self.average,
            consistency=None if self.augment is None else self._consistency(),
            mixing=self._mixing(p),
        )

    def _mixing(self, p: float | Floats) -> Mixing | None:
        """How bags are mixed besides."""
        if (
            not self.mix_bags or (rates := getattr(self, "rate_covariance_", None)) is None
        ):  # a folder of before has none
            return None
        variance = np.ones((1, 1)) if self._of_values else label_covariance(p)  # values are standardised
        return Mixing.of(float(self.mix_bags), variance, rates)

    def _consistency(self) -> Consistency | None:
        """What is asked of predictions besides; raises where that is not known."""
        if not self.consistency:
            return None
        if self.augment is None:
            raise ParameterError(
                "augment",
                f"is missing, while consistency is {self.consistency:g}: give the function that changes rows, which no "
                "model on disk holds.",
            )
        return Consistency(self.augment, float(self.consistency))

    @property
    def n_iter_(self) -> int:
        """Passes over the bags, as scikit-learn's networks call them: `n_epochs_`."""
        return self.n_epochs_

    def _keep(self) -> None:
        self.module_ = self._whole(self._training.reading)

    def _whole(self, body: nn.Module) -> nn.Module:
        """A network with its standardisation."""
        return body if self._scale is None else nn.Sequential(self._scale, body)

    # -- saving --------------------------------------------------------------------------------------------------

    def _to_state(self) -> dict[str, Any]:
        """Parameters but for code, what was learned, and weights; not the optimizer's moments."""
        parameters = {
            name: value for name, value in self.get_params(deep=False).items() if name not in ("module", "augment")
        }
        parameters["device"] = None if self.device is None else str(self.device)
        state = {"parameters": parameters, "own_module": self.module is not None}
        if not hasattr(self, "module_"):
            return state
        learned = {name: value for name, value in vars(self).items() if name.endswith("_") and name != "module_"}
        rest = {"shape": tuple(self._shape), "rows_seen": self._rows_seen, "weights": self.module_.state_dict()}
        return {**state, "learned": learned, **rest}

    @classmethod
    def _from_state(cls, state: dict[str, Any], *, module: nn.Module | None = None) -> Self:
        """The model again. A module of the user's cannot be rebuilt from a file: a new one of the same shape is given.

        The optimizer starts anew where `partial_fit` goes on from the weights.
        """
        own, weights = state["own_module"], state.get("weights")
        if own and module is None:
            raise ValueError(
                "it holds weights of a module of yours: pass a new one of the same shape, load(folder, module=…)"
            )
        model = cls(**state["parameters"], module=module if own else None)
        if weights is None:
            return model
        for learned, value in state["learned"].items():
            if not learned.endswith("_") or hasattr(cls, learned):
                raise ValueError(f"{learned!r} is nothing that a network learns")
            setattr(model, learned, value)
        check_parameters(model, {"dtype": cls._constraints["dtype"]})
        model._shape, model._rows_seen, model._scale = state["shape"], state["rows_seen"], None
        features, outputs = model._shape[0], int(np.size(model.prior_))
        if not can_be_used(model.device):
            warnings.warn(
                f"the network was saved for the device {model.device!r}, which torch cannot use on this machine: it "
                "computes on the CPU.",
                stacklevel=2,
            )
            model.device = None
        if not own:
            check_sizes(weights, features, model.hidden, outputs)  # no more is built than the file has
            model._scale = Standardise(np.zeros(features), np.ones(features), getattr(torch, model.dtype))
            model._scale.to(model._device)
        body = model._body(features, outputs, 0)
        try:
            model._whole(body).load_state_dict(weights)
        except RuntimeError:
            raise ValueError("the weights do not fit the module") from None
        model._training = model._run(body, model.learning_rate_, model.prior_, generator(model.random_state))
        model._keep()
        return model

    # -- predicting ----------------------------------------------------------------------------------------------

    def _finite_scores(self, X: Floats) -> Floats:
        """What the network says of rows that are finite numbers; it may turn infinity into one."""
        flat = X.reshape(len(X), -1)
        with np.errstate(over="ignore", invalid="ignore"):
            check_finite_features(flat.sum(axis=0), flat, getattr(self, "feature_names_in_", None))
        return self._scores(X)

    def _scores(self, X: Floats) -> Floats:
        """What the network says, (n,) or (n, classes), stretched and moved: log odds, logits or standard scores."""
        scores = score(self.module_, self._rows(X), self.batch_rows).astype(float)
        return np.asarray(self.stretch_ * scores + self.offset_)

    def _explained(self, X: Floats) -> Contributions:
        """What features add to those scores, by integrated gradients from the mean row."""
        rows, centre = (self._rows(one) for one in (X, mean_row_of(self).astype(X.dtype)))
        values, base = integrated_gradients(self.module_, rows, centre, self.batch_rows)
        several = np.size(self.prior_) > 1
        found = Contributions(values, base, LOGITS if several else LOG_ODDS)
        return (found if several else found.of_one_output()).stretched(self.stretch_, self.offset_)

    def _check_features(self, X: Any, *, fitting: bool) -> Floats:
        """Numbers; with a module of the user's, of any shape (n, …)."""
        if was_forked():  # torch's threads are its parent's
            torch.set_num_threads(1)
        rows: Floats
        if self.module is None or np.ndim(X) <= 2:
            rows = super()._check_features(X, fitting=fitting)
        else:
            if not fitting:
                check_is_fitted(self)
            options = {"dtype": (np.float32, np.float64), "ensure_all_finite": False, "ensure_min_samples": 1 + fitting}
            rows = validate_data(self, X, allow_nd=True, reset=fitting, **options)
        if fitting:
            self._shape = rows.shape[1:]
        elif rows.shape[1:] != self._shape:
            raise ValueError(f"rows of X have shape {rows.shape[1:]}, those the model was fitted on {self._shape}.")
        return rows

    def _row_shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def _device(self) -> torch.device:
        return device_of(self.device, getattr(torch, self.dtype))
