"""The logistic function."""

import numpy as np
import pytest
from scipy.special import expit

from bagwise.utils.sigmoid import sigmoid


@pytest.mark.parametrize(("kind", "close"), [(float, 1e-14), (np.float32, 1e-5)])
def test_it_is_that_of_scipy_in_the_precision_of_its_argument(kind, close):
    x = np.concatenate([np.linspace(-80, 80, 1001), [-np.inf, np.inf, 0.0]]).astype(kind)
    before = x.copy()
    found = sigmoid(x)
    assert found.dtype == kind
    np.testing.assert_allclose(found, expit(x.astype(float)), rtol=close)
    np.testing.assert_array_equal(x, before)  # what it is given stays as it was


def test_other_numbers_are_taken_for_double_precision():
    assert float(sigmoid(0)) == 0.5
    assert sigmoid([[1, -1]]).shape == (1, 2)
    assert float(sigmoid(-1000.0)) == 0.0
