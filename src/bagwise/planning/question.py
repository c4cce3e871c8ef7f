"""The question that is planned, and the answers of theory to it."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import pandas as pd

from bagwise.theory import Answer, Setting, bags_needed, regrets
from bagwise.theory.formations import Circumstances
from bagwise.utils.parameters import NONE, AdviceError, Parameter, ParameterError, check_parameters, number, whole

SIZES = tuple(2**i for i in range(11))
"""Bag sizes compared where none is asked for, as far as there are rows."""

KINDS = {
    "expected": "expected (mean)",
    "likely": "likely",
    "guaranteed": "guaranteed",
    "impossible": "impossible below",
}
"""The answers of theory, as they are called in words; the one to plan with first."""

_MOST_ROWS, _MOST_LINES = 10**15, 256
_OF_SETTING = ("hypotheses", "error", "parameters", "further", *(one.name for one in fields(Circumstances)))


@dataclass(frozen=True, kw_only=True)
class Question(Circumstances):
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
    noise_scale, mechanism, sensitivity, hidden, rounded, clamped, value_sd, further
        As in `bagwise.theory.Setting`: reports as they come.

    Examples
    --------
    >>> exact, hidden = (Question(rows=64_000, sizes=(64,), prior=0.1, hidden=one) for one in (None, (0, 9)))
    >>> regrets = [curves(one).set_index("k").loc[64, "regret_expected"] for one in (exact, hidden)]
    >>> bool(regrets[0] < regrets[1])
    True
    """

    rows: int | None = None
    sizes: tuple[int, ...] = ()
    epsilons: tuple[float | None, ...] = (None,)
    regret: float | None = None
    hypotheses: int = 100
    error: float = 0.05
    parameters: int | None = None
    further: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.rows is None and self.regret is None:
            raise AdviceError("pass ", Parameter("rows"), ", ", Parameter("regret"), ", or both.")
        target = number(least=1e-12, most=1) if self.value_sd is None else number(least=1e-30)
        check_parameters(self, {"rows": whole(2, _MOST_ROWS) | NONE, "regret": target | NONE})
        if (lines := len({*self.sizes}) * len({*self.epsilons})) > _MOST_LINES:
            said = f"and ε make {lines:,} lines of answers, more than {_MOST_LINES}: leave some out."
            raise ParameterError("sizes", said)
        if too_large := [k for k in self.further if self.rows is not None and 2 * k > self.rows]:
            needed = f"bags of {too_large[0]:,} need at least 2 × {too_large[0]:,} rows, got {self.rows:,}."
            raise ParameterError("further", needed)
        if too_large := [k for k in self.sizes if self.rows is not None and 2 * k > self.rows]:
            raise ValueError(f"bags of {too_large[0]:,} need at least 2 × {too_large[0]:,} rows, got {self.rows:,}.")
        for epsilon in self.epsilons:
            for k in self.sizes or (1,):
                self.setting(k, epsilon)  # refuses what it does not cover

    def setting(self, size: int, epsilon: float | None) -> Setting:
        """The question at one bag size and one ε of the noise on counts."""
        given = {name: getattr(self, name) for name in _OF_SETTING}
        if epsilon is None and any(self.epsilons):  # no noise, to compare with
            given |= {"sensitivity": None, "mechanism": None}
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
        regret_expected, regret_likely, regret_guaranteed, regret_impossible: what the rows allow;
        bags_expected, bags_likely, bags_guaranteed, bags_impossible: what the target regret needs.
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
                line |= _by_kind("regret", regrets(setting, question.rows // k))
            if question.regret is not None:
                line |= _by_kind("bags", bags_needed(setting, question.regret))
            lines.append(line)
            if progress is not None:
                progress(len(lines), len(epsilons) * len(question.axis), "computing bounds")
    return pd.DataFrame(lines).astype({"epsilon": float})


def _by_kind(what: str, answers: Answer) -> dict[str, float]:
    return {f"{what}_{kind}": getattr(answers, kind) for kind in KINDS}
