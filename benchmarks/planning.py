"""Does training on private bags of Adult keep within what a plan expected? Writes docs/results/planning.json
and the table of docs/planning.md.

The plan sees the 32,561 training rows only: the bound for what is expected of a linear model, and a pilot that puts
seven tenths of them in bags and measures on the rest. Then the rows are released with noise, for good, and the model is
measured on the test rows, which the plan has not seen.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import bagwise as bw
from bagwise import planning, tables
from bagwise.planning.figure import plan_figure
from bagwise.theory import Setting, expected_regret
from bagwise.utils.files import replacing

SIZES, EPSILON, RELEASES, MODEL = (64, 256), 1.0, 5, "ridge"
DOCS = Path(__file__).parents[1] / "docs"


def measured(model: tables.TableModel, frame, y) -> tuple[float, float]:
    connection = tables.connect()
    rows = tables.read(frame.assign(label=y), connection, what="test rows")
    parts = [(b.column("label").to_numpy(), b.column("prediction").to_numpy())
             for b in model.score(rows, connection, keep=["label"])]  # fmt: skip
    truth, h = (np.concatenate(part) for part in zip(*parts, strict=True))
    return float(((h > 0.5) == truth).mean()), float(((h - truth) ** 2).mean())


def learned(train, *, size: int, epsilon: float | None, seed: int) -> tables.TableModel:
    with tempfile.TemporaryDirectory() as folder:
        held = tables.put_in_bags(
            train,
            folder,
            label="label",
            size=size,
            min_size=1,
            epsilon=epsilon,
            random_state=seed if epsilon is None else None,
        )
        return tables.fit(tables.join(str(held.events), str(held.reports)), MODEL, random_state=seed)


def table(lines: list[dict]) -> str:
    head = "| k | accuracy the pilot expected | accuracy of releases (mean; all) "
    head += "| regret expected without a penalty | regret |"
    rows = [
        f"| {line['k']} | {line['pilot'][0]:.3f} [{line['pilot'][1]:.3f}, {line['pilot'][2]:.3f}] "
        f"| {line['accuracy']:.3f} ({', '.join(f'{a:.3f}' for a in line['accuracies'])}) "
        f"| {line['expected_regret']:.3f} | {line['regret']:.3f} |"
        for line in lines
    ]
    return "\n".join([head, "| --- | --- | --- | --- | --- |", *rows])


def main() -> None:
    data = bw.datasets.adult()
    train = data.X.assign(label=data.y)
    expected = planning.pilot(train, label="label", sizes=SIZES, epsilons=(EPSILON,), model=MODEL, repetitions=10)
    _, best = measured(learned(train, size=1, epsilon=None, seed=0), data.X_test, data.y_test)
    prior, columns = float(data.y.mean()), bw.datasets.adult(encoded=True).X.shape[1]
    lines = []
    for line in expected.to_dict("records"):
        k = int(line["k"])
        runs = np.array([
            measured(learned(train, size=k, epsilon=EPSILON, seed=seed), data.X_test, data.y_test)
            for seed in range(RELEASES)
        ])  # fmt: skip
        setting = Setting(size=k, epsilon=EPSILON, prior=prior, parameters=columns)
        lines.append({
            "k": k, "epsilon": EPSILON, "releases": RELEASES,
            "pilot": [line[name] for name in ("accuracy", "accuracy_low", "accuracy_high")],
            "accuracy": runs[:, 0].mean(), "accuracies": sorted(runs[:, 0]),
            "expected_regret": expected_regret(setting, len(train) // k), "regret": runs[:, 1].mean() - best,
        })  # fmt: skip
        print(json.dumps(lines[-1], default=float))
        sys.stdout.flush()
    question = planning.Question(rows=1_000_000, epsilons=(1.0, 0.1), regret=0.01, hypotheses=2)
    page = DOCS / "planning.md"
    place, picture = DOCS / "results" / "planning.json", DOCS / "figures" / "plan.png"
    before, rest = page.read_text().split("<!-- measured -->")
    after = rest.split("<!-- /measured -->")[1]
    with replacing(place, picture, page) as (facts, figure, text):
        facts.write_text(json.dumps(lines, indent=1, default=float) + "\n")
        text.write_text(f"{before}<!-- measured -->\n{table(lines)}\n<!-- /measured -->{after}")
        plan_figure(planning.curves(question), regret=0.01).savefig(figure, dpi=150)
    print(f"Written: {place}, {picture}")


if __name__ == "__main__":
    main()
