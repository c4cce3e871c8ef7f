"""Does the default command end? `bagwise fit` on Criteo's 80,000 rows in one bag per campaign and day, by time budget.

27 columns: 13 counts, 9 columns of text with up to 35,000 values, 2 times, an id that is different in every row, and
the two keys. Seconds are those of the whole command over its budget: 1.1 and one cheap fit are what auto may take;
reading, measuring and saving come on top.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from bagwise import datasets
from history import record

BUDGETS = (60, 15)
CAMPAIGN, TEXTS = "C25", ("C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9")


def write_tables(folder: Path) -> None:
    """Rows are in the order of time; they are spread over a week."""
    split = datasets.criteo()
    rows = pd.concat([split.X, split.X_test], ignore_index=True)
    moment = pd.Timestamp("2026-03-01") + pd.to_timedelta(np.arange(len(rows)) * 7 * 86_400 // len(rows), unit="s")
    days = np.random.default_rng(0).integers(0, 400, len(rows))
    events = rows[[f"I{number}" for number in range(1, 14)]].assign(
        **{name: "v" + rows[name].astype(str) for name in TEXTS},
        seen=moment,
        updated=moment.normalize() - pd.to_timedelta(days, unit="D"),
        impression=[f"{number * 2_654_435_761 % 2**32:08x}" for number in range(len(rows))],
        campaign=rows[CAMPAIGN].astype(str),
        day=moment.strftime("%Y-%m-%d"),
    )
    labels = events[["campaign", "day"]].assign(y=np.concatenate([split.y, split.y_test]))
    reports = labels.groupby(["campaign", "day"])["y"].agg(["size", "sum"]).reset_index()
    events.to_parquet(folder / "events.parquet", index=False)
    reports.rename(columns={"sum": "count"}).to_parquet(folder / "reports.parquet", index=False)


def main(budgets: tuple[int, ...]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        for budget in budgets:
            began = time.perf_counter()
            command = ["fit", "events.parquet", "reports.parquet", "--out", f"model-{budget}", "--json"]
            told = subprocess.run(
                [sys.executable, "-m", "bagwise", *command, "--time-budget", str(budget)],
                cwd=folder,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            facts = json.loads(told)
            ratio = (time.perf_counter() - began) / budget
            print(f"budget {budget} s: {ratio:.2f} times that; {facts['estimator']}")
            record("auto_budget", f"the whole command to {budget} s", ratio, at_most=1.1)
            print(*(f"  {trial['candidate']}: {trial['note'] or 'tried'}" for trial in facts["trials"]), sep="\n")


if __name__ == "__main__":
    main(tuple(int(one) for one in sys.argv[1:]) or BUDGETS)
