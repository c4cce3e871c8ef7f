r"""A few individual labels beside many rows without: prediction-powered estimates (Angelopoulos et al., 2023).

Labels of rows drawn at random tell E[f(x, y)] in every formation, only widely. What has a known mean over all rows,
:math:`z`, takes away the part of the spread that it explains: what the model, given the reports of the bags, expects of
f for each row; and the label itself, whose mean is reported.

.. math:: \hat\theta = \bar f_l - \beta \cdot (\bar z_l - \bar z)

is right for every β, however wrong the model is; the β of least variance makes it no wider than labels alone. Where
rows stand for several people, means are of people, and the label of a row is that of all of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import logit

from bagwise.bags import Bags
from bagwise.losses import posterior
from bagwise.metrics import FEWEST_OF_A_KIND, accuracy, brier, estimated, log_loss, possible
from bagwise.utils.parameters import ParameterError
from bagwise.utils.typing import ArrayLike, Floats

_FEWEST_LABELS = 5
_INSIDE = 1e-12  # how close to 0 and 1 probabilities may come whose log odds are taken


def prediction_powered(
    f: Floats, z: Floats, means: Floats, n: float, weight: Floats | None = None
) -> tuple[float, Floats]:
    """The mean of f over all n rows, and the influence of each labelled row.

    f, z: (l,) and (l, q) of labelled rows, drawn at random.  means: (q,) of z over all rows.  weight: (l,) for how many
    people each stands, of whom n are then all.

    >>> rng = np.random.default_rng(0)
    >>> expected = rng.random(10_000)
    >>> y = (rng.random(10_000) < expected).astype(float)
    >>> value, influence = prediction_powered(y[:200], expected[:200, None], expected.mean(keepdims=True), 10_000)
    >>> bool(abs(value - y.mean()) < 0.1), bool(influence.std() < y[:200].std())
    (True, True)
    """
    share = np.ones(len(f)) if weight is None else weight / weight.mean()
    own, of_z = float(np.average(f, weights=share)), np.average(z, axis=0, weights=share)
    root = np.sqrt(share)
    slope = np.linalg.lstsq(root[:, None] * (z - of_z), root * (f - own))[0]
    explained = share * ((z - of_z) @ slope)
    rest = share * (f - own) - explained
    # What is explained still varies, as a mean of all rows does.
    left = float(explained @ explained) / n
    scale = np.sqrt(1 + left / max(float(rest @ rest) / len(f), np.finfo(float).tiny))
    return own - float((of_z - means) @ slope), rest * scale if rest.any() else explained


def of_labels(h: Floats, bags: Bags, labels: ArrayLike, *, threshold: float, level: float) -> dict[str, Any]:
    """Metrics of single rows from individual labels, which the model and the reports sharpen, and how many there are.

    h: (n,) or (n, classes).  bags: of some or all rows.  labels: (n,), NaN for rows without; where rows of bags have
    weights, those in no bag stand for one person.
    """
    y = np.asarray(labels, dtype=float)
    if y.shape != (bags.n_rows,):
        raise ParameterError("labels", f"must hold one label or NaN per row, shape ({bags.n_rows},), got {y.shape}.")
    labelled = np.flatnonzero(~np.isnan(y))
    classes = 2 if h.ndim == 1 else h.shape[1]
    if len(labelled) < _FEWEST_LABELS:
        raise ParameterError("labels", f"must hold {_FEWEST_LABELS} labels or more, got {len(labelled)}.")
    if not np.isin(y[labelled], np.arange(classes)).all():
        raise ParameterError("labels", f"must be 0 to {classes - 1}, or NaN for rows without a label.")
    people = bags.of_table(bags.weight)
    weight = None if people is None else np.where(bags.code >= 0, people, 1.0)[labelled]
    rows, known = h[bags.order], h[labelled]
    said, said_of_known = rows, known
    if (bags.code[labelled] >= 0).all():  # else what is known of rows in bags is not known of all labelled rows
        s = np.clip(rows, _INSIDE, 1 - _INSIDE)
        said = posterior(logit(s) if h.ndim == 1 else np.log(s), bags)
        place = np.empty(bags.n_rows, dtype=np.intp)
        place[bags.order] = np.arange(len(bags.order))
        said_of_known = said[place[labelled]]
    truth = y[labelled] if h.ndim == 1 else np.eye(classes)[y[labelled].astype(int)]
    prior, noised = np.average(bags.outputs, axis=0, weights=bags.size), bags.noise_variance is not None

    def mean(of: Callable[[Floats], tuple[Floats, Floats]]) -> tuple[float, Floats]:
        """E[a + y·g] of the functions a and g that `of` makes of predictions."""

        def values(h: Floats, y: Floats) -> Floats:
            a, g = of(h)
            return np.asarray(a + (y * g if g.ndim == 1 else (y * g).sum(axis=1)))

        z, means = values(known, said_of_known)[:, None], np.atleast_1d(bags.average(values(rows, said)))
        if not noised:  # labels themselves have a mean that is reported
            z = np.column_stack([z, truth.reshape(len(truth), -1)[:, 1 - classes :]])
            means = np.append(means, prior[1 - classes :])
        return prediction_powered(values(known, truth), z, means, bags.n_people, weight)

    means: dict[str, Callable[[Floats], tuple[Floats, Floats]]]
    means = {"brier": brier, "accuracy": partial(accuracy, threshold=threshold), "log_loss": log_loss}
    told: dict[str, Any] = {
        name: estimated(*mean(of), level, positive=name == "log_loss").within(*possible(name, h.ndim))
        for name, of in means.items()
    }
    told["auc"] = None
    if h.ndim == 1 and min(truth.sum(), len(truth) - truth.sum()) >= FEWEST_OF_A_KIND:
        order = np.argsort(rows)
        p, ordered = float(prior[0]), rows[order]
        upto = np.append(0.0, np.cumsum(np.ones(len(rows)) if bags.weight is None else bags.weight[order]))

        def rank(h: Floats) -> tuple[Floats, Floats]:
            ends = [upto[np.searchsorted(ordered, h, side=side)] for side in ("left", "right")]
            return np.zeros(len(h)), np.asarray((ends[0] + ends[1]) / (2 * bags.n_people))

        value, influence = mean(rank)
        area = (value - p**2 / 2) / (p * (1 - p))
        told["auc"] = estimated(area, influence / (p * (1 - p)), level).within(0.0, 1.0)
    return {**told, "n_labels": len(labelled)}
