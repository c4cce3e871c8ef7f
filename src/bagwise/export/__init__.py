"""Models for other programs: ONNX, SQL, LightGBM's text, torch.

Each says what `predict_proba` (of values, `predict`) says, in columns of the names that `bagwise predict` gives them.
What is exported is the model alone: scores given reports, which add up to them, are made by `tables.write_scores`. What
a format has no words for is a `CannotExportError`, in a sentence that says what to do.
"""

from bagwise.export.codes import code_inputs
from bagwise.export.described import names_of_predictions
from bagwise.export.formula import CannotExportError
from bagwise.export.lightgbm import to_lightgbm
from bagwise.export.onnx import onnx_inputs, to_onnx
from bagwise.export.sql import to_sql
from bagwise.export.torch import to_torch
from bagwise.export.writing import write

__all__ = [
    "CannotExportError",
    "code_inputs",
    "names_of_predictions",
    "onnx_inputs",
    "to_lightgbm",
    "to_onnx",
    "to_sql",
    "to_torch",
    "write",
]
