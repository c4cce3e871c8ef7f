"""Reports as they come against one exact table: 2,000,000 events, a logistic model, `tables.join` and `tables.fit`.

Three tables, by campaign and day with noise of ε = 1, by site with counts below 10 hidden, by country rounded to fives,
beside the counts by campaign and day alone, exact. Every fit is a process of its own, so that its peak memory is its
own. At most 4 × the computing of the single table, under 2 minutes and under 4 GB on two cores.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

import bagwise as bw
from history import record

ROWS, REPEATS = 2_000_000, 3
CAMPAIGNS, DAYS, SITES, COUNTRIES = 400, 45, 6_000, 60
EPSILON, LEAST_SHOWN, ROUNDED = 1.0, 10, 5


def generate(folder: Path, rows: int) -> None:
    """Events without labels; keys that are more and less frequent, and differ in features and in rates."""
    rng = np.random.default_rng(0)

    def key(levels: int, steep: float) -> np.ndarray:
        share = np.arange(1, levels + 1.0) ** -steep
        return rng.choice(levels, rows, p=share / share.sum()).astype(np.int32)

    campaign, site, country = key(CAMPAIGNS, 0.5), key(SITES, 0.4), key(COUNTRIES, 0.8)
    day, hour = rng.integers(0, DAYS, rows, dtype=np.int32), rng.integers(0, 24, rows, dtype=np.int32)
    X = rng.normal(size=(rows, 5)).astype(np.float32)
    X[:, 0] += rng.normal(scale=0.7, size=CAMPAIGNS)[campaign]
    X[:, 1] += rng.normal(scale=0.7, size=SITES)[site]
    X[:, 2] += rng.normal(scale=0.5, size=COUNTRIES)[country]
    device = rng.choice(4, rows, p=[0.5, 0.3, 0.15, 0.05])
    score = X @ np.array([0.6, -0.5, 0.4, 0.3, 0.0]) + np.array([0.0, 0.4, -0.3, 0.5])[device] - 3.3
    y = rng.random(rows) < expit(score + 0.3 * np.cos(hour * np.pi / 12))
    events = pd.DataFrame({"campaign": campaign, "day": day, "site": site, "country": country, "hour": hour})
    events["device"] = np.array(["phone", "desktop", "tablet", "tv"])[device]
    for number, column in enumerate(X.T):
        events[f"x{number}"] = column
    events.to_parquet(folder / "events.parquet", index=False)
    events["y"] = y.astype(int)

    def counts(*keys: str) -> pd.DataFrame:
        return events.groupby(list(keys))["y"].sum().rename("count").reset_index()

    exact = counts("campaign", "day")
    exact.to_parquet(folder / "exact.parquet", index=False)
    q = -np.expm1(-EPSILON)
    noised = exact.assign(count=exact["count"] + rng.geometric(q, len(exact)) - rng.geometric(q, len(exact)))
    noised.assign(epsilon=EPSILON).to_parquet(folder / "noised.parquet", index=False)
    by_site = counts("site")
    by_site["count"] = by_site["count"].where(by_site["count"] >= LEAST_SHOWN, -1).astype(str).replace("-1", "*")
    by_site.to_csv(folder / "hidden.csv", index=False)
    by_country = counts("country")
    nearest, half = (by_country["count"] / ROUNDED).round().astype(int) * ROUNDED, ROUNDED // 2
    least = np.maximum(nearest - half, 0).astype(str)
    by_country["count"] = [f"{low}-{high}" for low, high in zip(least, nearest + half, strict=True)]
    by_country.to_csv(folder / "rounded.csv", index=False)


CASES = {"one exact table": ["exact.parquet"], "three tables": ["noised.parquet", "hidden.csv", "rounded.csv"]}


def fit(folder: Path, case: str) -> dict[str, float]:
    """Seconds of the clock and of computing, and the most memory of this process, in gigabytes."""
    start, computing = time.perf_counter(), time.process_time()
    reports = [str(folder / name) for name in CASES[case]]
    given: dict = {"hidden": f"0-{LEAST_SHOWN - 1}"} if len(reports) > 1 else {"ignore": ["site", "country"]}
    data = bw.tables.join(str(folder / "events.parquet"), reports if len(reports) > 1 else reports[0], **given)
    joined = time.perf_counter()
    model = bw.tables.fit(data, "logistic", random_state=0)
    found = {"seconds": time.perf_counter() - start, "joining": joined - start}
    found |= {"computing": time.process_time() - computing}
    found |= {"gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}
    return found | {"bags": len(model.estimator.effects_)}


def main(rows: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder, rows)
        runs: dict[str, list[dict]] = {case: [] for case in CASES}
        for _ in range(REPEATS):
            for case in CASES:
                command = [sys.executable, __file__, "--fit", name, case]
                found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                runs[case].append(json.loads(found))
    print(f"{rows:,} events, best of {REPEATS} in turn:")
    best = {}
    for case, lines in runs.items():
        best[case] = one = {key: min(line[key] for line in lines) for key in ("seconds", "joining", "computing")}
        most = max(line["gigabytes"] for line in lines)
        print(
            f"  {case}: {lines[0]['bags']:,} bags, {one['seconds']:.1f} s ({one['joining']:.1f} s of these to join), "
            f"{one['computing']:.1f} s of computing, {most:.2f} GB"
        )
        record("reports", f"{case}, computing to two minutes", one["computing"] / 120, at_most=1)
        record("reports", f"{case}, memory to 4 GB", most / 4, at_most=1)
    single, three = best.values()
    seconds, ratio = (three[what] / single[what] for what in ("seconds", "computing"))
    print(f"  ratio: {ratio:.2f} of computing (at most 4), {seconds:.2f} of the clock's seconds")
    record("reports", "three tables to an exact one", ratio, at_most=4)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fit"]:
        print(json.dumps(fit(Path(sys.argv[2]), sys.argv[3])))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
