"""Before collecting data: what a bag size and a privacy budget cost, from theory and from a pilot table."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, sqrt
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
from bagwise.theory import Setting, bags_needed, laplace_variance, largest_size, regrets
from bagwise.utils.parameters import LEVEL, NONE, AdviceError, Parameter, check_parameters, number, whole
from bagwise.utils.typing import Integers

__all__ = ["Question", "curves", "pilot"]

SIZES = tuple(2**i for i in range(11))
"""Bag sizes compared where none is asked for, as far as there are rows."""

KINDS = {
    "guaranteed": "guaranteed",
    "likely": "likely",
    "expected": "expected (mean)",
    "impossible": "impossible below",
}
"""The answers of theory, as they are called in words."""
_OF_SETTING = (
    "hypotheses",
    "error",
    "prior",
    "risk",
    "parameters",
    "formation",
    "rates_sd",
    "effects_sd",
    "between",
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is planned; what is None is asked for.

    Parameters
    ----------
    rows : int or None
        Rows that can be published.
    sizes : tuple of int
        Bag sizes k in question; all powers of two that fit if empty.
    epsilons : tuple of float or None
        Of the noise on counts, None for none.
    regret : float or None
        Target β.
    hypotheses, error, prior, risk, parameters, formation, rates_sd, effects_sd, between
        As in `bagwise.theory.Setting`.
    """

    rows: int | None = None
    sizes: tuple[int, ...] = ()
    epsilons: tuple[float | None, ...] = (None,)
    regret: float | None = None
    hypotheses: int = 100
    error: float = 0.05
    prior: float = 0.5
    risk: float | None = None
    parameters: int | None = None
    formation: str = "random"
    rates_sd: float | None = None
    effects_sd: float | None = None
    between: float | None = None

    def __post_init__(self) -> None:
        if self.rows is None and self.regret is None:
            raise AdviceError("pass ", Parameter("rows"), ", ", Parameter("regret"), ", or both.")
        check_parameters(self, {"rows": whole(2) | NONE, "regret": number(above=0, most=1) | NONE})
        if too_large := [k for k in self.sizes if self.rows is not None and 2 * k > self.rows]:
            raise ValueError(f"bags of {too_large[0]:,} need at least 2 × {too_large[0]:,} rows, got {self.rows:,}.")
        for epsilon in self.epsilons:
            for k in self.sizes or (1,):
                self.setting(k, epsilon)  # refuses what it does not cover

    def setting(self, size: int, epsilon: float | None) -> Setting:
        """The question at one bag size and one ε of the noise on counts."""
        return Setting(size=size, epsilon=epsilon, **{name: getattr(self, name) for name in _OF_SETTING})

    @property
    def axis(self) -> tuple[int, ...]:
        """Sizes to draw: those in question and the powers of two around them."""
        fit = (k for k in SIZES if self.rows is None or 2 * k <= self.rows)
        return tuple(sorted({*fit, *self.sizes}))


def curves(question: Question, *, progress: Callable[..., None] | None = None) -> pd.DataFrame:
    """The answers of theory to a question, by ε and bag size.

    Parameters
    ----------
    question : Question
    progress : callable, optional
        Called with steps done, steps in all and what is going on.

    Returns
    -------
    DataFrame
        One line per ε, those in question and none, and bag size, with the columns epsilon (missing: no noise), k, bags;
        regret_guaranteed, regret_likely, regret_expected, regret_impossible: what the rows allow;
        bags_guaranteed, bags_likely, bags_expected, bags_impossible: what the target regret needs.
        Numbers are missing where nothing was asked, infinite where nothing is promised.
    """
    lines = []
    epsilons = tuple(dict.fromkeys((*question.epsilons, None)))  # no noise, to compare with
    for epsilon in epsilons:
        for k in question.axis:
            setting = question.setting(k, epsilon)
            line: dict[str, float | None] = {"epsilon": epsilon, "k": k}
            if question.rows is not None:
                line["bags"] = question.rows // k
                line |= {f"regret_{kind}": n for kind, n in asdict(regrets(setting, question.rows // k)).items()}
            if question.regret is not None:
                line |= {f"bags_{kind}": n for kind, n in asdict(bags_needed(setting, question.regret)).items()}
            lines.append(line)
            if progress is not None:
                progress(len(lines), len(epsilons) * len(question.axis), "computing bounds")
    return pd.DataFrame(lines).astype({"epsilon": float})


def sentences(question: Question, found: pd.DataFrame) -> list[str]:
    """The answers for people who do not read proofs."""
    lines = []
    for epsilon in question.epsilons:
        rows = found[found["epsilon"].isna() if epsilon is None else found["epsilon"] == epsilon].set_index("k")
        for k in question.sizes:
            lines += [*_at(question, rows.loc[k], k, epsilon), ""]
        if question.rows is not None and question.regret is not None:
            lines += [_which_size(question, epsilon, question.rows, question.regret), ""]
    return [*lines, *_meaning(question)]


def _at(question: Question, line: pd.Series, k: int, epsilon: float | None) -> list[str]:
    lines, noise, formed = [], f", {_noise(epsilon)}", _formed(question)
    if question.rows is not None:
        lines.append(f"{question.rows:,} rows in {line['bags']:,.0f} bags of {k:,}{formed}{noise}:")
        for kind, words in KINDS.items():
            regret = line[f"regret_{kind}"]
            found = f"{regret:.2g}" if isfinite(regret) else f"– ({_nothing(question)})"
            lines.append(f"  {words:<17} regret {found}")
        noise = ""  # is said once
    if question.regret is not None:
        lines.append(f"A regret of {question.regret:g} from bags of {k:,}{formed}{noise}:")
        for kind, words in KINDS.items():
            bags, with_ = line[f"bags_{kind}"], "" if kind == "impossible" else "with "
            found = f"{with_}{bags:,.0f} bags ({bags * k:,.0f} rows)" if isfinite(bags) else f"– ({_nothing(question)})"
            lines.append(f"  {words:<17} {found}")
    return lines


def _nothing(question: Question) -> str:
    """Why there is no guarantee."""
    if question.formation != "random":
        return "the theorems are for random bags"
    return "no number of bags" if question.rows is None else "nothing below a constant guess follows from so few bags"


def _formed(question: Question) -> str:
    """How bags came about, after their size."""
    if question.formation == "rates":
        return f" whose rates differ (standard deviation {question.rates_sd:g})"
    if question.formation == "effects":
        return f" with effects (standard deviation {question.effects_sd:g} on log odds)"
    return " grouped by features" if question.formation == "features" else ""


def _noise(epsilon: float | None) -> str:
    if epsilon is None:
        return "without noise"
    return f"noise of ε = {epsilon:g} (standard deviation {sqrt(laplace_variance(epsilon)):.3g} on each count)"


def _which_size(question: Question, epsilon: float | None, rows: int, regret: float) -> str:
    found = largest_size(question.setting(1, epsilon), rows, regret, question.axis)
    parts = []
    for name, words in (KINDS | {"impossible": "possible at best"}).items():
        k = found[name]
        size = "no bag size" if k is None else f"bags of {k:,}{' or more' if k == max(question.axis) else ''}"
        parts.append(f"{words} for {size}")
    which = f"The largest bags that give a regret of {regret:g} with {rows:,} rows, {_noise(epsilon)}"
    return f"{which}: {', '.join(parts)}."


def _meaning(question: Question) -> list[str]:
    what = f"a choice among {question.hypotheses} candidates"
    if question.parameters is None:
        what += ", the true one included"
    else:
        model = f"a linear model of {question.parameters} parameters fitted by least squares (likely, expected)"
        what = f"{model} and of {what} (guaranteed, impossible)"
    setting, kept = question.setting(1, None), f"{1 - question.error:.0%}"
    worst = "" if question.parameters is not None else ", for the candidates that make it largest"
    lines = [
        f"Regret is by how much the mean square error (Brier score) exceeds that of the best model, here for {what}.",
        f"Guaranteed is kept with probability {kept} for every distribution; likely is the {kept} quantile and "
        f"expected the mean of the regret{worst}, if bags are as said and the best model's own square error is at most "
        f"{setting.best_risk:.3g}; below impossible no method can be sure to come with probability {kept}.",
    ]
    return lines if question.formation == "random" else [*lines, _MEANING[question.formation]]


_MEANING = {
    "rates": "Rows of one label are taken to be alike in all bags: rows of a bag with more positives then tell what "
    "positives look like.",
    "features": "Rows with the same features are taken to have the same chances in all bags; without a share between "
    "bags, the numbers are for what bags do not differ in.",
    "effects": "Something unseen is taken to move the log odds of all rows of a bag, which limits what its count "
    "tells, however large it is; without a share between bags, the numbers are for what bags do not differ in.",
}


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
            runs.append(_run(frame, y, k, epsilon, model, train_rows, np.random.default_rng(seed)))
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
    frame: pd.DataFrame, y: Integers, size: int, epsilon: float | None, model: str, train_rows: int, rng: Generator
) -> tuple[float, float]:
    """Accuracy and Brier score on held-out rows of one model learned from one partition."""
    train, test = np.split(rng.permutation(len(frame)), [train_rows])
    ids = random_bags(train_rows, size, rng)
    train, ids = train[ids >= 0], ids[ids >= 0]
    if epsilon is None:
        reports = pd.DataFrame({_KEY: np.unique(ids), "count": np.bincount(ids, weights=y[train])})
    else:
        reports = release(y[train], ids, epsilon=epsilon).reports.rename(columns={"bag": _KEY})
    connection = connect()
    data = join(frame.iloc[train].assign(**{_KEY: ids}), reports, keys=[_KEY], connection=connection)
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
