"""The strata that bags are random inside of."""

from typing import Any

import numpy as np
import pandas as pd

from bagwise.bags import Bags
from bagwise.bags.reading import name as shown
from bagwise.utils.parameters import ParameterError
from bagwise.utils.text import number_of
from bagwise.utils.typing import Integers, NDArray


def stratum_of_bags(values: NDArray[Any], bags: Bags) -> Integers:
    """(m,) the number of the stratum of each bag."""
    codes, names = pd.factorize(values[bags.order], use_na_sentinel=False)
    first = codes[bags.offsets[:-1]]
    mixed = codes != bags.repeat(first)
    if mixed.any():
        key = bags.keys[int(bags.code[bags.order][np.argmax(mixed)])]
        raise ParameterError("strata", f"has several values in bag {shown(key)}: a bag must lie in one stratum.")
    count = np.bincount(first, minlength=len(names))
    if count.min() < 3:
        few = int(np.argmin(count))
        raise ParameterError(
            "strata",
            f"has the value {shown(names[few])} in {number_of(int(count[few]), 'bag')} only: at least 3 are needed in "
            "each stratum; put such strata together.",
        )
    return np.asarray(first, dtype=np.intp)
