"""How often is the diagnosis right, and how often does it raise a false alarm? Writes docs/results/diagnosis.json and
the tables of docs/grouped.md.

Right verdicts: 200 tables of 100 bags of 64 rows and 10 columns for each formation, in one or several ways to come
about. False alarms: tables of random bags; anything that is called unusual is one, and nothing else makes a formation
other than random.
With words, only cases in whose names one of them occurs are computed anew; with --stored, none.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import binomtest

import bagwise as bw
from bagwise.diagnostics import Diagnosis, diagnose
from bagwise.utils.files import replacing

BAGS, SIZE, COLUMNS, TABLES, ALARM_TABLES = 100, 64, 10, 200, 300
DOCS = Path(__file__).parents[1] / "docs"
Made = tuple[pd.DataFrame | np.ndarray, np.ndarray, np.ndarray]


def score(X: np.ndarray) -> np.ndarray:
    return 1.2 * X[:, 0] - 0.8 * X[:, 1] + 0.5 * X[:, 2] - 0.7


def labels(rng: np.random.Generator, s: np.ndarray) -> np.ndarray:
    return (rng.random(len(s)) < expit(s)).astype(float)


IDS = np.repeat(np.arange(BAGS), SIZE)


def random(rng: np.random.Generator) -> Made:
    X = rng.normal(size=(len(IDS), COLUMNS))
    return X, labels(rng, score(X)), IDS


def mixed(low: float, high: float) -> Callable[[np.random.Generator], Made]:
    def make(rng: np.random.Generator) -> Made:
        pool = rng.normal(size=(8 * len(IDS), COLUMNS))
        y = labels(rng, score(pool))
        counts = rng.binomial(SIZE, rng.uniform(low, high, size=BAGS))
        ones, zeros = np.flatnonzero(y == 1)[: counts.sum()], np.flatnonzero(y == 0)[: len(IDS) - counts.sum()]
        taken, bags = np.concatenate([ones, zeros]), np.arange(BAGS)
        return pool[taken], y[taken], np.concatenate([np.repeat(bags, counts), np.repeat(bags, SIZE - counts)])

    return make


def by(key: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.random.Generator], Made]:
    """Bags of rows that are near each other in a function of the columns, which the label goes with."""

    def make(rng: np.random.Generator) -> Made:
        X = rng.normal(size=(len(IDS), COLUMNS))
        v = key(X)
        place = np.argsort(np.argsort(v + rng.normal(scale=0.5 * v.std(), size=len(v)))) // SIZE
        return X, labels(rng, score(X) + v - v.mean()), rng.permutation(BAGS)[place]

    return make


def moved(features: float, effects: float) -> Callable[[np.random.Generator], Made]:
    """Bags whose means of three columns, and whose log odds, differ by so much (standard deviations)."""

    def make(rng: np.random.Generator) -> Made:
        X = rng.normal(size=(len(IDS), COLUMNS))
        X[:, :3] += rng.normal(scale=features, size=(BAGS, 3))[IDS]
        return X, labels(rng, score(X) + rng.normal(scale=effects, size=BAGS)[IDS]), IDS

    return make


def drifting(rng: np.random.Generator) -> Made:
    X = rng.normal(size=(len(IDS), COLUMNS))
    X[:, 1] += np.linspace(-0.5, 0.5, len(IDS))
    return X, labels(rng, score(X)), IDS


def campaigns(rng: np.random.Generator) -> Made:
    """Random bags inside of ten campaigns, which differ in columns and in something unseen."""
    campaign = rng.permutation(np.arange(BAGS) % 10)
    X = rng.normal(size=(len(IDS), COLUMNS - 1)) + rng.normal(scale=0.5, size=(10, COLUMNS - 1))[campaign][IDS]
    y = labels(rng, score(X) + rng.normal(scale=0.7, size=10)[campaign][IDS])
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(COLUMNS - 1)])
    return frame.assign(campaign=np.array(list("abcdefghij"))[campaign][IDS]), y, IDS


def formation(name: str) -> Callable[[Diagnosis], bool]:
    return lambda found: found.formation.name == name


CASES: dict[str, tuple[Callable[[np.random.Generator], Made], Callable[[Diagnosis], bool], int]] = {
    "random": (random, lambda found: found.random, TABLES),
    "rates in [0.1, 0.6]": (mixed(0.1, 0.6), formation("rates"), TABLES),
    "rates in [0.25, 0.45]": (mixed(0.25, 0.45), formation("rates"), TABLES // 2),
    "features: sorted by x₀": (by(lambda X: X[:, 0]), formation("features"), TABLES // 4),
    "features: sorted by |x₀|": (by(lambda X: np.abs(X[:, 0])), formation("features"), TABLES // 4),
    "features: sorted by x₀·x₁": (by(lambda X: X[:, 0] * X[:, 1]), formation("features"), TABLES // 4),
    "features: means of three columns differ": (moved(0.5, 0.0), formation("features"), TABLES // 4),
    "effects of sd 0.5": (moved(0.0, 0.5), formation("effects"), TABLES // 4),
    "effects of sd 1": (moved(0.0, 1.0), formation("effects"), TABLES // 4),
    "effects of sd 0.7, and means differ": (moved(0.5, 0.7), formation("effects"), TABLES // 2),
    "a column drifts, random otherwise": (
        drifting,
        lambda found: bool(found.drifting) and found.random_apart,
        TABLES,
    ),
    "random inside campaigns": (campaigns, lambda found: found.strata == ("campaign",), TABLES),
}

ALARMS: dict[str, dict] = {
    "4 bags": {"bags": 4, "columns": 5},
    "10 bags": {"bags": 10, "columns": 5},
    "10 bags, 200 columns": {"bags": 10, "columns": 200, "tables": 60},
    "15 bags": {"bags": 15, "columns": 5},
    "20 bags, sizes of 2 to 600": {"bags": 20, "columns": 5, "uneven": True},
    "100 bags": {"bags": 100, "columns": 5},
    "100 bags, 200 columns": {"bags": 100, "columns": 200, "tables": 40},
    "100 bags, sizes of 2 to 600": {"bags": 100, "columns": 5, "uneven": True, "tables": 2000},
    "100 bags, noise of ε = ½": {"bags": 100, "columns": 5, "scale": 2.0},
    "100 bags, labels of 1%": {"bags": 100, "columns": 5, "prior": 0.01},
    "1,000 bags of 16": {"bags": 1000, "columns": 5, "size": 16, "tables": 60},
}
LEVELS = (0.01, 0.05)


def alarm_table(
    rng: np.random.Generator, *, bags: int, columns: int, size: int = SIZE, uneven: bool = False,
    scale: float = 0.0, prior: float = 0.35,
) -> tuple[np.ndarray, bw.Bags]:  # fmt: skip
    sizes = np.clip(rng.lognormal(np.log(size), 0.8, size=bags), 2, 600).astype(int) if uneven else np.full(bags, size)
    ids = np.repeat(np.arange(bags), sizes)
    X = rng.normal(size=(len(ids), columns))
    X[:, 2] = np.exp(2 * X[:, 2])  # a long tail
    X[:, 3] = X[:, 3] > 1.5  # and a rare category
    y = (rng.random(len(ids)) < prior * np.exp(0.5 * X[:, 0] - 0.125)).astype(float)
    reported = bw.aggregate(y, ids)
    if not scale:
        return X, bw.Bags.from_rows(reported, ids)
    noised = reported + (rng.laplace(scale=scale, size=bags) / sizes)[ids]
    return X, bw.Bags.from_rows(noised, ids, noise_variance=2 * scale**2)


def right_verdicts(wanted: Callable[[str], bool]) -> list[dict]:
    lines = []
    for number, (name, (make, right, tables)) in enumerate(CASES.items()):
        if not wanted(name):
            continue
        told: Counter[str] = Counter()
        good, seconds, ratios = 0, 0.0, []
        for table in range(tables):
            X, y, ids = make(np.random.default_rng([20, number, table]))
            reported, start = bw.aggregate(y, ids), time.perf_counter()
            # Drift and strata are told without a model.
            found = diagnose(X, reported, bags=ids, quick_model=make not in (drifting, campaigns))
            seconds += time.perf_counter() - start
            told[found.formation.name] += 1
            good += right(found)
            evidence = found.evidence
            ratios.append([evidence.features.ratio, evidence.proportions.ratio, evidence.given_proportions.ratio])
        median = [float(one) if np.isfinite(one) else None for one in np.median(ratios, axis=0)]
        lines.append({"case": name, "tables": tables, "right": good, "told": dict(told), "ratios": median})
        print(json.dumps({**lines[-1], "seconds": round(seconds / tables, 2)}, ensure_ascii=False), flush=True)
    return lines


def false_alarms(wanted: Callable[[str], bool]) -> list[dict]:
    lines = []
    for number, (name, given) in enumerate(ALARMS.items()):
        if not wanted(name):
            continue
        setting = dict(given)
        tables = setting.pop("tables", ALARM_TABLES)
        alarms = dict.fromkeys(LEVELS, 0)
        for table in range(tables):
            X, bags = alarm_table(np.random.default_rng([21, number, table]), **setting)
            found = diagnose(X, bags=bags, quick_model=False)  # which is asked only where bags are not random
            for level in LEVELS:
                alarms[level] += found.tests[0].p_value < level
        lines.append({"case": name, "tables": tables, "alarms": {str(one): int(alarms[one]) for one in LEVELS}})
        print(json.dumps(lines[-1], ensure_ascii=False), flush=True)
    return lines


def share(count: int, of: int) -> str:
    interval = binomtest(count, of).proportion_ci(0.95)
    return f"{100 * count / of:.1f}% [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def page(stored: dict) -> str:
    rows = [
        "| bags | tables | right verdicts | variation of the least likely column / proportions / column given these |",
        "| --- | --- | --- | --- |",
    ]
    for line in stored["right"]:
        ratios = " / ".join("–" if one is None else f"{one:.1f}" for one in line["ratios"])
        case = line["case"].replace("|", r"\|")
        rows.append(f"| {case} | {line['tables']} | {share(line['right'], line['tables'])} | {ratios} |")
    rows += ["", f"| random bags | tables | {' | '.join(f'alarms at {float(one):.0%}' for one in LEVELS)} |"]
    rows.append("| --- | --- | --- | --- |")
    for line in stored["alarms"]:
        told = " | ".join(share(line["alarms"][str(level)], line["tables"]) for level in LEVELS)
        rows.append(f"| {line['case']} | {line['tables']:,} | {told} |")
    return "\n".join(rows)


def main() -> None:
    results, text = DOCS / "results" / "diagnosis.json", DOCS / "grouped.md"
    words = sys.argv[1:]
    stored = json.loads(results.read_text()) if words else {"alarms": [], "right": []}
    made = {"alarms": (ALARMS, false_alarms), "right": (CASES, right_verdicts)}
    for kind, (cases, compute) in made.items():
        new = compute(lambda name: not words or any(word in name for word in words))
        known = {line["case"]: line for line in [*stored[kind], *new]}
        stored[kind] = [known[name] for name in cases]
    before, rest = text.read_text().split("<!-- diagnosis -->")
    after = rest.split("<!-- /diagnosis -->")[1]
    with replacing(results, text) as (facts, written):
        facts.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
        written.write_text(f"{before}<!-- diagnosis -->\n{page(stored)}\n<!-- /diagnosis -->{after}")
    print(f"Written: {results}, {text}")


if __name__ == "__main__":
    main()
