"""What a model reaches when a table with labels is actually put in bags."""

from collections.abc import Callable, Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.random import Generator
from scipy import stats

from bagwise.bags import random_bags
from bagwise.privacy import release
from bagwise.tables import connect, fit, join, read
from bagwise.tables.publish import classes_of
from bagwise.tables.table import col
from bagwise.theory.reported import Cells
from bagwise.utils.parameters import LEVEL, check_parameters, whole
from bagwise.utils.typing import Integers

_KEY, _TRUTH = "bag of the pilot", "label of the pilot"


def pilot(
    source: Any,
    *,
    label: str,
    sizes: Sequence[int],
    epsilons: Sequence[float | None] = (None,),
    positive: str | None = None,
    model: str = "ridge",
    repetitions: int = 5,
    held_out: float = 0.3,
    level: float = 0.9,
    random_state: int = 0,
    cells: Cells | None = None,
    progress: Callable[..., None] | None = None,
) -> pd.DataFrame:
    """What a model reaches at each bag size and ε, by actual re-bagging of a table with labels.

    Parameters
    ----------
    source
        Anything that `tables.read` takes.
    label, positive : str
        As in `tables.put_in_bags`; two classes.
    sizes : sequence of int
        Bag sizes to try.
    epsilons : sequence of float or None
        Of the noise on counts, None for none.
    model : str
        As in `tables.fit`.
    repetitions : int
        New splits and new bags, at least 2, to tell how results scatter.
    held_out : float
        Share of the rows to measure on, by their labels.
    level : float
        Of the intervals, in which the next run falls with so much confidence (Student's t).
    random_state : int
        For splits, bags and models; noise comes from OpenDP and is new every time.
    cells : Cells, optional
        How counts are hidden, rounded or clamped, noised ones after the noise.
    progress : callable, optional
        Called with steps done, steps in all and what is going on.

    Returns
    -------
    DataFrame
        One line per ε and size, with the columns epsilon (missing: no noise), k, bags, runs, accuracy, accuracy_low,
        accuracy_high, brier, brier_low and brier_high.
    """
    given = {"repetitions": repetitions, "held_out": held_out, "level": level}
    check_parameters(given, {"repetitions": whole(2), "held_out": LEVEL, "level": LEVEL})
    frame, y = _labelled(source, label, positive)
    train_rows = len(frame) - int(held_out * len(frame))
    if too_large := [k for k in sizes if 2 * k > train_rows]:
        raise ValueError(f"the pilot has {train_rows:,} rows to learn from: bags of {too_large[0]:,} are too large.")
    cases, lines = [(epsilon, k) for epsilon in epsilons for k in sizes], []
    for case, (epsilon, k) in enumerate(cases):
        runs = []
        for repetition in range(repetitions):
            if progress is not None:
                text = f"pilot: bags of {k}, run {repetition + 1} of {repetitions}"
                progress(case * repetitions + repetition, len(cases) * repetitions, text)
            seed = np.random.SeedSequence(random_state, spawn_key=(repetition, k))
            runs.append(_run(frame, y, k, epsilon, model, train_rows, np.random.default_rng(seed), cells or Cells()))
        asked = {"epsilon": epsilon, "k": k, "bags": train_rows // k, "runs": repetitions}
        lines.append({**asked, **_summary(runs, level)})
    return pd.DataFrame(lines).astype({"epsilon": float})


def _labelled(source: Any, label: str, positive: str | None) -> tuple[pd.DataFrame, Integers]:
    """The rows without their label, and the labels as 0 and 1."""
    connection = connect(ordered=True)
    table = read(source, connection, what="the pilot")
    if label not in table.columns:
        raise ValueError(f"the pilot has no column {label!r}: it has {', '.join(table.columns)}.")
    classes, values = classes_of(table, label, positive, None, noised=False)
    if classes is not None:
        raise ValueError(f"column {label!r} has {len(classes)} values: a pilot needs two, or one named as positive.")
    rows = table.with_columns(**{label: col(label).cast(nw.String).is_in(values).cast(nw.Int64)})
    frame = rows.fetch().to_pandas()
    return frame.drop(columns=label), frame[label].to_numpy()


def _run(
    frame: pd.DataFrame,
    y: Integers,
    size: int,
    epsilon: float | None,
    model: str,
    train_rows: int,
    rng: Generator,
    cells: Cells,
) -> tuple[float, float]:
    """Accuracy and Brier score on held-out rows of one model learned from one partition."""
    train, test = np.split(rng.permutation(len(frame)), [train_rows])
    ids = random_bags(train_rows, size, rng)
    train, ids = train[ids >= 0], ids[ids >= 0]
    if epsilon is None:
        reports = pd.DataFrame({_KEY: np.unique(ids), "count": np.bincount(ids, weights=y[train])})
    else:
        reports = release(y[train], ids, epsilon=epsilon).reports.rename(columns={"bag": _KEY})
    told: dict[str, Any] = {}
    if cells:
        shown = cells.shown(reports["count"].to_numpy())
        reports["count"] = ["*" if np.isnan(one) else f"{one:g}" for one in shown]
        ends = {"hidden": cells.hidden, "clamped": cells.clamped}
        told = {name: f"{given[0]:g}-{given[1]:g}" for name, given in ends.items() if given is not None}
        told["rounded"] = cells.rounded
    connection = connect()
    data = join(frame.iloc[train].assign(**{_KEY: ids}), reports, keys=[_KEY], connection=connection, **told)
    fitted = fit(data, model, random_state=int(rng.integers(2**31)))
    held_out = read(frame.iloc[test].assign(**{_TRUTH: y[test]}), connection, what="held-out rows")
    scored = fitted.score(held_out, keep=[_TRUTH])
    columns = [(batch.column(_TRUTH).to_numpy(), batch.column("prediction").to_numpy()) for batch in scored]
    labels, h = (np.concatenate(column) for column in zip(*columns, strict=True))
    return float(((h > 0.5) == labels).mean()), float(((h - labels) ** 2).mean())


def _summary(runs: list[tuple[float, float]], level: float) -> dict[str, float]:
    """Means, and where the next run falls."""
    found: dict[str, float] = {}
    for name, values in zip(("accuracy", "brier"), np.array(runs).T, strict=True):
        reach = stats.t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) * np.sqrt(1 + 1 / len(values))
        found |= {name: values.mean(), f"{name}_low": values.mean() - reach, f"{name}_high": values.mean() + reach}
    return {name: float(value) for name, value in found.items()}
