r"""How many bags a learner needs, against the size of bags: the paper's main claim, counted.

A trial is a stream of bags. At each checkpoint every learner chooses from the bags so far; it succeeds if the regret of
its choice is below β (in the symmetric problem, where the wrong function has regret β: if it chose the right one).
The bags a learner needs are those at which 95% of the trials succeed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import isotonic_regression

from bagwise.experiments.harness import BAG_SIZES, in_processes, names_of, provenance
from bagwise.experiments.simulation import LEARNERS, Sample, simulations
from bagwise.plotting import GREY, Look, dodge, legend_below, size_axis
from bagwise.theory import SymmetricPair, information_bound
from bagwise.utils.parameters import Parameter, ParameterError, check_parameters, number, whole

Checkpoint = tuple[int, float, int]
"""Bags, part of the trials that succeeded, and trials."""

_CONSTRAINTS = {
    "problems": names_of(simulations(0.01)),
    "learners": names_of(LEARNERS),
    "sizes": BAG_SIZES,
    "regret": number(above=0),
    "success": number(above=0.5, below=1),  # guessing reaches one half
    "fewest_trials": whole(1),
    "ratio": number(above=1),
    "cap": whole(3),  # the first checkpoint has 2 bags
}


@dataclass(frozen=True, kw_only=True)
class SamplesConfig:
    """What the samples experiment computes."""

    problems: tuple[str, ...] = ("i", "ii", "iii", "iv")
    """Numerals of the problems, see `simulation.simulations`."""
    learners: tuple[str, ...] = tuple(LEARNERS)
    """Names of the learners; Algorithm 1 runs where there are two hypotheses."""
    sizes: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)
    """Bag sizes k."""
    regret: float = 0.01
    """Target regret β."""
    success: float = 0.95
    """Part of the trials that must succeed."""
    trials: int = 2000
    """Trials while bags are few."""
    fewest_trials: int = 200
    """Trials however many the bags are."""
    budget: int = 700_000
    """Between the two, at a checkpoint of m bags there are budget / m trials."""
    ratio: float = 1.12
    """Each checkpoint has this many times the bags of the one before."""
    cap: int = 100_000
    """Bags at which a learner that has not succeeded is given up: its count is then missing, and `censored` says so."""
    cap_biased: int = 2000
    """The same for a learner whose mean loss prefers a wrong hypothesis, so that more bags cannot help."""
    random_state: int = 0
    """Seed; every problem and size has a stream of its own, whatever else is computed."""
    n_jobs: int = 2
    """Processes that share the problems and sizes; the result does not depend on it."""

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS)
        if self.fewest_trials > self.trials:
            got = f", got {self.fewest_trials}."
            raise ParameterError("fewest_trials", "must be at most ", Parameter("trials"), got)

    @property
    def checkpoints(self) -> list[int]:
        """Numbers of bags at which learners choose: from 2 up, the same ratio apart as far as whole numbers allow."""
        steps = int(np.ceil(np.log(self.cap / 2) / np.log(self.ratio)))
        grid = np.unique(np.rint(2 * self.ratio ** np.arange(steps + 1)).astype(int))
        return [*grid[grid < self.cap].tolist(), self.cap]


QUICK = SamplesConfig(
    sizes=(8, 32, 128), trials=300, fewest_trials=50, budget=30_000, ratio=1.25, cap=8000, cap_biased=500
)
"""Seconds instead of minutes: fewer trials and sizes."""


def run(config: SamplesConfig, *, progress: Callable[[int, int], None] | None = None) -> pd.DataFrame:
    """Bags needed by each learner in each problem at each bag size, one row for each.

    title, label: the problem's and the learner's, for readers.
    bags: number of bags at `success`, interpolated between checkpoints; missing where `censored`.
    log_bags_se: standard error of its logarithm.  bags_grid: first checkpoint from which success stays at the level.
    cap: bags after which the learner was given up.  regret: the target β.
    limit_regret: regret of its choice given any number of bags.  lower_bound: bags any learner needs (problem i).
    checkpoints, successes, trials: the whole success curve.
    `progress` is called with the pairs of problem and size done and their number.
    """
    units = [(name, k) for name in config.problems for k in config.sizes]
    # The largest bags first: learners that need many bags make them the longest to wait for.
    tasks = [(config, name, k) for name, k in sorted(units, key=lambda unit: -unit[1])]
    found = dict(in_processes(_curves, tasks, n_jobs=config.n_jobs, progress=progress))
    return pd.DataFrame([record for unit in units for record in found[unit]]).assign(**provenance(config))


def _curves(config: SamplesConfig, name: str, k: int) -> tuple[tuple[str, int], list[dict[str, Any]]]:
    """Success curves of all learners on one stream of bags, and the bags they need; with the unit they belong to."""
    known = simulations(config.regret)
    problem = known[name]
    seed = np.random.SeedSequence(config.random_state, spawn_key=(list(known).index(name), k))
    sample = Sample(problem, k, config.trials, np.random.default_rng(seed))
    names = [n for n in config.learners if n != "algorithm_1" or len(problem.hypotheses) == 2]
    below = config.regret * (1 - 1e-9)  # the wrong one of the symmetric pair has regret β up to rounding
    limit = {n: LEARNERS[n].limit_regret(problem, k) for n in names}
    lasts = {n: limit[n] < below for n in names}  # else success, if any, would not last
    caps = {n: config.cap if lasts[n] else config.cap_biased for n in names}
    curves: dict[str, list[Checkpoint]] = {n: [] for n in names}
    active = list(names)
    for bags in config.checkpoints:
        trials = min(max(config.budget // bags, config.fewest_trials), config.trials)
        sample.keep = any(LEARNERS[n].reads_bags for n in active)
        sample.grow(bags, trials)
        for n in active:
            regret = problem.regrets[sample.truth, LEARNERS[n].choose(sample, config.regret)]
            curves[n].append((bags, float((regret < below).mean()), trials))
        active = [n for n in active if bags < caps[n] and not (lasts[n] and clearly_passed(curves[n], config.success))]
        if not active:
            break
    bound = np.nan
    if name == "i":
        bound = information_bound(SymmetricPair(size=k, regret=config.regret, error=1 - config.success)).value
    records = [
        {"problem": name, "title": problem.title, "learner": n, "label": LEARNERS[n].label, "k": k}
        | bags_needed(*zip(*curves[n], strict=True), level=config.success, lasts=lasts[n])
        | {"cap": caps[n], "regret": config.regret, "limit_regret": limit[n], "lower_bound": bound}
        for n in names
    ]
    return (name, k), records


def clearly_passed(curve: list[Checkpoint], level: float) -> bool:
    """Whether success exceeded the level by 1.5 standard errors at the last two checkpoints."""
    margin = [success - level - 1.5 * _standard_error(level, trials) for _, success, trials in curve[-2:]]
    return len(margin) == 2 and min(margin) > 0


def _standard_error(level: float, trials: int) -> float:
    """Of a success rate that is `level`."""
    return float(np.sqrt(level * (1 - level) / trials))


def log_bags_error(level: float, trials: int) -> float:
    """Standard error of the logarithm of the bags at which a success curve Φ(c√m) passes `level`, above one half.

    That is the curve of a choice between two. Larger classes have steeper ones, so that the error is rather too large
    for them; it does not depend on the local slope of a curve, which is much too uncertain to divide by.
    """
    z = stats.norm.ppf(level)
    return float(_standard_error(level, trials) / (stats.norm.pdf(z) * z / 2))


def bags_needed(
    bags: ArrayLike, success: ArrayLike, trials: ArrayLike, *, level: float, lasts: bool = True
) -> dict[str, Any]:
    """Where a success curve, made monotone, reaches `level`: log-linear between checkpoints.

    A curve that ends below the level is censored, and so is one known not to stay there (`lasts`).

    >>> needed = bags_needed([10, 20, 40], [0.8, 0.9, 1.0], [100, 100, 100], level=0.95)
    >>> round(needed["bags"], 2), needed["bags_grid"], needed["censored"]
    (28.28, 40.0, False)
    """
    m, s, t = np.asarray(bags), np.asarray(success, dtype=float), np.asarray(trials)
    curve = isotonic_regression(s, weights=t).x
    censored = not lasts or bool(s[-1] < level)
    result: dict[str, Any] = {"bags": np.nan, "log_bags_se": np.nan, "bags_grid": np.nan, "censored": censored}
    if not censored:
        i = min(int(np.searchsorted(curve, level)), len(m) - 1)  # rounding might leave the end below the level
        reach = np.log(m[0]) if i == 0 else np.interp(level, curve[i - 1 : i + 1], np.log(m[i - 1 : i + 1]))
        below = np.flatnonzero(s < level)
        result["bags"], result["log_bags_se"] = float(np.exp(reach)), log_bags_error(level, int(t[i]))
        result["bags_grid"] = float(m[below[-1] + 1 if len(below) else 0])
    return result | {"checkpoints": m.tolist(), "successes": s.tolist(), "trials": t.tolist()}


def slope(size: ArrayLike, bags: ArrayLike, log_bags_se: ArrayLike) -> dict[str, float]:
    """Slope of log bags on log k by least squares, weighted by the errors of log bags, with the error these give it.

    The scatter around the line is not used: it says next to nothing where the line has few points.
    Missing where a count is: a slope over the sizes that were within reach would flatter those that were not.

    >>> {name: round(value, 3) for name, value in slope([8, 16, 32], [10, 20, 40], [0.1, 0.1, 0.1]).items()}
    {'slope': 1.0, 'slope_se': 0.102}
    """
    x, y, weight = np.log(size), np.log(bags), np.asarray(log_bags_se, dtype=float) ** -2
    if len(y) < 2 or np.isnan(y).any():
        return {"slope": np.nan, "slope_se": np.nan}
    x = x - np.average(x, weights=weight)
    information = float(weight @ x**2)
    return {"slope": float((weight * x) @ y) / information, "slope_se": information**-0.5}


def tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What to print, by title: problems and learners × bag sizes, missing where no bags up to the cap sufficed."""
    order = pd.MultiIndex.from_frame(frame[["problem", "learner"]].drop_duplicates())
    wide = frame.set_index(["problem", "learner", "k"])["bags"].unstack("k").reindex(order)
    return {"Bags needed, by bag size k (–: none sufficed)": wide}


def summary(frame: pd.DataFrame) -> list[str]:
    """What the table shows, in plain sentences with the numbers of this run; what theory expects is marked as such."""
    notes = [_line(rows.sort_values("k")) for _, rows in frame.groupby(["problem", "learner"], sort=False)]
    pair = frame[frame["lower_bound"].notna()]
    if pair["bags"].notna().any():
        notes.append(
            f"(i) By the information bound no learner can do with fewer than {pair['lower_bound'].min():.0f} bags; "
            f"the fewest here are {pair['bags'].min():.0f}. No loss is expected to need more as bags grow: both means "
            "equal p."
        )
    if {"algorithm_1", "ours"} <= set(pair["learner"]):
        one, two = (pair[pair["learner"] == name].set_index("k") for name in ("algorithm_1", "ours"))
        ratio = np.log(one["bags"] / two["bags"]).dropna()
        error = np.sqrt((one["log_bags_se"] ** 2 + two["log_bags_se"] ** 2).sum()) / max(1, len(ratio))
        if len(ratio):
            notes.append(
                f"(i) Algorithm 1 needs {np.exp(ratio.mean()):.2f} (± {error:.0%}) times the bags of the empirical "
                "risk; π/2 = 1.57 is expected in the limit, because it asks each bag only which way it points, while "
                "the square weighs it by how far the two functions differ on it."
            )
    if set(frame["problem"]) - {"i"}:
        notes.append(
            "(ii) to (iv) The hypothesis classes are ours, not the paper's, and the numbers depend on them. Li's and "
            "EasyLLP's needs are expected to grow like k in (ii) and (iii), because the variance of the difference of "
            "their losses between two hypotheses does where the means of these differ."
        )
    return notes


def _line(rows: pd.DataFrame) -> str:
    """What one learner needs in one problem."""
    found, lost = rows[~rows["censored"]], rows[rows["censored"]]
    ends = found.iloc[[0, -1]] if len(found) > 1 else found
    parts = [", ".join(f"{bags:,.0f} bags at k = {k}" for bags, k in zip(ends["bags"], ends["k"], strict=True))]
    if len(rows) > 1 and not len(lost):
        fit = slope(rows["k"], rows["bags"], rows["log_bags_se"])
        parts[0] += f", slope {fit['slope']:+.2f} ± {fit['slope_se']:.2f}"
    hopeless = lost["limit_regret"] >= lost["regret"]
    for cap, some in lost[~hopeless].groupby("cap"):
        parts.append(f"more than {cap:,} bags at k = {', '.join(map(str, some['k']))}")
    if hopeless.any():
        parts.append(
            f"no number of bags suffices at k = {', '.join(map(str, lost.loc[hopeless, 'k']))}, where its mean loss "
            "prefers a hypothesis whose regret is too large"
        )
    return f"({rows['problem'].iloc[0]}) {rows['label'].iloc[0]}: {'; '.join(filter(None, parts))}."


def figure(frame: pd.DataFrame, *, legend_columns: int = 3) -> Figure:
    """Bags needed against the bag size, one panel for each problem.

    A hollow caret at the cap shows a learner that was given up there. A filled one at the upper edge shows a learner
    for which no number of bags suffices, because the mean of its loss prefers a wrong hypothesis.
    """
    names = list(frame["problem"].unique())
    columns, lines = min(2, len(names)), (len(names) + 1) // 2
    drawing = Figure(figsize=(5.5 * columns, 3.9 * lines + 1), layout="constrained")
    grid = drawing.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for panel in grid.ravel()[len(names) :]:
        panel.set_visible(False)
    handles: dict[str, Any] = {}
    for panel, name in zip(grid.ravel(), names, strict=False):
        rows = frame[frame["problem"] == name]
        bound = rows.dropna(subset="lower_bound").drop_duplicates("k").sort_values("k")
        if len(bound):
            (line,) = panel.plot(bound["k"], bound["lower_bound"], color=GREY, linewidth=2.5, zorder=1)
            handles["information lower bound"] = line
        for place, (key, learner) in enumerate(LEARNERS.items()):
            one = rows[rows["learner"] == key].sort_values("k")
            if len(one):
                handles |= _draw_needs(panel, one, learner.look, dodge(place, len(LEARNERS)))
        panel.set(title=f"({name}) {rows['title'].iloc[0]}", yscale="log")
        panel.yaxis.set_major_formatter(FuncFormatter(lambda m, _: f"{m:,.0f}"))
        size_axis(panel, rows["k"])
    for panel in grid[-1]:
        panel.set_xlabel("bag size k")
    for panel in grid[:, 0]:
        panel.set_ylabel("bags needed")
    grid[0, 0].set_ylim(top=2 * grid[0, 0].get_ylim()[1])  # room for carets at the upper edge
    legend_below(drawing, handles, legend_columns)
    return drawing


def _draw_needs(panel: Axes, one: pd.DataFrame, look: Look, shift: float) -> dict[str, Any]:
    """Draw what one learner needs in one problem; returns what the legend must explain."""
    error = [one["bags"] * abs(np.expm1(sign * one["log_bags_se"])) for sign in (-1, 1)]
    handles: dict[str, Any] = {}
    handles[one["label"].iloc[0]] = panel.errorbar(one["k"] * shift, one["bags"], yerr=error, **look.style)
    lost = one[one["censored"]]
    hopeless = lost["limit_regret"] >= lost["regret"]
    caret: dict[str, Any] = {
        "marker": "^",
        "linestyle": "none",
        "color": look.colour,
        "markersize": 9,
        "clip_on": False,
    }
    if len(slow := lost[~hopeless]):
        (line,) = panel.plot(slow["k"] * shift, slow["cap"], **caret, markerfacecolor="white")
        handles["given up at the cap"] = line
    if hopeless.any():
        k = lost.loc[hopeless, "k"] * shift
        panel.plot(k, np.full(len(k), 0.97), transform=panel.get_xaxis_transform(), **caret)
        handles["at the upper edge: no number of bags suffices"] = Line2D([], [], **caret)
    return handles
