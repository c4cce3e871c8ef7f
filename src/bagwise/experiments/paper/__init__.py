"""The paper's experiments: networks trained from bags on four data sets, accuracy against bag size and epochs.

A frozen config names what to compute, every finished run is a row of Parquet, and tables and figures read those rows
only.
"""

from bagwise.experiments.paper.config import PRESETS, PaperConfig
from bagwise.experiments.paper.folder import Folder
from bagwise.experiments.paper.plan import Run, plan
from bagwise.experiments.paper.training import run

__all__ = ["PRESETS", "Folder", "PaperConfig", "Run", "plan", "run"]
