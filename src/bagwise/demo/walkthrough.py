"""The story: log, bags, models, evaluation without labels, truth, files.

The labels of an advertising log are reported per bag only. A model of single impressions is learned from that, measured
without labels, and at last compared with the truth, which only a simulation knows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from bagwise.bags import aggregate, random_bags
from bagwise.datasets import synthetic
from bagwise.diagnostics import diagnose
from bagwise.estimates import Estimate
from bagwise.evaluation import evaluate
from bagwise.linear import BagRidgeClassifier
from bagwise.utils.files import replacing
from bagwise.utils.parameters import NamesParameters, Parameter, ParameterError
from bagwise.utils.rng import RandomState, generator

FILES = ("events.parquet", "reports.parquet", "demo.png")

RIDGE, NAIVE, CONSTANT, CEILING = "ridge on bags", "bag mean as label", "constant guess", "individual labels"

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Row:
    """One line of the table: a method at a bag size, None where the size does not matter.

    accuracy, brier: the truth, from the individual labels of held-out impressions.
    estimated_accuracy, estimated_brier: the same from held-out bags alone; None for individual labels.
    """

    size: int | None
    method: str
    accuracy: float
    brier: float
    estimated_accuracy: Estimate | None = None
    estimated_brier: Estimate | None = None


@dataclass(frozen=True)
class DemoResult:
    """What the demo found.

    rows: the table.  size: the bag size of the story and of the tables written.  bags: their number.
    impressions, prior, best_accuracy: of the log.  verdict: are the bags random?  files: what was written.
    """

    rows: tuple[Row, ...]
    size: int
    bags: int
    impressions: int
    prior: float
    best_accuracy: float
    verdict: str
    files: tuple[Path, ...]

    def of(self, method: str) -> list[Row]:
        """The lines of one method, by bag size."""
        return [row for row in self.rows if row.method == method]


def run(
    folder: str | os.PathLike[str],
    *,
    rows: int = 200_000,
    sizes: Sequence[int] = (16, 64, 256),
    random_state: RandomState = 0,
    force: bool = False,
    progress: Progress | None = None,
) -> DemoResult:
    """Tell the story on a log of `rows` impressions; write events, reports and a figure into `folder`.

    Parameters
    ----------
    folder : path
        Where to; the files appear together, at the end.
    rows : int
        Impressions of the log.
    sizes : sequence of int
        Bag sizes; the middle one is that of the story.
    random_state : int, Generator, RandomState or None
        Seed.
    force : bool
        Write into a folder that holds other things and was not made by the demo.
    progress : callable, optional
        Called with steps done, steps in all and what comes now.

    Returns
    -------
    DemoResult

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run(folder, rows=4000, sizes=(4, 16))
    >>> [path.name for path in result.files]
    ['events.parquet', 'reports.parquet', 'demo.png']
    """
    from bagwise.demo.presentation import figure

    if not sizes or min(sizes) < 2:
        raise ParameterError("sizes", f"must be one or more bag sizes of at least 2, got {tuple(sizes)}.")
    least = 4 * 10 * max(sizes)
    if rows < least:
        raise ParameterError("rows", f"must be at least {least:,}, to hold out 10 bags of {max(sizes)}, got {rows:,}.")
    folder, sizes = Path(folder), sorted(sizes)
    check_folder(folder, force=force)
    rng, tell = generator(random_state), progress or (lambda done, total, text: None)
    steps, main = len(sizes) + 3, sizes[len(sizes) // 2]
    # On matrices as small as these, threads of the linear algebra wait for each other more than they help.
    with threadpool_limits(1, user_api="blas"):
        tell(0, steps, "drawing impressions")
        log = synthetic(rows, random_state=rng)
        task = _Task(_features().fit_transform(log.events), log.y, first_held_out=rows * 3 // 4)
        ids = {size: task.cut(size, rng) for size in sizes}

        tell(1, steps, "learning from individual labels")
        table = [task.row(CEILING, np.arange(rows), 1)]
        for done, size in enumerate(sizes, start=2):
            tell(done, steps, f"learning from bags of {size}")
            table += [task.row(method, ids[size], size) for method in (RIDGE, NAIVE)]
        table.append(task.row(CONSTANT, ids[main], None))

        tell(steps - 1, steps, "writing tables and figure")
        y_bag = aggregate(log.y, ids[main])
        result = DemoResult(
            rows=tuple(table),
            size=main,
            bags=int(ids[main].max()) + 1,
            impressions=rows,
            prior=float(np.nanmean(y_bag)),
            best_accuracy=log.best_accuracy,
            verdict=diagnose(log.events, y_bag, bags=ids[main]).verdict,
            files=tuple(folder / name for name in FILES),
        )
        with replacing(*result.files) as (new_events, new_reports, new_picture):
            _write_tables(log.events, log.y, ids[main], new_events, new_reports)
            figure(result).savefig(new_picture, dpi=160)
    tell(steps, steps, "done")
    return result


class FolderInUseError(NamesParameters, FileExistsError):
    """A folder that holds what is not the demo's."""


def check_folder(folder: Path, *, force: bool = False) -> None:
    """Raise unless the demo may write here: a folder that is new, empty, or its own, known by its three files."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file: the demo needs a folder to write into.")
    found = sorted(path.name for path in folder.glob("[!.]*"))
    if found and not set(FILES).issubset(found) and not force:
        way = ("name another folder (", Parameter("out"), "), or write there all the same (", Parameter("force"), ").")
        raise FolderInUseError(f"{folder} holds {found[0]!r}, which is not the demo's: ", *way)


# -- learning -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Task:
    """Features and individual labels. Rows from `first_held_out` on are held out: the log is in no particular order."""

    X: NDArray[Any]
    y: NDArray[np.int8]
    first_held_out: int

    def cut(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Random bags, none of them on both sides of the split."""
        train = random_bags(self.first_held_out, size, rng)
        held_out = random_bags(len(self.y) - self.first_held_out, size, rng)
        return np.concatenate([train, np.where(held_out >= 0, held_out + train.max() + 1, -1)])

    def row(self, method: str, ids: NDArray[np.int64], size: int | None) -> Row:
        """Fit on training bags; measure on held-out bags, and on the labels behind them."""
        train, held_out = slice(self.first_held_out), slice(self.first_held_out, None)
        y_bag, y = aggregate(self.y, ids), self.y[held_out]
        if method in (NAIVE, CONSTANT):  # as if every row's label were its bag's proportion
            inside = np.flatnonzero(ids[train] >= 0)
            model = Ridge() if method == NAIVE else DummyRegressor()
            h = model.fit(self.X[inside], y_bag[inside]).predict(self.X[held_out]).clip(0, 1)
        else:
            ridge = BagRidgeClassifier(random_state=0).fit(self.X[train], y_bag[train], bags=ids[train])
            h = ridge.predict_proba(self.X[held_out])[:, 1]
        accuracy, brier = float(((h > 0.5) == y).mean()), float(((h - y) ** 2).mean())
        if size == 1:  # bags of one row are labels: there is nothing to estimate
            return Row(size, method, accuracy, brier)
        # The bags are dealt at random here: what is estimated is shown as it comes, good luck or bad.
        estimate = evaluate(h, None, y_bag[held_out], bags=ids[held_out], even_if_not_random=True)
        return Row(size, method, accuracy, brier, estimate.accuracy, estimate.brier)


def _features() -> ColumnTransformer:
    log_scale = FunctionTransformer(np.log1p, feature_names_out="one-to-one")
    return ColumnTransformer(
        [
            ("skewed", make_pipeline(log_scale, StandardScaler()), ["account_days", "past_clicks", "session_depth"]),
            ("numeric", StandardScaler(), ["hour", "bid"]),
            ("levels", OneHotEncoder(sparse_output=False), make_column_selector(dtype_include="category")),
        ]
    )


def _write_tables(events: pd.DataFrame, y: NDArray[np.int8], ids: NDArray[np.int64], *places: Path) -> None:
    """The events with their bag, missing where they are in none, and no label; and one report per bag."""
    inside = ids >= 0
    bag = pd.Series(ids, dtype="Int64").where(inside)
    size, count = np.bincount(ids[inside]), np.bincount(ids[inside], weights=y[inside]).astype(np.int64)
    reports = pd.DataFrame({"bag": np.arange(len(size)), "size": size, "count": count})
    for table, place in zip((events.assign(bag=bag), reports), places, strict=True):
        table.to_parquet(place, index=False)
