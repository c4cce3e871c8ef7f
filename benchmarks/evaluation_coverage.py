"""How often intervals of label-free metrics hold the truth, by formation, number of bags, size and model.

    python benchmarks/evaluation_coverage.py [trials] [file]

Rows have one feature x ~ N(0, 1) and labels of log odds 1.5 x + c; bags are drawn anew in every trial. The truth is
that of all rows. Writes one row per cell to docs/results/evaluation_coverage.parquet, and prints them; cells that the
file holds with as many trials stay.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, ndtri, softmax

from bagwise.bags import Bags
from bagwise.expectations import Expectations
from bagwise.metrics import METRICS, estimated, metrics

TRIALS = 1000
LEVEL = 0.95
RESULTS = Path(__file__).parents[1] / "docs" / "results" / "evaluation_coverage.parquet"
GRID = ndtri((np.arange(200_000) + 0.5) / 200_000)  # a mean over it integrates over rows
STEEP, CONCENTRATION = 1.5, 4.0  # of log odds by x; of the beta law that rates are drawn from
MODELS = {"good": 1.0, "overconfident": 3.0, "bad": -1.0}  # factors of the true log odds


@dataclass(frozen=True)
class Cell:
    """What is simulated."""

    formation: str = "random"
    m: int = 30
    k: int = 64
    model: str = "good"
    rate: float = 0.27
    epsilon: float | None = None
    unequal: bool = False
    classes: int = 2
    effect: float = 0.0
    hidden: int = 0  # counts below it are not shown


def cells() -> Iterator[Cell]:
    """Every formation, number of bags, size and model; then what else may differ."""
    for formation in ("random", "rates"):
        for m in (10, 30, 100):
            for k in (4, 64, 512):
                for model in MODELS:
                    yield Cell(formation, m, k, model)
    for formation in ("random", "rates"):
        for m in (10, 30, 100):
            base = Cell(formation, m)
            yield replace(base, unequal=True)
            yield replace(base, epsilon=0.5)
            yield replace(base, rate=0.01, k=512)
            yield replace(base, classes=3)
            yield replace(base, classes=10, m=max(m, 30))
    for m in (30, 100):
        for effect in (0.3, 1.0):
            yield Cell("effects", m, effect=effect)
    for formation in ("random", "rates"):
        for m in (30, 100):
            for model in MODELS:
                yield Cell(formation, m, model=model, hidden=15)
                yield Cell(formation, m, model=model, hidden=15, classes=3)


def log_odds(cell: Cell, x: np.ndarray) -> np.ndarray:
    """(n,) or (n, classes) true scores of rows."""
    if cell.classes > 2:
        places = np.linspace(-1.5, 1.5, cell.classes)
        return 1.5 * x[:, None] * places - places**2
    return STEEP * x + offset(cell.rate)


@lru_cache
def offset(rate: float) -> float:
    """The intercept that gives the mean label asked for."""
    low, high = -12.0, 12.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(STEEP * GRID + middle).mean() < rate else (low, middle)
    return middle


def predictions(cell: Cell, s: np.ndarray) -> np.ndarray:
    """What the model says, by a factor of the true log odds."""
    factor = MODELS[cell.model]
    return expit(factor * s) if s.ndim == 1 else softmax(factor * s, axis=1)


def truth(cell: Cell) -> dict[str, float]:
    """The metrics of all rows, labels integrated out."""
    s = log_odds(cell, GRID)
    eta, h = (expit(s) if s.ndim == 1 else softmax(s, axis=1)), predictions(cell, s)
    if s.ndim == 1:
        right = np.where(h > 0.5, eta, 1 - eta)
        brier, loss = eta * (1 - h) ** 2 + (1 - eta) * h**2, -(eta * np.log(h) + (1 - eta) * np.log1p(-h))
        area = _area(eta, h)
    else:
        right = eta[np.arange(len(eta)), h.argmax(axis=1)]
        brier, loss = (h**2).sum(axis=1) + 1 - 2 * (eta * h).sum(axis=1), -(eta * np.log(h)).sum(axis=1)
        area = float(np.mean([_area(eta[:, c], h[:, c]) for c in range(cell.classes)]))
    return {"accuracy": right.mean(), "brier": brier.mean(), "log_loss": loss.mean(), "auc": area}


def _area(eta: np.ndarray, h: np.ndarray) -> float:
    _, level, counts = np.unique(h.round(12), return_inverse=True, return_counts=True)
    place, p = ((np.cumsum(counts) - counts / 2) / len(h))[level], eta.mean()
    return float(((eta * place).mean() - p**2 / 2) / (p * (1 - p)))


def chosen(shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One class for each row of probabilities."""
    above = rng.random(len(shares))[:, None] > np.cumsum(shares, axis=1)
    return np.minimum(above.sum(axis=1), shares.shape[1] - 1)


def draw(cell: Cell, rng: np.random.Generator) -> tuple[np.ndarray, Bags]:
    """Predictions of rows in bags, and the bags."""
    spread = rng.lognormal(np.log(cell.k) - 0.32, 0.8, cell.m) if cell.unequal else np.full(cell.m, cell.k)
    size = np.maximum(spread.astype(int), 2)
    ids = np.repeat(np.arange(cell.m), size)
    if cell.formation == "rates":
        s_all = log_odds(cell, GRID)
        shares = np.column_stack([1 - expit(s_all), expit(s_all)]) if s_all.ndim == 1 else softmax(s_all, axis=1)
        p = shares.mean(axis=0)
        concentration = max(CONCENTRATION, 1 / p.min()) if cell.classes == 2 else CONCENTRATION
        y = chosen(rng.dirichlet(p * concentration, cell.m)[ids], rng)
        s = np.empty((len(ids), *s_all.shape[1:]))
        for c in range(len(p)):  # features of each label, the same in all bags
            among = np.searchsorted(np.cumsum(shares[:, c]) / shares[:, c].sum(), rng.random((y == c).sum()))
            s[y == c] = s_all[among]
    else:
        s = log_odds(cell, rng.normal(size=len(ids)))
        moved = s + cell.effect * rng.normal(size=cell.m)[ids] if cell.effect else s
        y = (rng.random(len(ids)) < expit(moved)).astype(int) if s.ndim == 1 else chosen(softmax(s, axis=1), rng)
    bags = Bags.from_rows(np.zeros(len(ids)), ids)
    outputs = y.astype(float) if cell.classes == 2 else np.eye(cell.classes)[y]
    count, noise = bags.sum(outputs), None
    if cell.epsilon is not None:
        count = count + rng.laplace(scale=1 / cell.epsilon, size=count.shape)
        noise = np.full(cell.m, 2 / cell.epsilon**2)
    proportion = count / (size if count.ndim == 1 else size[:, None])
    reported = replace(bags, proportion=proportion, noise_variance=noise)
    if cell.hidden:
        secret = count < cell.hidden
        reported = reported.with_intervals(np.where(secret, 0, count), np.where(secret, cell.hidden - 1, count))
    return predictions(cell, s), reported


def covered(cell: Cell, trials: int, seed: int) -> dict[str, float]:
    """How often the interval of each metric holds the truth, and how wide it is in the middle."""
    rng, right = np.random.default_rng(seed), truth(cell)
    held: dict[str, list[tuple[bool, float, float]]] = {name: [] for name in METRICS}
    for _ in range(trials):
        rows = Expectations(*draw(cell, rng), by_slope=cell.formation == "rates")
        with np.errstate(all="ignore"):
            found = metrics(rows)
        for name, one in found.items():
            interval = estimated(*one, LEVEL, positive=name == "log_loss")
            inside = interval.low <= right[name] <= interval.high
            held[name].append((inside, interval.high - interval.low, interval.value - right[name]))
    result = {}
    for name, told in held.items():
        result[name] = float(np.mean([one[0] for one in told])) if told else np.nan
        result[f"{name}_width"] = float(np.median([one[1] for one in told])) if told else np.nan
        result[f"{name}_error"] = float(np.median(np.abs([one[2] for one in told]))) if told else np.nan
    return result


def trials_of(cell: Cell, trials: int) -> int:
    """Half as many of large bags."""
    return trials if cell.k < 512 else max(trials // 2, 1)


def cell_of(row: dict[str, Any]) -> Cell:
    """The cell that a stored row is of; a field that it lacks is as it was when there was no other."""
    given = {one.name: row.get(one.name, one.default) for one in fields(Cell)}
    return Cell(**(given | {"epsilon": None if pd.isna(given["epsilon"]) else given["epsilon"]}))


def main() -> None:
    """Simulate every cell; each is written when it is done."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else RESULTS
    stored = pd.read_parquet(out).astype({"epsilon": object}).to_dict("records") if out.is_file() else []
    held = {cell_of(row): row for row in stored if row["trials"] == trials_of(cell_of(row), trials)}
    rows = []
    for seed, cell in enumerate(cells()):
        number = trials_of(cell, trials)
        found = {**(held.get(cell) or covered(cell, number, seed)), **vars(cell), "trials": number}
        rows.append(found)
        if cell not in held:
            print(cell, {name: round(found[name], 3) for name in METRICS}, flush=True)
        pd.DataFrame(rows).to_parquet(out)
        out.with_suffix(".md").write_text(table(rows), encoding="utf-8")


def table(rows: list[dict[str, Any]]) -> str:
    """The cells as Markdown."""
    lines = ["| formation | bags | rows | model | other | accuracy | Brier | log loss | AUC | trials |"]
    lines.append("| --- | ---: | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        other = {
            "unequal sizes": row["unequal"],
            f"ε = {row['epsilon']}": row["epsilon"] is not None,
            f"p = {row['rate']}": row["rate"] != Cell.rate,
            f"{row['classes']} classes": row["classes"] != Cell.classes,
            f"effects of sd {row['effect']}": row["effect"],
            f"counts below {row['hidden']} hidden": row["hidden"],
        }
        told = ", ".join(name for name, is_so in other.items() if is_so)
        shares = " | ".join(f"{row[name]:.3f}" for name in METRICS)
        what = f"{row['formation']} | {row['m']} | {row['k']} | {row['model']} | {told}"
        lines.append(f"| {what} | {shares} | {row['trials']:,} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
