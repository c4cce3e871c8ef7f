"""Networks trained from bags. Needs torch: ``pip install 'bagwise[neural]'``."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("networks need torch: pip install 'bagwise[neural]'.", name="torch") from error

from bagwise.folds import Fold, folds_of
from bagwise.neural.batches import BagBatchSampler
from bagwise.neural.estimator import BagNeuralClassifier
from bagwise.neural.networks import cnn, mlp
from bagwise.neural.regressor import BagNeuralRegressor
from bagwise.neural.replicas import Replica, Trained, train_modules, train_replicas

__all__ = [
    "BagBatchSampler",
    "BagNeuralClassifier",
    "BagNeuralRegressor",
    "Fold",
    "Replica",
    "Trained",
    "cnn",
    "folds_of",
    "mlp",
    "train_modules",
    "train_replicas",
]
