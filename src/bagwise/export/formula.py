r"""How the prediction of a model comes out of its parts, said once for every format.

A format says numbers with the words of `Words`: what a linear model, a sum of trees or a network makes of rows, and a
few functions of that. `prediction` puts them together as the estimators do; whatever has no formula here cannot be
exported, and is told in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from bagwise.boosting.links import IDENTITY, LOGIT, bounds_of, score_of
from bagwise.data.features import Encoding
from bagwise.export.trees import Share, shares_of
from bagwise.linear.probabilities import EDGE
from bagwise.log_odds import LEAST, SUREST
from bagwise.nonnegative import LARGEST
from bagwise.utils.typing import Floats

Number = TypeVar("Number")


class Words(Protocol, Generic[Number]):
    """What a format says: each number has a row per row and a column per output."""

    name: str

    def linear(self, encoding: Encoding | None, coef: Floats, intercept: Floats) -> Number:
        """x·coefᵀ + intercept of codes or, if there is an encoding, what it makes of them; coef: (outputs, d)."""

    def trees(self, outputs: Sequence[Sequence[Share]], constant: Floats) -> Number:
        """For each output, the weighted sum of some trees, and a constant."""

    def network(self, encoding: Encoding | None, module: Any) -> Number:
        """What a torch module makes of codes or, if there is an encoding, what that makes of them."""

    def moved(self, number: Number, factor: Floats | float, shift: Floats | float) -> Number:
        """factor · number + shift."""

    def added(self, numbers: Sequence[Number]) -> Number:
        """The sum of several."""

    def clipped(self, number: Number, low: Floats | float | None, high: Floats | float | None) -> Number:
        """The number, but no less and no more than the bounds that are given."""

    def sigmoid(self, number: Number) -> Number:
        """1/(1 + e⁻ᶻ)."""

    def logit(self, number: Number) -> Number:
        """log(h/(1 − h))."""

    def exp(self, number: Number) -> Number:
        """eᶻ."""

    def log(self, number: Number) -> Number:
        """The logarithm of a number above 0."""

    def softmax(self, number: Number) -> Number:
        """eᶻ over its sum over outputs."""

    def shares(self, number: Number) -> Number:
        """The number over its sum over outputs."""


class CannotExportError(ValueError):
    """A model, or a part of one, that a format has no words for."""


def prediction(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    """Probabilities of class 1, or of several classes, or values: what `predict_proba` or `predict` of a model tells.

    Parameters
    ----------
    model : BagClassifier or BagRegressor
        Fitted.
    encoding : Encoding or None
        What makes the numbers that it reads out of codes; None where it reads codes.
    words : Words
        Of a format.

    Returns
    -------
    number
        With one output, or one for each of several classes.
    """
    kind = type(model).__name__
    if getattr(model, "has_offset_", False):
        said = f"a {kind} that was fitted with an offset cannot be exported"
        raise CannotExportError(f"{said}: its scores need the offset of each row; fit it without, or use predict.")
    formula = _FORMULAS.get(kind)
    if formula is None or not type(model).__module__.startswith("bagwise."):
        known = "ridge, logistic, sgd, mean-map, tweedie, boosting, network, auto and the group prior"
        raise CannotExportError(f"a {kind} cannot be exported: models that can are {known}.")
    found: Number = formula(model, encoding, words)
    return found


def classes_of(model: Any) -> int:
    """How many outputs it has: 1 for two classes and for values."""
    n = len(getattr(model, "classes_", ()))
    return n if n > 2 else 1


# -- linear -----------------------------------------------------------------------------------------------------------


def _linear(
    model: Any, encoding: Encoding | None, words: Words[Number], slope: float = 1.0, shift: float = 0.0
) -> Number:
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    return words.linear(encoding, slope * coef, slope * intercept + shift)


def _of_sigmoid(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    """Ridge and SGD: a sigmoid through h, or h kept inside (0, 1)."""
    published = getattr(model, "as_published", False)
    if model.sigmoid_ is not None and not published:
        slope, shift = (float(one) for one in model.sigmoid_)
        return words.sigmoid(_linear(model, encoding, words, slope, shift))
    edge = 0.0 if published else EDGE
    h = words.clipped(_linear(model, encoding, words), edge, 1 - edge)
    return words.shares(h) if classes_of(model) > 1 else h


def _of_log_odds(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    z = _linear(model, encoding, words)
    return words.softmax(z) if classes_of(model) > 1 else words.sigmoid(z)


def _of_values(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    h = _linear(model, encoding, words)
    if not getattr(model, "nonnegative_", False):
        return h
    return words.moved(words.clipped(h, 0.0, None), model.factor_, 0.0)


def _tweedie(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    return words.exp(words.clipped(_linear(model, encoding, words), None, LARGEST))


# -- trees ------------------------------------------------------------------------------------------------------------


def log_odds_of_trees(model: Any, words: Words[Number]) -> Number:
    """Log odds by the fits and what updates added to them; fits that add up as log odds are one sum of trees."""
    fits = [(fit, model.n_estimators_[kind]) for kind, fits in model.fits_.items() for fit in fits]
    share, n_outputs = (model.stretch_ / len(fits) if fits else 0.0), classes_of(model)
    constant: Floats = np.zeros(n_outputs) + (model.offset_ if fits else score_of(model.prior_, LOGIT))
    parts, together = [], [list[Share]() for _ in range(n_outputs)]
    for fit, n_trees in fits:
        start, sums = score_of(fit.prior, fit.link), shares_of(fit, n_trees, share if fit.link == LOGIT else 1.0)
        if fit.link == LOGIT:
            constant = constant + share * (start + fit.offset)
            together = [[*one, *more] for one, more in zip(together, sums, strict=True)]
            continue
        h = words.clipped(words.trees(sums, start), *bounds_of(fit.prior))
        parts.append(words.moved(words.logit(h), share, share * fit.offset))
    updates = getattr(model, "updates_", [])
    for update in updates:  # z becomes stretch · (z + mean of trees) + offset
        more = [one for fit in update.fits for one in shares_of(fit, -1, 1 / len(update.fits))[0]]
        together = [[Share(tree, update.stretch * weight) for tree, weight in [*together[0], *more]]]
        constant = update.stretch * constant + update.offset
        parts = [words.moved(part, update.stretch, 0.0) for part in parts]
    if not parts or any(together):
        parts.append(words.trees(together, constant))
    else:
        parts[0] = words.moved(parts[0], 1.0, constant)
    return words.added(parts) if len(parts) > 1 else parts[0]


def _boosting(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    _check_codes(encoding)
    h = words.sigmoid(words.clipped(log_odds_of_trees(model, words), -SUREST, SUREST))
    return words.shares(h) if classes_of(model) > 1 else h


def _boosting_values(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    _check_codes(encoding)
    fits = [(fit, model.n_estimators_[kind]) for kind, fits in model.fits_.items() for fit in fits]
    share, p = model.stretch_ / len(fits), model.prior_
    rest = (1 - model.stretch_) * p
    if model.link_ == IDENTITY:
        together = [one for fit, n_trees in fits for one in shares_of(fit, n_trees, share)[0]]
        h = words.trees([together], rest + share * sum(fit.prior for fit, _ in fits))
    else:
        said = [words.trees(shares_of(fit, n, 1.0), score_of(fit.prior, fit.link)) for fit, n in fits]
        h = words.moved(words.added([words.exp(words.clipped(s, None, LARGEST)) for s in said]), share, rest)
    return words.moved(words.clipped(h, 0.0, None), model.factor_, 0.0) if model.nonnegative_ else h


def _group_prior(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    _check_codes(encoding)
    sums = [shares_of(booster, -1, 1.0) for booster in model.boosters_]
    h = words.sigmoid(words.trees([one[0] for one in sums], np.zeros(len(sums))))
    return words.shares(h) if classes_of(model) > 1 else h


def _check_codes(encoding: Encoding | None) -> None:
    if encoding is not None:
        raise CannotExportError("trees that read encoded categories cannot be exported: fit them by tables.fit.")


# -- networks ---------------------------------------------------------------------------------------------------------


def _scores(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    return words.moved(words.network(encoding, model.module_), model.stretch_, model.offset_)


def _network(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    z = _scores(model, encoding, words)
    return words.softmax(z) if classes_of(model) > 1 else words.sigmoid(words.clipped(z, -SUREST, SUREST))


def _network_values(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    factor = model.factor_ if model.nonnegative_ else 1.0
    h = words.moved(_scores(model, encoding, words), factor * model.scale_, factor * model.centre_)
    return words.clipped(h, 0.0, None) if model.nonnegative_ else h


# -- what was chosen --------------------------------------------------------------------------------------------------


def _mixed(model: Any, words: Words[Number]) -> Number:
    """The weighted mean of what the models say."""
    parts = []
    for weight, one in zip(model.weights_, model.models_, strict=True):
        if weight:
            said = prediction(one, None if one.reads.codes else model.encoding_, words)
            parts.append(said if weight == 1 else words.moved(said, float(weight), 0.0))
    return words.added(parts) if len(parts) > 1 else parts[0]


def _auto(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    _check_codes(encoding)
    h, several = words.clipped(_mixed(model, words), LEAST, 1 - LEAST), classes_of(model) > 1
    if model.stretch_ == 1 and not np.any(model.offset_):
        return words.shares(h) if several else h
    if several:  # a factor common to the classes of a row falls out
        return words.softmax(words.moved(words.log(words.shares(h)), model.stretch_, model.offset_))
    return words.sigmoid(words.moved(words.logit(h), model.stretch_, model.offset_))


def _auto_values(model: Any, encoding: Encoding | None, words: Words[Number]) -> Number:
    _check_codes(encoding)
    h = words.moved(_mixed(model, words), model.stretch_, model.offset_)
    return words.moved(words.clipped(h, 0.0, None), model.factor_, 0.0) if model.nonnegative_ else h


_FORMULAS: dict[str, Callable[..., Any]] = {  # by names, so that nothing is loaded for its formula
    "BagRidgeClassifier": _of_sigmoid,
    "BagSGDClassifier": _of_sigmoid,
    "BagLogisticClassifier": _of_log_odds,
    "BagMeanMapClassifier": _of_log_odds,
    "BagRidgeRegressor": _of_values,
    "BagSGDRegressor": _of_values,
    "BagTweedieRegressor": _tweedie,
    "BagBoostingClassifier": _boosting,
    "BagBoostingRegressor": _boosting_values,
    "GroupPriorClassifier": _group_prior,
    "BagNeuralClassifier": _network,
    "BagNeuralRegressor": _network_values,
    "BagAutoClassifier": _auto,
    "BagAutoRegressor": _auto_values,
}
