"""Do two tables of reports teach more than the better one of them? On Criteo; writes docs/results/two_tables.json.

Of 80,000 rows in the order of time, each fifth is held out in turn; the others are reported twice: by C18, of 2,224
values, which stands for a campaign, and by C11, of 3,529, which stands for a site; neither nearly tells the other.
Values of fewer than 20 rows are one bag of all others, so that no report is about few people. Models read the 13
counts, as logarithms, and the eight categories of at most 64 values, not the keys: they shall score campaigns and sites
to come, as `bagwise fit` has it. Labels of rows held out are for measuring alone.

`python benchmarks/two_tables.py [model …]` computes what is not stored yet and writes the table of docs/reports.md.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss, roc_auc_score

import bagwise as bw
from bagwise import datasets
from bagwise.tables.bag_table import BagTable
from bagwise.utils.files import replacing

DOCS = Path(__file__).parents[1] / "docs"
KEYS, FOLDS, LEAST_ROWS, MOST_VALUES = {"campaign": "C18", "site": "C11"}, 5, 20, 64
MODELS = ("logistic", "boosting")
REPORTED = {"by campaign": ["campaign"], "by site": ["site"], "both": ["campaign", "site"]}
MARK = "two tables"


def events() -> tuple[pd.DataFrame, np.ndarray]:
    """Features and keys of all rows, and their labels."""
    split = datasets.criteo()
    X = pd.concat([split.X, split.X_test], ignore_index=True)
    counts = X.select_dtypes("number")
    found = np.sign(counts) * np.log1p(counts.abs())
    for name in X.columns.drop(counts.columns):
        if X[name].nunique() <= MOST_VALUES:
            found[name] = "v" + X[name].astype(str)
    for key, name in KEYS.items():
        found[key] = X[name].astype(str)
    return found, np.concatenate([split.y, split.y_test])


def joined(rows: pd.DataFrame, y: np.ndarray, keys: list[str]) -> BagTable:
    """The rows and their reports by each of the keys."""
    rows, reports = rows.copy(), []
    for key in KEYS:
        many = rows[key].map(rows[key].value_counts())
        rows[key] = rows[key].where(many >= LEAST_ROWS, "others")
    for key in keys:
        counts = pd.Series(y).groupby(rows[key].to_numpy()).sum()
        reports.append(pd.DataFrame({key: counts.index, "count": counts.to_numpy()}))
    events = rows.drop(columns=[key for key in KEYS if key not in keys])
    return bw.tables.join(events, reports if len(reports) > 1 else reports[0])


def measured(model: str, case: str, fold: int) -> dict:
    rows, y = events()
    held_out = np.arange(len(y)) * FOLDS // len(y) == fold
    start = time.perf_counter()
    data = joined(rows[~held_out].reset_index(drop=True), y[~held_out], REPORTED[case])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fitted = bw.tables.fit(data, model, random_state=0)
    table = bw.tables.read(rows[held_out].drop(columns=list(KEYS)), data.connection, what="rows held out")
    h = np.concatenate([batch.column("prediction").to_numpy() for batch in fitted.score(table, keep=[])])
    told = {
        "auc": roc_auc_score(y[held_out], h),
        "log_loss": log_loss(y[held_out], h),
        "brier": np.mean((h - y[held_out]) ** 2),
    }
    told = {name: float(value) for name, value in told.items()}
    bags = sum(one.summary.bags for one in (data, *data.others))
    formation = fitted.estimator.formation_.name
    return {
        "model": model, "reports": case, "fold": fold, **told, "bags": bags, "formation": formation,
        "seconds": round(time.perf_counter() - start, 1),
    }  # fmt: skip


def page(lines: list[dict]) -> str:
    """Means over folds, and by how much two tables are better than the better one, by log loss on average."""
    frame = pd.DataFrame(lines)
    rows = ["| model | reports | bags | AUC | log loss | Brier score |", "| --- | --- | --- | --- | --- | --- |"]
    for model in MODELS:
        own = {
            case: frame[(frame["model"] == model) & (frame["reports"] == case)].set_index("fold") for case in REPORTED
        }
        for case, one in own.items():
            figures = " | ".join(f"{one[name].mean():.4f}" for name in ("auc", "log_loss", "brier"))
            rows.append(f"| {model} | {case} | {one['bags'].mean():,.0f} | {figures} |")
        better = min(("by campaign", "by site"), key=lambda case: own[case]["log_loss"].mean())
        told = []
        for name, sign in (("auc", 1), ("log_loss", -1), ("brier", -1)):
            gain = sign * (own["both"][name] - own[better][name])
            error = gain.std(ddof=1) / np.sqrt(len(gain))
            told.append(f"{gain.mean():+.4f} ± {error:.4f}, better in {(gain > 0).sum()} of {len(gain)}")
        rows.append(f"| | *both, to {better.removeprefix('by ')}s alone* | | {' | '.join(told)} |")
    return "\n".join(rows)


def main() -> None:
    results, text = DOCS / "results" / "two_tables.json", DOCS / "reports.md"
    lines = json.loads(results.read_text()) if results.is_file() else []
    known = {(line["model"], line["reports"], line["fold"]) for line in lines}
    for model in sys.argv[1:] or MODELS:
        for fold in range(FOLDS):
            for case in REPORTED:
                if (model, case, fold) in known:
                    continue
                found = measured(model, case, fold)
                print(json.dumps(found), flush=True)
                lines = [*(json.loads(results.read_text()) if results.is_file() else []), found]
                with replacing(results) as (facts,):
                    facts.write_text(json.dumps(lines, indent=1) + "\n")
    if len({(line["model"], line["reports"], line["fold"]) for line in lines}) < len(MODELS) * len(REPORTED) * FOLDS:
        return
    before, rest = text.read_text().split(f"<!-- {MARK} -->")
    after = rest.split(f"<!-- /{MARK} -->")[1]
    with replacing(text) as (written,):
        written.write_text(f"{before}<!-- {MARK} -->\n{page(lines)}\n<!-- /{MARK} -->{after}")
    print(page(lines), f"\nWritten: {results}, {text}")


if __name__ == "__main__":
    sys.exit(main())
