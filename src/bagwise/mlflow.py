"""Models in MLflow: a flavour of its own, and `mlflow.pyfunc`, which scores pandas tables; nothing is pickled.

What MLflow keeps is the folder that `bagwise.save` writes. Its signature names the columns that predictions depend on;
of which type they may be is left to the model, which converts where nothing is lost, as `bagwise predict` does.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bagwise
from bagwise import saving
from bagwise.base import BagClassifier, BagEstimator
from bagwise.classes import prediction_columns
from bagwise.tables.model import TableModel
from bagwise.utils.files import TemporaryFolder
from bagwise.utils.packages import needed
from bagwise.utils.parameters import ParameterError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_model", "log_model", "save_model"]

_FLAVOR, _DATA, _FOLDER = "bagwise", "data", "model"


def save_model(
    model: Any, path: str | os.PathLike[str], *, mlflow_model: Any = None, signature: Any = None, **options: Any
) -> None:
    """Save a fitted model in MLflow's format.

    Parameters
    ----------
    model : TableModel, BagClassifier or BagRegressor
        What `tables.fit` or `bagwise.load` returned, or a fitted estimator of arrays.
    path : path
        Where to; it must not exist.
    mlflow_model : mlflow.models.Model, optional
        What the flavours are added to, where MLflow itself saves.
    signature : mlflow.models.ModelSignature, optional
        Instead of the one that names the columns of the model.
    **options
        Of `mlflow.pyfunc.save_model`: input_example, metadata, pip_requirements, ….

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import bagwise as bw
    >>> model = bw.BagRidgeClassifier().fit(np.arange(40.0)[:, None], np.arange(40) % 2)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     bw.mlflow.save_model(model, f"{place}/model")
    ...     again = bw.mlflow.load_model(f"{place}/model")
    >>> bool((again.coef_ == model.coef_).all())
    True
    """
    pyfunc = _pyfunc()
    from mlflow.models import Model

    if not isinstance(model, TableModel | BagEstimator):
        said = f"must be what tables.fit returned or a fitted estimator of bagwise, got a {type(model).__name__}."
        raise ParameterError("model", said)
    kept = Model() if mlflow_model is None else mlflow_model
    kept.signature = _signature(model) if signature is None else signature
    kind = model.kind if isinstance(model, TableModel) else type(model).__name__
    kept.add_flavor(_FLAVOR, bagwise_version=bagwise.__version__, data=f"{_DATA}/{_FOLDER}", kind=kind)
    if not {"pip_requirements", "conda_env"} & set(options):
        extra = "[neural]" if "torch" in sys.modules else ""
        options["pip_requirements"] = [f"bagwise{extra}=={bagwise.__version__}"]
    with TemporaryFolder() as folder:
        saving.save(model, folder / _FOLDER)
        pyfunc.save_model(
            os.fspath(path), loader_module=__name__, data_path=str(folder / _FOLDER), mlflow_model=kept, **options
        )


def log_model(model: Any, name: str, **options: Any) -> Any:
    """Log a fitted model, in the run that is active if there is one.

    Parameters
    ----------
    model : TableModel, BagClassifier or BagRegressor
        As for `save_model`.
    name : str
        What MLflow calls it.
    **options
        Of `save_model`, and of `mlflow.models.Model.log`: registered_model_name, tags, params, ….

    Returns
    -------
    mlflow.models.model.ModelInfo
        Whose `model_uri` is for `load_model` and `mlflow.pyfunc.load_model`.
    """
    _pyfunc()
    from mlflow.models import Model

    return Model.log(artifact_path=None, name=name, flavor=sys.modules[__name__], model=model, **options)


def load_model(model_uri: str | os.PathLike[str], *, module: Any = None) -> Any:
    """Read the model that `log_model` or `save_model` wrote. Runs no code but that of the installed classes.

    Parameters
    ----------
    model_uri : str or path
        As MLflow has it (``models:/…``, ``runs:/…``), or a folder.
    module : torch.nn.Module, optional
        As for `bagwise.load`.

    Returns
    -------
    TableModel, BagClassifier or BagRegressor
        The model; its predictions are equal bit for bit.
    """
    _pyfunc()
    from mlflow.artifacts import download_artifacts
    from mlflow.models import Model

    place = Path(download_artifacts(artifact_uri=os.fspath(model_uri)))
    flavors = Model.load(str(place)).flavors
    if _FLAVOR not in flavors:
        raise ParameterError("model_uri", f"is no model of bagwise: its flavours are {', '.join(flavors)}.")
    return saving.load(place / _DATA / _FOLDER, module=module)


def _pyfunc() -> Any:
    needed("mlflow", "mlflow", "models of MLflow")
    with warnings.catch_warnings():  # about types of MLflow's own, once it is imported
        warnings.simplefilter("ignore")
        return import_module("mlflow.pyfunc")


class _Scores:
    """What `mlflow.pyfunc` calls."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, model_input: Any, params: Any = None) -> pd.DataFrame:
        """Columns of predictions, as `bagwise predict` writes them."""
        import pandas as pd

        model, names = self.model, _predictions(self.model)
        labels = isinstance(model, BagClassifier) or getattr(model, "target", "") == "label"
        h = model.predict_proba(model_input) if labels else model.predict(model_input)[:, None]
        return pd.DataFrame(h[:, -len(names) :], columns=list(names), index=getattr(model_input, "index", None))


def _load_pyfunc(path: str) -> _Scores:
    return _Scores(saving.load(path))


def _predictions(model: Any) -> tuple[str, ...]:
    """Names of the columns of predictions."""
    if isinstance(model, TableModel):
        return model.predictions
    return prediction_columns(getattr(model, "classes_", None))


def _signature(model: Any) -> Any:
    """The columns that a model reads, of any type, and those of its predictions."""
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, DataType, Schema

    if isinstance(model, TableModel):
        required = {one.name: one.name not in model.unused for one in model.features.columns if one.made}
        required |= {name: True for name in model.of_rows.names if name == model.of_rows.offset}
    else:
        required = {str(name): True for name in getattr(model, "feature_names_in_", ())}
    inputs = [ColSpec(AnyType(), name, required=must) for name, must in required.items()]
    outputs = [ColSpec(DataType.double, name) for name in _predictions(model)]
    return ModelSignature(inputs=Schema(inputs) if inputs else None, outputs=Schema(outputs))
