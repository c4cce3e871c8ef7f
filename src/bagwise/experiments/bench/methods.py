"""The methods compared, by name, what they are given and what they give back. A new one is a line in `METHODS`.

A method is a generator of predictions for the test rows: one, or one for each learning rate, with the label-free risk
it had on held-out bags. Which of these counts is decided when tables are made, so one training serves both rules.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.data.features import FeatureCodes, is_table
from bagwise.data.rows import Reads
from bagwise.estimators import ESTIMATORS
from bagwise.experiments.bench import baselines, llp_learn
from bagwise.experiments.harness import PAPER_LOSSES
from bagwise.folds import Fold
from bagwise.formation import FORMATIONS
from bagwise.linear import BagMeanMapClassifier
from bagwise.risk import held_out_risk
from bagwise.utils.typing import Floats, Integers

_CODES = partial(Reads, codes=True)
_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
HELD_OUT = 0.1
"""Part of the bags that a choice without labels holds out."""


@dataclass(frozen=True, eq=False)
class Task:
    """All that a method sees. There are no labels of test rows in it, and none of training rows but for a ceiling.

    X, X_test: features.  bags: bags of the training rows with their proportions; single rows for a ceiling.
    random_state: seed of the run.
    """

    X: Any
    X_test: Any
    bags: Bags
    random_state: int

    @cached_property
    def fold(self) -> Fold:
        """Bags to train on and bags held out, at random."""
        order = np.random.default_rng(self.random_state).permutation(len(self.bags))
        held = max(1, round(HELD_OUT * len(order)))
        return Fold(np.sort(order[held:]), np.sort(order[:held]))

    @cached_property
    def training_bags(self) -> Bags:
        """The bags that are not held out."""
        return self.bags.take(self.fold.train)

    def held_out_risk(self, h: Floats) -> float:
        """Label-free risk of the held-out bags. h: (n,) predictions for all rows of X."""
        return held_out_risk(h[self.bags.order], self.bags, self.fold)


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a method says about the test rows.

    h: (n,) probabilities of label 1, None if it failed.  error: why.
    learning_rate, risk: where a learning rate is still to be chosen, this one and its held-out risk.
    seconds: of fit and prediction, where the caller's clock would measure other things too.
    model: the one behind it, if it is one with `predict_proba`.
    """

    h: Floats | None = None
    learning_rate: float = np.nan
    risk: float = np.nan
    seconds: float | None = None
    error: str = ""
    model: Any = None


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method and what it needs; label: its name for readers.

    run: called with the task and, by keyword, the settings it reads.
    reads: says what it reads, codes of categories or numbers; estimators say so themselves.
    individual: it learns from individual labels, whatever the bags: a ceiling.
    settings: fields of the config that it reads.
    needs: a module to import before the clock starts.
    """

    label: str
    run: Callable[..., Iterator[Prediction]]
    reads: Callable[[], Reads] = Reads
    individual: bool = False
    settings: tuple[str, ...] = ()
    needs: str = "bagwise"


def _class_of(name: str) -> Any:
    return getattr(import_module(ESTIMATORS[name]), name)


def _ours(task: Task, *, name: str, auto_seconds: float | None = None) -> Iterator[Prediction]:
    """An estimator of this package, as it is but for the time it is given."""
    kind = _class_of(name)
    parameters = {} if auto_seconds is None else {"time_budget": auto_seconds}
    if "random_state" in signature(kind).parameters:  # what is in closed form draws nothing
        parameters["random_state"] = task.random_state
    yield _fit_predict(kind(**parameters), task)


def _baseline(task: Task, *, make: Callable[..., Any]) -> Iterator[Prediction]:
    """One of `bagwise.experiments.bench.baselines`."""
    yield _fit_predict(make(random_state=task.random_state), task)


def _fit_predict(model: Any, task: Task) -> Prediction:
    model.fit(task.X, bags=task.bags)
    return Prediction(model.predict_proba(task.X_test)[:, 1], model=model)


def _network(task: Task, *, loss: str, epochs: int, learning_rates: tuple[float, ...]) -> Iterator[Prediction]:
    """The paper's network and training, all learning rates at once, on the bags that are not held out."""
    import torch

    from bagwise.neural import Replica, train_replicas
    from bagwise.neural.training import as_rows, predict

    train, start = task.training_bags, time.perf_counter()
    replicas = [
        Replica(bags=train, loss=loss, means="leave_one_out", learning_rate=rate, seed=task.random_state)
        for rate in learning_rates
    ]
    trained = train_replicas(task.X, replicas, epochs=epochs, hidden=(32,), batch_rows=1024)
    share = (time.perf_counter() - start) / len(replicas)
    X, X_test = (as_rows(table, torch.float32) for table in (task.X, task.X_test))
    for result in trained:
        rate, start = result.replica.learning_rate, time.perf_counter()
        if not np.isfinite(result.loss).all():
            yield Prediction(learning_rate=rate, seconds=share, error="training diverged.")
            continue
        h, h_test = predict(result.network, X, 4096), predict(result.network, X_test, 4096)
        seconds = share + time.perf_counter() - start
        yield Prediction(h_test, learning_rate=rate, risk=task.held_out_risk(h), seconds=seconds)


def _mean_map(task: Task) -> Iterator[Prediction]:
    """The penalty of least held-out risk, then a fit to all bags."""
    risks = []
    for alpha in _PENALTIES:
        model = BagMeanMapClassifier(alpha=alpha).fit(task.X, bags=task.training_bags)
        risks.append(task.held_out_risk(model.predict_proba(task.X)[:, 1]))
    yield _fit_predict(BagMeanMapClassifier(alpha=_PENALTIES[int(np.argmin(risks))]), task)


def _dllp(task: Task, *, epochs: int, outside_rates: tuple[float, ...], timeout: int) -> Iterator[Prediction]:
    """DLLP with one hidden layer of 32, once for each learning rate, on the bags that are not held out."""
    X_new, n = np.concatenate([task.X_test, task.X]), len(task.X_test)
    options = {"seed": task.random_state, "timeout": timeout, "epochs": epochs}
    for rate in outside_rates:
        try:
            h, seconds = llp_learn.predict("dllp", task.training_bags, task.X, X_new, rate=rate, **options)
        except RuntimeError as error:
            yield Prediction(learning_rate=rate, error=str(error))
            continue
        yield Prediction(h[:n], learning_rate=rate, risk=task.held_out_risk(h[n:]), seconds=seconds)


def _em(task: Task, *, timeout: int) -> Iterator[Prediction]:
    """EM around scikit-learn's logistic regression, on all bags."""
    h, seconds = llp_learn.predict("em", task.bags, task.X, task.X_test, seed=task.random_state, timeout=timeout)
    yield Prediction(h, seconds=seconds)


def _class_prior(task: Task) -> Iterator[Prediction]:
    yield Prediction(np.full(len(task.X_test), float(task.bags.size @ task.bags.proportion / task.bags.n_bagged)))


def _lightgbm(task: Task) -> Iterator[Prediction]:
    """LightGBM with its defaults, on individual labels."""
    import lightgbm as lgb

    codes = FeatureCodes.of(task.X) if is_table(task.X) else None
    X, X_test = (codes.matrix(X) if codes else X for X in (task.X, task.X_test))
    model = lgb.LGBMClassifier(random_state=task.random_state, n_jobs=0, verbosity=-1)
    model.fit(X, _labels(task), categorical_feature=codes.categorical if codes else "auto")
    yield Prediction(model.booster_.predict(X_test))


def _logistic_regression(task: Task) -> Iterator[Prediction]:
    """scikit-learn's, with its defaults but for the iterations, on individual labels."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=5000).fit(task.X, _labels(task))
    yield Prediction(model.predict_proba(task.X_test)[:, 1])


def _labels(task: Task) -> Integers:
    return np.asarray(task.bags.proportion, dtype=int)  # single rows, in table order


def _estimator(name: str, **options: Any) -> Method:
    """An estimator of this package; options: fields of the method that differ from what is usual."""
    usual = {"label": f"`{name}`", "run": partial(_ours, name=name), "needs": ESTIMATORS[name]}
    return Method(**{**usual, "reads": lambda: _class_of(name).reads, **options})


def _loss(label: str, loss: str) -> Method:
    run, settings = partial(_network, loss=loss), ("epochs", "learning_rates")
    return Method(label=f"paper's network, {label}", run=run, settings=settings, needs="bagwise.neural")


METHODS: dict[str, Method] = {
    "ridge": _estimator("BagRidgeClassifier"),
    "logistic": _estimator("BagLogisticClassifier"),
    "sgd": _estimator("BagSGDClassifier"),
    "boosting": _estimator("BagBoostingClassifier"),
    "neural": _estimator("BagNeuralClassifier"),
    "auto": _estimator("BagAutoClassifier", settings=("auto_seconds",), needs="bagwise.neural"),
    "network_ours": _loss("debiased square (Ours)", PAPER_LOSSES["ours"]),
    "network_li": _loss("Li et al.", PAPER_LOSSES["li"]),
    "network_vanilla_sq": _loss("matching, square (VanillaSQ)", PAPER_LOSSES["vanilla_sq"]),
    "network_vanilla_ce": _loss("matching, cross-entropy (VanillaCE)", PAPER_LOSSES["vanilla_ce"]),
    "network_easyllp": _loss("EasyLLP", "easyllp"),
    "network_label_generation": _loss("label generation (ROT)", "label_generation"),
    "mean_map": Method(label="mean map", run=_mean_map),
    "llp_learn_dllp": Method(label="llp-learn 1.6, DLLP", run=_dllp, settings=("epochs", "outside_rates", "timeout")),
    "llp_learn_em": Method(label="llp-learn 1.6, EM", run=_em, settings=("timeout",)),
    "class_prior": Method(label="class prior", run=_class_prior),
    "group_prior": _estimator("GroupPriorClassifier", label="group prior", reads=_CODES),
    "supervised_lightgbm": Method(label="LightGBM on individual labels", run=_lightgbm, reads=_CODES, individual=True),
    "supervised_logistic": Method(
        label="logistic regression on individual labels", run=_logistic_regression, individual=True
    ),
}
"""Every method by name, in the order of the tables."""

_RANDOM, _RATES, _FEATURES, _EFFECTS = FORMATIONS
_EVERY = tuple(FORMATIONS)

FORMATION_METHODS: dict[str, tuple[Method, tuple[str, ...]]] = {
    "boosting": (METHODS["boosting"], _EVERY),
    "logistic": (METHODS["logistic"], _EVERY),
    "ridge": (METHODS["ridge"], (_RANDOM,)),
    "mean_map": (_estimator("BagMeanMapClassifier"), (_RANDOM, _RATES)),
    "neural": (METHODS["neural"], _EVERY),
    "auto": (METHODS["auto"], _EVERY),
    "set_classification": (
        Method(
            label="U^m set classification (Lu et al. 2021)",
            run=partial(_baseline, make=baselines.set_classification),
            reads=_CODES,
        ),
        (_RATES,),
    ),
    "forward_correction": (
        Method(
            label="LLPFC, forward correction (Zhang et al. 2022)",
            run=partial(_baseline, make=baselines.forward_correction),
            reads=_CODES,
        ),
        (_RATES,),
    ),
    "group_prior": (METHODS["group_prior"], ()),
    "class_prior": (METHODS["class_prior"], ()),
    "supervised_lightgbm": (METHODS["supervised_lightgbm"], _EVERY),
    "supervised_logistic": (METHODS["supervised_logistic"], _EVERY),
}
"""Methods that are compared by formation, with their defaults, and the formations for which each is right."""
