"""Every method on every data set: individual accuracy, AUC, Brier score and seconds, one row per model trained."""

from bagwise.experiments.bench.runs import FULL, QUICK, BenchConfig, plan, run, store_of
from bagwise.experiments.bench.tables import markdown

__all__ = ["FULL", "QUICK", "BenchConfig", "markdown", "plan", "run", "store_of"]
