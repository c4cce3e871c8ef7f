"""What a data holder asks, and the answers of theory in a table and in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import isfinite, sqrt

import pandas as pd

from bagwise.theory import Setting, bags_needed, laplace_variance, largest_size, regrets
from bagwise.utils.parameters import NONE, AdviceError, Parameter, check_parameters, number, whole

SIZES = tuple(2**i for i in range(11))
"""Bag sizes compared where none is asked for, as far as there are rows."""

KINDS = {"guaranteed": "guaranteed", "expected": "expected", "impossible": "impossible below"}
"""The answers of theory, as they are called in words."""


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
    hypotheses, error, risk, parameters
        As in `bagwise.theory.Setting`.
    """

    rows: int | None = None
    sizes: tuple[int, ...] = ()
    epsilons: tuple[float | None, ...] = (None,)
    regret: float | None = None
    hypotheses: int = 100
    error: float = 0.05
    risk: float = 0.25
    parameters: int | None = None

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
        given = {name: getattr(self, name) for name in ("hypotheses", "error", "risk", "parameters")}
        return Setting(size=size, epsilon=epsilon, **given)

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
        regret_guaranteed, regret_expected, regret_impossible: what the rows allow;
        bags_guaranteed, bags_expected, bags_impossible: what the target regret needs.
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
    lines, noise = [], f", {_noise(epsilon)}"
    if question.rows is not None:
        lines.append(f"{question.rows:,} rows in {line['bags']:,.0f} bags of {k:,}{noise}:")
        for kind, words in KINDS.items():
            regret = line[f"regret_{kind}"]
            found = f"{regret:.2g}" if isfinite(regret) else "– (no regret up to 1 follows from so few bags)"
            lines.append(f"  {words:<17} regret {found}")
        noise = ""  # is said once
    if question.regret is not None:
        lines.append(f"A regret of {question.regret:g} from bags of {k:,}{noise}:")
        for kind, words in KINDS.items():
            bags, with_ = line[f"bags_{kind}"], "" if kind == "impossible" else "with "
            found = f"{bags:,.0f} bags ({bags * k:,.0f} rows)" if isfinite(bags) else "– (no number of bags)"
            lines.append(f"  {words:<17} {with_}{found}")
    return lines


def _noise(epsilon: float | None) -> str:
    if epsilon is None:
        return "without noise"
    return f"noise of ε = {epsilon:g} (standard deviation {sqrt(laplace_variance(epsilon)):.3g} on each count)"


def _which_size(question: Question, epsilon: float | None, rows: int, regret: float) -> str:
    found = largest_size(question.setting(1, epsilon), rows, regret, question.axis)
    parts = []
    for name, words in (("guaranteed", "guaranteed"), ("expected", "expected"), ("impossible", "possible at best")):
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
        model = f"a linear model of {question.parameters} parameters fitted by least squares (expected)"
        what = f"{model} and of {what} (guaranteed, impossible)"
    return [
        f"Regret is by how much the mean square error (Brier score) exceeds that of the best model, here for {what}, "
        f"reached with probability {1 - question.error:.0%}.",
        "Guaranteed holds for every distribution; expected is what usually happens, if bags are random and the best "
        f"model's own square error is at most {question.risk:.3g}; below impossible no method can be sure to come.",
    ]
