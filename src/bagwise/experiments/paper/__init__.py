"""The paper's experiments: networks trained from bags on four data sets, accuracy against bag size and epochs.

A frozen config names what to compute, every finished run is a row of Parquet, and tables and figures read those rows
only.
"""

from bagwise.experiments.paper.runs import PRESETS, PaperConfig, plan, run, store_of

__all__ = ["PRESETS", "PaperConfig", "plan", "run", "store_of"]
