"""The methods compared, by name. A new one is a line in `METHODS`.

A method is a generator of predictions for the test rows: one, or one for each learning rate, with the label-free risk
it had on held-out bags. Which of these counts is decided when tables are made, so one training serves both rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

import numpy as np

from bagwise.baselines import GroupPriorClassifier
from bagwise.data.features import FeatureCodes, is_table
from bagwise.experiments.aliases import library_loss
from bagwise.experiments.bench import llp_learn
from bagwise.experiments.bench.problems import Prediction, Problem
from bagwise.linear import BagMeanMapClassifier
from bagwise.utils.typing import Integers

_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method and what it needs.

    label: its name for readers.
    run: called with the problem and, by keyword, the settings it reads.
    features: "table" with categories as they are, or "encoded" as numbers.
    individual: it learns from individual labels, whatever the bags: a ceiling.
    settings: fields of the config that it reads.
    needs: a module to import before the clock starts.
    """

    label: str
    run: Callable[..., Iterator[Prediction]]
    features: Literal["table", "encoded"] = "encoded"
    individual: bool = False
    settings: tuple[str, ...] = ()
    needs: str = "bagwise"


def _ours(problem: Problem, *, room: str, name: str) -> Iterator[Prediction]:
    """An estimator of this package as it is."""
    model = getattr(import_module(room), name)(random_state=problem.random_state)
    yield _fit_predict(model, problem)


def _fit_predict(model: Any, problem: Problem) -> Prediction:
    model.fit(problem.X, bags=problem.bags)
    return Prediction(model.predict_proba(problem.X_test)[:, 1])


def _auto(problem: Problem, *, auto_seconds: float) -> Iterator[Prediction]:
    from bagwise.auto import BagAutoClassifier

    yield _fit_predict(BagAutoClassifier(time_budget=auto_seconds, random_state=problem.random_state), problem)


def _network(problem: Problem, *, loss: str, epochs: int, learning_rates: tuple[float, ...]) -> Iterator[Prediction]:
    """The paper's network and training, all learning rates at once, on the bags that are not held out."""
    import torch

    from bagwise.neural import Replica, train_replicas
    from bagwise.neural.training import as_rows, predict

    train, start = problem.parts[0], time.perf_counter()
    replicas = [
        Replica(
            bags=train, loss=library_loss(loss), means="leave_one_out", learning_rate=rate, seed=problem.random_state
        )
        for rate in learning_rates
    ]
    trained = train_replicas(problem.X, replicas, epochs=epochs, hidden=(32,), batch_rows=1024)
    share = (time.perf_counter() - start) / len(replicas)
    X, X_test = (as_rows(table, torch.float32) for table in (problem.X, problem.X_test))
    for result in trained:
        rate, start = result.replica.learning_rate, time.perf_counter()
        if not np.isfinite(result.loss).all():
            yield Prediction(learning_rate=rate, seconds=share, error="training diverged.")
            continue
        h, h_test = predict(result.network, X, 4096), predict(result.network, X_test, 4096)
        seconds = share + time.perf_counter() - start
        yield Prediction(h_test, learning_rate=rate, risk=problem.held_out_risk(h), seconds=seconds)


def _mean_map(problem: Problem) -> Iterator[Prediction]:
    """The penalty of least held-out risk, then a fit to all bags."""
    risks = []
    for alpha in _PENALTIES:
        model = BagMeanMapClassifier(alpha=alpha).fit(problem.X, bags=problem.parts[0])
        risks.append(problem.held_out_risk(model.predict_proba(problem.X)[:, 1]))
    yield _fit_predict(BagMeanMapClassifier(alpha=_PENALTIES[int(np.argmin(risks))]), problem)


def _class_prior(problem: Problem) -> Iterator[Prediction]:
    from sklearn.dummy import DummyClassifier

    p = float(problem.bags.size @ problem.bags.proportion / problem.bags.n_bagged)
    model = DummyClassifier(strategy="prior").fit([[0], [0]], [0, 1], sample_weight=[1 - p, p])
    yield Prediction(model.predict_proba(np.zeros((len(problem.X_test), 1)))[:, 1])


def _group_prior(problem: Problem) -> Iterator[Prediction]:
    yield _fit_predict(GroupPriorClassifier(random_state=problem.random_state), problem)


def _lightgbm(problem: Problem) -> Iterator[Prediction]:
    """LightGBM with its defaults, on individual labels."""
    import lightgbm as lgb

    codes = FeatureCodes.of(problem.X) if is_table(problem.X) else None
    X, X_test = (codes.matrix(X) if codes else X for X in (problem.X, problem.X_test))
    model = lgb.LGBMClassifier(random_state=problem.random_state, n_jobs=0, verbosity=-1)
    model.fit(X, _labels(problem), categorical_feature=codes.categorical if codes else "auto")
    yield Prediction(model.booster_.predict(X_test))


def _logistic_regression(problem: Problem) -> Iterator[Prediction]:
    """scikit-learn's, with its defaults but for the iterations, on individual labels."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=5000).fit(problem.X, _labels(problem))
    yield Prediction(model.predict_proba(problem.X_test)[:, 1])


def _labels(problem: Problem) -> Integers:
    return problem.bags.proportion.astype(int)  # single rows, in table order


def _estimator(room: str, name: str, features: Literal["table", "encoded"]) -> Method:
    room = f"bagwise.{room}"
    return Method(label=f"`{name}`", run=partial(_ours, room=room, name=name), features=features, needs=room)


def _loss(label: str, loss: str) -> Method:
    return Method(
        label=f"paper's network, {label}",
        run=partial(_network, loss=loss),
        settings=("epochs", "learning_rates"),
        needs="bagwise.neural",
    )


METHODS: dict[str, Method] = {
    "ridge": _estimator("linear", "BagRidgeClassifier", "encoded"),
    "sgd": _estimator("linear", "BagSGDClassifier", "encoded"),
    "boosting": _estimator("boosting", "BagBoostingClassifier", "table"),
    "neural": _estimator("neural", "BagNeuralClassifier", "encoded"),
    "auto": Method(
        label="`BagAutoClassifier`", run=_auto, features="table", settings=("auto_seconds",), needs="bagwise.neural"
    ),
    "network_ours": _loss("debiased square (Ours)", "ours"),
    "network_li": _loss("Li et al.", "li"),
    "network_vanilla_sq": _loss("matching, square (VanillaSQ)", "vanilla_sq"),
    "network_vanilla_ce": _loss("matching, cross-entropy (VanillaCE)", "vanilla_ce"),
    "network_easyllp": _loss("EasyLLP", "easyllp"),
    "network_label_generation": _loss("label generation (ROT)", "label_generation"),
    "mean_map": Method(label="mean map", run=_mean_map),
    "llp_learn_dllp": Method(
        label="llp-learn 1.6, DLLP",
        run=llp_learn.run_dllp,
        settings=("epochs", "outside_rates", "timeout"),
    ),
    "llp_learn_em": Method(label="llp-learn 1.6, EM", run=llp_learn.run_em, settings=("timeout",)),
    "class_prior": Method(label="class prior", run=_class_prior),
    "group_prior": Method(label="group prior", run=_group_prior, features="table"),
    "supervised_lightgbm": Method(
        label="LightGBM on individual labels", run=_lightgbm, features="table", individual=True
    ),
    "supervised_logistic": Method(
        label="logistic regression on individual labels", run=_logistic_regression, individual=True
    ),
}
"""Every method by name, in the order of the tables."""
