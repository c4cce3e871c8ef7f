"""Partial dependence: the mean prediction of rows if a column had one value in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.predictions import predicted, predicted_values
from bagwise.utils.parameters import ParameterError, check_parameters, whole
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import Floats, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bagwise.explanation.displays import BagDependenceDisplay


@dataclass(frozen=True, eq=False)
class Dependence:
    """Mean predictions by the value of a column.

    Attributes
    ----------
    column : str
        Its name.
    values : array of shape (q,)
        Of the column: quantiles of numbers, or the most frequent categories.
    predictions : array of shape (q,) or (q, classes)
        The mean prediction of all rows with that value.
    """

    column: str
    values: NDArray[Any]
    predictions: Floats

    def plot(self, ax: Axes | None = None) -> BagDependenceDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a figure of its own by default.

        Returns
        -------
        BagDependenceDisplay
        """
        from bagwise.explanation.displays import BagDependenceDisplay

        return BagDependenceDisplay(self).plot(ax)


def partial_dependence(
    model: Any,
    X: Any,
    column: int | str,
    *,
    values: Sequence[Any] | NDArray[Any] | None = None,
    n_values: int = 20,
    n_rows: int = 2000,
    random_state: RandomState = 0,
) -> Dependence:
    """The mean prediction of rows if a column had one value in all of them, value by value.

    No label is needed. Where columns hang together, some of these rows are such as there are none.

    Parameters
    ----------
    model : classifier or regressor
        Fitted.
    X : array or table of shape (n, features)
        The rows.
    column : int or str
        Its number, or its name in a table.
    values : sequence, optional
        Of the column; quantiles of numbers by default, or the most frequent categories.
    n_values, n_rows : int
        How many values at most; how many rows are drawn where there are more.
    random_state : int, Generator or None
        For the rows.

    Returns
    -------
    Dependence

    Examples
    --------
    >>> import bagwise as bw
    >>> X = np.random.default_rng(0).normal(size=(6400, 2))
    >>> ids = bw.random_bags(6400, size=16, random_state=0)
    >>> model = bw.BagRidgeRegressor(random_state=0).fit(X, bw.aggregate(3 * X[:, 0], ids), bags=ids)
    >>> partial_dependence(model, X, 0, values=[-1, 0, 1]).predictions.round()
    array([-3.,  0.,  3.])
    """
    check_parameters({"n_values": n_values, "n_rows": n_rows}, {"n_values": whole(1), "n_rows": whole(1)})
    table = X.to_pandas() if hasattr(X, "to_pandas") else X
    framed, width = hasattr(table, "iloc"), np.shape(table)[1]
    names = [str(name) for name in table.columns] if framed else [f"x{i}" for i in range(width)]
    place = names.index(column) if column in names else column
    if not isinstance(place, (int, np.integer)) or isinstance(place, bool) or not 0 <= place < width:
        raise ParameterError("column", f"must be the number or the name of a column of X, got {column!r}.")
    if len(table) > n_rows:
        some = np.sort(generator(random_state).choice(len(table), n_rows, replace=False))
        table = table.iloc[some] if framed else np.asarray(table)[some]
    held = table.iloc[:, place] if framed else np.asarray(table)[:, place]
    found = values_of(held, n_values) if values is None else np.asarray(values)
    say = predicted if hasattr(model, "predict_proba") else predicted_values
    means = [say(model, _with(table, int(place), one)).mean(axis=0) for one in found]
    return Dependence(names[int(place)], found, np.asarray(means))


def values_of(held: Any, n_values: int) -> NDArray[Any]:
    """Values of a column that stand for it: quantiles of numbers, the most frequent categories in order.

    >>> values_of(np.array([1.0, 2.0, 3.0, np.nan]), 3), values_of(np.array(["b", "a", "b"]), 1)
    (array([1., 2., 3.]), array(['b'], dtype=object))
    """
    kind = getattr(held, "dtype", np.dtype(object))
    numeric = getattr(kind, "kind", "O") in "fiu"
    if numeric:
        known = np.asarray(held, dtype=float)
        known = known[np.isfinite(known)]
        return (
            np.unique(np.quantile(known, np.linspace(0.02, 0.98, n_values), method="nearest")) if len(known) else known
        )
    texts = [one for one in np.asarray(held, dtype=object) if one is not None and one == one]
    levels, counts = np.unique(np.array([str(one) for one in texts]), return_counts=True)
    frequent = {str(one): one for one in texts}
    kept = sorted(levels[np.argsort(-counts, kind="stable")[:n_values]])
    return np.array([frequent[one] for one in kept], dtype=object)


def _with(table: Any, column: int, value: Any) -> Any:
    """The same table with one value in a column."""
    if hasattr(table, "iloc"):
        changed = table.copy()
        held = table.iloc[:, column]
        changed.isetitem(column, type(held)([value] * len(table), index=table.index).astype(held.dtype))
        return changed
    changed = np.array(table)
    changed[:, column] = value
    return changed
