"""Are these bags random, do they drift, what do they leak? Nothing here needs an individual label."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bagwise import dispersion
from bagwise.bags import Bags, as_bags
from bagwise.disclosure import Leaks, leaks
from bagwise.dispersion import Finding, among
from bagwise.utils.parameters import check_level
from bagwise.utils.typing import ArrayLike, Integers

__all__ = ["Diagnosis", "Finding", "Leaks", "diagnose"]

_NAMED = 10  # findings, and columns that are not testable, that str names

Kind = Literal["random", "grouped", "stratified", "drifting", "unexplained"]
"""What bags can be: random; more alike in a feature than random ones, or more even; different along their order; or
different in their proportions, and no feature tells why."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What `diagnose` found.

    Attributes
    ----------
    kind : {"random", "grouped", "stratified", "drifting", "unexplained"}
        What the bags are.
    evidence : tuple of Finding
        What says so, the strongest first; nothing for random bags.
    proportions : Finding
        Dispersion of the bags' proportions.
    features, drift : tuple of Finding
        Dispersion of the bags' centroids, one per feature; and differences between stretches of the bag order, of
        proportions and features.
    untestable : tuple of str
        What could not be tested: columns that are constant or nearly so or hold no categories, real labels.
    sizes : tuple of int
        Quantiles (0, ¼, ½, ¾, 1) of the bag sizes.
    size_histogram : tuple of two arrays
        Sizes, and how many bags have each.
    n_rows, n_bags, n_outside : int
        Rows in bags, bags, rows in no bag.
    leaks : Leaks
        What the reports tell of single labels.
    level : float
        Rate at which random bags raise a false alarm, at most.
    """

    kind: Kind
    evidence: tuple[Finding, ...]
    proportions: Finding
    features: tuple[Finding, ...]
    drift: tuple[Finding, ...]
    untestable: tuple[str, ...]
    sizes: tuple[int, ...]
    size_histogram: tuple[Integers, Integers]
    n_rows: int
    n_bags: int
    n_outside: int
    leaks: Leaks
    level: float

    @property
    def random(self) -> bool:
        """Whether nothing speaks against random bags at the given level."""
        return self.kind == "random"

    @property
    def verdict(self) -> str:
        """What the bags are, in plain words: "random", "grouped by …", "drifting …" or "stratified …"."""
        if self.kind == "random":
            return "random"
        if self.kind == "unexplained":
            return "grouped by something related to the label that is not among the features"
        subject, others = self.evidence[0].subject, len(self.evidence) - 1
        if self.kind == "stratified":
            return f"stratified: {subject} is more even than in random bags"
        if self.kind == "drifting":
            return f"drifting along the bag order in {subject}"
        return f"grouped by {subject}" + (f" and {others} more" if others else "")

    @property
    def advice(self) -> str:
        """What follows for the choice of methods."""
        if self.random:
            return "every loss and the label-free evaluation apply."
        return (
            "prefer square-form losses or the count likelihood, which stand bags grouped by features; do not rely on "
            "label-linear losses or on the label-free evaluation, which need random bags."
        )

    def __str__(self) -> str:
        low, _, middle, _, high = self.sizes
        sizes = f"{high:,} rows" if low == high else f"{low:,} to {high:,} rows (median {middle:,})"
        unusual = [f for f in (self.proportions, *self.features, *self.drift) if f.p_value < self.level]
        names, more = self.untestable[:_NAMED], len(self.untestable) - _NAMED
        lines = [
            f"verdict: {self.verdict}",
            f"{self.n_bags:,} bags of {sizes}; {self.n_rows:,} rows in bags, {self.n_outside:,} in none",
            *(f"  {f}" for f in sorted(unusual, key=lambda f: f.p_value)[:_NAMED]),
            *([f"not testable: {', '.join(names)}{f' and {more} more' if more > 0 else ''}"] if names else []),
            str(self.leaks),
            f"advice: {self.advice}",
        ]
        return "\n".join(lines)


def diagnose(
    X: Any,
    y: ArrayLike | None = None,
    *,
    bags: ArrayLike | Bags | None = None,
    noise_variance: ArrayLike | None = None,
    level: float = 0.01,
) -> Diagnosis:
    """Tell whether bags look random, drift along their order, or leak labels.

    Parameters
    ----------
    X : array or table of shape (n, features)
        Numbers, dates and durations are compared by their ranks; other columns by their frequent categories and by the
        rank of the category in alphabetical order.
    y, bags, noise_variance : array, Bags or None
        As in `fit` and `Bags.from_rows`. The order of the bags is that of their ids.
    level : float
        Random bags are called anything else at most this often.

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(6400, 2))
    >>> y = rng.random(6400) < 1 / (1 + np.exp(-X[:, 0]))
    >>> ids = bw.random_bags(6400, size=64, random_state=0)
    >>> diagnose(X, bw.aggregate(y, ids), bags=ids).verdict
    'random'
    >>> by_first = np.argsort(np.argsort(X[:, 0])) // 64
    >>> diagnose(X, bw.aggregate(y, by_first), bags=by_first).verdict
    'grouped by feature 0'
    """
    check_level(level)
    n, columns = dispersion.columns_of(X)
    given = as_bags(y, bags, n, noise_variance=noise_variance, whole_labels=True)
    if len(given) < 2:
        raise ValueError("there is one bag only: at least 2 are needed to compare bags.")
    spread, drift = [], [dispersion.proportion_drift(given)]
    for name, values in columns:
        scores = dispersion.scores_of(values[given.order], name)
        spread.append(among(len(columns), dispersion.feature_spread(name, scores, given)))
        drift.append(among(len(columns), dispersion.feature_drift(name, scores, given)))
    # Three questions (proportions, features, drift), two-sided, share the rate of false alarms; proportions and
    # features each have half of drift's share.
    proportions = among(3, dispersion.proportion_spread(given))
    features = tuple(among(3, finding) for finding in spread)
    drifting = tuple(among(3, among(2, finding)) for finding in drift)
    kind, evidence = _verdict(proportions, features, drifting, level)
    untestable = [finding.subject for finding in features if np.isnan(finding.p_value)]
    if np.isnan(proportions.p_value):
        untestable.insert(0, "proportions of real labels" if dispersion.have_real_labels(given) else "proportions")
    return Diagnosis(
        kind=kind,
        evidence=evidence,
        proportions=proportions,
        features=features,
        drift=drifting,
        untestable=tuple(untestable),
        sizes=tuple(int(q) for q in np.quantile(given.size, [0, 0.25, 0.5, 0.75, 1], method="inverted_cdf")),
        size_histogram=np.unique(given.size, return_counts=True),
        n_rows=given.n_bagged,
        n_bags=len(given),
        n_outside=given.n_rows - given.n_bagged,
        leaks=leaks(given.size, given.proportion, given.noise_variance),
        level=level,
    )


def _verdict(
    proportions: Finding, features: tuple[Finding, ...], drift: tuple[Finding, ...], level: float
) -> tuple[Kind, tuple[Finding, ...]]:
    """What the bags are, and what says so. Grouping comes first: drift and different proportions may follow from it."""
    grouped = [f for f in features if f.p_value < level and f.ratio > 1]
    if grouped:
        return "grouped", tuple(sorted(grouped, key=lambda f: -f.ratio))
    even = [f for f in (proportions, *features) if f.p_value < level and f.ratio < 1]
    drifting = [f for f in drift if f.p_value < level]
    if even or drifting:
        return "stratified" if even else "drifting", tuple(sorted(even or drifting, key=lambda f: f.p_value))
    if proportions.p_value < level and proportions.ratio > 1:
        return "unexplained", (proportions,)
    return "random", ()
