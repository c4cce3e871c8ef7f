"""What users meet first: the import."""

import subprocess
import sys

import pytest

import bagwise


def test_import_is_light():
    """Nothing heavy is loaded until it is used: neither torch, nor scikit-learn, nor pandas."""
    code = (
        "import bagwise, sys; print(sorted({'torch', 'sklearn', 'pandas', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_only_networks_and_several_processes_load_torch():
    names = sorted(set(dir(bagwise)) - {"distributed", "neural", "BagNeuralClassifier", "BagNeuralRegressor"})
    code = f"import bagwise, sys\nfor name in {names}: getattr(bagwise, name)\nprint('torch' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "False"


def test_unknown_names_raise():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bagwise.nothing
