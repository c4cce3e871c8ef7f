"""One way to read `random_state`."""

import numpy as np

from bagwise.utils.parameters import ParameterError

RandomState = int | np.random.Generator | np.random.RandomState | None


def generator(random_state: RandomState) -> np.random.Generator:
    """A Generator from None, a seed, a Generator or scikit-learn's RandomState; no global state is touched.

    >>> generator(0).integers(10) == generator(0).integers(10)
    np.True_
    """
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**32, dtype=np.uint64))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            "random_state", f"must be None, a whole number of at least 0 or a generator, got {random_state!r}."
        ) from error
