"""The paper's experiments: networks trained from bags on four data sets, accuracy against bag size and epochs.

A frozen config names what to compute, every finished run is a row of Parquet, and tables and figures read those rows
only.
"""

from bagwise.experiments.paper.plan import PRESETS, PaperConfig, PaperRun, plan, store_of
from bagwise.experiments.paper.training import run

__all__ = ["PRESETS", "PaperConfig", "PaperRun", "plan", "run", "store_of"]
