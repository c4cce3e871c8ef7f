"""Ratios of benchmarks over time: each run appends lines to benchmarks/history.jsonl, and this shows them.

    python benchmarks/history.py [benchmark …]
    python benchmarks/history.py --page    # writes the latest of each to docs/costs.md

Ratios are of two measurements in one run, on one machine, so lines of different days may be compared; those of machines
with another number of cores stand apart.
"""

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("history.jsonl")
PAGE = FILE.parent.parent / "docs/costs.md"
LATEST = 5  # runs of a ratio that are shown
HEAD = """# What it costs

What things take beside something everyone knows: a ratio of two measurements in one run, seconds of computing or
memory. `make bench` measures all of it and writes this page; each benchmark says in its first lines what it measures
(`benchmarks/`, by name). Ratios vary by a tenth or more from run to run, and with the machine; those that are not what
is asked are marked.

| benchmark | ratio | asked | latest | date | cores |
| --- | --- | --- | --- | --- | --- |"""


def record(benchmark: str, name: str, ratio: float, *, at_most: float | None = None, at_least: float | None = None):
    """Append a ratio; at_most, at_least: what is asked of it."""
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "benchmark": benchmark,
        "name": name,
        "ratio": round(float(ratio), 4),
        "at_most": at_most,
        "at_least": at_least,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "bagwise": version("bagwise"),
    }
    with FILE.open("a", encoding="utf-8") as file:  # one write per line: two benchmarks may run side by side
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _commit() -> str:
    """The commit that is checked out, with a + where files differ from it; nothing where there is no repository."""
    asked = ["git", "-C", str(FILE.parent), "describe", "--always", "--dirty=+", "--exclude", "*"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def read() -> list[dict[str, Any]]:
    """All lines, in the order of their dates."""
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.is_file() else []
    return sorted((json.loads(line) for line in lines), key=lambda line: line["date"])


def groups_of(lines: list[dict[str, Any]]) -> list[tuple[tuple[str, str, int], list[dict[str, Any]]]]:
    """The runs of each ratio, by benchmark, name and number of cores."""
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["benchmark"], line["name"], line["cores"]), []).append(line)
    return sorted(groups.items())


def missed(run: dict[str, Any]) -> bool:
    """Whether a ratio is not what is asked of it."""
    most, least = run["at_most"], run["at_least"]
    return (most is not None and run["ratio"] > most) or (least is not None and run["ratio"] < least)


def asked_of(run: dict[str, Any]) -> str:
    """What is asked of a ratio, in words."""
    most, least = run["at_most"], run["at_least"]
    return f"at most {most:g}" if most is not None else f"at least {least:g}" if least is not None else ""


def shown(lines: list[dict[str, Any]]) -> list[str]:
    """A line for each ratio: what is asked of it, and its latest values, the last one marked where it is missed."""
    told = []
    for (benchmark, name, cores), runs in groups_of(lines):
        last = runs[-1]
        asked = f" ({asked_of(last)})" if asked_of(last) else ""
        values = " → ".join(f"{run['ratio']:.2f}" for run in runs[-LATEST:])
        when = f"{last['date'][:10]}, {last['commit']}, {cores} cores"
        told.append(f"{benchmark}: {name}{asked}: {values}{'  MISSED' if missed(last) else ''}  [{when}]")
    return told


def page(lines: list[dict[str, Any]]) -> str:
    """The latest value of each ratio, as a page."""
    rows = [
        f"| `{benchmark}` | {name} | {asked_of(runs[-1])} | {runs[-1]['ratio']:.2f}{' (missed)' * missed(runs[-1])} "
        f"| {runs[-1]['date'][:10]} | {cores} |"
        for (benchmark, name, cores), runs in groups_of(lines)
    ]
    return "\n".join([HEAD, *rows, ""])


if __name__ == "__main__":
    asked = set(sys.argv[1:])
    if asked == {"--page"}:
        PAGE.write_text(page(read()), encoding="utf-8")
        print(f"Written: {PAGE}")
    else:
        print(
            *(shown([line for line in read() if not asked or line["benchmark"] in asked]) or ["no runs yet"]), sep="\n"
        )
