r"""Predictions that add up to the reports of several groupings of the same rows.

Of all probabilities q those closest to the predictions h, by :math:`\sum_i \mathrm{KL}(q_i \| h_i)`, that add up to
every count are :math:`q_i = \sigma(s_i + \sum_{j \ni i} t_j)`, one tilt for each bag. The tilts of one grouping after
the other are solved for, the others held, until none moves: iterative proportional fitting, on log odds. A noised count
is believed as far as its variance e allows, :math:`\sum_{i \in j} q_i + e_j t_j = c_j`, and where a count is hidden,
what is between its ends stays as it is. Of several classes a bag has a tilt for each,
:math:`q_{ic} \propto h_{ic} e^{\sum_{j \ni i} t_{jc}}`. Whether exact counts can be true together is a linear program
over cells, the rows that are in the same bags.

Values add up to exact sums by the least change: of labels that are never negative all predictions of a bag are
multiplied by one factor, which makes :math:`\sum_i (q_i - h_i)^2 / h_i` least, and of others one number is added,
which makes :math:`\sum_i (q_i - h_i)^2` least.
"""

from functools import partial

import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import expit, log_softmax, softmax

from bagwise.bags import Bags
from bagwise.bags.reading import name
from bagwise.losses.tilting import solve_tilts
from bagwise.losses.tilting_classes import solve_class_tilts
from bagwise.segment import per_bag
from bagwise.utils.deadline import check_time
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Floats, Integers

_ROUNDS, _CLOSE = 1000, 1e-6
_SUREST, _NEAR = 30.0, 10.0
_OFF = 1e-3  # of a row, that exact counts may be off without a look at why
_SLACK = 1e-9  # of a bag's rows
_APART = 0.01  # of a row, by which counts contradict each other


def adding_up(s: Floats, bags: Bags) -> Floats:
    """Probabilities closest to predictions that add up to all reports.

    Parameters
    ----------
    s : array of shape (n_rows,) or (n_rows, classes)
        Log odds, or logarithms of class probabilities, of all rows of the table.
    bags : Bags
        Of several groupings (see `bagwise.bags.several`).

    Returns
    -------
    array of shape (n_rows,) or (n_rows, classes)
        Of rows in no bag as predicted.

    Examples
    --------
    >>> from bagwise.bags import several
    >>> rows = Bags.from_rows([0.5, 0.5, 0.0, 0.0], [0, 0, 1, 1])
    >>> columns = Bags.from_rows([0.5, 0.0, 0.5, 0.0], [0, 1, 0, 1])
    >>> adding_up(np.zeros(4), several([rows, columns])).round(3)
    array([1., 0., 0., 0.])

    Raises
    ------
    ValueError
        Where exact counts of tables contradict each other; the bags are named.
    """
    s = np.clip(np.asarray(s, dtype=float), -_SUREST, _SUREST)
    if bags.overlap is None:
        raise ValueError("adding up is for several groupings of the same rows.")
    probability = expit if s.ndim == 1 else partial(softmax, axis=1)
    total = np.zeros_like(s)
    parts = [bags.take(bags.overlap.table == number) for number in np.unique(bags.overlap.table)]
    tilts = [np.zeros(part.proportion.shape) for part in parts]
    for _ in range(_ROUNDS):
        check_time()
        moved = 0.0
        for number, part in enumerate(parts):
            before = part.repeat(tilts[number])
            scores = (s + total)[part.order] - before
            new = _tilts(scores, part) if s.ndim == 1 else _class_tilts(scores, part, tilts[number])
            step = np.clip(new, -2 * _SUREST, 2 * _SUREST) - tilts[number]
            total[part.order] += part.repeat(step)
            tilts[number] = tilts[number] + step
            change = probability(scores + before + part.repeat(step)) - probability(scores + before)
            moved = max(moved, float(np.abs(change).max()))
        if moved < _CLOSE:
            break
    q = np.asarray(probability(s + total))
    low, high = _ends(bags)
    sums = bags.sum(q[bags.order])
    if ((sums < low - _OFF) | (sums > high + _OFF)).any():
        _check_possible(bags, low, high)
    return q


def _ends(bags: Bags) -> tuple[Floats, Floats]:
    """(m,) or (m, classes) between which numbers counts lie for sure; those with noise may be any."""
    count = per_bag(bags.size, bags.proportion) * bags.proportion
    noised = per_bag(bags.declared_noise > 0, count)
    ends = (count, count) if bags.interval is None else (bags.interval.low, bags.interval.high)
    return np.where(noised, -np.inf, ends[0]), np.where(noised, np.inf, ends[1])


def _check_possible(bags: Bags, low: Floats, high: Floats) -> None:
    """Raise where no labels fit all counts, or all of a class, and name the bags that would have to change least."""
    m = len(bags)
    member = sparse.csr_array((np.ones(bags.n_bagged), bags.order, bags.offsets), shape=(m, bags.n_rows)).T.tocsr()
    # Rows in the same bags are one cell: their bags, as a number in base m + 1, in a fixed random direction.
    mark = member @ np.random.default_rng(0).random(m)
    _, first, cell = np.unique(mark, return_index=True, return_inverse=True)
    size, cells = np.bincount(cell, bags.of_table(bags.weight)), member[first].T
    one = low.ndim == 1
    for place, ends in enumerate(zip(low.reshape(m, -1).T, high.reshape(m, -1).T, strict=True)):
        of_class = "" if one else f" of class {place}"
        _check_totals(bags, *ends, "positive labels" if one else f"rows{of_class}")
        _check_cells(bags, cells, size, *ends, of_class)


def _check_cells(
    bags: Bags, cells: sparse.csr_array, size: Floats | Integers, low: Floats, high: Floats, of_class: str
) -> None:
    """Raise where counts of one class cannot be.  cells: (m, cells) in which bags they are.  size: (cells,) rows."""
    m = len(bags)
    identity, sure = sparse.eye_array(m), np.isfinite(low)
    lines = sparse.hstack([cells, identity, -identity], format="csr")[sure]
    limits = [(0, float(n)) for n in size] + [(0, None)] * (2 * m)
    cost = np.concatenate([np.zeros(len(size)), np.ones(2 * m)])
    both, ends = sparse.vstack([lines, -lines]), np.concatenate([high[sure], -low[sure]])
    finite = np.isfinite(ends)
    found = linprog(cost, A_ub=both[finite], b_ub=ends[finite], bounds=limits, method="highs")
    if found.x is None or found.fun < _APART:
        return
    change = found.x[len(size) + m :] - found.x[len(size) : len(size) + m]
    worst = np.argsort(-np.abs(change), kind="stable")[: int((np.abs(change) > _APART / 2).sum())]
    (table, key), one = bags.keys[worst[0]], float(change[worst[0]])
    most, end = ("at least", high[worst[0]]) if one > 0 else ("at most", low[worst[0]])
    other = f" (and {len(worst) - 1:,} more)" if len(worst) > 1 else ""
    raise ValueError(
        f"bag {name(key)} of report table {table + 1}{other} tells a count{of_class} of {end:g} where the other tables "
        f"leave {most} {end + one:g}: the tables contradict each other; repair one, or declare its noise."
    )


def _tilts(s: Floats, bags: Bags) -> Floats:
    """(m,) those that bring each bag to its report, the others held."""
    noise, expected = bags.declared_noise, bags.sum(expit(s))
    count = bags.size * bags.proportion
    if bags.interval is not None:
        low, high = bags.interval.low, bags.interval.high
        count = np.clip(expected, low, high)
    count = np.where(noise > 0, count, np.clip(count, 0, bags.size))
    known = (noise == 0) & ((count <= 0) | (count >= bags.size))
    found = solve_tilts(s, bags, count, noise, known, None, 1e-9)
    return np.where(np.abs(count - expected) < 1e-12, 0.0, found)


def _class_tilts(s: Floats, bags: Bags, start: Floats) -> Floats:
    """(m, classes) the same of classes: where counts lie between ends, those that do so anyway have no tilt.

    start: (m, classes) about what they are.
    """
    log_h, classes = log_softmax(s, axis=1), s.shape[1]
    noise, told = bags.declared_noise, bags.size[:, None] * bags.proportion
    low, high = (told, told) if bags.interval is None else (bags.interval.low, bags.interval.high)
    whole, expected = (noise == 0)[:, None], bags.sum(np.exp(log_h))
    fixed = whole & (low == high)
    side = np.where(fixed, -1, 0)  # at which end a count is: -1 the lower, 1 the higher, 0 between both
    for _ in range(2 * classes + 2):
        ends = np.where(side > 0, high, np.where(side < 0, low, 1.0))
        count = np.where(whole, np.clip(ends, 0, bags.size[:, None]), np.clip(expected, low, high))
        free = whole & (side == 0)
        last = np.arange(classes) == count.argmax(axis=1)[:, None]
        left_out = whole & (free | (count <= 0) | (last & ~free.any(axis=1, keepdims=True)))
        near, noised = np.where(left_out, 0.0, np.clip(start, -_NEAR, _NEAR)), noise[:, None, None] * np.eye(classes)
        q, _, t = solve_class_tilts(log_h, bags, count, noised, left_out, near)
        sums, slack = bags.sum(q), _SLACK * bags.size[:, None]
        moved = np.where(free & (sums < low - slack), -1, np.where(free & (sums > high + slack), 1, side))
        kept = fixed | ~whole | (side == 0) | ~free.any(axis=1, keepdims=True) | (side * t <= 0)
        moved = np.where(kept, moved, 0)
        if (moved == side).all():
            break
        side = moved
    return np.where(whole & ~free & (count <= 0), -np.inf, t)


def _check_totals(bags: Bags, low: Floats, high: Floats, what: str) -> None:
    """Raise where tables of the same rows tell other totals of what they count."""
    assert bags.overlap is not None
    seen: dict[bytes, tuple[int, float]] = {}
    for number in np.unique(bags.overlap.table).tolist():
        chosen = bags.overlap.table == number
        if not (low[chosen] == high[chosen]).all():
            continue
        rows, total = np.sort(bags.take(chosen).order).tobytes(), float(low[chosen].sum())
        first, before = seen.setdefault(rows, (number, total))
        if abs(total - before) > _APART:
            said = f"report table {first + 1} counts {before:,.6g} {what}, table {number + 1} of the same rows"
            way = "the tables contradict each other; repair one, or declare its noise"
            raise ValueError(f"{said} {total:,.6g}: {way}.")


def values_adding_up(h: Floats, bags: Bags, *, nonnegative: bool) -> Floats:
    """Predictions of real labels, changed as little as they can be to add up to what their bags report.

    Parameters
    ----------
    h : array of shape (n_rows,)
        Predictions of all rows of the table.
    bags : Bags
        Of one grouping, without declared noise.
    nonnegative : bool
        Whether labels are never negative: changes are then in proportion to the predictions, where these are not all 0
        and the sum is not negative.

    Returns
    -------
    array of shape (n_rows,)
        Of rows in no bag as predicted.

    Examples
    --------
    >>> bags = Bags.from_rows([3.0, 3.0, np.nan], [0, 0, -1])
    >>> values_adding_up(np.array([1.0, 3.0, 5.0]), bags, nonnegative=True)
    array([1.5, 4.5, 5. ])
    >>> values_adding_up(np.array([1.0, 3.0, 5.0]), bags, nonnegative=False)
    array([2., 4., 5.])
    """
    if bags.overlap is not None:
        raise ParameterError("reports", "of several tables make scores of labels add up, not those of values.")
    if bags.noise_variance is not None and bags.noise_variance.any():
        raise ParameterError("reports", "with declared noise are no sums that values could add up to: leave them out.")
    inside = h[bags.order]
    said, reported = bags.sum(inside), bags.size * bags.proportion
    scaled = nonnegative & (said > 0) & (reported >= 0)
    factor = np.where(scaled, reported / np.where(scaled, said, 1.0), 1.0)
    added = np.where(scaled, 0.0, (reported - said) / bags.size)
    known = h.copy()
    known[bags.order] = inside * bags.repeat(factor) + bags.repeat(added)
    return known
