"""What the documents show: every block of Python runs, every command too, and pages only point to what is there."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bagwise import demo
from bagwise.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^    (bagwise .*?)(?:\s+#.*)?$", re.MULTILINE)


def name(page):
    return page.relative_to(ROOT).as_posix()


def holding(pattern, *, slow=()):
    """The pages that hold something; those in folders that are `slow` wait for `make test-all`."""
    return [
        pytest.param(page, id=name(page), marks=[pytest.mark.slow] if page.parent.name in slow else [])
        for page in PAGES
        if pattern.search(page.read_text(encoding="utf-8"))
    ]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The demo's tables, a table with labels, and two of values."""
    folder = tmp_path_factory.mktemp("tables")
    demo.run(folder / "bagwise-demo", rows=10_240, random_state=0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=20_000)
    labelled = pd.DataFrame({"x": x, "y": (rng.random(20_000) < 1 / (1 + np.exp(-x))).astype(int)})
    labelled.to_parquet(folder / "labelled.parquet")
    worth, bucket = np.where(labelled["y"] == 1, np.exp(2 + 0.5 * x), 0.0), rng.permutation(20_000) % 500
    labelled[["x"]].assign(bucket=bucket).to_parquet(folder / "visits.parquet")
    revenue = pd.DataFrame({"bucket": np.arange(500), "revenue": np.bincount(bucket, worth)})
    revenue.to_parquet(folder / "revenue.parquet")
    for one in ("events.parquet", "reports.parquet"):
        shutil.copy(folder / "bagwise-demo" / one, folder)
    return folder


@pytest.fixture
def place(request, tmp_path, monkeypatch):
    """A folder of its own for each page, with tables where the page speaks of some."""
    monkeypatch.chdir(tmp_path)
    text = request.getfixturevalue("page").read_text(encoding="utf-8")
    if any(f"{one}.parquet" in text for one in ("events", "labelled", "visits")):
        shutil.copytree(request.getfixturevalue("tables"), tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("page", holding(BLOCK, slow=["docs"]))
def test_python_on_a_page_runs_from_top_to_bottom(page, place, capsys):
    scope = {}
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        exec(compile(block, name(page), "exec"), scope)
    if page.name == "README.md":
        printed = capsys.readouterr().out
        assert "accuracy" in printed
        assert "verdict: random" in printed


@pytest.mark.slow
@pytest.mark.parametrize("page", holding(COMMAND))
def test_commands_on_a_page_run_from_top_to_bottom(page, place):
    for command in COMMAND.findall(page.read_text(encoding="utf-8")):
        long = command.startswith(("bagwise reproduce", "bagwise bench")) and "--scale quick" not in command
        if "…" in command or long:
            continue  # an outline, or hours of computing
        arguments = shlex.split(command)[1:]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, f"{command}\n{result.output}"


@pytest.mark.parametrize("page", [pytest.param(page, id=name(page)) for page in PAGES])
def test_pages_point_to_what_is_there(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (page.parent / target).exists(), target
    for target in re.findall(r"\{doc\}`(\w+)`", text):
        assert (ROOT / "docs" / f"{target}.md").exists(), target
    for target in re.findall(r"`((?:docs|examples|benchmarks|src|tests)/[\w./-]+\.\w+)`", text):
        assert (ROOT / target).exists(), target
    for script in re.findall(
        r"sphx_glr_(?:gallery_)?(plot_\w+?|grid_search|neural_plain_torch)(?:_\d+\.png|\.py)", text
    ):
        assert (ROOT / "examples" / f"{script}.py").exists(), script
