"""llp-learn 1.6, the package of this field on PyPI, in an environment of its own.

It pins libraries of 2023, among them a torch that would bring gigabytes of GPU packages, so it is installed without
its requirements and finds the libraries that this package runs on. Data go in and predictions come out through files.
"""

import subprocess
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pooch  # type: ignore[import-untyped]

from bagwise.bags import Bags
from bagwise.utils.files import TemporaryFolder
from bagwise.utils.typing import Floats

REQUIREMENTS = ("llp-learn==1.6", "tqdm==4.67.1")
_SCRIPT = Path(__file__).with_name("llp_learn_script.py")


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


def predict(
    model: str, bags: Bags, X: Floats, X_new: Floats, *, seed: int, timeout: int, rate: float = np.nan, epochs: int = 0
) -> tuple[Floats, float]:
    """h of new rows by a model ("dllp" or "em") learned from bags of the rows X, and the seconds it took."""
    with TemporaryFolder() as folder:
        given, result = folder / "given.npz", folder / "result.npz"
        rows: dict[str, Any] = {"X": X[bags.order], "bags": np.repeat(np.arange(len(bags)), bags.size), "X_new": X_new}
        settings: dict[str, Any] = {"model": model, "learning_rate": rate, "epochs": epochs, "seed": seed}
        np.savez(given, proportions=bags.proportion.astype(np.float32), **rows, **settings)
        # -P: modules beside the script stay unseen.
        _call([environment(), "-P", _SCRIPT, given, result], timeout, "failed")
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
