"""Do mixed bags help networks? Writes docs/results/mixing.json and the table of docs/choosing.md.

    python benchmarks/mixing.py          # about half an hour
    python benchmarks/mixing.py --page   # writes what is stored to the page again

A layer of 64 units on images: MNIST (the first 6,000 and all that are to be measured on), odd or even, in random bags
of 16 and in bags of 16 whose rates are drawn from [0.1, 0.9]; the ten digits of scikit-learn's 1,797 images in random
bags of 8. Five partitions; learning rate (of two) and epochs are chosen by held-out bags, never by labels of rows.
"Counts by share" takes the share of a bag's count for that of the rows taken from it, as MixBag does.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import bagwise as bw
from bagwise.experiments.bench.formations import bags_with_rates
from bagwise.gains import NoBetterThanConstantWarning
from bagwise.neural import BagNeuralClassifier
from bagwise.neural.mixing import Mixing, label_covariance
from bagwise.utils.files import replacing

DOCS = Path(__file__).parents[1] / "docs"
STORED, PAGE = DOCS / "results" / "mixing.json", DOCS / "choosing.md"
PARTITIONS = 5
CASES = (
    "MNIST, odd or even, random bags of 16",
    "the same, rates in [0.1, 0.9]",
    "digits, ten classes, random bags of 8",
)
WAYS = ("bags alone", "`mix_bags=1`", "counts by share")
Rows = tuple[Any, Any, Any, Any]


class ByShare(BagNeuralClassifier):
    """Counts of rows taken are their share of the bag's, without noise."""

    def _mixing(self, p):
        variance = label_covariance(p)
        return Mixing.of(float(self.mix_bags), variance, variance) if self.mix_bags else None


def rows_of(case: str, partition: int) -> tuple[Rows, Any]:
    """Rows to learn from and to measure on, with labels; and bags of the former."""
    rng = np.random.default_rng([partition, 20])
    if case.startswith("digits"):
        X, y = load_digits(return_X_y=True)
        order = rng.permutation(len(X))
        X, y = X[order] / 16, np.eye(10)[y[order]]
        return (X[:1200], y[:1200], X[1200:], y[1200:]), bw.random_bags(1200, size=8, random_state=rng)
    split = bw.datasets.mnist(rows=6000)
    X, y = split.X.reshape(6000, -1), split.y
    ids = bw.random_bags(6000, size=16, random_state=rng)
    if "rates" in case:
        ids = bags_with_rates(y, 16, 0.1, 0.9, random_state=rng)
    return (X, y.astype(float), split.X_test.reshape(len(split.X_test), -1), split.y_test.astype(float)), ids


def measured(case: str, way: str, partition: int) -> dict[str, Any]:
    """One fit, and how good it is of single rows."""
    (X, y, X_test, y_test), ids = rows_of(case, partition)
    kind = ByShare if way == WAYS[2] else BagNeuralClassifier
    model = kind(
        hidden=(64,), learning_rate=(1e-3, 3e-3), max_epochs=60, cv=3, batch_rows=256,
        formation="rates" if "rates" in case else "random", mix_bags=float(way != WAYS[0]), random_state=partition,
    )  # fmt: skip
    kept = ids >= 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoBetterThanConstantWarning)
        model.fit(X[kept], bw.aggregate(y[kept], ids[kept]), bags=ids[kept])
    h = model.predict_proba(X_test)
    truth = y_test if y_test.ndim == 2 else np.column_stack([1 - y_test, y_test])
    right = float((h.argmax(axis=1) == truth.argmax(axis=1)).mean())
    brier = float(((h - truth) ** 2).sum(axis=1).mean()) / (1 if y_test.ndim == 2 else 2)
    figures = {"accuracy": right, "brier": brier, "epochs": model.n_epochs_, "stretch": float(model.stretch_)}
    return {"case": case, "way": way, "partition": partition, **figures}


def table(lines: list[dict[str, Any]]) -> str:
    """Means over partitions, and by how much they differ from those of bags alone."""
    found = ["| network of 64 units, accuracy / Brier score | " + " | ".join(WAYS) + " |", "| --- | --- | --- | --- |"]
    for case in CASES:
        each = [
            np.array([[one["accuracy"], one["brier"]] for one in lines if (one["case"], one["way"]) == (case, way)])
            for way in WAYS
        ]
        cells = ["{:.3f} / {:.3f}".format(*each[0].mean(axis=0))]
        for other in each[1:]:
            d = other - each[0]
            error = d.std(axis=0, ddof=1) / np.sqrt(len(d))
            means = "{:.3f} / {:.3f}".format(*other.mean(axis=0))
            cells.append(f"{means} ({d[:, 0].mean():+.3f} ± {error[0]:.3f} / {d[:, 1].mean():+.3f} ± {error[1]:.3f})")
        found.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(found)


def main(arguments: list[str]) -> None:
    """Measure, and write what was found."""
    if arguments == ["--page"]:
        lines = json.loads(STORED.read_text())
    else:
        lines = []
        for case in CASES:
            for partition in range(PARTITIONS):
                for way in WAYS:
                    lines.append(measured(case, way, partition))
                    print(lines[-1], flush=True)
        with replacing(STORED) as (stored,):
            stored.write_text(json.dumps(lines, indent=1) + "\n")
    before, rest = PAGE.read_text().split("<!-- mixing -->")
    after = rest.split("<!-- /mixing -->")[1]
    with replacing(PAGE) as (page,):
        page.write_text(f"{before}<!-- mixing -->\n{table(lines)}\n<!-- /mixing -->{after}")


if __name__ == "__main__":
    main(sys.argv[1:])
