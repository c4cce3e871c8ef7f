"""How cost grows: seconds of a fit and its memory against rows, bags and columns, one figure per estimator.

    python benchmarks/growth.py [model …]    # all of them take about an hour
    python benchmarks/growth.py --page       # draws again what is stored; benchmarks/scaling.py writes it to the page

Numbers in random bags, defaults of each classifier, one thread; every fit in a process of its own. Seconds are of
computing; memory is the most that was held beyond the table and the reports. A fit that would take more than half an
hour, as the slope so far says, is left out. Results: docs/results/growth.json, replaced fit by fit.
"""

import json
import os
import subprocess
import sys
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from bagwise.utils.files import replacing

DOCS = Path(__file__).parents[1] / "docs"
STORED, FIGURES = DOCS / "results" / "growth.json", DOCS / "figures"

MODELS = ("ridge", "mean-map", "logistic", "sgd", "boosting", "network")
AXES = {  # of each axis: cells of rows, size of bags, columns
    "rows": [(rows, 64, 30) for rows in (10_000, 100_000, 1_000_000, 10_000_000)],
    "bags": [(1_000_000, size, 30) for size in (4096, 512, 64, 8)],
    "columns": [(100_000, 64, columns) for columns in (10, 30, 100, 300)],
}
LONGEST = 1800.0  # seconds
USUAL = 1_000_000  # rows that tables lead with


SECTION = """## How cost grows

`python benchmarks/growth.py` measures and draws it: one fit per cell in a process of its own, one thread, numbers in
random bags, defaults of every model ({when}). Seconds are of computing, memory is what a fit holds beside the table
(double precision, 30 columns: 0.24 GB per million rows). First at {usual:,} rows of 30 columns in bags of 64, then for
the most rows that were tried. Slopes are those of the logarithms, between the two largest cells of an axis: 1 is
proportional, 0 no growth. Rows grow to 10,000,000 with bags of 64; bags from 245 to 125,000 on 1,000,000 rows;
columns from 10 to 300 on 100,000 rows.

| model | {usual:,} rows | most rows | seconds by rows | by bags | by columns | memory by rows | by bags | by columns |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{lines}

Bags that are not random take more of boosting (`benchmarks/boosting_cost.py`, {{doc}}`costs`).

{pictures}
"""


def measured(model: str, rows: int, size: int, columns: int) -> dict[str, Any]:
    """One fit, in this process."""
    from bagwise import aggregate, random_bags
    from bagwise.estimators import make

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    warm, ids = rng.normal(size=(2_000, columns)), random_bags(2_000, 8, random_state=0)
    y = (rng.random(2_000) < expit(warm[:, 0] - 1)).astype(float)
    make(model, random_state=0).fit(warm, aggregate(y, ids), bags=ids)  # what is imported is not measured

    X = rng.normal(size=(rows, columns))
    score = X[:, :5] @ np.array([1.0, -0.7, 0.5, 0.3, 0.2]) + 0.5 * X[:, 0] * X[:, 1] - 1
    ids = random_bags(rows, size, random_state=0)
    reported = aggregate((rng.random(rows) < expit(score)).astype(float), ids)
    del score
    before = held("VmRSS", anew=True)
    start = time.process_time()
    make(model, random_state=0).fit(X, reported, bags=ids)
    took = time.process_time() - start
    return {
        "seconds": round(took, 3),
        "gigabytes": round(held("VmHWM") - before, 3),
        "table_gigabytes": round(X.nbytes / 1e9, 4),
    }


def held(what: str, *, anew: bool = False) -> float:
    """Memory of this process as Linux tells it, in GB; anew: the most that is held counts from now on."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) * 1024 / 1e9


def slope(cells: list[dict[str, Any]], axis: str, value: str) -> float:
    """Of log seconds, or memory, by log rows, bags or columns, between the two largest."""
    first, last = cells[-2:]
    return float(np.log(max(last[value], 1e-3) / max(first[value], 1e-3)) / np.log(last[axis] / first[axis]))


def of_axis(stored: list[dict[str, Any]], model: str, axis: str) -> list[dict[str, Any]]:
    """What is stored of a model along an axis, the smallest first."""
    places = [cell_of(model, *cell) for cell in AXES[axis]]
    return sorted(
        (one for one in stored if {key: one[key] for key in places[0]} in places), key=lambda one: int(one[axis])
    )


def cell_of(model: str, rows: int, size: int, columns: int) -> dict[str, Any]:
    """What tells a fit from others."""
    return {"model": model, "rows": rows, "bags": -(-rows // size), "columns": columns}


def read() -> list[dict[str, Any]]:
    """All that is stored."""
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.is_file() else []


def store(fits: list[dict[str, Any]]) -> None:
    with replacing(STORED) as (temporary,):
        temporary.write_text(json.dumps(fits, indent=1) + "\n", encoding="utf-8")


def too_long(stored: list[dict[str, Any]], model: str, axis: str, cell: dict[str, Any]) -> bool:
    """Whether a fit would last, as those along its axis tell so far."""
    smaller = [one for one in of_axis(stored, model, axis) if one[axis] < cell[axis]]
    if len(smaller) < 2:
        return False
    growing = max(slope(smaller, axis, "seconds"), 0.0)
    return smaller[-1]["seconds"] * (cell[axis] / smaller[-1][axis]) ** growing > LONGEST


def measure(models: tuple[str, ...]) -> None:
    """Every fit in a process of its own, those that are stored replaced."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    for model in models:
        done: list[dict[str, Any]] = []
        for axis, cells in AXES.items():
            for place in cells:
                cell = cell_of(model, *place)
                if cell in [{key: one[key] for key in cell} for one in done]:
                    continue
                name = f"{model}: {cell['rows']:,} rows, {cell['bags']:,} bags, {cell['columns']} columns"
                if too_long(done, model, axis, cell):
                    print(f"{name}: left out, more than {LONGEST / 60:.0f} minutes", flush=True)
                    continue
                command = [sys.executable, __file__, "--one", model, *map(str, place)]
                told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
                done.append(cell | json.loads(told) | {"date": datetime.now(UTC).date().isoformat()})
                print(f"{name}: {done[-1]['seconds']:.2f} s, {done[-1]['gigabytes']:.2f} GB", flush=True)
                kept = [one for one in read() if {key: one[key] for key in cell} != cell]
                store([*kept, done[-1]])


def _short(value: float) -> str:
    """A power of ten as axes have room for it: 0.01, 10, 1 k, 10 M."""
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def draw(stored: list[dict[str, Any]]) -> None:
    """A figure per model: seconds above, memory below, against rows, bags and columns."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    from bagwise.plotting import BLUE, GREY, ORANGE, PAGE_STYLE

    for model in dict.fromkeys(one["model"] for one in stored):
        with mpl.rc_context(PAGE_STYLE):
            figure = Figure(figsize=(8, 4.2), layout="constrained")
            panels = figure.subplots(2, len(AXES), sharey="row")
            for column, axis in enumerate(AXES):
                fits = of_axis(stored, model, axis)
                places = [one[axis] for one in fits]
                for panel, value, colour in zip(
                    panels[:, column], ("seconds", "gigabytes"), (BLUE, ORANGE), strict=True
                ):
                    panel.plot(places, [max(one[value], 1e-3) for one in fits], "o-", color=colour, markersize=5)
                    panel.set(xscale="log", yscale="log")
                    for each in (panel.xaxis, panel.yaxis):
                        each.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
                        each.set_minor_formatter(NullFormatter())
                panels[1, column].plot(places, [one["table_gigabytes"] for one in fits], ":", color=GREY)
                panels[1, column].set_xlabel(axis)
            panels[0, 0].set_ylabel("seconds")
            panels[1, 0].set_ylabel("GB beside the table")
            figure.suptitle(f"{model} (dotted: the table itself)")
            figure.savefig(FIGURES / f"growth-{model}.svg", metadata={"Date": None})


def section(fits: list[dict[str, Any]]) -> str:
    """How the cost of each model grows, as a table and figures."""
    lines, pictures = [], []
    for model in dict.fromkeys(one["model"] for one in fits):
        of_axes = {axis: of_axis(fits, model, axis) for axis in AXES}
        middle = next(one for one in of_axes["rows"] if one["rows"] == USUAL)
        most = of_axes["rows"][-1]
        slopes = [
            " | ".join(f"{slope(cells, axis, value):.2f}" for axis, cells in of_axes.items())
            for value in ("seconds", "gigabytes")
        ]
        largest = f"{most['seconds']:,.0f} s, {most['gigabytes']:.1f} GB ({most['rows']:,})"
        lines.append(
            f"| {model} | {middle['seconds']:.1f} s, {middle['gigabytes']:.2f} GB | {largest} | {' | '.join(slopes)} |"
        )
        pictures.append(f"![What {model} costs by rows, bags and columns](figures/growth-{model}.svg)")
    dates = sorted({one["date"] for one in fits})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return SECTION.format(lines="\n".join(lines), pictures="\n\n".join(pictures), when=when, usual=USUAL)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["--one"]:
        print(json.dumps(measured(arguments[1], *map(int, arguments[2:]))))
    else:
        if arguments != ["--page"]:
            measure(tuple(arguments) or MODELS)
        draw(read())
