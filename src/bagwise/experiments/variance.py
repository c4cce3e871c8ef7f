r"""How the variance of bag losses grows with the size of bags: the paper's variance figure, and what it leaves out.

x is uniform on [0, 1], :math:`P(y = 1 \mid x) = x^2`, and the risk of a fixed model h is estimated from every bag. Rows
come in batches; estimates of E[h] see one batch (leave-one-out, corrected) or all batches so far (running).

Two models tell the losses apart. For h = x the mean is off by 1/6, where Li's loss grows with k; EasyLLP stays flat
there, but only because E[d] = E[1 − 2h] = 0 by symmetry. For h = x² it is the other way round: E[h] = p and E[d] = 1/3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bagwise.bags import Bags
from bagwise.experiments.aliases import library_loss
from bagwise.experiments.config import provenance
from bagwise.experiments.harness import in_processes
from bagwise.losses import LOSSES
from bagwise.means import MEANS, Known, Means, Running
from bagwise.plotting import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, Look
from bagwise.utils.parameters import Parameter, ParameterError, check_parameters, whole
from bagwise.utils.typing import Floats

PRIOR = 1 / 3
"""E[y] = E[x²], known exactly as in the paper."""


@dataclass(frozen=True, kw_only=True)
class Model:
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
"""Label and look by loss and means, as `aliases` calls them; the paper's estimators are the leave-one-out ones."""


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
            raise ParameterError(
                "rows", "must be a multiple of ", Parameter("batch"), f" ({self.batch}), got {self.rows}."
            )
        wrong = [k for k in self.sizes if k < 1 or self.batch % k or self.batch < 2 * k]
        if wrong:
            raise ParameterError(
                "sizes", f"must cut a batch of {self.batch} rows in two or more equal bags, got {wrong}."
            )


QUICK = VarianceConfig(rows=2**14, sizes=(2, 16, 64, 256), repetitions=16)
"""Seconds instead of a minute; standard errors eight times as large."""


def run(config: VarianceConfig, *, progress: Callable[[int, int], None] | None = None) -> pd.DataFrame:
    """Mean and variance of each estimator for each model and bag size, one row for each, with standard errors.

    `excess` is the mean difference to the estimate with the exact mean *on the same bags*; it shows a bias that
    the scatter of the bags themselves would hide. `progress` is called with the repetitions done and their number.
    """
    seeds = np.random.SeedSequence(config.random_state).spawn(config.repetitions)
    tasks = [(config, seed) for seed in seeds]
    results = in_processes(_repetition, tasks, n_jobs=config.n_jobs, ordered=True)  # in order: sums round alike
    frames = []
    for done, records in enumerate(results, start=1):
        frames.append(pd.DataFrame.from_records(records))
        if progress is not None:
            progress(done, config.repetitions)
    keys = ["model", "loss", "means", "label", "k"]
    groups = pd.concat(frames).groupby(keys, sort=False)[["mean", "variance", "excess"]]
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
        batches = list(_batches(bags, config.batch // k))
        for name, model in MODELS.items():
            h = model.function(x)
            exact: dict[str, Floats] = {}
            for (loss, means), (label, _) in ESTIMATORS.items():
                if means in MEANS:
                    value = _by_batch(loss, _strategy(means), h, batches)
                else:
                    value = LOSSES[library_loss(loss)](h, bags, prior=PRIOR, means=_exact(loss, model))
                    exact[loss] = value
                records.append(
                    {
                        "model": name,
                        "loss": loss,
                        "means": means,
                        "label": label,
                        "k": k,
                        "mean": value.mean(),
                        "variance": value.var(ddof=1),
                        "excess": (value - exact[loss]).mean(),
                    }
                )
    return records


def _batches(bags: Bags, size: int) -> Iterator[Bags]:
    for start in range(0, len(bags), size):
        yield bags.take(slice(start, start + size))


def _by_batch(loss: str, means: Means, h: Floats, batches: list[Bags]) -> Floats:
    """The loss of every bag, E[h] estimated as a training loop would: batch after batch."""
    return np.concatenate(
        [LOSSES[library_loss(loss)](h[batch.order], batch, prior=PRIOR, means=means) for batch in batches]
    )


def _strategy(means: str) -> Means:
    return Running(decay=1.0) if means == "running" else MEANS[means]()  # the model does not change: forget nothing


def _exact(loss: str, model: Model) -> Means | None:
    if loss == "easyllp_square":
        return None
    return Known(1 - 2 * model.mean if loss == "centred_square" else model.mean)  # E[d] or E[h]


def table(frame: pd.DataFrame, value: str = "variance") -> pd.DataFrame:
    """One column of the results as estimators × bag sizes."""
    return frame.pivot_table(index=["model", "loss", "means"], columns="k", values=value, sort=False)


def lookup(frame: pd.DataFrame) -> Callable[[str, str, str, str, int], float]:
    """A function of column, model, loss, means and k: the number in the results."""
    value = frame.set_index(["model", "loss", "means", "k"]).sort_index()
    return lambda column, *place: float(value.loc[place, column])


def tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What to print, by title."""
    return {
        "Variance of a bag's loss, by bag size k": table(frame, "variance"),
        "Mean of the bags' losses (the true risk is 0.1667 for h = x, 0.1333 for h = x²)": table(frame, "mean"),
    }


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
        risk = MODELS["h = x"].risk
        excess, error = (at(name, "h = x", "ours", means, k) / risk for name in ("excess", "excess_se"))
        ratio = at("variance", "h = x", "ours", means, k) / at("variance", "h = x", "ours", "exact", k)
        notes.append(
            f"Ours, {means.replace('_', '-')} mean, h = x, k = {k}: the estimate differs from that with the exact mean "
            f"by {excess:+.2%} ± {error:.2%} of the true risk; its variance is {ratio:.2f} times as large."
        )
    return notes
