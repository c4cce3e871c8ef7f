"""The types of arrays, by their words."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = Any
"""A NumPy array or a torch tensor."""

Floats = NDArray[np.floating]
Integers = NDArray[np.integer]
Booleans = NDArray[np.bool_]

__all__ = ["Array", "ArrayLike", "Booleans", "Floats", "Integers", "NDArray"]
