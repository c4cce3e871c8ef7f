"""What `bagwise demo` prints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bagwise.demo.walkthrough import CEILING, CONSTANT, RIDGE, DemoResult
from bagwise.evaluation import Estimate


def story(result: DemoResult) -> Iterator[str]:
    """What happened, in short lines."""
    (constant,), (ceiling,) = result.of(CONSTANT), result.of(CEILING)
    (ridge,) = (row for row in result.of(RIDGE) if row.size == result.size)
    yield f"A simulated advertising log: {result.impressions:,} impressions, {result.prior:.1%} of them converted."
    yield f"Conversions are reported for {result.bags:,} bags of {result.size} impressions, never for one alone."
    yield f"The diagnosis finds the bags {result.verdict}."
    yield f"A linear model learned from the bags is right on {ridge.accuracy:.1%} of the impressions it has not seen;"
    yield f"from held-out bags, without any label, that was estimated as {_percent(ridge.estimated_accuracy)}."
    yield f"Always guessing the same: {constant.accuracy:.1%}. Learning from individual labels: {ceiling.accuracy:.1%}."
    yield f"Knowing every true probability: {result.best_accuracy:.1%}."


def table(result: DemoResult) -> Table:
    """Each method's truth and, beside it, the estimate from held-out bags with its 95% interval."""
    view = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    view.add_column("bag size", justify="right")
    view.add_column("method", no_wrap=True)
    for loss in ("accuracy", "Brier"):
        view.add_column(loss, justify="right")
        view.add_column("label-free", justify="right", no_wrap=True)
    for row, following in zip_longest(result.rows, result.rows[1:]):
        view.add_row(
            "any" if row.size is None else str(row.size),
            row.method,
            f"{row.accuracy:.3f}",
            _number(row.estimated_accuracy),
            f"{row.brier:.3f}",
            _number(row.estimated_brier),
            end_section=following is not None and following.size != row.size,
        )
    return view


def after(folder: Path) -> Iterator[str]:
    """How to read the table, where the files are, and what to do next."""
    yield "label-free: estimated from held-out bags, ± 95% interval; beside it the truth, which only a simulation knows"
    yield ""
    yield f"Written to {folder}: events.parquet (features and bag, no labels), reports.parquet, demo.png"
    yield ""
    events, reports, model = (folder / name for name in ("events.parquet", "reports.parquet", "model"))
    yield "Next, learn from the two tables yourself:"
    yield ""
    yield f"    bagwise diagnose {events} {reports}"
    yield f"    bagwise fit {events} {reports} --model boosting --out {model}"
    yield f"    bagwise evaluate {model}"
    yield f"    bagwise predict {model} {events} --out {folder / 'scored.parquet'}"
    yield ""
    yield "or in Python:"
    yield ""
    yield "    import bagwise as bw, pandas as pd"
    yield f"    events = pd.read_parquet({str(events)!r})"
    yield f"    reports = pd.read_parquet({str(reports)!r})"
    yield '    bags = bw.Bags.from_reports(events.pop("bag"), reports, count="count", size="size")'
    yield "    X = pd.get_dummies(events, dtype=float)"
    yield "    model = bw.BagRidgeClassifier().fit(X, bags=bags)"
    yield "    model.predict_proba(X)  # one probability per impression"
    yield ""
    yield "Or see in a simulation what the size of bags does to the losses: bagwise reproduce variance"


def _number(estimate: Estimate | None) -> str:
    return "" if estimate is None else f"{estimate.value:.3f} ± {(estimate.high - estimate.low) / 2:.3f}"


def _percent(estimate: Estimate | None) -> str:
    return "" if estimate is None else f"{estimate.value:.1%} ± {(estimate.high - estimate.low) / 2:.1%}"
