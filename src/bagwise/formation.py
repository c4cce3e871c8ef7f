"""How bags came about: four formations, what each of them allows, and what bags themselves tell of theirs.

What a report says about a row depends on how the rows came together. `FORMATIONS` holds the four cases by name;
`evidence` measures what speaks for which, and `told` draws the conclusion as far as no model is needed for it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from bagwise.bags import Bags
from bagwise.dispersion import NOT_RANDOM, Finding, among, feature_dispersions, proportion_spread
from bagwise.utils.parameters import one_of
from bagwise.utils.typing import Floats

ENOUGH_BAGS = 12
"""Bags below which nothing is told of their formation."""

_CELLS = 3_000_000  # numbers of X that are looked at


@dataclass(frozen=True)
class Formation:
    """How bags came about.

    Attributes
    ----------
    name : str
        The word for it.
    assumption : str
        What is assumed.
    losses : tuple of str
        Names of `bagwise.losses.LOSSES` whose minimum is right.
    evaluation : tuple of str
        What is known of single rows without labels: their `risk` from residuals of bags, any expectation by the
        `slope` of bag means on proportions; nothing beyond the bags themselves where it is empty.
    choice : {"risk", "likelihood"}
        What held-out bags are to be compared by.
    """

    name: str
    assumption: str
    losses: tuple[str, ...]
    evaluation: tuple[str, ...]
    choice: str


_LIKELIHOOD = ("count_likelihood",)
_SQUARES = ("debiased_square", "li_square")
_LINEAR = ("easyllp", "easyllp_square", "centred_log", "centred_square")

FORMATIONS = {
    one.name: one
    for one in (
        Formation(
            "random", "a bag is a random set of rows", _LIKELIHOOD + _SQUARES + _LINEAR, ("risk", "slope"), "risk"
        ),
        Formation(
            "rates",
            "rows of one label are alike in all bags, and bags differ in how many of them have it",
            _LIKELIHOOD,
            ("slope",),
            "likelihood",
        ),
        Formation(
            "features",
            "rows with the same features have the same chances in all bags, and bags differ in the features of their "
            "rows",
            _LIKELIHOOD,
            (),
            "likelihood",
        ),
        Formation(
            "effects",
            "bags differ in their features and in something unseen, which moves the log odds of all their rows",
            _LIKELIHOOD,
            (),
            "likelihood",
        ),
    )
}
"""The formations by name, the strictest assumption first."""

FORMATION = one_of("auto", *FORMATIONS)
"""What the parameter `formation` of an estimator may be."""


@dataclass(frozen=True)
class Evidence:
    """What bags show, each beside what random bags would.

    Attributes
    ----------
    n_bags : int
        How many bags there are.
    proportions : Finding
        Do bags differ in their proportion?
    features : Finding
        Do they differ in a feature? The one in which they do most.
    given_proportions : Finding
        Do they differ in a feature more than their proportions explain?
    """

    n_bags: int
    proportions: Finding
    features: Finding
    given_proportions: Finding


@dataclass(frozen=True)
class Told:
    """A formation and why it is taken for that of the bags.

    Attributes
    ----------
    name : str
        A key of `FORMATIONS`.
    reason : str
        What says so.
    others : tuple of str
        Formations that only a model can tell from this one.
    """

    name: str
    reason: str
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def formation_of(name: str, X: Any, bags: Bags) -> Told:
    """The formation asked for; or, for "auto", the one that the bags tell.

    Parameters
    ----------
    name : str
        A key of `FORMATIONS`, or "auto".
    X : array of shape (n, …)
        Rows, in table order.
    bags : Bags
        Their bags.

    Returns
    -------
    Told
    """
    return told(evidence(X, bags)) if name == "auto" else Told(name, "as asked for")


def evidence(X: Any, bags: Bags) -> Evidence:
    """Measure what bags show; where X is large, on some of the bags and features.

    Parameters
    ----------
    X : array of shape (n, …)
        Rows, in table order.
    bags : Bags
        Their bags.

    Returns
    -------
    Evidence

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(6400, 2))
    >>> y = rng.random(6400) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> ids = np.argsort(np.argsort(X[:, 0])) // 64
    >>> found = evidence(X, Bags.from_rows(bw.aggregate(y, ids), ids))
    >>> found.features.p_value < 1e-6, found.given_proportions.p_value < 1e-6
    (True, True)
    """
    spread = [one for one in feature_dispersions(X, bags) if not np.isnan(one.p_value)]
    unknown = Finding("features", np.nan, np.nan)
    features = min(spread, key=lambda one: one.p_value, default=unknown)
    return Evidence(len(bags), proportion_spread(bags), features, _given_proportions(np.asarray(X), bags))


def _given_proportions(X: Floats, bags: Bags) -> Finding:
    """Do bag means of features scatter about the line through the proportions more than rows of one label do?

    Given its count, a bag's sum of a feature varies by what rows of one label vary among themselves: what they do in a
    bag, less what is between the labels.
    """
    if X.ndim != 2 or X.dtype.kind not in "fiub" or len(bags) < ENOUGH_BAGS or (bags.size < 2).all():
        return Finding("features given proportions", np.nan, np.nan)
    step = max(1, min(-(-bags.n_bagged * X.shape[1] // _CELLS), len(bags) // 100))
    some = bags.take(np.arange(0, len(bags), step)) if step > 1 else bags
    columns = np.arange(0, X.shape[1], max(1, -(-some.n_bagged * X.shape[1] // _CELLS)))
    found = [_scatter(stats.rankdata(X[some.order, c]), some) for c in columns if np.isfinite(X[some.order, c]).all()]
    tested = [one for one in found if not np.isnan(one[1])]
    ratio, p_value = min(tested, key=lambda one: one[1], default=(np.nan, np.nan))
    return among(max(len(tested), 1), Finding("features given proportions", ratio, p_value))


def _scatter(x: Floats, bags: Bags) -> tuple[float, float]:
    size, outputs = bags.size, bags.outputs[:, : max(1, bags.outputs.shape[1] - 1)]
    mean = bags.mean(x)
    within = bags.sum((x - bags.repeat(mean)) ** 2)
    root = np.sqrt(size)
    line = np.column_stack([np.ones(len(bags)), outputs]) * root[:, None]
    slope, _, rank, _ = np.linalg.lstsq(line, root * mean)
    freedom = len(bags) - int(rank)
    spread = float(within.sum() / (size - 1).sum()) if (size > 1).any() else 0.0
    if bags.proportion.ndim == 1:  # what is between the labels, which a known count takes away
        between = float(np.average(bags.proportion * (1 - bags.proportion), weights=size)) * slope[1] ** 2
        spread -= max(0.0, between)
    rest = float(((root * mean - line @ slope) ** 2).sum())
    if freedom < 2 or rest <= 1e-12 * float((x**2).sum()):
        return np.nan, np.nan
    if spread <= 0:  # rows of a bag are more alike than labels that far apart allow
        return np.inf, 0.0
    statistic = rest / spread
    return statistic / freedom, float(stats.chi2.sf(statistic, freedom))


def told(found: Evidence, *, level: float = NOT_RANDOM) -> Told:
    """The formation that the evidence speaks for.

    Parameters
    ----------
    found : Evidence
        As measured.
    level : float
        p-value below which something is not by chance.

    Returns
    -------
    Told

    Examples
    --------
    >>> unusual, usual = Finding("proportions", 30.0, 1e-9), Finding("features", 1.0, 0.5)
    >>> told(Evidence(100, usual, usual, usual)).name, told(Evidence(100, unusual, usual, usual)).others
    ('random', ('effects',))
    """
    if found.n_bags < ENOUGH_BAGS:
        return Told("effects", f"{found.n_bags} bags are too few to tell: the weakest assumption is made")
    grouped = found.given_proportions.p_value < level and found.given_proportions.ratio > 1
    uneven = found.proportions.p_value < level and found.proportions.ratio > 1
    if grouped:
        return Told(
            "features", f"bags differ in {_words(found.features)} more than their proportions explain", ("effects",)
        )
    if uneven:
        return Told(
            "rates", f"proportions vary {found.proportions.ratio:.3g} times as much as in random bags", ("effects",)
        )
    return Told("random", "nothing speaks against random bags")


def _words(finding: Finding) -> str:
    return finding.subject if not np.isnan(finding.p_value) else "a feature"


__all__ = [
    "ENOUGH_BAGS",
    "FORMATION",
    "FORMATIONS",
    "Evidence",
    "Formation",
    "Told",
    "evidence",
    "formation_of",
    "told",
]
