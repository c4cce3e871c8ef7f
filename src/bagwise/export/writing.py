"""Exported models as files, by the name of the format."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from bagwise.export.lightgbm import to_lightgbm
from bagwise.export.onnx import to_onnx
from bagwise.export.sql import to_sql
from bagwise.export.torch import to_torch
from bagwise.utils.files import replacing
from bagwise.utils.parameters import ParameterError, check_parameters, one_of


def _onnx(model: Any) -> bytes:
    return bytes(to_onnx(model).SerializeToString())


def _sql(model: Any, **options: Any) -> bytes:
    return to_sql(model, **options).encode()


def _lightgbm(model: Any) -> bytes:
    return str(to_lightgbm(model).model_to_string(num_iteration=-1)).encode()


def _torch(model: Any) -> bytes:
    import io

    import torch

    held = io.BytesIO()
    torch.export.save(to_torch(model), held)
    return held.getvalue()


FORMATS: dict[str, Callable[..., bytes]] = {"onnx": _onnx, "sql": _sql, "lightgbm": _lightgbm, "torch": _torch}
"""What makes the content of a file, by the name of its format."""


def write(model: Any, out: str | os.PathLike[str], *, to: str, force: bool = True, **options: Any) -> None:
    """Write a model for another program; the file appears whole or not at all.

    Parameters
    ----------
    model : TableModel, BagClassifier or BagRegressor
        A model that `tables.fit` or `load` returned, or a fitted estimator of arrays.
    out : path
        The file to write.
    to : {"onnx", "sql", "lightgbm", "torch"}
        The format.
    force : bool
        Replace what is there. Without it that stays and is an error, also where another process wrote it meanwhile.
    **options
        Of `to_sql`: table, dialect, keep, max_leaves.
    """
    check_parameters({"to": to}, {"to": one_of(*FORMATS)})
    if options and to != "sql":
        raise ParameterError(next(iter(options)), f"is for sql, not for {to}: leave it out.")
    content = FORMATS[to](model, **options)
    with replacing(out, force=force) as (target,), open(target, "wb") as file:
        file.write(content)
