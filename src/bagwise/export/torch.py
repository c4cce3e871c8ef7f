"""Exported programs of torch: networks and linear models, with all that happens to numbers before and after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bagwise.export.described import Described
from bagwise.export.formula import CannotExportError, prediction
from bagwise.utils.packages import needed

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def to_torch(model: Any) -> ExportedProgram:
    """A network or a linear model as an exported program of torch, for any number of rows.

    It takes numbers and codes (rows, columns) in double precision, as `code_inputs` makes them of a table,
    or rows as an estimator of arrays reads them, and returns (rows,) probabilities of class 1 or values, or (rows,
    classes). Standardisation, encoding of categories and missing numbers are part of it.

    Parameters
    ----------
    model : TableModel, BagClassifier or BagRegressor
        A model that `tables.fit` or `load` returned, or a fitted estimator of arrays; of a network, a module of your
        own must be one that `torch.export` can follow.

    Returns
    -------
    torch.export.ExportedProgram
        ``torch.export.save(found, path)`` writes it; ``found.module()(rows)`` predicts.

    Examples
    --------
    >>> import numpy as np
    >>> import bagwise as bw
    >>> X = np.random.default_rng(0).normal(size=(640, 2))
    >>> ids = bw.random_bags(640, size=16, random_state=0)
    >>> model = bw.BagLogisticClassifier(random_state=0).fit(X, bw.aggregate(X[:, 0] > 0, ids), bags=ids)
    >>> import torch
    >>> program = to_torch(model).module()
    >>> bool(np.allclose(program(torch.tensor(X)), model.predict_proba(X)[:, 1]))
    True
    """
    needed("torch", "neural", "programs of torch")
    import torch

    from bagwise.export.torch_modules import Program, Whole

    described, words = Described.of(model), Program()
    found = prediction(described.estimator, described.encoding, words)
    shape = getattr(described.estimator, "_shape", None) if described.bare else None
    rows = torch.zeros((2, *(shape or (len(described.made),))), dtype=torch.float64)
    whole = Whole(found, words.parts, len(described.outputs) == 1)
    try:
        return torch.export.export(whole, (rows,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    except Exception as error:
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
        raise CannotExportError(f"torch.export cannot follow the network ({reason}).") from error
