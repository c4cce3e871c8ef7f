r"""How the variance of bag losses grows with the size of bags: the paper's variance figure, and what it leaves out.

x is uniform on [0, 1], :math:`P(y = 1 \mid x) = x^2`, and the risk of a fixed model h is estimated from every bag. Rows
come in batches; estimates of E[h] see one batch (leave-one-out, corrected) or all batches so far (running).

Two models tell the losses apart. For h = x the mean is off by 1/6, where Li's loss grows with k; EasyLLP stays flat
there, but only because E[d] = E[1 − 2h] = 0 by symmetry. For h = x² it is the other way round: E[h] = p and E[d] = 1/3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from bagwise.bags import Bags
from bagwise.experiments.harness import PAPER_LOSSES, in_processes, provenance
from bagwise.losses import LOSSES
from bagwise.means import MEANS, Known, Running
from bagwise.plotting import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, Look, dodge, legend_below, size_axis
from bagwise.utils.parameters import Parameter, ParameterError, check_parameters, whole
from bagwise.utils.typing import Floats

PRIOR = 1 / 3
"""E[y] = E[x²], known exactly as in the paper."""


class Model(NamedTuple):
    """A fixed model with what is known of it in closed form: E[h] and the risk E[(y − h)²]."""

    function: Callable[[Floats], Floats]
    mean: float
    risk: float


MODELS = {
    "h = x": Model(function=lambda x: x, mean=1 / 2, risk=1 / 6),
    "h = x²": Model(function=np.square, mean=1 / 3, risk=2 / 15),
}

ESTIMATORS: dict[tuple[str, str], tuple[str, Look]] = {
    ("ours", "exact"): ("ours, exact mean", Look(BLUE, "o")),
    ("ours", "leave_one_out"): ("ours, leave-one-out (paper)", Look(SKY, "s")),
    ("ours", "corrected"): ("ours, corrected", Look(BLACK, "x", "--")),
    ("ours", "running"): ("ours, running", Look(PURPLE, "P", ":")),
    ("li", "exact"): ("Li, exact mean", Look(RED, "^")),
    ("li", "leave_one_out"): ("Li, leave-one-out (paper)", Look(RED, "v", "--")),
    ("easyllp_square", "none"): ("EasyLLP, square loss", Look(ORANGE, "D")),
    ("centred_square", "exact"): ("centred, exact mean", Look(GREEN, "X")),
    ("centred_square", "leave_one_out"): ("centred, leave-one-out", Look(GREEN, "p", "--")),
}
"""Label and look by loss and means; the paper's estimators are the leave-one-out ones."""


@dataclass(frozen=True, kw_only=True)
class VarianceConfig:
    """What the variance experiment computes."""

    rows: int = 2**20
    """Rows of one repetition, as in the paper."""
    batch: int = 1024
    """Rows of one batch, whatever the size of its bags."""
    sizes: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128, 256, 512)
    """Bag sizes k; each must divide `batch`, and a batch must hold at least two bags."""
    repetitions: int = 16
    """Independent repetitions; their spread gives the standard errors."""
    random_state: int = 0
    """Seed of the rows."""
    n_jobs: int = 2
    """Processes that share the repetitions; the result does not depend on it."""

    def __post_init__(self) -> None:
        check_parameters(self, {"repetitions": whole(2)})  # their spread gives the errors
        if self.rows % self.batch:
            got = f" ({self.batch}), got {self.rows}."
            raise ParameterError("rows", "must be a multiple of ", Parameter("batch"), got)
        if wrong := [k for k in self.sizes if k < 1 or self.batch % k or self.batch < 2 * k]:
            must = f"must cut a batch of {self.batch} rows in two or more equal bags, got {wrong}."
            raise ParameterError("sizes", must)


QUICK = VarianceConfig(rows=2**14, sizes=(2, 16, 64, 256), repetitions=16)
"""Seconds instead of a minute; standard errors eight times as large."""


def run(config: VarianceConfig, *, progress: Callable[[int, int], None] | None = None) -> pd.DataFrame:
    """Mean and variance of each estimator for each model and bag size, one row for each, with standard errors.

    `excess` is the mean difference to the estimate with the exact mean *on the same bags*; it shows a bias that
    the scatter of the bags themselves would hide. `progress` is called with the repetitions done and their number.
    """
    tasks = [(config, seed) for seed in np.random.SeedSequence(config.random_state).spawn(config.repetitions)]
    # In order: sums round alike.
    results = in_processes(_repetition, tasks, n_jobs=config.n_jobs, ordered=True, progress=progress)
    found = pd.DataFrame([record for records in results for record in records])
    groups = found.groupby(["model", "loss", "means", "label", "k"], sort=False)[["mean", "variance", "excess"]]
    error = groups.std() / np.sqrt(config.repetitions)
    frame = groups.mean().join(error.add_suffix("_se")).reset_index()
    frame["risk"] = [MODELS[model].risk for model in frame["model"]]
    frame["bags"] = config.rows // frame["k"] * config.repetitions
    return frame.assign(**provenance(config))


def _repetition(config: VarianceConfig, seed: np.random.SeedSequence) -> list[dict[str, object]]:
    """Mean, variance and paired excess of every estimator on one draw of rows."""
    rng = np.random.default_rng(seed)
    x = rng.random(config.rows)
    y = rng.random(config.rows) < x**2
    records: list[dict[str, object]] = []
    for k in config.sizes:
        ids = np.repeat(np.arange(config.rows // k), k)  # rows are independent: consecutive ones form random bags
        bags = Bags.from_rows(np.repeat(y.reshape(-1, k).mean(axis=1), k), ids)
        step = config.batch // k
        batches = [bags.take(slice(start, start + step)) for start in range(0, len(bags), step)]
        for name, model in MODELS.items():
            h = model.function(x)
            exact: dict[str, Floats] = {}
            for (loss, means), (label, _) in ESTIMATORS.items():
                function = LOSSES[PAPER_LOSSES.get(loss, loss)]
                if means in MEANS:  # E[h] is estimated as a training loop would: batch after batch
                    # The model does not change: a running mean forgets nothing.
                    strategy = Running(decay=1.0) if means == "running" else MEANS[means]()
                    values = [function(h[batch.order], batch, prior=PRIOR, means=strategy) for batch in batches]
                    value = np.concatenate(values)
                else:
                    mean = 1 - 2 * model.mean if loss == "centred_square" else model.mean  # E[d] or E[h]
                    known = None if loss == "easyllp_square" else Known(mean)
                    value = exact[loss] = function(h, bags, prior=PRIOR, means=known)
                record = {"model": name, "loss": loss, "means": means, "label": label, "k": k, "mean": value.mean()}
                record |= {"variance": value.var(ddof=1), "excess": (value - exact[loss]).mean()}
                records.append(record)
    return records


def lookup(frame: pd.DataFrame) -> Callable[[str, str, str, str, int], float]:
    """A function of column, model, loss, means and k: the number in the results."""
    value = frame.set_index(["model", "loss", "means", "k"]).sort_index()
    return lambda column, *place: float(value.loc[place, column])


def tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What to print, by title: estimators × bag sizes."""
    titles = {
        "variance": "Variance of a bag's loss, by bag size k",
        "mean": "Mean of the bags' losses (the true risk is 0.1667 for h = x, 0.1333 for h = x²)",
    }
    wide = frame.pivot_table(index=["model", "loss", "means"], columns="k", values=list(titles), sort=False)
    return {title: wide[value] for value, title in titles.items()}


def summary(frame: pd.DataFrame) -> list[str]:
    """What the table shows, in plain sentences with the numbers of this run."""
    at, small, large = lookup(frame), int(frame["k"].min()), int(frame["k"].max())

    def growth(model: str, loss: str, means: str) -> str:
        return ", ".join(f"{at('variance', model, loss, means, k):.3g} at k = {k}" for k in sorted({small, large}))

    notes = [
        f"Ours, exact mean, h = x: variance {growth('h = x', 'ours', 'exact')}.",
        f"Ours, leave-one-out mean as in the paper, h = x: variance {growth('h = x', 'ours', 'leave_one_out')}.",
        f"Li, h = x: variance {growth('h = x', 'li', 'exact')}; it should grow linearly, since E[h] = 1/2 is not "
        f"p = 1/3, and stay bounded for h = x², where E[h] = p: {growth('h = x²', 'li', 'exact')}.",
        f"EasyLLP, h = x: variance {growth('h = x', 'easyllp_square', 'none')}; it should stay bounded, but only "
        f"because E[d] = 0 there by symmetry, and grow linearly for h = x², where E[d] = 1/3: "
        f"{growth('h = x²', 'easyllp_square', 'none')}.",
        f"Its centred form, h = x²: variance {growth('h = x²', 'centred_square', 'exact')}; it should stay bounded.",
    ]
    k = 256 if 256 in set(frame["k"]) else large
    for means in ("leave_one_out", "corrected", "running"):
        excess, error = (at(name, "h = x", "ours", means, k) / MODELS["h = x"].risk for name in ("excess", "excess_se"))
        ratio = at("variance", "h = x", "ours", means, k) / at("variance", "h = x", "ours", "exact", k)
        notes.append(
            f"Ours, {means.replace('_', '-')} mean, h = x, k = {k}: the estimate differs from that with the exact mean "
            f"by {excess:+.2%} ± {error:.2%} of the true risk; its variance is {ratio:.2f} times as large."
        )
    return notes


def figure(frame: pd.DataFrame, *, legend_columns: int = 3) -> Figure:
    """Variance and mean of each estimator against the bag size, one column of panels for each model."""
    models = list(frame["model"].unique())
    drawing = Figure(figsize=(5.5 * len(models), 8.2), layout="constrained")
    grid = drawing.subplots(2, len(models), sharex=True, sharey="row", squeeze=False)
    for (top, bottom), model in zip(grid.T, models, strict=True):
        rows = frame[frame["model"] == model]
        for place, ((loss, means), (_, look)) in enumerate(ESTIMATORS.items()):
            one = rows[(rows["loss"] == loss) & (rows["means"] == means)].sort_values("k")
            k = one["k"] * dodge(place, len(ESTIMATORS))
            top.errorbar(k, one["variance"], yerr=one["variance_se"], label=one["label"].iloc[0], **look.style)
            bottom.errorbar(k, one["mean"] / one["risk"], yerr=one["mean_se"] / one["risk"], **look.style)
        top.set(title=f"model {model}", yscale="log")
        bottom.axhline(1, color=GREY, linewidth=1, zorder=1)
        bottom.set(xlabel="bag size k", ylim=(0.2, 1.8))
        for panel in (top, bottom):
            size_axis(panel, rows["k"])
    grid[0, 0].set_ylabel("variance of the estimate from one bag")
    grid[0, 0].yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    grid[1, 0].set_ylabel("mean of the estimates / true risk")
    lines, labels = grid[0, 0].get_legend_handles_labels()
    legend_below(drawing, dict(zip(labels, lines, strict=True)), legend_columns)
    return drawing
