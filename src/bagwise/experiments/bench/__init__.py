"""Every method on every data set: individual accuracy, AUC, Brier score and seconds, one row per model trained.

Random bags are in `runs` and `tables`; bags of every formation in `formation_runs` and `formation_tables`.
"""

from bagwise.experiments.bench.formation_runs import (
    FULL_FORMATIONS,
    QUICK_FORMATIONS,
    FormationsConfig,
    plan_formations,
    run_formations,
    stored_formations,
)
from bagwise.experiments.bench.formation_tables import formations_markdown
from bagwise.experiments.bench.runs import FULL, QUICK, BenchConfig, plan, run, store_of
from bagwise.experiments.bench.tables import markdown
from bagwise.experiments.bench.targets import reached

__all__ = [
    "FULL",
    "FULL_FORMATIONS",
    "QUICK",
    "QUICK_FORMATIONS",
    "BenchConfig",
    "FormationsConfig",
    "formations_markdown",
    "markdown",
    "plan",
    "plan_formations",
    "reached",
    "run",
    "run_formations",
    "store_of",
    "stored_formations",
]
