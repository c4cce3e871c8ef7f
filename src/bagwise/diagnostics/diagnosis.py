"""The tests of a diagnosis, and the quick model that is asked beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bagwise import dispersion
from bagwise.bags import Bags, as_bags
from bagwise.diagnostics.result import QUESTIONS, Diagnosis
from bagwise.disclosure import leaks
from bagwise.dispersion import among
from bagwise.formation import evidence_of, settled_by, told
from bagwise.formation.scatter import terms
from bagwise.formation.strata import random_but_for_order, random_strata, strata_of
from bagwise.formation.support import support
from bagwise.linear import quick
from bagwise.ranks import Columns, columns_of, scores_of
from bagwise.utils.parameters import TARGET, ParameterError, check_level, check_parameters
from bagwise.utils.rng import RandomState, generator
from bagwise.utils.typing import ArrayLike, NDArray


def diagnose(
    X: Any,
    y: ArrayLike | None = None,
    *,
    bags: ArrayLike | Bags | None = None,
    noise_variance: ArrayLike | None = None,
    keys: Mapping[str, ArrayLike] | None = None,
    level: float = 0.01,
    quick_model: bool = True,
    target: str = "auto",
    random_state: RandomState = 0,
) -> Diagnosis:
    """Tell how bags came about, whether they drift along their order, or leak labels.

    Parameters
    ----------
    X : array or table of shape (n, features)
        Numbers, dates and durations are compared by their ranks; other columns by their frequent categories and by the
        rank of the category in alphabetical order.
    y, bags, noise_variance : array, Bags or None
        As in `fit` and `Bags.from_rows`. The order of the bags is that of their ids.
    keys : dict of arrays of shape (n,), optional
        Columns that are no features but may be strata of the bags, by name, such as the campaign that is part of the
        key of each bag.
    level : float
        Random bags are called anything else at most this often.
    quick_model : bool
        Fit one, which takes about a second. Without it nobody tells whether bags that differ in their features have
        effects, too, and which of both it is where proportions alone differ.
    target : {"auto", "label", "value"}
        What bags report: proportions of labels, or means of real numbers, whose spread by chance is unknown: then bags
        are compared by their features alone. "auto": the latter where a report lies outside [0, 1].
    random_state : int, Generator or None
        For the bags that a quick model is not fitted to, and for orders that a drift is compared with.

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> import bagwise as bw
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(6400, 2))
    >>> y = rng.random(6400) < 1 / (1 + np.exp(-X[:, 0]))
    >>> ids = bw.random_bags(6400, size=64, random_state=0)
    >>> diagnose(X, bw.aggregate(y, ids), bags=ids).verdict
    'random'
    >>> by_first = rng.permutation(100)[np.argsort(np.argsort(X[:, 0])) // 64]
    >>> found = diagnose(X, bw.aggregate(y, by_first), bags=by_first)
    >>> found.formation.name, found.sureness
    ('features', 'clear')
    """
    check_level(level)
    check_parameters({"target": target}, {"target": TARGET})
    n, table = columns_of(X)
    given = as_bags(y, bags, n, noise_variance=noise_variance, whole_labels=target != "value")
    values = target == "value" or (target == "auto" and dispersion.have_real_labels(given))
    if len(given) < 2:
        raise ValueError("there is one bag only: at least 2 are needed to compare bags.")
    rng = generator(random_state)
    columns: Columns = [(name, scores_of(values[given.order], name, given.weight)) for name, values in table]
    drift = tuple(among(QUESTIONS, one) for one in dispersion.drifts(columns, given, rng))
    found = evidence_of(columns, given, given, values=values).among(QUESTIONS)
    formation, said, more = told(found, level=level), None, [*columns, *terms(columns, given)]
    differing = [one.p_value < level and one.ratio > 1 for one in found.each[: len(columns)]]
    ask = quick_model and not values
    model = quick.quick_model(columns, differing, more[len(columns) :], given, rng) if ask else None
    if model is not None:
        if formation.others:
            said = support(model.parts)
            formation = settled_by(formation, said)
        found = found.with_model(*model.predictions(effects=formation.name == "effects"))
    untestable = [one.subject for one in found.each[: len(columns)] if np.isnan(one.p_value)]
    if np.isnan(found.proportions.p_value):
        untestable.insert(0, "proportions of real labels" if values else "proportions")
    drifting = any(one.p_value < level for one in drift)
    labels: dict[str, str | int] = dict(zip((name for name, _ in table), _labels(X, len(table)), strict=True))
    words = [(name, _words(one, n)[given.order]) for name, one in (keys or {}).items()]
    of_keys = [(name, scores_of(one, name, given.weight)) for name, one in words]
    labels |= {name: name for name, _ in of_keys}
    candidates = {name: one for name, scores in [*columns, *of_keys] if (one := strata_of(scores, given)) is not None}
    strata = random_strata(candidates, more, given, level=level) if formation.name != "random" else ()
    hidden = None if given.interval is None else given.interval.hidden
    return Diagnosis(
        formation=formation,
        evidence=found,
        drift=drift,
        random_apart=drifting and random_but_for_order(more, given, level=level),
        strata=tuple(labels[name] for name in strata),
        support=said,
        n_columns=len(columns),
        untestable=tuple(untestable),
        sizes=tuple(int(q) for q in np.quantile(given.rows, [0, 0.25, 0.5, 0.75, 1], method="inverted_cdf")),
        size_histogram=np.unique(given.rows, return_counts=True),
        n_rows=given.n_bagged,
        n_bags=len(given),
        n_outside=given.n_rows - given.n_bagged,
        leaks=leaks(given.size, given.proportion, given.noise_variance, values=values, hidden=hidden),
        level=level,
        n_people=0.0 if given.weight is None else given.n_people,
    )


def _words(key: ArrayLike, n: int) -> NDArray[Any]:
    """A key as words, so that it has no order."""
    words = np.asarray(key).astype(str).astype(object)
    if words.shape != (n,):
        raise ParameterError("keys", f"must have a value for each of the {n} rows, got shape {words.shape}.")
    return words


def _labels(X: Any, width: int) -> list[str | int]:
    """What columns are called: their names, or their numbers where they have none."""
    names = getattr(X, "columns", None) if not hasattr(X, "to_pandas") else X.to_pandas().columns
    return list(range(width)) if names is None else [str(one) for one in names]
