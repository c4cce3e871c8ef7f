"""LightGBM: the fits of a model as one booster, where their sum says what their mean predicts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import lightgbm as lgb
import numpy as np

from bagwise.data.features import Encoding
from bagwise.export.described import Described
from bagwise.export.formula import CannotExportError, prediction
from bagwise.export.trees import Share, Tree
from bagwise.log_odds import LEAST, SUREST
from bagwise.utils.typing import Floats

_CATEGORICAL, _DEFAULT_LEFT, _MISSING_IS_NAN = 1, 2, 8  # bits by which LightGBM says how a node decides
_ON_LOG_ODDS = (
    "fit it with objective='likelihood' (bagwise fit --model boosting --set objective=likelihood), "
    "by which all fits add up on log odds"
)
_LINKS = {"identity": "regression", "logit": "binary sigmoid:1", "log": "poisson"}


def to_lightgbm(model: Any) -> lgb.Booster:
    """Boosted trees as one booster of LightGBM, which predicts what the model does.

    The fits of a model are averaged. On log odds their mean is a sum of trees, so that one booster says it. It cannot
    where fits add up on another scale than they are averaged on, or classes are several: that is an error.

    Columns are numbers and codes, as `code_inputs` makes them of a table; of a pandas table, LightGBM takes
    columns of the type category for those with levels. Missing numbers go where the model sends them. Probabilities of
    almost 0 or 1, which models keep off these by a millionth, are not.

    Parameters
    ----------
    model : TableModel, BagClassifier or BagRegressor
        Boosting, or "auto" that chose it: a model that `tables.fit` or `load` returned, or an estimator of arrays.

    Returns
    -------
    lightgbm.Booster
        ``found.save_model(path)`` writes its text.

    Examples
    --------
    >>> import bagwise as bw
    >>> X = np.random.default_rng(0).normal(size=(640, 2))
    >>> ids = bw.random_bags(640, size=16, random_state=0)
    >>> model = bw.BagBoostingClassifier(objective="likelihood", n_estimators=20, n_jobs=1, random_state=0)
    >>> booster = to_lightgbm(model.fit(X, bw.aggregate(X[:, 0] > 0, ids), bags=ids))
    >>> bool(np.allclose(booster.predict(X), model.predict_proba(X)[:, 1]))
    True
    """
    described = Described.of(model)
    found = prediction(described.estimator, described.encoding, _Sums())
    if not found.shares:
        raise CannotExportError(
            "the model has no trees, it predicts the same for all rows: there is nothing to export."
        )
    return lgb.Booster(model_str=_text(described, found))


@dataclass(frozen=True)
class _Sum:
    """A sum of trees and a constant, or a function of one.  link: which."""

    shares: tuple[Share, ...]
    constant: float
    link: str = "identity"

    def plain(self, what: str) -> _Sum:
        """The sum; an error where it is a function of one."""
        if self.link != "identity":
            raise CannotExportError(f"{what}: one booster cannot say it; {_ON_LOG_ODDS}, or export to onnx.")
        return self


class _Sums:
    """Words of LightGBM, which are few: a number is one sum of trees."""

    name = "LightGBM"

    def _refuse(self, what: str, way: str = "export to onnx") -> CannotExportError:
        return CannotExportError(f"{what} is no booster of LightGBM: {way}.")

    def linear(self, encoding: Encoding | None, coef: Floats, intercept: Floats) -> _Sum:
        """See `Words`."""
        raise self._refuse("a linear model", "export to sql or onnx")

    def network(self, encoding: Encoding | None, module: Any) -> _Sum:
        """See `Words`."""
        raise self._refuse("a network", "export to onnx or torch")

    def trees(self, outputs: Sequence[Sequence[Share]], constant: Floats) -> _Sum:
        """See `Words`."""
        if len(outputs) > 1:
            said = "boosted trees of several classes are normalised over classes, which one booster cannot say"
            raise CannotExportError(f"{said}: export to onnx.")
        return _Sum(tuple(outputs[0]), float(np.ravel(constant)[0]))

    def moved(self, number: _Sum, factor: Floats | float, shift: Floats | float) -> _Sum:
        """See `Words`."""
        by, to = float(np.ravel(factor)[0]), float(np.ravel(shift)[0])
        if by == 1 and to == 0:
            return number
        number = number.plain("predictions are averaged, or multiplied, after a function of each fit's trees")
        shares = tuple(Share(tree, by * weight) for tree, weight in number.shares)
        return _Sum(shares, by * number.constant + to)

    def added(self, numbers: Sequence[_Sum]) -> _Sum:
        """See `Words`."""
        plain = [one.plain("fits are averaged after a function of their trees") for one in numbers]
        return _Sum(tuple(share for one in plain for share in one.shares), sum(one.constant for one in plain))

    def clipped(self, number: _Sum, low: Floats | float | None, high: Floats | float | None) -> _Sum:
        """See `Words`."""
        bounds = tuple(None if one is None else float(np.ravel(one)[0]) for one in (low, high))
        if number.link == "identity" and bounds == (-SUREST, SUREST):
            return number
        if number.link == "identity" and low is None:  # a logarithm beyond what has a number
            return number
        if number.link == "logit" and bounds == (LEAST, 1 - LEAST):
            return number
        if high is None:
            raise CannotExportError("predictions are kept above 0, which one booster cannot say: export to onnx.")
        said = "some fits add up as probabilities, others are averaged with them on log odds"
        raise CannotExportError(f"{said}, which one booster cannot say: {_ON_LOG_ODDS}, or export to onnx.")

    def sigmoid(self, number: _Sum) -> _Sum:
        """See `Words`."""
        return replace(number.plain("a sigmoid of a function of trees"), link="logit")

    def logit(self, number: _Sum) -> _Sum:
        """See `Words`."""
        if number.link != "logit":
            raise CannotExportError(f"log odds of sums of trees are no sum: {_ON_LOG_ODDS}, or export to onnx.")
        return replace(number, link="identity")

    def exp(self, number: _Sum) -> _Sum:
        """See `Words`."""
        return replace(number.plain("an exponential of a function of trees"), link="log")

    def log(self, number: _Sum) -> _Sum:
        """See `Words`."""
        raise self._refuse("a logarithm of predictions")

    def softmax(self, number: _Sum) -> _Sum:
        """See `Words`."""
        raise self._refuse("a model of several classes")

    def shares(self, number: _Sum) -> _Sum:
        """See `Words`."""
        raise self._refuse("a model of several classes")


# -- text -------------------------------------------------------------------------------------------------------------


def _text(described: Described, found: _Sum) -> str:
    """A sum of trees as LightGBM writes it; the constant is part of the first tree."""
    names: list[str] = []
    for one in described.made:
        name = re.sub(r"[^0-9A-Za-z_]+", "_", one.made.name)
        names.append(name if name not in names else f"{name}_{len(names)}")
    header = ["tree", "version=v4", "num_class=1", "num_tree_per_iteration=1", "label_index=0"]
    header += [f"max_feature_idx={len(names) - 1}", f"objective={_LINKS[found.link]}"]
    infos = " ".join("[0:1]" for _ in names)  # of what it was grown on, by which nothing is predicted
    header += [f"feature_names={' '.join(names)}", f"feature_infos={infos}", "", ""]
    blocks = []
    for number, (tree, weight) in enumerate(found.shares):
        value = weight * tree.value + (found.constant if number == 0 else 0.0)
        blocks.append(f"Tree={number}\n" + "\n".join(_lines(described, replace(tree, value=value))) + "\n\n\n")
    levels = [list(one.made.levels) for one in described.made if one.made.levels is not None]
    ending = "end of trees\n\nparameters:\n\nend of parameters\n\n"
    return "\n".join(header) + "".join(blocks) + ending + f"pandas_categorical:{json.dumps(levels or None)}\n"


def _lines(described: Described, tree: Tree) -> list[str]:
    """A tree, line by line."""
    decisions, thresholds, boundaries, words = [], [], [0], []
    made = described.made
    for number, codes, threshold, left in zip(tree.feature, tree.codes, tree.threshold, tree.missing_left, strict=True):
        if codes is not None:
            bits = np.zeros(int(codes.max()) // 32 + 1, dtype=np.uint64)
            np.bitwise_or.at(bits, codes // 32, np.uint64(1) << (codes % 32).astype(np.uint64))
            decisions.append(_CATEGORICAL)
            thresholds.append(float(len(boundaries) - 1))
            words += bits.tolist()
            boundaries.append(len(words))
            continue
        typical = made[number].made.typical
        left = left if typical is None else typical <= threshold
        decisions.append(_MISSING_IS_NAN | (_DEFAULT_LEFT if left else 0))
        thresholds.append(float(threshold))
    counts, leaf_counts = tree.count.tolist(), tree.leaf_count.tolist()
    lines: dict[str, Sequence[Any]] = {"num_leaves": [tree.n_leaves], "num_cat": [len(boundaries) - 1]}
    lines |= {"split_feature": tree.feature.tolist(), "split_gain": tree.gain.tolist(), "threshold": thresholds}
    lines |= {"decision_type": decisions, "left_child": tree.left.tolist(), "right_child": tree.right.tolist()}
    lines |= {"leaf_value": tree.value.tolist(), "leaf_weight": leaf_counts, "leaf_count": leaf_counts}
    lines |= {"internal_value": [0] * len(counts), "internal_weight": counts, "internal_count": counts}
    if len(boundaries) > 1:
        lines |= {"cat_boundaries": boundaries, "cat_threshold": words}
    lines |= {"is_linear": [0], "shrinkage": [1]}
    return [f"{name}={' '.join(repr(value) for value in values)}" for name, values in lines.items()]
