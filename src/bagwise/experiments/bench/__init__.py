"""Every method on every data set: individual accuracy, AUC, Brier score and seconds, one table row per model trained.

>>> from bagwise.experiments.bench import FULL, METHODS
>>> sorted(set(FULL.methods) - set(METHODS))
[]
"""

from bagwise.experiments.bench.config import FULL, QUICK, BenchConfig
from bagwise.experiments.bench.methods import METHODS, Method
from bagwise.experiments.bench.problems import DATASETS, Prediction, Problem
from bagwise.experiments.bench.runs import run
from bagwise.experiments.bench.tables import markdown, summary

__all__ = [
    "DATASETS",
    "FULL",
    "METHODS",
    "QUICK",
    "BenchConfig",
    "Method",
    "Prediction",
    "Problem",
    "markdown",
    "run",
    "summary",
]
