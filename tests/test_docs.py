"""What the documents show: every block of Python runs, every command too, and pages only point to what is there."""

import json
import re
import runpy
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
    """The demo's tables, a table with labels, two of values, and reports in formats of others."""
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
    half, of = slice(10_000), bucket[:10_000]
    june = labelled[["x"]][half].assign(bucket=of, country=rng.choice(["DE", "FR"], 10_000))
    june.to_parquet(folder / "june.parquet")
    sums = np.bincount(of, worth[half], minlength=500)
    pd.DataFrame({"bucket": np.arange(500), "revenue": sums}).to_parquet(folder / "june_revenue.parquet")
    job, city = rng.integers(4, size=20_000), rng.integers(6, size=20_000)
    rows = pd.DataFrame({"x": x, "job": job.astype(str), "city": [f"c{number}" for number in city]})
    rows[:16_000].assign(y=labelled["y"]).to_parquet(folder / "rows.parquet")
    rows[16_000:].assign(row=range(4000)).to_parquet(folder / "later.parquet")
    pd.DataFrame({"row": range(4000), "count": labelled["y"][16_000:]}).to_parquet(folder / "later-reports.parquet")
    _write_formats(folder, x, labelled["y"].to_numpy(), bucket, rng)
    for one in ("events.parquet", "reports.parquet"):
        shutil.copy(folder / "bagwise-demo" / one, folder)
    return folder


def _write_formats(folder, x, y, bucket, rng):
    """Impressions, and reports of them in the formats that are imported; results of an election."""
    rows = pd.DataFrame({"campaign": rng.choice(list("ABC"), len(x)), "bucket": bucket, "x": x})
    rows["city"] = [f"c{number}" for number in rng.zipf(1.5, len(x)) % 60]
    rows["source"] = [f"{number}" for number in rng.integers(1000, 1040, len(x))]
    rows.to_parquet(folder / "impressions.parquet")
    groups = rows.assign(y=y).groupby(["campaign", "city"])["y"].agg(users="size", buyers="sum").reset_index()
    small = groups["users"] < 50
    rest = groups[small][["users", "buyers"]].sum().to_frame().T.assign(campaign="filtered rows", city="")
    pd.concat([groups[~small], rest]).to_csv(folder / "release.csv", index=False)
    sums = 4 * np.bincount(bucket, y) + rng.laplace(scale=4, size=500)
    told = {"epsilon": 1, "max_value": 4, "value": 4, "histogram": list(sums)}
    (folder / "histogram.json").write_text(json.dumps(told))
    postbacks = [
        {"source-identifier": source[: rng.integers(2, 5)], "conversion-value": 40, "postback-sequence-index": 0}
        for source in rows["source"][y == 1][::5]
    ]
    (folder / "postbacks.jsonl").write_text("\n".join(json.dumps(one) for one in postbacks))
    people = rng.integers(20, 90, (60, 2))
    votes = rng.binomial(people, [0.6, 0.2]).sum(1)
    results = {"precinct": range(60), "town": people[:, 0], "country": people[:, 1], "yes": votes}
    pd.DataFrame(results).assign(no=(people.sum(1) - votes) // 2).to_csv(folder / "results.csv", index=False)


@pytest.fixture
def place(request, tmp_path, monkeypatch):
    """A folder of its own for each page, with tables where the page speaks of some."""
    monkeypatch.chdir(tmp_path)
    text = request.getfixturevalue("page").read_text(encoding="utf-8")
    if any(f"{one}.parquet" in text for one in ("events", "impressions", "labelled", "rows", "visits")):
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
    text = page.read_text(encoding="utf-8")
    if ".to_parquet(" in text:  # tables that the page makes before
        exec("\n".join(BLOCK.findall(text)), {})
    for command in COMMAND.findall(text):
        long = command.startswith(("bagwise reproduce", "bagwise bench")) and "--scale quick" not in command
        if "…" in command or long or command.startswith("bagwise serve"):
            continue  # an outline, hours of computing, or what answers until it is stopped
        arguments, _, file = command.partition(" > ")
        result = CliRunner().invoke(app, shlex.split(arguments)[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}"
        if file:
            (place / file).write_text(result.stdout, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bagwise.gains.NoBetterThanConstantWarning")
@pytest.mark.parametrize("person", ["analyst", "privacy_engineer", "register", "mixtures"])
def test_notebooks_run_and_show_figures(person, monkeypatch, capsys):
    """Those of docs/index.md; what they print and draw is read when the documentation is built."""
    from matplotlib import pyplot

    shown = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(pyplot.gcf()))
    runpy.run_path(str(ROOT / "examples" / f"plot_{person}.py"), run_name="__main__")
    pyplot.close("all")
    assert len(shown) == 1
    assert len(shown[0].axes) >= 1
    assert len(capsys.readouterr().out.splitlines()) >= 3


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/guarantees.md"])
def test_what_is_guaranteed_is_tested(page):
    named = re.findall(r"`(?:tests/)?([\w/]+\.py)::(\w+)`", (ROOT / page).read_text(encoding="utf-8"))
    assert len(named) > 10
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), f"{file}::{test}"


def test_every_guarantee_of_the_table_has_tests():
    """A row names tests, then the file that they are in."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]*tests/[^|]+) \|$", text, re.MULTILINE)
    assert len(rows) > 10
    for guarantee, told in rows:
        for names, file in re.findall(r"([^;]*?)(tests/[\w/]+\.py)", told):
            source = (ROOT / file).read_text(encoding="utf-8")
            for test in re.findall(r"`(\w+)`", names):
                assert f"def {test}(" in source, f"{guarantee}: {file} has no {test}"


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
        r"sphx_glr_(?:gallery_)?(plot_\w+?|grid_search|neural_plain_torch|neural_pretrained)(?:_\d+\.png|\.py)", text
    ):
        assert (ROOT / "examples" / f"{script}.py").exists(), script
