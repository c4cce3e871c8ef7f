"""What a diagnosis tells: the verdict, how sure it is, advice; in words, in HTML and as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import stats

from bagwise.diagnostics.advice import PYTHON, Terms, advice, columns_named
from bagwise.disclosure import Leaks
from bagwise.dispersion import Finding
from bagwise.formation import FORMATIONS, Evidence, Formation, Slope, Support, Told
from bagwise.formation.evidence import ENOUGH_BAGS
from bagwise.utils.typing import Integers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTIONS = 4
"""Proportions, features, features given proportions, drift: they share the rate of false alarms."""

_NAMED = 10  # findings, and columns that are not testable, that str names
_POWER = 0.8
_CLEAR_P, _CLEAR_GAIN = 1e-4, 5.0  # p-value, and log-likelihood, that leave little doubt
_TELLING = 1.5  # variation, times that of random bags, that is seen in enough bags


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What `diagnose` found.

    Attributes
    ----------
    formation : Told
        How the bags came about, and why that is said.
    evidence : Evidence
        What says so: how much bags differ in proportions, in features, and in features given proportions; the two lines
        of a quick model, for labels 0 and 1. Its p-values count all tests of the diagnosis.
    drift : tuple of Finding
        Differences between stretches of the bag order, of proportions and features.
    random_apart : bool
        Whether bags are random apart from that drift.
    strata : tuple of str or int
        Columns inside whose strata bags are random, though all of them together are not; numbers where columns have no
        names. None where there are no such columns.
    support : Support or None
        What held-out bags say for rates or effects, beside the quick model; None where there was none.
    n_columns : int
        Columns that were looked at.
    untestable : tuple of str
        What could not be tested: columns that are constant or nearly so or hold no categories, real labels.
    sizes : tuple of int
        Quantiles (0, ¼, ½, ¾, 1) of the bag sizes, in rows.
    size_histogram : tuple of two arrays
        Sizes, and how many bags have each.
    n_rows, n_bags, n_outside : int
        Rows in bags, bags, rows in no bag.
    leaks : Leaks
        What the reports tell of single labels.
    level : float
        Rate at which random bags raise a false alarm, at most.
    n_people : float
        How many people rows in bags stand for, 0 where each stands for one.
    """

    formation: Told
    evidence: Evidence
    drift: tuple[Finding, ...]
    random_apart: bool
    strata: tuple[str | int, ...]
    support: Support | None
    n_columns: int
    untestable: tuple[str, ...]
    sizes: tuple[int, ...]
    size_histogram: tuple[Integers, Integers]
    n_rows: int
    n_bags: int
    n_outside: int
    leaks: Leaks
    level: float
    n_people: float = 0.0

    @property
    def proportions(self) -> Finding:
        """Dispersion of the bags' proportions."""
        return self.evidence.proportions

    @property
    def features(self) -> tuple[Finding, ...]:
        """Dispersion of the bags' centroids, one per feature, then of squares and products of features."""
        return self.evidence.each

    @property
    def tests(self) -> tuple[Finding, ...]:
        """All tests that could be made, the least likely first."""
        every = (self.proportions, *self.features, self.evidence.given_proportions, *self.drift)
        return tuple(
            sorted((one for one in every if not np.isnan(one.p_value)), key=lambda one: (one.p_value, one.name))
        )

    @property
    def unusual(self) -> tuple[Finding, ...]:
        """What random bags would hardly show, the least likely first."""
        return tuple(one for one in self.tests if one.p_value < self.level)

    @property
    def drifting(self) -> tuple[Finding, ...]:
        """The drift that is unusual, the least likely first."""
        return tuple(one for one in self.unusual if one.drift)

    @property
    def too_few(self) -> bool:
        """Whether bags are too few to tell how they came about: the weakest formation is then assumed."""
        return self.n_bags < ENOUGH_BAGS

    @property
    def random(self) -> bool:
        """Whether bags are enough to tell, and nothing speaks against random ones."""
        return self.formation.name == "random" and not self.drifting

    @property
    def allowed(self) -> Formation:
        """What may be done with bags of this formation: losses, evaluation, choice."""
        return FORMATIONS[self.formation.name]

    @property
    def verdict(self) -> str:
        """How the bags came about, in plain words."""
        if self.too_few:
            return f"not told: {self.formation.reason}"
        together = "" if self.formation.name == "random" else f"; all together {self.formation}"
        if self.strata:
            return f"random inside strata of {columns_named(self.strata)}{together}"
        if self.drifting:
            others = f" and {len(self.drifting) - 1} more" if len(self.drifting) > 1 else ""
            apart = ", random otherwise" if self.random_apart else ""
            return f"drifting along the bag order in {self.drifting[0].subject}{others}{apart}{together}"
        return "random" if self.random else str(self.formation)

    @property
    def sureness(self) -> Literal["clear", "likely", "open"]:
        """How sure the verdict is; open where bags are too few, or only a model could tell, and there was none."""
        if self.too_few or self.formation.others:
            return "open"
        if self.formation.name == "random":
            return "clear" if self.detectable <= _TELLING else "likely"
        clear = self.unusual[0].p_value < _CLEAR_P and not self._by_model_within(_CLEAR_GAIN)
        return "clear" if clear else "likely"

    def _by_model_within(self, margin: float) -> bool:
        """Whether a quick model speaks for the one of rates and effects that is told, by no more than so much."""
        said = self.support
        if said is None or self.formation.name == "features" or self.features_differ:
            return False
        more = said.rates_of_rows - said.effects
        return (more if self.formation.name == "rates" else -more) < margin

    @property
    def features_differ(self) -> bool:
        """Whether features of bags differ by more than those of random ones."""
        return self.evidence.features.p_value < self.level and self.evidence.features.ratio > 1

    @property
    def detectable(self) -> float:
        """Variation of a feature, times that of random bags, that would be found in four of five such tables."""
        freedom, tests = self.n_bags - 1, 2 * QUESTIONS * max(self.n_columns, 1)
        return float(stats.chi2.isf(self.level / (2 * tests), freedom) / stats.chi2.isf(_POWER, freedom))

    @property
    def sure(self) -> str:
        """How sure the verdict is, in a sentence."""
        if self.too_few:
            return f"nothing is told of fewer than {ENOUGH_BAGS} bags."
        seen = f"of {self.n_bags:,} bags, {self.detectable:.2g} times the variation of random ones would be seen"
        if self.random:
            return f"{self.sureness}: {seen} in four of five tables."
        parts = [f"{self.unusual[0]}"] if self.unusual else []
        if self.support is not None and self.formation.name in ("rates", "effects"):
            more = self.support.rates_of_rows - self.support.effects
            parts.append(f"log-likelihood of held-out bags {more:+.3g} for rates over effects")
        elif self.formation.others:
            parts.append(f"only a model could tell {' or '.join(self.formation.others)} apart")
        return f"{self.sureness}: {'; '.join(parts)}."

    @property
    def advice(self) -> str:
        """What follows for the choice of methods."""
        return advice(self)

    def plot(self, *, figure: Figure | None = None) -> Figure:
        """How much bags differ, beside random ones, and the two lines of the quick model where there is one.

        Parameters
        ----------
        figure : matplotlib.figure.Figure, optional
            To draw in; a new one if not given.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from matplotlib.figure import Figure

        from bagwise.plotting import BLUE, GREY, draw_ratios, name_axis

        shown = self.most_unusual(_NAMED)
        lines = _slopes(self.evidence)
        if figure is None:
            figure = Figure(figsize=(6.4 if not lines else 10.4, 1.6 + 0.3 * max(len(shown), 3)), layout="constrained")
        grid = figure.subplots(1, 2 if lines else 1, squeeze=False)[0]
        draw_ratios(
            grid[0],
            [one.name for one in shown],
            np.array([one.ratio for one in shown]),
            np.array([one.p_value < self.level for one in shown], dtype=bool),
        )
        grid[0].set_title(f"Bags differ: {self.formation.name}")
        if lines:
            grid[1].axvline(1, color=GREY, linestyle="--", linewidth=1)
            value = np.array([[one.value, 2 * one.error] for one in lines.values()]).T
            value /= np.array([one.expected for one in lines.values()])
            grid[1].errorbar(value[0], np.arange(len(lines)), xerr=value[1], fmt="o", color=BLUE, capsize=3)
            name_axis(grid[1], list(lines), "slope ÷ that of random bags, ± 2 errors")
            grid[1].set_title("Lines of a quick model")
        return figure

    def most_unusual(self, most: int) -> list[Finding]:
        """The tests of spread whose ratio is farthest from 1, the farthest first; `most`: how many."""
        spread = [one for one in (self.proportions, *self.features) if np.isfinite(one.ratio)]
        return sorted(spread, key=lambda one: -abs(np.log(max(one.ratio, 1e-3))))[:most]

    def _repr_html_(self) -> str:
        """The same as str, for notebooks: the verdict, and a table of what was tested."""
        from html import escape

        rows = "".join(
            f"<tr><td>{escape(one.name)}</td><td>{one.ratio:.3g}</td><td>{escape(one.p_text)}</td></tr>"
            for one in self.tests[:_NAMED]
        )
        head = "<tr><th>what was tested</th><th>times that of random bags</th><th>p-value</th></tr>"
        said = [f"<b>{escape(self.verdict)}</b>", f"How sure: {escape(self.sure)}", f"Advice: {escape(self.advice)}"]
        return "".join(f"<p>{one}</p>" for one in said) + f"<table>{head}{rows}</table><p>{escape(str(self.leaks))}</p>"

    def __str__(self) -> str:
        return self.in_terms(PYTHON)

    def in_terms(self, terms: Terms) -> str:
        """The diagnosis in words.  terms: what its advice calls what a user can type."""
        low, _, middle, _, high = self.sizes
        sizes = f"{high:,} rows" if low == high else f"{low:,} to {high:,} rows (median {middle:,})"
        people = f" that stand for {self.n_people:,.12g} people" if self.n_people else ""
        names, more = self.untestable[:_NAMED], len(self.untestable) - _NAMED
        lines = [
            f"verdict: {self.verdict}",
            f"how sure: {self.sure}",
            f"{self.n_bags:,} bags of {sizes}; {self.n_rows:,} rows in bags{people}, {self.n_outside:,} in none",
            *(f"  {f}" for f in self.unusual[:_NAMED]),
            *(
                f"  slope of {name}, of a quick model: {one.value:.3g} ± {one.error:.2g} ({one.expected:.3g} expected)"
                for name, one in _slopes(self.evidence).items()
            ),
            *([f"not testable: {', '.join(names)}{f' and {more} more' if more > 0 else ''}"] if names else []),
            str(self.leaks),
            f"advice: {advice(self, terms)}",
        ]
        return "\n".join(lines)


def _slopes(found: Evidence) -> dict[str, Slope]:
    """The lines of a quick model by what they are of."""
    named = {"proportions on predictions": found.forward, "predictions on proportions": found.reverse}
    return {name: one for name, one in named.items() if one is not None and np.isfinite(one.value) and one.expected > 0}
