r"""What held-out bags lose when a column is permuted among rows: which columns a model needs, without one label.

With h the predictions and h' those of rows whose values of a column are others', bags tell

.. math:: E[(y - h')^2] - E[(y - h)^2]

where they tell the square loss of single rows (`bagwise.expectations`): in random bags, and where rates differ. In
other formations it is the log-likelihood of a bag's count that falls, by the predictions' own law. Both meet the same
bags, whose luck they share: the interval comes from the influence of each bag on the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.bag_fit import gains
from bagwise.bags import Bags, as_bags
from bagwise.evaluation.measures import told_formation
from bagwise.evaluation.values import formation_of_values
from bagwise.expectations import Expectations, check_enough
from bagwise.formation import FORMATION, Told
from bagwise.metrics import Estimate, brier, estimated
from bagwise.predictions import fitting_bags, predicted, predicted_values
from bagwise.risk import risk_of
from bagwise.utils.parameters import LEVEL, check_parameters, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, Floats, Integers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bagwise.explanation.displays import BagImportanceDisplay

SQUARE, LIKELIHOOD, BAG_SQUARE = "square loss of a row", "log-likelihood of a bag", "square error of bags"
"""What is lost: see `Importances`."""

_CONSTRAINTS = {"formation": FORMATION, "level": LEVEL, "n_repeats": whole(1)}
_LINES = 20  # of what is printed


@dataclass(frozen=True)
class Importance:
    """What bags lose without a column.

    Attributes
    ----------
    column : str
        Its name.
    lost : Estimate
        The loss, above 0 where the column helps.
    """

    column: str
    lost: Estimate

    @property
    def clear(self) -> bool:
        """Whether the interval lies above 0."""
        return self.lost.low > 0


@dataclass(frozen=True, eq=False)
class Importances:
    """What held-out bags lose when one column after the other is permuted.

    Attributes
    ----------
    columns : tuple of Importance
        The largest loss first.
    measure : str
        What is lost: "square loss of a row", told by random bags and where rates differ; "log-likelihood of a bag"
        elsewhere; of real labels "square error of bags" (as rows count) where bags are not random.
    formation : Told
        How bags came about.
    n_bags, n_rows, n_repeats : int
        What was used, and how often each column was permuted.
    level : float
        Of the intervals, each of which holds by itself.
    """

    columns: tuple[Importance, ...]
    measure: str
    formation: Told
    n_bags: int
    n_rows: int
    n_repeats: int
    level: float

    def to_frame(self) -> Any:
        """A pandas table with a line per column: `lost`, `standard_error`, `low`, `high`."""
        import pandas as pd

        lines = [vars(one.lost) for one in self.columns]
        frame = pd.DataFrame(lines, index=[one.column for one in self.columns])
        return frame.rename(columns={"value": "lost"})

    def plot(self, ax: Axes | None = None) -> BagImportanceDisplay:
        """Draw them with their intervals.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a figure of its own by default.

        Returns
        -------
        BagImportanceDisplay
        """
        from bagwise.explanation.displays import BagImportanceDisplay

        return BagImportanceDisplay(self).plot(ax)

    @property
    def lines(self) -> list[str]:
        """A line per column."""
        width = max((len(one.column) for one in self.columns), default=0)
        shown = self.columns[:_LINES]
        told = [f"{one.column:<{width}}  {one.lost}{'' if one.clear else '  not clearly'}" for one in shown]
        left = len(self.columns) - len(shown)
        return [*told, *([f"and {left} more"] if left else [])]

    def __str__(self) -> str:
        used = f"{self.n_bags:,} bags, {self.n_rows:,} rows, {self.level:.0%} intervals"
        return "\n".join([f"{self.measure} lost when a column is permuted ({used}):", *self.lines])

    __repr__ = __str__


def permutation_importance(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    bags: ArrayLike | Bags | None = None,
    noise_variance: ArrayLike | None = None,
    formation: str = "auto",
    n_repeats: int = 5,
    level: float = 0.95,
    random_state: RandomState = None,
) -> Importances:
    """What held-out bags lose when the values of a column are permuted among rows, column by column.

    A column that says what another says, too, may be permuted without much loss. Any model with `predict_proba`, or a
    regressor's `predict`, will do.

    Parameters
    ----------
    model : classifier or regressor
        Fitted.
    X : array or table of shape (n, features)
        Held-out rows.
    y, bags, noise_variance : array, Bags or None
        As in `bagwise.evaluate`. The bags must be new to the model.
    formation : {"auto", "random", "rates", "features", "effects"}
        How bags came about, which decides what is measured.
    n_repeats : int
        How often each column is permuted; the mean is told.
    level : float
        Of the intervals.
    random_state : int, Generator or None
        For the permutations.

    Returns
    -------
    Importances

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(12800, 2))
    >>> y = rng.random(12800) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> ids = bw.random_bags(6400, size=16, random_state=0)
    >>> model = bw.BagLogisticClassifier(random_state=0).fit(X[:6400], bw.aggregate(y[:6400], ids), bags=ids)
    >>> found = permutation_importance(model, X[6400:], bw.aggregate(y[6400:], ids), bags=ids, random_state=0)
    >>> [(one.column, one.clear) for one in found.columns], found.measure
    ([('x0', True), ('x1', False)], 'square loss of a row')
    """
    options = {"formation": formation, "level": level, "n_repeats": n_repeats}
    check_parameters(options, _CONSTRAINTS)
    values = not hasattr(model, "predict_proba")
    say = partial(predicted_values if values else predicted, model)
    table = X.to_pandas() if hasattr(X, "to_pandas") else X
    h = say(table, bags)
    given = as_bags(y, bags, len(h), noise_variance=noise_variance, whole_labels=not values)
    given = given if values else fitting_bags(h, given)
    told = (formation_of_values if values else told_formation)(formation, h, table, given)
    named = [str(name) for name in table.columns] if hasattr(table, "columns") else None
    width = len(named) if named is not None else np.shape(table)[1]
    if named is None:
        named = [f"x{i}" for i in range(width)]

    def shuffled(column: int, order: Integers) -> Floats:
        return say(_permuted(table, column, order), bags)

    return measure_importances(
        h, given, shuffled, named, told, values=values, n_repeats=n_repeats, level=level, random_state=random_state
    )


def measure_importances(
    h: Floats,
    bags: Bags,
    shuffled: Callable[[int, Integers], Floats],
    names: Sequence[str],
    told: Told,
    *,
    values: bool,
    n_repeats: int = 5,
    level: float = 0.95,
    random_state: RandomState = None,
) -> Importances:
    """The same from predictions h of rows of the bags and those of rows with a column `shuffled` in an order."""
    check_enough(bags)
    rng, measure = generator(random_state), measure_of(told, values=values)
    orders = [rng.permutation(len(h)) for _ in range(n_repeats)]
    whole, found = _loss(h, bags, told, measure, values), []
    for number, name in enumerate(names):
        each = [_loss(shuffled(number, order), bags, told, measure, values) for order in orders]
        value = float(np.mean([one for one, _ in each])) - whole[0]
        influence = np.mean([one for _, one in each], axis=0) - whole[1]
        found.append(Importance(name, estimated(value, influence, level)))
    found.sort(key=lambda one: -one.lost.value)
    return Importances(tuple(found), measure, told, len(bags), bags.n_bagged, n_repeats, level)


def measure_of(told: Told, *, values: bool) -> str:
    """What bags of a formation tell that is lost."""
    if values:
        return SQUARE if told.name == "random" else BAG_SQUARE
    return SQUARE if told.name in ("random", "rates") else LIKELIHOOD


def _loss(h: Floats, bags: Bags, told: Told, measure: str, values: bool) -> tuple[float, Floats]:
    """The loss of predictions, the smaller the better, and the influence of each bag on it."""
    if measure == SQUARE and not values:
        return Expectations(h, bags, by_slope=told.name == "rates").expectation(*brier(h))
    if measure == SQUARE:
        value, influence = risk_of(Expectations(h, bags).gap, bags)
        return float(value), influence
    if measure == LIKELIHOOD:
        each = -gains(h, bags)
    else:
        each = (bags.size * len(bags) / bags.n_people) * (bags.proportion - bags.mean(h[bags.order])) ** 2
    return float(each.mean()), each - each.mean()


def _permuted(table: Any, column: int, order: Integers) -> Any:
    """The same table with one column in another order."""
    if hasattr(table, "iloc"):
        table = table.copy()
        table.isetitem(column, table.iloc[order, column].array)
        return table
    moved = np.array(table)
    moved[:, column] = moved[order, column]
    return moved
