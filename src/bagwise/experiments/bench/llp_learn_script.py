"""Fits a model of llp-learn; a program of its own, run by the Python that has that package.

Arguments: the file with the task, the file for the result. See `bench.llp_learn`, which calls it.
"""

import sys
import time
import types
from typing import Any

import numpy as np


def main(task_file: str, result_file: str) -> None:
    """Read the task, fit, predict, write probabilities and the seconds they took."""
    with np.load(task_file) as task:
        given = dict(task)
    model, probabilities = {"dllp": dllp, "em": em}[str(given["model"])](given)
    start = time.perf_counter()  # imports are not part of it
    model.fit(given["X"], given["bags"], given["proportions"])
    h = probabilities(model.model, given["X_new"])
    np.savez(result_file, h=h, seconds=time.perf_counter() - start)


def dllp(given: dict[str, Any]) -> tuple[Any, Any]:
    """The model, and a function that gives probabilities by the network inside: `predict` would give labels only."""
    if "torchvision" not in sys.modules:  # imported at the top of llp_learn.dllp, needed for images, not required
        sys.modules["torchvision"] = types.ModuleType("torchvision")
        models = types.ModuleType("torchvision.models")
        models.resnet18 = None  # type: ignore[attr-defined]
        sys.modules["torchvision.models"] = models
    import torch
    from llp_learn.dllp import DLLP  # type: ignore[import-not-found]

    def probabilities(network: Any, X: Any) -> Any:
        with torch.no_grad():
            return torch.softmax(network.eval()(torch.from_numpy(X)), dim=1)[:, 1].numpy()

    settings = {"model_type": "simple-mlp", "hidden_layer_sizes": (32,), "device": "cpu", "n_jobs": 0}
    rate, epochs, seed = float(given["learning_rate"]), int(given["epochs"]), int(given["seed"])
    return DLLP(lr=rate, n_epochs=epochs, random_state=seed, **settings), probabilities


def em(given: dict[str, Any]) -> tuple[Any, Any]:
    """The model, and a function that gives probabilities by the logistic regression inside."""
    from llp_learn.em import EM  # type: ignore[import-not-found]
    from sklearn.linear_model import LogisticRegression

    model = EM(LogisticRegression(max_iter=5000), random_state=int(given["seed"]))
    return model, lambda regression, X: regression.predict_proba(X)[:, 1]


if __name__ == "__main__":
    main(*sys.argv[1:])
