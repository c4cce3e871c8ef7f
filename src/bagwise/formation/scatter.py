"""Do bags differ more than something known of them explains: their proportions, their order, a stratum?"""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from bagwise.bags import Bags
from bagwise.dispersion import Finding, among, enough_rows, feature_spread, have_real_labels
from bagwise.ranks import Columns, Product, Scores
from bagwise.utils.typing import Floats, Integers

_CHANCE = 4.0  # standard errors by which the slope of one of many columns is off
_KNOWN = 0.1  # share of the spread of proportions that noise has to leave
_LEADING = 6  # columns whose products are looked at


def terms(columns: Columns, bags: Bags) -> Columns:
    """Squares of columns with an order, and products of those whose squares differ most between bags.

    Bags that were formed by :math:`|x|` or by a product of two columns are alike in the means of each column, but not
    in these.

    Parameters
    ----------
    columns : list
        As `bagwise.ranks.compared` gives them.
    bags : Bags
        The bags of their rows.

    Returns
    -------
    list
        Columns, in the same form.

    Examples
    --------
    >>> x = np.arange(80.0)
    >>> bags = Bags.from_rows(np.zeros(80), np.arange(80) // 8)
    >>> [name for name, _ in terms([("a", [(x, 79.0)]), ("b", [(x % 7, 70.0)])], bags)]
    ['a squared', 'b squared', 'a × b']
    """
    ordered = [
        (name, (one := scores[0])[0], float(bags.average(one[0][:])), one[1])
        for name, scores in columns
        if len(scores) == 1
    ]
    squares: Columns = [(f"{name} squared", [(Product((x, x), (mean, mean)), rows)]) for name, x, mean, rows in ordered]
    curved = [place for place, (_, x, *_) in enumerate(ordered) if not _two_values(x[:])]
    chance = [feature_spread(*one, bags).p_value for one in squares]
    leading = sorted(range(len(ordered)), key=lambda one: (np.nan_to_num(chance[one], nan=1.0), one))[:_LEADING]
    products: Columns = []
    for place, a in enumerate(leading):
        for b in leading[place + 1 :]:
            (first, x, mean, rows), (second, z, other, others) = (ordered[one] for one in sorted((a, b)))
            products.append((f"{first} × {second}", [(Product((x, z), (mean, other)), min(rows, others))]))
    return [squares[place] for place in curved] + products


def _two_values(z: Floats) -> bool:
    return bool(((z == z.min()) | (z == z.max())).all())


def given_proportions(columns: Columns, bags: Bags) -> list[Finding]:
    """Do bag means scatter about the line through the proportions more than rows of one label do? Column by column.

    Given its count, a bag's sum of a feature varies by what rows of one label vary among themselves: what they do in a
    bag, less what is between the labels.

    Parameters
    ----------
    columns : list
        As `bagwise.ranks.compared` gives them.
    bags : Bags
        The bags of their rows. What declared noise does to the line is allowed for where there is one label.

    Returns
    -------
    list of Finding
        p-values count the tests of a column, not the columns; they are of more scatter alone.
    """
    line = _basis(bags.size, bags.outputs[:, : max(1, bags.outputs.shape[1] - 1)])
    return [_least(name, [_about_proportions(x, bags, line) for x in tested(one, bags)]) for name, one in columns]


def given_known(columns: Columns, bags: Bags, known: Floats) -> list[Finding]:
    """Do proportions and bag means scatter more than rows in a bag do, about what is known of the bags?

    Parameters
    ----------
    columns : list
        As `bagwise.ranks.compared` gives them.
    bags : Bags
        The bags of their rows.
    known : array of shape (m, q)
        What is known: indicators of strata, say, or functions of the place of a bag in their order.

    Returns
    -------
    list of Finding
        The proportions first, then column by column; p-values count all of them, and are of more scatter alone.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> stratum, ids = np.arange(3200) // 1600, np.arange(3200) // 32
    >>> x, bags = stratum + rng.normal(size=3200), Bags.from_rows(np.full(3200, 0.5), ids)
    >>> known = (np.arange(100) < 50)[:, None].astype(float)
    >>> [round(given_known([("x", [(x, 3200.0)])], bags, one)[1].ratio) for one in (np.zeros((100, 1)), known)]
    [9, 1]
    """
    basis = _basis(bags.size, known)
    found = [_least("proportions", [] if have_real_labels(bags) else _counts(bags, basis))]
    found += [_least(name, [_about(x, bags, basis) for x in tested(one, bags)]) for name, one in columns]
    count = sum(not np.isnan(one.p_value) for one in found)
    return [among(max(count, 1), one) for one in found]


def tested(scores: Scores, bags: Bags) -> Iterator[Floats]:
    """Numbers of which enough differ from the most common one."""
    return (x[:] for x, unusual in scores if enough_rows(unusual, len(bags)))


def _least(subject: str, results: list[tuple[float, float]]) -> Finding:
    known = [one for one in results if not np.isnan(one[1])]
    return among(max(len(known), 1), Finding(subject, *min(known, key=lambda one: one[1], default=(np.nan, np.nan))))


# -- one column --------------------------------------------------------------------------------------------------------


def _about_proportions(x: Floats, bags: Bags, line: Floats) -> tuple[float, float]:
    size = bags.size
    if bags.proportion.ndim == 2:
        return _about(x, bags, line)
    mean, centred = bags.mean(x), bags.proportion - np.average(bags.proportion, weights=size)
    square, noise = float((size * centred**2).sum()), bags.noise_per_row
    # Noise on proportions flattens the line through them, and adds to the scatter about the one without noise.
    true = square - float(noise.sum())
    if true <= _KNOWN * square:  # nothing but noise makes proportions differ: there is no line through them
        return _about(x, bags, line[:, :1])
    slope = float((size * centred * (mean - np.average(mean, weights=size))).sum()) / true
    # Of few bags, one feature or the other lies along the proportions by chance: less is then between the labels.
    error = np.sqrt(float(bags.average((x - bags.average(x)) ** 2)) / true)
    surely = max(abs(slope) - _CHANCE * error, 0.0)
    inside = np.clip(bags.proportion * (1 - bags.proportion), 0, None)
    between = float(np.average(inside, weights=size)) * surely**2  # which a known count takes away
    return _judged(x, bags, mean - slope * centred, line[:, :1], between, slope**2 * noise, lost=1)


def _about(x: Floats, bags: Bags, basis: Floats) -> tuple[float, float]:
    return _judged(x, bags, bags.mean(x), basis, 0.0, np.zeros(len(bags)))


def _judged(
    x: Floats, bags: Bags, mean: Floats, basis: Floats, between: float, more: Floats, lost: int = 0
) -> tuple[float, float]:
    """Scatter of bag means about what is known, over that of rows in bags, and how often chance gives more.

    basis: of what is known.  between: variance of rows that is not left.  more: (m,) variance that a bag has beside,
    times its size.  lost: further degrees of freedom.
    """
    size, own = bags.size, bags.mean(x)
    square = (x - bags.repeat(own)) ** 2
    within, freedom_within = float(bags.weighted(square).sum()), float((size - 1).sum())
    rest, freedom = _rest(mean, size, basis)
    freedom -= lost
    if freedom_within <= 0:  # one row in each bag: nothing tells how much rows of a bag vary
        return np.nan, np.nan
    spread = within / freedom_within - between
    if freedom < 2 or rest <= 1e-12 * float(bags.weighted(x**2).sum()):
        return np.nan, np.nan
    if spread <= 0:  # rows of a bag are more alike than labels that far apart allow
        return np.inf, 0.0
    # Squares of sums of few rows with long tails vary more than those of normal ones: so much less freedom.
    tail = float(bags.average(square**2) / (within / bags.n_people) ** 2) - 3
    wild = 1 + max(tail, 0.0) * float((1 / size).mean()) / 2
    ratio = rest / (freedom * (spread + float(more.mean())))
    return ratio, float(stats.f.sf(ratio, freedom / wild, freedom_within))


def _basis(size: Integers, known: Floats) -> Floats:
    """(m, rank) an orthonormal basis of what is known, and of a constant, where bags weigh as many rows as they have.

    The constant comes first.
    """
    line = (
        np.column_stack([np.ones(len(size)), known - np.average(known, axis=0, weights=size)]) * np.sqrt(size)[:, None]
    )
    first = line[:, :1] / np.linalg.norm(line[:, :1])
    vectors, values, _ = np.linalg.svd(line[:, 1:], full_matrices=False)
    return np.column_stack([first, vectors[:, values > 1e-9 * max(float(values.max(initial=0.0)), 1e-300)]])


def _rest(mean: Floats, size: Integers, basis: Floats) -> tuple[float, int]:
    """Weighted squares of what is left of bag means when what is known is taken out, and its degrees of freedom."""
    target = np.sqrt(size) * mean
    return float(((target - basis @ (basis.T @ target)) ** 2).sum()), len(size) - basis.shape[1]


def _counts(bags: Bags, basis: Floats) -> list[tuple[float, float]]:
    """The same for the labels themselves, whose variance inside a bag its count tells."""
    size, noise, found = bags.size, bags.noise_per_row, []
    for proportion in bags.outputs.T:
        inside = float((size * proportion * (1 - proportion) + noise).sum()) / max(float((size - 1).sum()), 1)
        rest, freedom = _rest(proportion, size, basis)
        rare = float(min(proportion @ size, (1 - proportion) @ size))
        if freedom < 2 or inside <= 0 or (not noise.any() and not enough_rows(rare, len(bags))):
            continue
        # Var(e²) of Laplace noise e is 5 times the square of its variance; that of normal noise is twice.
        square = 2 * (inside + noise) ** 2 + 3 * noise**2
        wild = float(square.mean() / (2 * (inside + noise.mean()) ** 2))
        ratio = rest / (freedom * (inside + float(noise.mean())))
        found.append((ratio, float(stats.chi2.sf(ratio * freedom / wild, freedom / wild))))
    return found
