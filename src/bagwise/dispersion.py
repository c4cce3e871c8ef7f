"""Do groups of rows (bags, or stretches of bags) differ more, or less, than groups drawn at random from the same rows?

The statistic of every test is the between-group sum of squares; its exact mean and variance over random partitions are
known, and a gamma distribution with those two moments gives the p-value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special, stats

from bagwise.bags import Bags
from bagwise.ranks import Columns, Scores, compared, scores_of
from bagwise.utils.text import p_digits
from bagwise.utils.typing import Floats, NDArray

NOT_RANDOM = 1e-3
"""p-value under which bags are not taken for random ones, by whoever looks at them without a level of its own."""

_STRETCHES = 10  # parts of the bag order compared for drift
_ENOUGH_PAIRS = 10.0  # expected pairs of unusual rows sharing a group, below which the gamma law is not trusted
_ENOUGH_GROUPS = 10  # from which on groups that are too much alike count
_FEW_FOR_DRIFT = 200  # bags up to which orders of them are drawn
_ORDERS, _ORDER_CELLS = 999, 2_000_000  # orders drawn; numbers that are permuted at once
_ENOUGH_ORDERS = 20  # bags, of which there are so many orders that any p-value is possible


@dataclass(frozen=True)
class Finding:
    """One test: what was looked at, and how likely random bags are to look as unusual.

    Attributes
    ----------
    subject : str
        What was looked at: proportions, predictions or a feature.
    ratio : float
        Between-group variation over what random groups show, 1 where nothing is unusual; NaN if not testable.
    p_value : float
        Two-sided, already multiplied by the number of tests made with it; NaN if not testable.
    drift : bool
        Whether groups are stretches of the bag order; otherwise they are bags.
    """

    subject: str
    ratio: float
    p_value: float
    drift: bool = False

    @property
    def name(self) -> str:
        """The subject, and whether its drift was looked at."""
        return f"drift of {self.subject}" if self.drift else self.subject

    @property
    def p_text(self) -> str:
        """The p-value in digits."""
        return p_digits(self.p_value)

    def __str__(self) -> str:
        p_value = f"p {'' if self.p_text.startswith('<') else '= '}{self.p_text}"
        return f"{self.name}: variation {self.ratio:.3g} times that of random bags ({p_value})"


def among(tests: int, finding: Finding) -> Finding:
    """The same finding as one of so many, which its p-value then counts."""
    return replace(finding, p_value=float(np.minimum(1.0, finding.p_value * tests)))


def dispersions(bags: Bags, *, h: Floats, features: Sequence[Finding] = ()) -> tuple[Finding, ...]:
    """How much bags differ in their proportions, their mean predictions and in each feature, beside random bags.

    The p-values count all tests together: for random bags the least of them is below a level at most that often.

    bags: of the rows, in table order.  h: (n,) or (n, classes) predictions.  features: as `feature_dispersions` tells.

    >>> ids = np.arange(4000) // 40
    >>> bags = Bags.from_rows((ids % 2).astype(float), ids)
    >>> [round(finding.ratio, 1) for finding in dispersions(bags, h=np.full(4000, 0.5)) if finding.p_value < NOT_RANDOM]
    [40.4]
    """
    columns = h[bags.order].reshape(bags.n_bagged, -1).T
    scores = [score for one in columns for score in scores_of(one, "h", bags.weight)]
    predictions = feature_spread("predictions", scores, bags)
    found = (proportion_spread(bags), predictions, *features)
    families = 3 if features else 2
    return tuple(among(families, finding) for finding in found if not np.isnan(finding.p_value))


def feature_dispersions(X: Any, bags: Bags) -> list[Finding]:
    """How much bags differ in each feature; the p-values count all features.

    X: as `compared` takes it; where it is large, some bags and some features serve.
    """
    some, columns = compared(X, bags)
    found = [feature_spread(name, scores, some) for name, scores in columns]
    return [among(len(found), finding) for finding in found]


# -- the test -----------------------------------------------------------------------------------------------------


def dispersion_test(rows: Floats, bags: Bags) -> tuple[float, float]:
    """Between-bag variation of values (n,), in bag order, over that of a random partition, and its two-sided p-value.

    NaN where bags could not differ: equal values, or one row per bag.

    >>> ids = np.arange(400) // 4
    >>> bool(dispersion_test(np.arange(400.0), Bags.from_rows(np.zeros(400), ids))[1] < 1e-9)
    True
    """
    return _two_sided(*_dispersion(rows, bags.sum(rows), bags.size, bags.weight), groups=len(bags))


def partition_moments(n: float, square: float, fourth: float, size: NDArray[Any]) -> tuple[float, float]:
    r"""Exact mean and variance of :math:`Q = \sum_j S_j^2/k_j` over random partitions into groups of the given sizes.

    S_j is the sum over group j of n values, all in a group, with Σz = 0, Σz² = square, Σz⁴ = fourth.
    """
    if n < 4:
        return square * (len(size) - 1) / max(n - 1, 1), 0.0
    # Expectations of products of distinct rows' values, from power sums (Σz = 0).
    pairs = (square**2 - fourth) / (n * (n - 1))  # z₁²z₂²
    third = -fourth / (n * (n - 1))  # z₁³z₂
    triple = (2 * fourth - square**2) / (n * (n - 1) * (n - 2))  # z₁²z₂z₃
    four = (3 * square**2 - 6 * fourth) / (n * (n - 1) * (n - 2) * (n - 3))  # z₁z₂z₃z₄
    k = size.astype(float)
    k2, k3, k4 = k * (k - 1), k * (k - 1) * (k - 2), k * (k - 1) * (k - 2) * (k - 3)
    own = (k * fourth / n + 4 * k2 * third + 3 * k2 * pairs + 6 * k3 * triple + k4 * four) / k**2
    # E[S_i²S_j²]/(k_i k_j) summed over i ≠ j, by sums over bags instead of pairs.
    m, spread = len(k), (k - 1).sum()
    squares = ((k - 1) ** 2).sum()
    between = pairs * m * (m - 1) + 2 * triple * (m - 1) * spread + four * (spread**2 - squares)
    mean = square * (m - 1) / (n - 1)
    return mean, max(float(own.sum() + between - mean**2), 0.0)


def _dispersion(
    rows: Floats, sums: NDArray[Any], size: NDArray[Any], weight: Floats | None
) -> tuple[float, float, float]:
    """The statistic with its mean and variance; rows of all groups, sums and sizes per group."""
    n = len(rows) if weight is None else float(weight.sum())
    centre = (rows.sum() if weight is None else float(weight @ rows)) / n
    z2 = (rows - centre) ** 2
    if z2.max() <= (8 * np.finfo(float).eps * abs(centre)) ** 2:  # all the same but for rounding
        return 0.0, 0.0, 0.0
    statistic = float(((sums - size * centre) ** 2 / size).sum())
    square, fourth = (float(one.sum() if weight is None else weight @ one) for one in (z2, z2**2))
    return statistic, *partition_moments(n, square, fourth, size)


def _two_sided(statistic: float, mean: float, variance: float, *, groups: int) -> tuple[float, float]:
    """Ratio to the mean and p-value under a gamma law; NaN for groups that could not differ.

    A few groups are alike by chance more often than that law says, counts above all: then only more variation counts.
    """
    if mean <= 0 or variance <= 1e-12 * mean**2:
        return np.nan, np.nan
    shape, scale = mean**2 / variance, variance / mean
    upper = float(special.gammaincc(shape, statistic / scale))
    lower = float(stats.gamma.cdf(statistic, shape, scale=scale)) if groups >= _ENOUGH_GROUPS else 1.0
    return statistic / mean, min(1.0, 2 * min(upper, lower))


# -- proportions --------------------------------------------------------------------------------------------------


def proportion_spread(bags: Bags) -> Finding:
    """Do bags differ in their proportion? Needs 0/1 labels, whose power sums follow from their number."""
    if have_real_labels(bags):  # whose variance inside bags is unknown
        return Finding("proportions", np.nan, np.nan)
    return _least_likely("proportions", [_count_test(column, bags) for column in bags.outputs.T])


def have_real_labels(bags: Bags) -> bool:
    """Whether labels must be real numbers, since a proportion without noise lies outside [0, 1]."""
    return bags.noise_variance is None and bool(((bags.proportion < 0) | (bags.proportion > 1)).any())


def _count_test(proportion: Floats, bags: Bags) -> tuple[float, float]:
    size, n = bags.size, bags.n_people
    noise = np.zeros(len(bags)) if bags.noise_variance is None else bags.noise_variance
    count = size * proportion
    p = float(np.clip(count.sum() / n, 0, 1))
    if noise.sum() == 0 and not enough_rows(min(p, 1 - p) * n, len(bags)):
        return np.nan, np.nan
    statistic = float(((count - size * count.sum() / n) ** 2 / size).sum())
    square, fourth = n * p * (1 - p), n * (p * (1 - p) ** 4 + (1 - p) * p**4)
    mean, variance = partition_moments(n, square, fourth, size)
    # Independent noise adds its variance to each S_j; the cross term is 4 Var(S_j) s_j², the noise's own Var(e²):
    # 5 s_j⁴ for Laplace noise, 2 s_j⁴ for normal. Which it is is unknown: the larger suits both.
    mean += float((noise / size).sum() - noise.sum() / n)
    variance += float((4 * p * (1 - p) * noise / size + 5 * (noise / size) ** 2).sum())
    return _two_sided(statistic, mean, variance, groups=len(bags))


# -- features -----------------------------------------------------------------------------------------------------


def feature_spread(subject: str, scores: Scores, bags: Bags) -> Finding:
    """Do bags differ in this feature?"""
    tested = [dispersion_test(rows[:], bags) for rows, unusual in scores if enough_rows(unusual, len(bags))]
    return _least_likely(subject, tested)


def enough_rows(unusual: float, groups: int) -> bool:
    """Whether enough rows differ from the most common value for groups to differ by chance in many ways."""
    return unusual**2 / (2 * groups) >= _ENOUGH_PAIRS


def _least_likely(subject: str, results: list[tuple[float, float]]) -> Finding:
    """The least likely of several tests, ratios and p-values; its p-value counts them all."""
    tested = [result for result in results if not np.isnan(result[1])]
    ratio, p_value = min(tested, key=lambda result: result[1], default=(np.nan, np.nan))
    return among(max(len(tested), 1), Finding(subject, ratio, p_value))


# -- drift --------------------------------------------------------------------------------------------------------


def drifts(columns: Columns, bags: Bags, rng: np.random.Generator) -> list[Finding]:
    """Do stretches of the bag order differ more than in other orders of these bags, in proportions and in each column?

    The p-values count all of them: each compares with the largest of all statistics in orders drawn at random. Where
    bags are many, gamma laws stand for these orders.

    columns: as `compared` gives them.  rng: draws the orders.
    """
    stretches = min(_STRETCHES, len(bags) // 2)
    tested = [("proportions", bags.size * one) for one in bags.outputs.T]
    looked_at = [(name, x) for name, scores in columns for x, some in scores if enough_rows(some, _STRETCHES)]
    tested += [(name, bags.sum(x[:])) for name, x in looked_at]
    names = dict.fromkeys(["proportions", *(name for name, _ in columns)])
    place = np.arange(len(bags)) * stretches // len(bags)
    deviation = np.stack([sums - bags.size * (sums.sum() / bags.n_people) for _, sums in tested], axis=1)
    deviation /= np.sqrt(bags.size)[:, None]
    deviation -= deviation.mean(axis=0)
    groups = np.bincount(place, minlength=stretches)
    moments = [partition_moments(len(bags), float((z**2).sum()), float((z**4).sum()), groups) for z in deviation.T]
    mean, variance = np.array(moments).T
    varied = (mean > 0) & (variance > 1e-12 * mean**2)
    if stretches < 2 or not varied.any():
        return [Finding(name, np.nan, np.nan, drift=True) for name in names]
    deviation, mean, variance = deviation[:, varied], mean[varied], variance[varied]
    statistic = _between_stretches(deviation[None], groups)[0]
    p_value = special.gammaincc(mean**2 / variance, statistic * mean / variance) * len(mean)
    if len(bags) <= _FEW_FOR_DRIFT:
        most = np.sort(_most_of_orders(deviation, groups, mean, variance, rng))
        least = (statistic - mean) / np.sqrt(variance) - 1e-9
        share = (1 + len(most) - np.searchsorted(most, least)) / (1 + len(most))
        # No order drawn differs as much: a gamma law says how rare that is, where there are many orders.
        rare = (share <= 1 / (1 + len(most))) & (len(bags) >= _ENOUGH_ORDERS)
        p_value = np.where(rare, np.minimum(p_value, share), share)
    found: dict[str, tuple[float, float]] = dict.fromkeys(names, (np.nan, np.nan))
    for (name, _), ratio, p in zip(np.array(tested, dtype=object)[varied], statistic / mean, p_value, strict=True):
        if not found[name][1] <= p:
            found[name] = float(ratio), float(min(p, 1.0))
    return [Finding(name, *one, drift=True) for name, one in found.items()]


def _between_stretches(deviation: Floats, groups: NDArray[Any]) -> Floats:
    """(orders, columns) variation between stretches of deviations (orders, m, columns)."""
    sums = np.add.reduceat(deviation, np.append(0, np.cumsum(groups)[:-1]), axis=1)
    return np.asarray((sums**2 / groups[:, None]).sum(axis=1))


def _most_of_orders(
    deviation: Floats, groups: NDArray[Any], mean: Floats, variance: Floats, rng: np.random.Generator
) -> Floats:
    """(orders,) the largest of all standardised statistics, in orders of the bags drawn at random."""
    at_once, found = max(1, _ORDER_CELLS // deviation.size), []
    for start in range(0, _ORDERS, at_once):
        orders = rng.permuted(np.tile(np.arange(len(deviation)), (min(at_once, _ORDERS - start), 1)), axis=1)
        found.append(((_between_stretches(deviation[orders], groups) - mean) / np.sqrt(variance)).max(axis=1))
    return np.concatenate(found)
