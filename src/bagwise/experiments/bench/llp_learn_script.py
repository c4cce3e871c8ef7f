"""Fits a model of llp-learn; a program of its own, run by the Python that has that package.

Arguments: the file with the task, the file for the result. See `bench.llp_learn`, which calls it.
"""

import sys
import time
import types
from typing import Any

import numpy as np


def main(task_file: str, result_file: str) -> None:
    """Read the task, fit, predict, write the result."""
    with np.load(task_file) as task:
        given = {name: task[name] for name in task.files}
    h, seconds = {"dllp": dllp, "em": em}[str(given["model"])](given)
    np.savez(result_file, h=h, seconds=seconds)


def dllp(given: dict[str, Any]) -> tuple[Any, float]:
    """Probabilities by the network, since `predict` would give labels only, and the seconds that took."""
    if "torchvision" not in sys.modules:  # imported at the top of llp_learn.dllp, needed for images, not required
        sys.modules["torchvision"] = types.ModuleType("torchvision")
        models = types.ModuleType("torchvision.models")
        models.resnet18 = None  # type: ignore[attr-defined]
        sys.modules["torchvision.models"] = models
    import torch
    from llp_learn.dllp import DLLP  # type: ignore[import-not-found]

    start = time.perf_counter()  # imports are not part of it
    model = DLLP(
        lr=float(given["learning_rate"]),
        n_epochs=int(given["epochs"]),
        model_type="simple-mlp",
        hidden_layer_sizes=(32,),
        device="cpu",
        n_jobs=0,
        random_state=int(given["seed"]),
    )
    model.fit(given["X"], given["bags"], given["proportions"])
    model.model.eval()
    with torch.no_grad():
        h = torch.softmax(model.model(torch.from_numpy(given["X_new"])), dim=1)[:, 1].numpy()
    return h, time.perf_counter() - start


def em(given: dict[str, Any]) -> tuple[Any, float]:
    """Probabilities by the logistic regression inside, and the seconds that took."""
    from llp_learn.em import EM  # type: ignore[import-not-found]
    from sklearn.linear_model import LogisticRegression

    start = time.perf_counter()
    model = EM(LogisticRegression(max_iter=5000), random_state=int(given["seed"]))
    model.fit(given["X"], given["bags"], given["proportions"])
    h = model.model.predict_proba(given["X_new"])[:, 1]
    return h, time.perf_counter() - start


if __name__ == "__main__":
    main(*sys.argv[1:])
