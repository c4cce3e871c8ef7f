"""The package as others get it: built, installed into an empty environment, used."""

import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import bagwise

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, BUILD = SETTINGS["project"], SETTINGS["build-system"]
WITH_CHECKSUMS = ("neural", "privacy", "onnx", "sql", "serve", "mlflow", "dev")  # all, and dev

CORE = """
import numpy as np, bagwise as bw, sys
rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 3)); y = (rng.random(2000) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
ids = bw.random_bags(2000, size=20, random_state=0)
model = bw.BagRidgeClassifier(random_state=0).fit(X, bw.aggregate(y, ids), bags=ids)
assert model.score(X, y) > 0.6
assert "torch" not in sys.modules and "opendp" not in sys.modules
for missing, use in (("torch", lambda: bw.BagNeuralClassifier), ("opendp", lambda: bw.release(y, ids, epsilon=1.0))):
    try:
        use()
    except ModuleNotFoundError as error:
        assert "pip install" in str(error), error
    else:
        raise AssertionError(f"{missing} is here")
"""
EXTRAS = """
import numpy as np, bagwise as bw
y = np.tile([0, 1], 500); ids = np.arange(1000) // 10
released = bw.release(y, ids, epsilon=1.0)
X = np.random.default_rng(0).normal(size=(1000, 2))
bw.BagNeuralClassifier(learning_rate=0.01, max_epochs=2, random_state=0).fit(X, bags=released.bags)
"""


def test_one_version_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == PROJECT["version"] == bagwise.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", PROJECT["version"])
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A wheel and a source archive."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, capture_output=True)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


@pytest.mark.slow
def test_wheel_and_source_hold_what_they_should(built):
    wheel, source = built
    names = zipfile.ZipFile(wheel).namelist()
    assert "bagwise/py.typed" in names
    assert not [one for one in names if one.startswith(("tests/", "docs/", "examples/"))]
    here = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/bagwise").rglob("*.py")}
    assert here <= set(names)
    with tarfile.open(source) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"README.md", "Makefile", "constraints.txt", "CHANGELOG.md", "LICENSE", "CITATION.cff"} <= inside
    assert not [name for name in inside if name.startswith((".venv", "bagwise-results", "docs/_build"))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "extra", "script"), [("wheel", "", CORE), ("source", "", CORE), ("wheel", "[all]", EXTRAS)]
)
def test_installs_into_an_empty_environment(built, what, extra, script, tmp_path):
    package = built[("wheel", "source").index(what)]
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env/bin/python"
    constraints = ("--constraint", ROOT / "constraints.txt")
    install = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *constraints,
        f"{package}{extra}",
    ]
    subprocess.run(install, check=True, capture_output=True)
    subprocess.run([python, "-c", script], check=True, cwd=tmp_path, capture_output=True)
    said = subprocess.run(
        [tmp_path / "env/bin/bagwise", "--version"], check=True, capture_output=True, text=True
    ).stdout
    assert said == f"bagwise {PROJECT['version']}\n"


def test_the_conda_recipe_needs_what_the_package_needs():
    """Rendered as conda-build does, which hands the template a function to read files by."""
    jinja2 = pytest.importorskip("jinja2")
    text = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
    read = {"../pyproject.toml": {"project": PROJECT}}
    rendered = jinja2.Template(text).render(load_file_data=lambda path, **_: read[path], PYTHON="python")
    needed = re.findall(r"^    - (\S+)", rendered.split("  run:\n")[1].split("test:")[0], re.MULTILINE)
    renamed = {"duckdb": "python-duckdb", "matplotlib": "matplotlib-base"}
    expected = [re.match(r"[\w-]+", one)[0] for one in PROJECT["dependencies"]]
    found = [re.match(r"[\w-]+", one)[0] for one in needed]
    assert found == ["python", *(renamed.get(one, one) for one in expected)]
    assert f"version: {PROJECT['version']}" in rendered


def test_the_workflow_runs_targets_that_there_are():
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"lint", "coverage", "docs", "wheel"} <= set(re.findall(r"make ([\w-]+)", workflow)) <= targets


def pins(file):
    """Versions by name; of hashes.txt with the checksums of their files."""
    lines = re.findall(r"^([\w.-]+)==([^\s;]+)((?:[^\n]*\\\n)*[^\n]*)", (ROOT / file).read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name.lower()): (version, more) for name, version, more in lines}


def test_what_is_set_up_again_is_the_same():
    """All that tests need, and what builds the package, has a version and checksums of its files."""
    pinned, hashed = pins("constraints.txt"), pins("hashes.txt")
    extras = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *BUILD["requires"], *(one for name in WITH_CHECKSUMS for one in extras[name])]
    needed = {re.match(r"[\w-]+", one)[0] for one in asked} - {"bagwise"}
    assert needed <= set(pinned) & set(hashed)
    assert {name for name in hashed if name in pinned and hashed[name][0] != pinned[name][0]} == set()
    for version, more in hashed.values():
        assert re.findall(r"--hash=sha256:[0-9a-f]{64}(?:\s|$)", more), version
