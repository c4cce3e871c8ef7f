"""Tables as trees read them: numbers as they are, categories as codes, missing values as NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class FeatureCodes:
    """The categories of each categorical column, learned from the training table; numbers have none.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [30, 40], "device": ["tablet", "phone"]})
    >>> codes = FeatureCodes.of(table)
    >>> codes.matrix(table)
    array([[30.,  1.],
           [40.,  0.]])
    >>> codes.matrix(pd.DataFrame({"age": [50, None], "device": ["radio", None]}))  # unknown and missing
    array([[50., nan],
           [nan, nan]])
    """

    categories: tuple[NDArray[Any] | None, ...]

    @classmethod
    def of(cls, table: Any) -> FeatureCodes:
        """Learn the categories of a pandas, polars or Arrow table."""
        frame = as_frame(table)
        return cls(tuple(_categories(frame.iloc[:, i]) for i in range(frame.shape[1])))

    @property
    def categorical(self) -> list[int]:
        """Numbers of the categorical columns."""
        return [i for i, values in enumerate(self.categories) if values is not None]

    def matrix(self, table: Any) -> NDArray[np.float64]:
        """(n, columns) numbers and codes."""
        import pandas as pd

        frame = as_frame(table)
        matrix = np.empty(frame.shape)
        for i, values in enumerate(self.categories):
            column = frame.iloc[:, i]
            if values is None:
                matrix[:, i] = column.to_numpy(dtype=float, na_value=np.nan)
                infinite = np.isinf(matrix[:, i])
                if infinite.any():
                    raise ValueError(
                        f"column {column.name!r} of X contains infinity (first in row {int(np.argmax(infinite))}): "
                        "replace such values first."
                    )
            else:
                codes = pd.Index(values).get_indexer(column.astype(object))
                matrix[:, i] = np.where(codes < 0, np.nan, codes)
        return matrix


def is_table(X: Any) -> bool:
    """Whether X has columns of its own kinds, as pandas, polars and Arrow tables have."""
    return hasattr(X, "to_pandas") or hasattr(X, "select_dtypes")


def as_frame(table: Any) -> Any:
    """The table as a pandas data frame."""
    return table.to_pandas() if hasattr(table, "to_pandas") else table


def _categories(column: Any) -> NDArray[Any] | None:
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column.dtype):  # booleans too
        return None
    if pd.api.types.is_datetime64_any_dtype(column.dtype) or pd.api.types.is_timedelta64_dtype(column.dtype):
        raise ValueError(
            f"column {column.name!r} of X holds dates: turn it into numbers first, for example hours or days."
        )
    present = column.dropna().astype(object)
    return np.array(sorted(present.unique(), key=lambda value: (str(type(value)), value)), dtype=object)
