"""Pictures of what people see: `bagwise demo` in a terminal, and the page of `bagwise page` (needs Chromium).

`make pictures` draws docs/figures/demo.svg and docs/figures/page.png anew.
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

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
    """Both pictures."""
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
