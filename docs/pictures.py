"""Pictures of formations, and of what people see: `bagwise demo` in a terminal, and the page of `bagwise page`.

`make pictures` draws docs/figures/formation-….png, demo.svg and page.png anew; the last needs Chromium.
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text
from scipy.special import expit

import bagwise as bw
from bagwise.displays import BagCalibrationDisplay
from bagwise.formation.slopes import slopes
from bagwise.plotting import BLUE, GREEN, GREY, RED

FIGURES = Path(__file__).parent / "figures"
COLUMNS = 112
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# Rich's picture without the fonts it would fetch and without a title bar's buttons.
PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="the demo">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Consolas, Menlo, monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="{width}" height="{height}" rx="8" fill="#191919"/>
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def main() -> None:
    """All pictures."""
    for name in bw.formation.FORMATIONS:
        _formation(name).savefig(FIGURES / f"formation-{name}.png", dpi=110)
    with tempfile.TemporaryDirectory() as folder:
        printed = _bagwise(["demo"], folder)
        tables = [f"bagwise-demo/{name}.parquet" for name in ("events", "reports")]
        _bagwise(["fit", *tables, "--model", "boosting", "--out", "advertising"], folder)
        _bagwise(["page", *tables, "--model", "advertising"], folder)
        _photograph(Path(folder) / "page.html", FIGURES / "page.png")
    console = Console(width=COLUMNS, record=True, file=io.StringIO())
    console.print(Text("$ bagwise demo\n" + printed.split("\nNext, ")[0].rstrip()))
    drawn = console.export_svg(theme=DIMMED_MONOKAI, code_format=PICTURE, unique_id="demo")
    (FIGURES / "demo.svg").write_text(drawn, encoding="utf-8")


def _formation(name: str) -> Figure:
    """Bags of a formation and a model that is right: both lines through them, and what `evaluate` says of it."""
    rng, size, bags = np.random.default_rng(0), 100, 120
    n = size * bags
    x, ids, effect = rng.normal(size=n), np.arange(n) // size, np.zeros(n)
    if name == "features":
        x = np.sort(x + 0.3 * rng.normal(size=n))
    if name == "effects":
        x, effect = np.sort(x + rng.normal(size=n)), np.repeat(rng.normal(scale=0.7, size=bags), size)
    h = expit(1.5 * x - 0.5)
    y = (rng.random(n) < expit(1.5 * x - 0.5 + effect)).astype(float)
    if name == "rates":  # rows of either label are dealt at random, more or fewer to a bag
        order = np.argsort(y + rng.normal(size=n), kind="stable")
        x, h, y = x[order], h[order], y[order]
    y_bag = bw.aggregate(y, ids)
    held = bw.Bags.from_rows(y_bag, ids)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.evaluation.BagsNotRandomWarning)
        found = bw.evaluate(h, x[:, None], y_bag, bags=ids)
    mean, (forward, reverse) = held.mean(h), slopes(h, held)
    p = float(held.proportion.mean())
    figure = Figure(figsize=(9.0, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(mean, held.proportion, "o", color=BLUE, markersize=3.5, alpha=0.7)
    ends = np.array([mean.min(), mean.max()])
    left.plot(
        ends, p + forward.value * (ends - mean.mean()), color=RED, label=f"forward: slope {forward.value:.2f} (1)"
    )
    ends = np.array([held.proportion.min(), held.proportion.max()])
    line = mean.mean() + reverse.value * (ends - p)
    told = f"reverse: slope {reverse.value:.2f} ({reverse.expected:.2f})"
    left.plot(line, ends, color=GREEN, linestyle="--", label=told)
    left.set(
        xlabel="mean prediction of a bag", ylabel="proportion that it reports", title=f"{name}: 120 bags of 100 rows"
    )
    left.legend(frameon=False, fontsize=8)
    left.title.set_size(9)
    BagCalibrationDisplay(found).plot(right)
    truth = float(((h > 0.5) == (y > 0.5)).mean())
    numbers = "no number of single rows" if found.withheld else f"accuracy {found.accuracy}"
    right.set_title(f"evaluate: {numbers} (truth {truth:.3f})", fontsize=9)
    for panel in (left, right):
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color=GREY, alpha=0.2)
    return figure


def _bagwise(command: list[str], folder: str) -> str:
    """What a command prints."""
    return subprocess.run(
        [sys.executable, "-m", "bagwise", *command],
        cwd=folder,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": str(COLUMNS)},
    ).stdout


def _photograph(page: Path, picture: Path) -> None:
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise SystemExit("Chromium is needed to look at a page: install it, then run this again.")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,1500"]
    subprocess.run([browser, *options, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
