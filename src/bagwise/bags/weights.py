"""What rows of bags may carry beside features: for how many people they stand, and an offset of their log odds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise import segment
from bagwise.bags.reading import name
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import Array, ArrayLike, Floats, Integers, NDArray

if TYPE_CHECKING:
    from bagwise.bags.bags import Bags


def weights_of_rows(
    weight: ArrayLike, n_rows: int, order: Integers, offsets: NDArray[np.int64], keys: NDArray[Any]
) -> Floats:
    """(n_bagged,) weights of the rows of bags, in bag order, checked.

    weight: (n_rows,) in the order of the table.  order, offsets, keys: of `Bags`.
    """
    rows = _of_rows("sample_weight", weight, n_rows)[order]
    if not (good := np.isfinite(rows) & (rows >= 0)).all():
        place = int(np.argmin(good))
        what = f"of row {int(order[place])} is {rows[place]:g}: it must be a number of people, finite and not negative."
        raise ParameterError("sample_weight", what)
    if len(offsets) > 1 and not (people := np.add.reduceat(rows, offsets[:-1])).all():
        key = name(keys[int(np.argmin(people))])
        raise ParameterError("sample_weight", f"is 0 in all rows of bag {key}, which stand for nobody: leave it out.")
    return rows


def standing_for(bags: Bags, weight: ArrayLike | None, *, alone: bool) -> Bags:
    """The bags with `sample_weight` of an estimator's `fit`, None for none.

    alone: whether each row is a bag of its own; one that stands for nobody is then in none.
    """
    if weight is None:
        return bags
    if bags.weight is not None:
        raise ParameterError("sample_weight", "is in the Bags given already (see Bags.with_weights): leave it out.")
    if alone:
        present = _of_rows("sample_weight", weight, bags.n_rows) != 0
        if not present.any():
            raise ParameterError("sample_weight", "is zero in all rows: there is nobody to learn from.")
        bags = bags.take(present)
    return bags.with_weights(weight)


def offsets_of_rows(offset: ArrayLike, n_rows: int, order: Integers) -> Floats:
    """(n_bagged,) offsets of the rows of bags, in bag order, checked."""
    rows = _of_rows("offset", offset, n_rows)[order]
    if not (good := np.isfinite(rows)).all():
        place = int(np.argmin(good))
        what = f"of row {int(order[place])} is {rows[place]:g}: it is added to log odds and must be a finite number."
        raise ParameterError("offset", what)
    return rows


def _of_rows(parameter: str, values: ArrayLike, n_rows: int) -> Floats:
    try:
        rows = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ParameterError(parameter, "must hold one number per row.") from error
    if rows.shape != (n_rows,):
        raise ParameterError(parameter, f"must hold one number per row, shape ({n_rows},), got shape {rows.shape}.")
    return rows


def whole_people(weight: Array | None, offsets: NDArray[np.int64]) -> Any:
    """Whether each bag's rows stand for whole numbers of people; True for all without weights."""
    if weight is None:
        return True
    weight = segment.to_numpy(weight)
    return ~np.logical_or.reduceat(weight != np.rint(weight), offsets[:-1])
