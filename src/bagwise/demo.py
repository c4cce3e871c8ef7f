"""The main job told as a story: `run` does it and writes tables and a figure, `bagwise demo` prints it.

The labels of an advertising log are reported per bag only. A model of single impressions is learned from that, measured
without labels, and at last compared with the truth, which only a simulation knows.
"""

import os
import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from bagwise.bags import Bags, aggregate, random_bags
from bagwise.datasets import synthetic
from bagwise.diagnostics import diagnose
from bagwise.evaluation.measures import measure
from bagwise.gains import NoBetterThanConstantWarning, clear
from bagwise.linear import BagRidgeClassifier
from bagwise.metrics import Estimate
from bagwise.plotting import BLUE, DARK_GREEN, DARK_GREY, LIGHT_GRID, RED
from bagwise.utils.files import replacing
from bagwise.utils.parameters import NamesParameters, Parameter, ParameterError
from bagwise.utils.rng import RandomState, generator

FILES = ("events.parquet", "reports.parquet", "demo.png")

RIDGE, NAIVE, CONSTANT, CEILING = "ridge on bags", "bag mean as label", "constant guess", "individual labels"
_COLOUR = {RIDGE: BLUE, NAIVE: RED, CONSTANT: DARK_GREY, CEILING: DARK_GREEN}
_MARKER = {RIDGE: "o", NAIVE: "s"}
_INTERVAL: dict[str, Any] = {"linewidth": 2.2, "markersize": 8, "solid_capstyle": "round"}
_TRUTH: dict[str, Any] = {"marker": "|", "color": "black", "markeredgewidth": 2, "linestyle": ""}


@dataclass(frozen=True)
class Row:
    """One line of the table: a method at a bag size, None where the size does not matter.

    accuracy, brier: the truth, from the individual labels of held-out impressions.
    estimated_accuracy, estimated_brier: the same from held-out bags alone; None for individual labels.
    clear: do bags held out in training clearly prefer the model to the mean label?
    """

    size: int | None
    method: str
    accuracy: float
    brier: float
    estimated_accuracy: Estimate | None = None
    estimated_brier: Estimate | None = None
    clear: bool = True


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
    progress: Callable[[int, int, str], None] | None = None,
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
        lines = [task.row(CEILING, np.arange(rows), 1)]
        for done, size in enumerate(sizes, start=2):
            tell(done, steps, f"learning from bags of {size}")
            lines += [task.row(method, ids[size], size) for method in (RIDGE, NAIVE)]
        lines.append(task.row(CONSTANT, ids[main], None))

        tell(steps - 1, steps, "writing tables and figure")
        y_bag = aggregate(log.y, ids[main])
        result = DemoResult(
            rows=tuple(lines),
            size=main,
            bags=int(ids[main].max()) + 1,
            impressions=rows,
            prior=float(np.nanmean(y_bag)),
            best_accuracy=log.best_accuracy,
            verdict=diagnose(log.events, y_bag, bags=ids[main]).verdict,
            files=tuple(folder / name for name in FILES),
        )
        inside = ids[main] >= 0
        bag, y = ids[main][inside], log.y[inside]
        # The events with their bag, missing where they are in none, and no label; and one report per bag.
        events = log.events.assign(bag=pd.Series(ids[main], dtype="Int64").where(inside))
        count = np.bincount(bag, weights=y).astype(np.int64)
        reports = pd.DataFrame({"bag": np.arange(len(count)), "size": np.bincount(bag), "count": count})
        with replacing(*result.files) as (new_events, new_reports, new_picture):
            events.to_parquet(new_events, index=False)
            reports.to_parquet(new_reports, index=False)
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
        y_bag, y, better = aggregate(self.y, ids), self.y[held_out], True
        if method in (NAIVE, CONSTANT):  # as if every row's label were its bag's proportion
            inside = np.flatnonzero(ids[train] >= 0)
            model = Ridge() if method == NAIVE else DummyRegressor()
            h = model.fit(self.X[inside], y_bag[inside]).predict(self.X[held_out]).clip(0, 1)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NoBetterThanConstantWarning)  # the story tells it
                ridge = BagRidgeClassifier(random_state=0).fit(self.X[train], y_bag[train], bags=ids[train])
            better = clear(ridge.gain_, ridge.gain_error_)
            h = ridge.predict_proba(self.X[held_out])[:, 1]
        accuracy, brier = float(((h > 0.5) == y).mean()), float(((h - y) ** 2).mean())
        if size == 1:  # bags of one row are labels: there is nothing to estimate
            return Row(size, method, accuracy, brier)
        # The bags are dealt at random here, which need not be asked of them.
        estimate = measure(h, Bags.from_rows(y_bag[held_out], ids[held_out]), formation="random")
        return Row(size, method, accuracy, brier, estimate.accuracy, estimate.brier, better)


def _features() -> ColumnTransformer:
    log_scale = FunctionTransformer(np.log1p, feature_names_out="one-to-one")
    return ColumnTransformer(
        [
            ("skewed", make_pipeline(log_scale, StandardScaler()), ["account_days", "past_clicks", "session_depth"]),
            ("numeric", StandardScaler(), ["hour", "bid"]),
            ("levels", OneHotEncoder(sparse_output=False), make_column_selector(dtype_include="category")),
        ]
    )


# -- what it shows -------------------------------------------------------------------------------------------------


def story(result: DemoResult) -> Iterator[str]:
    """What happened, in short lines."""
    (constant,), (ceiling,) = result.of(CONSTANT), result.of(CEILING)
    (ridge,) = (row for row in result.of(RIDGE) if row.size == result.size)
    yield f"A simulated advertising log: {result.impressions:,} impressions, {result.prior:.1%} of them converted."
    yield f"Conversions are reported for {result.bags:,} bags of {result.size} impressions, never for one alone."
    yield f"The diagnosis finds the bags {result.verdict}."
    yield f"A linear model learned from the bags is right on {ridge.accuracy:.1%} of the impressions it has not seen;"
    yield f"from held-out bags, without any label, that was estimated as {_interval(ridge.estimated_accuracy, '.1%')}."
    yield f"Always guessing the same: {constant.accuracy:.1%}. Learning from individual labels: {ceiling.accuracy:.1%}."
    yield f"Knowing every true probability: {result.best_accuracy:.1%}."
    for row in result.of(RIDGE):
        if not row.clear:
            yield f"Bags of {row.size} are too few here: they do not clearly prefer a model to the constant guess."


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
            _interval(row.estimated_accuracy, ".3f"),
            f"{row.brier:.3f}",
            _interval(row.estimated_brier, ".3f"),
            end_section=following is not None and following.size != row.size,
        )
    return view


def after(folder: Path, program: str = "bagwise", python: str = "python") -> Iterator[str]:
    """How to read the table, where the files are, and what to do next.

    program, python: what finds the command and its interpreter where the next lines are typed.
    """
    events, reports, model, scored = (
        shlex.quote(str(folder / name)) for name in ("events.parquet", "reports.parquet", "model", "scored.parquet")
    )
    yield "label-free: estimated from held-out bags, ± 95% interval; beside it the truth, which only a simulation knows"
    yield ""
    yield f"Written to {folder}: events.parquet (features and bag, no labels), reports.parquet, demo.png"
    yield ""
    yield "Next, learn from the two tables yourself:"
    yield ""
    yield f"    {program} diagnose {events} {reports}"
    yield f"    {program} fit {events} {reports} --model boosting --out {model}"
    yield f"    {program} evaluate {model}"
    yield f"    {program} predict {model} {events} --out {scored}"
    yield ""
    yield "or in Python:" if python == "python" else f"or in Python, which is {python}:"
    yield ""
    yield "    import bagwise as bw, pandas as pd"
    yield f"    events = pd.read_parquet({str(folder / 'events.parquet')!r})"
    yield f"    reports = pd.read_parquet({str(folder / 'reports.parquet')!r})"
    yield '    bags = bw.Bags.from_reports(events.pop("bag"), reports, count="count", size="size")'
    yield "    X = pd.get_dummies(events, dtype=float)"
    yield "    model = bw.BagRidgeClassifier().fit(X, bags=bags)"
    yield "    model.predict_proba(X)  # one probability per impression"
    yield ""
    yield f"Or see in a simulation what the size of bags does to the losses: {program} reproduce variance"


def _interval(estimate: Estimate | None, form: str) -> str:
    """An estimate ± half of its interval; empty where there is none."""
    if estimate is None:
        return ""
    return f"{estimate.value:{form}} ± {(estimate.high - estimate.low) / 2:{form}}"


def figure(result: DemoResult) -> Figure:
    """Left, what larger bags cost; right, the label-free estimates beside the truth."""
    picture = Figure(figsize=(11, 4.8), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    left, right = picture.subplots(1, 2)
    _draw_cost(left, result)
    _draw_estimates(right, result)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
    return picture


def _draw_cost(axes: Axes, result: DemoResult) -> None:
    for method, up in {CEILING: 7, CONSTANT: -7}.items():
        (row,) = result.of(method)
        axes.axhline(row.accuracy, color=_COLOUR[method], linestyle=(0, (5, 3)), linewidth=1.4, zorder=1)
        _name(axes, method, (0.99, row.accuracy), (0, up), xycoords=axes.get_yaxis_transform(), ha="right")
    for method, up in {RIDGE: -7, NAIVE: 7}.items():
        sizes = [row.size or 0 for row in result.of(method)]
        accuracy = [row.accuracy for row in result.of(method)]
        axes.plot(sizes, accuracy, color=_COLOUR[method], marker=_MARKER[method], linewidth=2, markersize=8)
        _name(axes, method, (sizes[-1], accuracy[-1]), (0, up), ha="right", fontweight="bold")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.margins(0.12, 0.13)
    axes.grid(axis="y", color=LIGHT_GRID)
    axes.set_title("What larger bags cost", loc="left", fontweight="bold")
    axes.set(xlabel="impressions per bag", ylabel="accuracy on single held-out impressions")


def _draw_estimates(axes: Axes, result: DemoResult) -> None:
    for method, shift in {RIDGE: -0.13, NAIVE: 0.13}.items():
        for place, row in enumerate(result.of(method)):
            if (estimate := row.estimated_accuracy) is None:
                continue
            x, y = [estimate.low, estimate.value, estimate.high], place + shift
            axes.plot(x, [y] * 3, color=_COLOUR[method], marker=_MARKER[method], markevery=[1], **_INTERVAL)
            axes.plot(row.accuracy, y, markersize=18, **_TRUTH)
            if place == 0:
                end, right, side = (x[0], -8, "right") if method == RIDGE else (x[2], 8, "left")
                _name(axes, method, (end, y), (right, 0), ha=side, fontweight="bold")
    sizes = [row.size for row in result.of(RIDGE)]
    axes.set_yticks(range(len(sizes)), [f"bags of {size}" for size in sizes])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(sizes) - 0.6, -0.62)
    axes.grid(axis="x", color=LIGHT_GRID)
    axes.set_title("Measured without labels, beside the truth", loc="left", fontweight="bold")
    axes.set(xlabel="accuracy")
    keys = [
        Line2D([], [], color=_COLOUR[CONSTANT], marker="o", label="estimate, 95% interval", **_INTERVAL),
        Line2D([], [], markersize=14, label="truth", **_TRUTH),
    ]
    axes.legend(handles=keys, loc="upper right", ncols=2, frameon=False, columnspacing=1, handlelength=1.6)


def _name(axes: Axes, method: str, at: tuple[Any, float], offset: tuple[int, int], **style: Any) -> None:
    """Write a method's name, in its colour, where its line ends."""
    side = {0: "center", 7: "bottom", -7: "top"}[offset[1]]
    axes.annotate(method, at, offset, textcoords="offset points", va=side, color=_COLOUR[method], **style)
