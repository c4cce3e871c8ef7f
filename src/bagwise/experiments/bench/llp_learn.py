"""llp-learn 1.6, the package of this field on PyPI, in an environment of its own.

It pins libraries of 2023, among them a torch that would bring gigabytes of GPU packages, so it is installed without
its requirements and finds the libraries that this package runs on. Data go in and predictions come out through files.
"""

from __future__ import annotations

import subprocess
import sysconfig
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pooch  # type: ignore[import-untyped]

from bagwise.experiments.bench.tasks import Prediction, Task
from bagwise.utils.files import TemporaryFolder
from bagwise.utils.typing import Floats

REQUIREMENTS = ("llp-learn==1.6", "tqdm==4.67.1")
_SCRIPT = Path(__file__).with_name("llp_learn_script.py")


def run_dllp(task: Task, *, epochs: int, outside_rates: tuple[float, ...], timeout: int) -> Iterator[Prediction]:
    """DLLP with one hidden layer of 32, once for each learning rate, on the bags that are not held out."""
    python = environment()
    for rate in outside_rates:
        try:
            h, seconds = _predict(python, task, timeout, model="dllp", held_out=True, learning_rate=rate, epochs=epochs)
        except RuntimeError as error:
            yield Prediction(learning_rate=rate, error=str(error))
            continue
        n = len(task.X_test)
        yield Prediction(h[:n], learning_rate=rate, risk=task.held_out_risk(h[n:]), seconds=seconds)


def run_em(task: Task, *, timeout: int) -> Iterator[Prediction]:
    """EM around scikit-learn's logistic regression, on all bags."""
    h, seconds = _predict(environment(), task, timeout, model="em", held_out=False)
    yield Prediction(h, seconds=seconds)


def environment(cache: Path | None = None) -> Path:
    """The Python of an environment that has llp-learn; it is made in the user's cache folder when first needed."""
    folder = (cache or Path(pooch.os_cache("bagwise"))) / f"llp-learn-1.6-py{sysconfig.get_python_version()}"
    python = folder / ("Scripts/python.exe" if sysconfig.get_platform().startswith("win") else "bin/python")
    # Written last: without it, an earlier attempt was stopped half-way. It names where the libraries were found.
    ready = folder / "libraries.txt"
    here = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    if ready.is_file() and ready.read_text(encoding="utf-8").splitlines() == here:
        return python
    venv.create(folder, clear=True, with_pip=True)
    _call([python, "-m", "pip", "install", "--quiet", "--no-deps", *REQUIREMENTS], 600, "could not be installed")
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    (Path(own) / "libraries.pth").write_text("\n".join(here) + "\n", encoding="utf-8")  # after its own packages
    ready.write_text("\n".join(here) + "\n", encoding="utf-8")
    return python


def _predict(
    python: Path,
    task: Task,
    timeout: int,
    *,
    model: str,
    held_out: bool,
    learning_rate: float = np.nan,
    epochs: int = 0,
) -> tuple[Floats, float]:
    """h of the test rows, followed where bags are held out by h of the training rows, and the seconds it took."""
    bags = task.training_bags if held_out else task.bags
    with TemporaryFolder() as folder:
        given, result = folder / "given.npz", folder / "result.npz"
        rows = {"X": task.X[bags.order], "bags": np.repeat(np.arange(len(bags)), bags.size)}
        rows["X_new"] = np.concatenate([task.X_test, task.X]) if held_out else task.X_test
        settings = {"model": model, "learning_rate": learning_rate, "epochs": epochs, "seed": task.random_state}
        np.savez(given, proportions=bags.proportion.astype(np.float32), **rows, **settings)
        _call([python, "-P", _SCRIPT, given, result], timeout, "failed")  # -P: modules beside the script stay unseen
        with np.load(result) as found:
            return found["h"], float(found["seconds"])


def _call(command: Sequence[str | Path], timeout: int, failure: str) -> None:
    """Run a command; if that fails, an error with its last line."""
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"llp-learn {failure}: no end after {timeout} s.") from None
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        raise RuntimeError(f"llp-learn {failure}: {lines[-1] if lines else f'exit code {error.returncode}'}") from None
