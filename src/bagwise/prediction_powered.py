r"""A few individual labels beside many rows without: prediction-powered estimates (Angelopoulos et al., 2023).

Labels of rows drawn at random tell E[f(x, y)] in every formation, only widely. What has a known mean over all rows,
:math:`z`, takes away the part of the spread that it explains: what the model, given the reports of the bags, expects of
f for each row; and the label itself, whose mean is reported.

.. math:: \hat\theta = \bar f_l - \beta \cdot (\bar z_l - \bar z)

is right for every β, however wrong the model is; the β of least variance makes it no wider than labels alone.
"""

import numpy as np

from bagwise.utils.typing import Floats


def prediction_powered(f: Floats, z: Floats, means: Floats, n: int) -> tuple[float, Floats]:
    """The mean of f over all n rows, and the influence of each labelled row.

    f, z: (l,) and (l, q) of labelled rows, drawn at random.  means: (q,) of z over all rows.

    >>> rng = np.random.default_rng(0)
    >>> expected = rng.random(10_000)
    >>> y = (rng.random(10_000) < expected).astype(float)
    >>> value, influence = prediction_powered(y[:200], expected[:200, None], expected.mean(keepdims=True), 10_000)
    >>> bool(abs(value - y.mean()) < 0.1), bool(influence.std() < y[:200].std())
    (True, True)
    """
    centred, about = f - f.mean(), z - z.mean(axis=0)
    slope = np.linalg.lstsq(about, centred)[0]
    explained = about @ slope
    rest = centred - explained
    # What is explained still varies, as a mean of all rows does.
    left = float(explained @ explained) / n
    scale = np.sqrt(1 + left / max(float(rest @ rest) / len(f), np.finfo(float).tiny))
    return float(f.mean() - (z.mean(axis=0) - means) @ slope), rest * scale if rest.any() else explained
