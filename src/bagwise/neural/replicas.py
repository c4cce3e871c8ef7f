"""Many networks over one table: seeds, partitions, learning rates and losses side by side.

`train_replicas` trains fully connected networks as one batched computation. `train_modules` trains any modules, such as
convolutions, in several processes. Each network is the one that training alone gives, up to rounding.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from scipy.special import expit
from torch import Tensor, nn

from bagwise.bags import Bags
from bagwise.folds import Fold
from bagwise.losses import LOSSES
from bagwise.means import Means, prior
from bagwise.neural.batches import BagTensors
from bagwise.neural.networks import mlp
from bagwise.neural.stack import Member, Stack, stacks_of
from bagwise.neural.training import Alone, Objective, Training, as_rows
from bagwise.risk import held_out_risk
from bagwise.utils.parameters import ParameterError, check_parameters, whole
from bagwise.utils.typing import ArrayLike, Floats, Integers, NDArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Replica:
    """One network to train.

    Parameters
    ----------
    bags : Bags
        The bags of the shared table's rows.
    loss : str, default "debiased_square"
        A name of `bagwise.losses.LOSSES`.
    means : str or callable, default "running"
        A name of `bagwise.means.MEANS` or a strategy, copied for the run.
    learning_rate, weight_decay : float, default 0.001 and 0
        For Adam.
    effect_variance : float, default 0
        τ² of effects of bags, for the count likelihood.
    seed : int, default 0
        Of initial weights and order of bags; replicas with the same bags and seed see the same batches, which makes
        them comparable, and fast.
    fold : Fold, optional
        Train on some of the bags and measure the label-free risk on others; None trains on all.
    values : bool, default False
        Whether labels are real: the network then predicts them as they are, which should be about standardised.
    """

    bags: Bags
    loss: str = "debiased_square"
    means: str | Means = "running"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    effect_variance: float = 0.0
    seed: int = 0
    fold: Fold | None = None
    values: bool = False


@dataclass(frozen=True, eq=False)
class Trained:
    """What came of a replica.

    The last four are of each epoch that was measured, None where nothing was given to measure them on.

    Attributes
    ----------
    replica : Replica
        What was to be trained.
    network : torch.nn.Module
        The trained module, from features to logits.
    loss : array of shape (epochs,)
        Mean loss of a training bag in each epoch, NaN from where training diverged.
    risk : array of shape (measured,) or None
        Label-free risk of the held-out bags.
    accuracy, brier : array of shape (measured,) or None
        On the test rows; of values, NaN and the mean square error.
    test_predictions : array of shape (measured, n) or None
        h of the test rows.
    """

    replica: Replica
    network: nn.Module
    loss: Floats
    risk: Floats | None = None
    accuracy: Floats | None = None
    brier: Floats | None = None
    test_predictions: Floats | None = None


@dataclass(eq=False)
class _Plan:
    """How networks are trained, and what is measured on test rows after which epochs, None for every one; checked."""

    epochs: int
    batch_rows: int
    average: bool
    dtype: torch.dtype
    X_test: Any
    y_test: Any
    keep_predictions: bool
    measure_at: Collection[int] | None

    def __post_init__(self) -> None:
        check_parameters(self, {"batch_rows": whole(1), "epochs": whole(1)})
        self.y_test = None if self.y_test is None else np.asarray(self.y_test)
        if self.X_test is not None:
            if self.y_test is not None and len(self.y_test) != len(self.X_test):
                raise ParameterError("X_test", f"has {len(self.X_test)} rows but y_test has {len(self.y_test)}.")
            self.X_test = as_rows(self.X_test, self.dtype)
        elif self.y_test is not None or self.keep_predictions:
            raise ParameterError("X_test", "is missing: give the test rows with y_test or keep_predictions.")


def train_replicas(
    X: ArrayLike | Tensor,
    replicas: Sequence[Replica],
    *,
    epochs: int,
    hidden: Sequence[int] = (32,),
    batch_rows: int = 1024,
    average: bool = False,
    X_test: ArrayLike | Tensor | None = None,
    y_test: ArrayLike | None = None,
    keep_predictions: bool = False,
    measure_at: Collection[int] | None = None,
    dtype: torch.dtype = torch.float32,
    callback: Callable[[int], object] | None = None,
) -> list[Trained]:
    """Train fully connected networks for two classes, or for values, at once; results in the order of `replicas`.

    A replica whose training diverges reports NaN and does not disturb the others.

    Parameters
    ----------
    X : array of shape (n, features)
        The table that all bags are about, scaled as the networks shall see it.
    replicas : sequence of Replica
        The networks to train.
    epochs : int
        Passes over the bags.
    hidden : sequence of int, default (32,)
        Widths of the hidden layers.
    batch_rows, average
        As for `BagNeuralClassifier`.
    X_test, y_test : array, optional
        Rows with labels 0 and 1 to measure the accuracy on.
    keep_predictions : bool, default False
        Whether to keep h of the test rows, too.
    measure_at : collection of int, optional
        Epochs, counted from 1, after which to measure; None: after every one.
    dtype : torch.dtype, default torch.float32
        Of the weights.
    callback : callable, optional
        Called with the number of epochs that a stack of networks has just trained, times its networks.

    Returns
    -------
    list of Trained

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(640, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> ids = bw.random_bags(640, size=4, random_state=0)
    >>> bags = Bags.from_rows(bw.aggregate(y, ids), ids)
    >>> losses, rates = ("debiased_square", "li_square"), (1e-5, 0.1)
    >>> runs = [Replica(bags=bags, loss=loss, learning_rate=rate) for loss in losses for rate in rates]
    >>> trained = train_replicas(X, runs, epochs=20, X_test=X, y_test=y)
    >>> [bool(result.accuracy[-1] > 0.9) for result in trained]
    [False, True, False, True]
    """
    plan = _Plan(epochs, batch_rows, average, dtype, X_test, y_test, keep_predictions, measure_at)
    table = as_rows(X, dtype)

    def make_module(seed: int) -> nn.Module:
        return mlp(table.shape[1], hidden, random_state=seed)

    members = []
    for replica in replicas:
        batches = (id(replica.bags), id(replica.fold), replica.seed)
        members.append(Member(_start(replica, make_module, plan), replica.bags, _chosen(replica), batches))
    trained: dict[int, Trained] = {}
    for stack, places in stacks_of(table, members, batch_rows):
        lines = _follow(stack, [replicas[place] for place in places], plan, callback)
        stack.weights.write_back()
        for place, figures in zip(places, lines, strict=True):
            trained[place] = Trained(replicas[place], members[place].training.reading, **figures)
    return [trained[place] for place in range(len(replicas))]


def train_modules(
    X: ArrayLike | Tensor,
    replicas: Sequence[Replica],
    make_module: Callable[[int], nn.Module],
    *,
    epochs: int,
    batch_rows: int = 1024,
    average: bool = False,
    X_test: ArrayLike | Tensor | None = None,
    y_test: ArrayLike | None = None,
    keep_predictions: bool = False,
    measure_at: Collection[int] | None = None,
    dtype: torch.dtype = torch.float32,
    n_jobs: int | None = None,
) -> list[Trained]:
    """Train modules of any kind, one process each.

    Parameters
    ----------
    X : array of shape (n, …)
        The table that all bags are about.
    make_module : callable
        Called with a seed, for example ``lambda seed: bagwise.neural.cnn(random_state=seed)``.
    n_jobs : int, optional
        How many processes at a time, as in joblib; None is one.
    replicas, epochs, batch_rows, average, X_test, y_test, keep_predictions, measure_at, dtype
        As for `train_replicas`.

    Returns
    -------
    list of Trained
    """
    plan = _Plan(epochs, batch_rows, average, dtype, X_test, y_test, keep_predictions, measure_at)
    table, threads = np.asarray(X), 1 if n_jobs not in (None, 1) else None
    jobs = (delayed(_train_alone)(table, replica, make_module, plan, threads) for replica in replicas)
    return list(Parallel(n_jobs=n_jobs)(jobs))


def _train_alone(
    X: NDArray[Any], replica: Replica, make_module: Callable[[int], nn.Module], plan: _Plan, threads: int | None
) -> Trained:
    """One replica by itself, on `threads` threads (None: as many as torch uses)."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        training = _start(replica, make_module, plan)
        data = BagTensors(torch.as_tensor(X[replica.bags.order], dtype=plan.dtype), replica.bags)
        (figures,) = _follow(Alone(training, data, _chosen(replica), plan.batch_rows), [replica], plan)
    finally:
        torch.set_num_threads(before)
    return Trained(replica, training.reading, **figures)


def _start(replica: Replica, make_module: Callable[[int], nn.Module], plan: _Plan) -> Training:
    """The replica's training before its first step."""
    if plan.X_test is not None and replica.bags.offset is not None:
        raise ParameterError("X_test", "holds rows of unknown offset, which bags of a replica have: leave it out.")
    rng = np.random.default_rng(replica.seed)
    seed, order = int(rng.integers(2**32)), int(rng.integers(2**32))
    bags = replica.bags if replica.fold is None else replica.bags.take(replica.fold.train)
    return Training(
        make_module(seed).to(plan.dtype),
        Objective(
            replica.loss,
            replica.means,
            prior(bags),
            effect_variance=replica.effect_variance,
            values=_of_values(replica),
        ),
        make_optimizer=partial(torch.optim.Adam, lr=replica.learning_rate, weight_decay=replica.weight_decay),
        rng=np.random.default_rng(order),
        average=plan.average,
    )


def _of_values(replica: Replica) -> bool:
    if replica.values and replica.bags.offset is not None:
        raise ParameterError("values", "are real labels, which have no log odds that an offset is added to.")
    if replica.values and not LOSSES[replica.loss].values:
        listed = ", ".join(name for name, loss in LOSSES.items() if loss.values)
        raise ParameterError("loss", f"{replica.loss!r} is for labels 0 and 1, not for values: choose one of {listed}.")
    return replica.values


def _chosen(replica: Replica) -> Integers:
    return np.arange(len(replica.bags)) if replica.fold is None else replica.fold.train


def _follow(
    networks: Stack | Alone, replicas: Sequence[Replica], plan: _Plan, callback: Callable[[int], object] | None = None
) -> list[dict[str, Any]]:
    """Train the networks of some replicas; the figures of each by their names in `Trained`."""
    lines: list[dict[str, list[Any]]] = [defaultdict(list) for _ in replicas]
    for epoch in range(1, plan.epochs + 1):
        for line, loss in zip(lines, networks.epoch(), strict=True):
            line["loss"].append(float(loss))
        if plan.measure_at is None or epoch in plan.measure_at:
            _measure(networks, replicas, plan, lines)
        if callback is not None:
            callback(len(replicas))
    return [{name: np.array(values) for name, values in line.items()} for line in lines]


def _measure(
    networks: Stack | Alone, replicas: Sequence[Replica], plan: _Plan, lines: Sequence[dict[str, list[Any]]]
) -> None:
    if any(replica.fold is not None for replica in replicas):
        for replica, line, scores in zip(replicas, lines, networks.score_bags(), strict=True):
            if replica.fold is not None:
                moved = scores if replica.bags.offset is None else scores + replica.bags.offset
                h = scores if replica.values else expit(moved)
                line["risk"].append(held_out_risk(h, replica.bags, replica.fold))
    if plan.X_test is None:
        return
    for replica, line, h in zip(replicas, lines, networks.predict(plan.X_test), strict=True):
        if plan.y_test is not None:
            lost = not np.isfinite(h).all() or replica.values
            line["accuracy"].append(np.nan if lost else float(((h > 0.5) == plan.y_test).mean()))
            line["brier"].append(np.nan if not np.isfinite(h).all() else float(np.square(h - plan.y_test).mean()))
        if plan.keep_predictions:
            line["test_predictions"].append(h)
