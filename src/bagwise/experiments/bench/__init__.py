"""Every method on every data set: individual accuracy, AUC, Brier score and seconds, one table row per model trained.

>>> from bagwise.experiments.bench import FULL, METHODS
>>> sorted(set(FULL.methods) - set(METHODS))
[]
"""

from bagwise.experiments.bench.methods import METHODS, Method
from bagwise.experiments.bench.runs import FULL, QUICK, BenchConfig, plan, run, store_of
from bagwise.experiments.bench.tables import markdown
from bagwise.experiments.bench.tasks import Prediction, Task

__all__ = [
    "FULL",
    "METHODS",
    "QUICK",
    "BenchConfig",
    "Method",
    "Prediction",
    "Task",
    "markdown",
    "plan",
    "run",
    "store_of",
]
