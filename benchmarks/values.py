"""How well regressors know a purchase log from sums of bags. Writes docs/results/values.json, docs/values.md.

Of 20,000 visits in 800 bags, 9 of 10 are worth nothing. All fits have default parameters but the network, which has two
learning rates to choose from; none is told a value of a single row, where bags have more than one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import bagwise as bw
from bagwise.utils.files import replacing

DOCS = Path(__file__).parents[1] / "docs"
SIZE, BAGS, NEW = 25, 800, 40_000
CASES = {
    "random": "random",
    "single": "one row per bag",
    "features": "grouped by features",
    "effects": "random, with effects of bags",
}
MODELS = {
    "ridge": lambda: bw.BagRidgeRegressor(random_state=0),
    "tweedie": lambda: bw.BagTweedieRegressor(random_state=0),
    "boosting, as they are": lambda: bw.BagBoostingRegressor(link="identity", n_jobs=1, random_state=0),
    "boosting, logarithms": lambda: bw.BagBoostingRegressor(link="log", n_jobs=1, random_state=0),
    "network": lambda: bw.BagNeuralRegressor(learning_rate=(0.003, 0.01), cv=2, max_epochs=30, random_state=0),
}
SLOW_ON_SINGLE_ROWS = ("boosting, as they are", "boosting, logarithms")


def visits(rng, n):
    """Visits, the expected value of each, and its value."""
    past, desktop, hour = rng.poisson(1.5, n), rng.random(n) < 0.4, rng.uniform(0, 24, n)
    chance = 1 / (1 + np.exp(3.7 - 0.7 * past - 0.6 * desktop))
    typical = np.exp(2.2 + 0.8 * desktop + 0.4 * np.sin(hour * np.pi / 12))
    value = (rng.random(n) < chance) * typical * rng.gamma(2.0, 0.5, n)
    return pd.DataFrame({"past": past, "desktop": desktop.astype(float), "hour": hour}), chance * typical, value


def in_bags(case, X, value, rng):
    """The bags of a case; effects are factors of mean 1."""
    n = len(X)
    ids = np.arange(n) // SIZE if case != "single" else np.arange(n)
    if case == "features":
        ids[np.lexsort((X.hour // 2, X.desktop, X.past))] = np.arange(n) // SIZE
    if case == "effects":
        value = value * rng.gamma(4, 0.25, BAGS)[ids]
    return bw.Bags.from_rows(bw.aggregate(value, ids), ids)


def far(model, X, expected):
    """Mean square distance of predictions from E[value given x], over its variance."""
    return float(np.mean((model.predict(X) - expected) ** 2) / expected.var())


def main(logs: int) -> None:
    """Fit everything to so many logs."""
    new, expected, _ = visits(np.random.default_rng(10_000), NEW)
    found = {case: {name: [] for name in MODELS} for case in CASES}
    for seed in range(logs):
        for case in CASES:
            rng = np.random.default_rng(seed)
            X, _, value = visits(rng, SIZE * BAGS)
            bags = in_bags(case, X, value, rng)
            for name, make in MODELS.items():
                if case != "single" or name not in SLOW_ON_SINGLE_ROWS:
                    found[case][name].append(far(make().fit(X, bags=bags), new, expected))
            print(seed, case, {name: round(each[-1], 3) for name, each in found[case].items() if each}, flush=True)
    with replacing(DOCS / "results" / "values.json") as (path,):
        path.write_text(json.dumps({"logs": logs, "found": found}, indent=1) + "\n")
    write_table()


def write_table() -> None:
    """The table between its marks in docs/values.md."""
    stored = json.loads((DOCS / "results" / "values.json").read_text())
    lines = ["| bags | " + " | ".join(MODELS) + " |", "| --- |" + " --- |" * len(MODELS)]
    for case, title in CASES.items():
        cells = [_cell(stored["found"][case][name]) for name in MODELS]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    page = (DOCS / "values.md").read_text()
    start, end = "<!-- benchmarks/values.py -->\n", "<!-- end -->\n"
    head, rest = page.split(start)
    with replacing(DOCS / "values.md") as (path,):
        path.write_text(head + start + "\n" + "\n".join(lines) + "\n\n" + end + rest.split(end)[1])


def _cell(each) -> str:
    if not each:
        return "–"
    return f"{np.mean(each):.2f} ± {np.std(each, ddof=1) / np.sqrt(len(each)):.2f}"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
