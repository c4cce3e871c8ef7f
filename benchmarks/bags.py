"""Indexing ten million rows into bags, against sorting their ids, which the usual grouping begins with."""

import time

import numpy as np

import bagwise as bw
from bagwise.bags import Bags
from history import record

ROWS, SIZE = 10_000_000, 64


def seconds(run: object) -> float:
    start = time.perf_counter()
    run()  # type: ignore[operator]
    return time.perf_counter() - start


def main() -> None:
    ids = bw.random_bags(ROWS, SIZE, random_state=0)
    y = np.zeros(ROWS)
    sparse = ids * 1_000_003
    names = np.char.add("campaign-", np.arange(ids.max() + 1).astype(str)).astype(object)[ids]
    sort = seconds(lambda: np.argsort(ids, kind="stable"))
    print(f"{ROWS:,} rows in scattered bags of {SIZE}; sorting the ids takes {sort:.2f} s")
    for label, column in (("whole numbers", ids), ("numbers far apart", sparse), ("strings", names)):
        taken = seconds(lambda column=column: Bags.from_rows(y, column))
        print(f"  {label:<20}{taken:6.2f} s, {taken / sort:.1f} times the sort")
        record("bags", f"{label}, to a sort of the ids", taken / sort)


if __name__ == "__main__":
    main()
