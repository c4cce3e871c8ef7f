"""The benchmark of formations: every method on bags of every formation, each result stored as it comes."""

import json
import time
import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import joblib
import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from bagwise.bags import Bags, aggregate
from bagwise.base import BagClassifier
from bagwise.experiments.bench.formation_cases import CASES, SOURCES, Data, Drawn, cases_of
from bagwise.experiments.bench.methods import FORMATION_METHODS, Prediction, Task
from bagwise.experiments.bench.runs import store_of
from bagwise.experiments.harness import Progress, Run, complete, names_of, scores
from bagwise.metrics import log_loss
from bagwise.utils.parameters import Constraint, check_parameters, several, whole
from bagwise.utils.typing import Floats

PARTITIONS = (300, 301, 302, 303, 304)
"""Those that figures are reported for: settings are developed on others."""

_CEILING = ("", 1, 0)
"""Case, size and partition of a ceiling that learns from the rows' own labels, whatever the bags."""

_OPTIONAL = ("auto",)  # it tries the others, and takes as long as it may
_CONSTRAINTS = {
    "datasets": names_of(SOURCES),
    "cases": Constraint(
        f"names out of {', '.join(CASES)}, or how they begin", lambda given: all(cases_of([one]) for one in given)
    ),
    "methods": names_of(FORMATION_METHODS),
    "sizes": Constraint(
        "bag sizes of at least 1, or none", lambda given: not given or several(whole(1), "").holds(given)
    ),
    "partitions": several(whole(0), "one or more numbers of at least 0"),
    "auto_seconds": whole(1),
    "fewest_bags": whole(2),
}


@dataclass(frozen=True, kw_only=True)
class FormationsConfig:
    """What the benchmark of formations computes."""

    datasets: tuple[str, ...] = tuple(SOURCES)
    """Names of data sets; one whose files are missing is reported and left out."""
    cases: tuple[str, ...] = tuple(CASES)
    """Names of cases, or how they begin: rates stands for all those of rates."""
    sizes: tuple[int, ...] = ()
    """Bag sizes k in place of those of each case; none for those."""
    methods: tuple[str, ...] = tuple(name for name in FORMATION_METHODS if name not in _OPTIONAL)
    """Names of methods."""
    partitions: tuple[int, ...] = PARTITIONS
    """Numbers of the partitions into bags, each with its own seed of every method."""
    random_state: int = 0
    """Seed; every partition and size has a draw of its own, whatever else is computed."""
    auto_seconds: int = 90
    """Time budget of `BagAutoClassifier`."""
    fewest_bags: int = 6
    """Fewest bags to learn from."""

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS)


FULL_FORMATIONS = FormationsConfig()
"""All data sets and cases, five partitions."""
QUICK_FORMATIONS = FormationsConfig(
    datasets=("digits",),
    sizes=(16,),
    methods=("logistic", "ridge", "set_classification", "forward_correction", "class_prior", "supervised_logistic"),
    partitions=(0, 1),
)
"""Half a minute, and no files needed."""


@dataclass(frozen=True, kw_only=True)
class FormationRun(Run):
    """One method on one partition of one data set into bags of a case: all that its result depends on.

    settings: what the method reads of the config.
    """

    numbered_by: ClassVar[str] = "partition"
    dataset: str
    case: str
    size: int
    method: str
    partition: int
    random_state: int
    settings: dict[str, Any]

    @property
    def where(self) -> str:
        """What it is about, but for the method."""
        return ", ".join([self.dataset, *filter(None, [self.case]), *([f"bags of {self.size}"] * (self.size > 1))])


def plan_formations(config: FormationsConfig) -> list[FormationRun]:
    """All runs of a config; a ceiling runs once per data set, but where labels are drawn."""
    places = [
        (partition, dataset, case, size)
        for partition in config.partitions  # the outer loop, so that stopping early leaves whole tables
        for dataset in config.datasets
        for case, size in SOURCES[dataset].places(cases_of(config.cases), config.sizes)
    ]
    runs = {}
    for partition, dataset, case, size in places:
        for name in config.methods:
            method, _ = FORMATION_METHODS[name]
            once = method.individual and CASES[case].effect is None
            where = _CEILING if once else (case, size, partition)
            runs[dataset, *where, name] = FormationRun(
                dataset=dataset,
                case=where[0],
                size=where[1],
                method=name,
                partition=where[2],
                random_state=config.random_state,
                settings={key: getattr(config, key) for key in method.settings},
            )
    return list(runs.values())


def run_formations(config: FormationsConfig, out: str | Path, *, progress: Progress | None = None) -> pd.DataFrame:
    """Run what the Parquet file `out` does not hold yet, and return all rows of this config.

    One row per run: dataset, case, size (of bags, 0 for sizes of their own), method, partition; bags, rows (in bags),
    test_rows, prior (p of the bags); accuracy, brier, log_loss and auc on the test rows; mean_gap, the mean prediction
    for the rows in bags less p; gain and gain_error, of held-out bags, as the estimator tells them; formation, as told;
    warning; by_group, JSON of what is said of groups of a register; seconds of fit and prediction; cores it might use;
    error, empty where there was none; config, config_hash and versions. See `harness.complete` for what is stored when.
    """

    @lru_cache(maxsize=1)  # runs of one data set follow each other
    def load(name: str) -> Data | str:
        """The data set, or why it is missing."""
        try:
            return Data.of(name)
        except FileNotFoundError as error:
            return f"skipped: {error}"

    def compute(group: list[FormationRun]) -> list[dict[str, Any]]:
        (one,) = group
        where = {name: getattr(one, name) for name in ("dataset", "case", "size", "method", "partition")}
        return [where | measure(one, load(one.dataset), config) | one.origin]

    return complete(plan_formations(config), store_of(out), compute, progress=progress)


def stored_formations(partitions: tuple[int, ...], out: str | Path) -> pd.DataFrame:
    """All rows that the Parquet file `out` holds of these partitions, however many commands they came from."""
    store = store_of(out)
    frame = store.rows(store.read()["config_hash"])
    if frame.empty:
        raise ValueError(f"{out} holds no results of these versions: run bagwise bench --formations first.")
    place = {name: number for number, name in enumerate([*SOURCES, "", *CASES, *FORMATION_METHODS])}
    order = ["dataset", "case", "size", "method", "partition"]
    shown = frame[frame["partition"].isin(partitions) | (frame["case"] == "")]
    return shown.sort_values(order, key=lambda column: column.map(lambda value: place.get(value, value)))


def measure(run: FormationRun, data: Data | str, config: FormationsConfig) -> dict[str, Any]:
    """What one run found, or why it found nothing."""
    if isinstance(data, str):
        return _record(error=data)
    method, _ = FORMATION_METHODS[run.method]
    if len(data.table.y) < config.fewest_bags * run.size:
        return _record(error=f"skipped: {len(data.table.y):,} rows make too few bags of {run.size}.")
    drawn = data.draw(run.case, run.size, run.seed)
    if (m := drawn.ids.max() + 1) < config.fewest_bags:
        return _record(error=f"skipped: {m} bags are too few.")
    bags = Bags.singletons(drawn.y) if method.individual else Bags.from_rows(aggregate(drawn.y, drawn.ids), drawn.ids)
    prior = float(bags.size @ bags.proportion / bags.n_bagged)
    facts = {"bags": len(bags), "rows": bags.n_bagged, "test_rows": len(drawn.y_test), "prior": prior}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            import_module(method.needs)
            split = data.table if method.reads().codes else data.encoded
            task = Task(split.X, split.X_test, bags, run.seed(1))
            start = time.perf_counter()
            settings = {name: getattr(config, name) for name in method.settings}
            (prediction,) = method.run(task, **settings)
            seconds = time.perf_counter() - start
            found = _scores(prediction, task, drawn, prior)
        except Exception as error:  # a method that fails is a result too
            return _record(**facts, error=f"{type(error).__name__}: {error}")
    told = "; ".join(sorted({str(one.message) for one in warned}))
    groups = _by_group(prediction, task, drawn, data) if "group" in getattr(data.table.X, "columns", ()) else ""
    return _record(**facts, **found, seconds=seconds, warning=told, by_group=groups)


def _scores(prediction: Prediction, task: Task, drawn: Drawn, prior: float) -> dict[str, Any]:
    """How good a prediction is for the test rows, and what the model behind it says about itself."""
    h, y, model = prediction.h, drawn.y_test, prediction.model
    if h is None or not np.isfinite(h).all():
        return {"error": prediction.error or "some predictions are not finite."}
    a, g = log_loss(h)
    found: dict[str, Any] = {"auc": float(roc_auc_score(y, h)), "log_loss": float((a + y * g).mean()), **scores(h, y)}
    if model is not None:
        rows = task.bags.order
        X = task.X.iloc[rows] if hasattr(task.X, "iloc") else task.X[rows]
        found["mean_gap"] = float(model.predict_proba(X)[:, 1].mean()) - prior
        found |= {name: float(getattr(model, f"{name}_", np.nan)) for name in ("gain", "gain_error")}
        found["formation"] = getattr(getattr(model, "formation_", None), "name", "")
    return found


def _by_group(prediction: Prediction, task: Task, drawn: Drawn, data: Data) -> str:
    """Rates of the groups of a register: the truth, what is said, and what is said given the reports."""
    group, model = data.table.X_test["group"], prediction.model
    columns: dict[str, Floats] = {"truth": drawn.y_test, "said": prediction.h}  # type: ignore[dict-item]
    if isinstance(model, BagClassifier):
        columns["given_reports"] = model.predict_proba(task.X_test, bags=task.bags)[:, 1]
    means = pd.DataFrame(columns).groupby(group.to_numpy()).mean()
    return json.dumps(means.to_dict(orient="index"))


def _record(**given: Any) -> dict[str, Any]:
    numbers = ("accuracy", "brier", "log_loss", "auc", "mean_gap", "gain", "gain_error", "seconds", "prior")
    empty = dict.fromkeys(numbers, np.nan) | dict.fromkeys(("bags", "rows", "test_rows"), 0)
    texts = dict.fromkeys(("formation", "warning", "by_group", "error"), "")
    return empty | {"cores": joblib.cpu_count()} | texts | given
