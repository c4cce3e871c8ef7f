"""Trees of LightGBM as arrays, whatever they are to become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import lightgbm as lgb
import numpy as np

from bagwise.boosting.trees import Boosted
from bagwise.utils.typing import Booleans, Floats, Integers


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree: nodes, of which the first is the root, and leaves; child c is a node, or leaf −1 − c.

    feature: (nodes,) numbers of columns.  threshold: (nodes,) what numbers that go left are not above, NaN where
    categories are told apart.  codes: of each node, the categories that go left, None where it is numbers.
    missing_left: (nodes,) whether rows without the number go left; those without the category go right.
    left, right: (nodes,) children.  value: (leaves,).  gain, count: (nodes,) of what it was
    grown on; leaf_count: (leaves,) rows.

    >>> import lightgbm as lgb
    >>> X, y = np.arange(8.0)[:, None], np.repeat([0.0, 1.0], 4)
    >>> grown = {"min_data_in_leaf": 1, "min_data_in_bin": 1, "num_leaves": 2, "learning_rate": 1.0, "verbosity": -1}
    >>> (tree,) = trees_of(lgb.train(grown, lgb.Dataset(X, y), 1))
    >>> tree.leaf_of(np.array([[2.0], [6.0], [np.nan]])), bool(tree.value[0] < tree.value[1])
    (array([0, 1, 0]), True)
    """

    feature: Integers
    threshold: Floats
    codes: tuple[Integers | None, ...]
    missing_left: Booleans
    left: Integers
    right: Integers
    value: Floats
    gain: Floats
    count: Integers
    leaf_count: Integers

    @property
    def n_leaves(self) -> int:
        """How many leaves it has."""
        return len(self.value)

    def leaf_of(self, X: Floats) -> Integers:
        """(n,) the leaf of each row of codes."""
        at = np.full(len(X), 0 if len(self.feature) else -1)
        for node, codes in enumerate(self.codes):  # a node comes before its children
            here = np.flatnonzero(at == node)
            x = X[here, self.feature[node]]
            left = np.isin(x, codes) if codes is not None else x <= self.threshold[node]
            if codes is None and self.missing_left[node]:
                left |= np.isnan(x)
            at[here] = np.where(left, self.left[node], self.right[node])
        return -1 - at


class Share(NamedTuple):
    """A tree, and what it is multiplied by in a sum."""

    tree: Tree
    weight: float


def shares_of(fit: Boosted | lgb.Booster, n_trees: int, weight: float) -> list[list[Share]]:
    """For each output of a fit, its first `n_trees` trees (−1 for all) with a weight."""
    boosters = fit.boosters if isinstance(fit, Boosted) else [fit]
    return [[Share(tree, weight) for tree in trees_of(booster, n_trees)] for booster in boosters]


def trees_of(booster: lgb.Booster, n_trees: int = -1) -> list[Tree]:
    """The first trees of a booster with one tree per round; −1 for all."""
    if n_trees == 0 or not booster.num_trees():
        return []
    return [_tree(one["tree_structure"]) for one in booster.dump_model(num_iteration=n_trees)["tree_info"]]


def _tree(structure: dict[str, Any]) -> Tree:
    """From LightGBM's own description: nested dicts."""
    nodes: list[dict[str, Any]] = []
    leaves: list[dict[str, Any]] = []
    child: list[list[int]] = []
    waiting: list[tuple[dict[str, Any], int, int]] = [(structure, -1, 0)]
    while waiting:
        one, parent, side = waiting.pop()
        if "left_child" in one:
            number = len(nodes)
            nodes.append(one)
            child.append([0, 0])
            waiting += [(one["right_child"], number, 1), (one["left_child"], number, 0)]
        else:
            leaves.append(one)
            number = -len(leaves)
        if parent >= 0:
            child[parent][side] = number
    told = [_decision(one) for one in nodes]
    children = np.array(child, dtype=np.int64).reshape(len(nodes), 2)
    return Tree(
        feature=np.array([one["split_feature"] for one in nodes], dtype=np.int64),
        threshold=np.array([threshold for threshold, _, _ in told], dtype=float),
        codes=tuple(codes for _, codes, _ in told),
        missing_left=np.array([left for _, _, left in told], dtype=bool),
        left=children[:, 0],
        right=children[:, 1],
        value=np.array([one["leaf_value"] for one in leaves], dtype=float),
        gain=np.array([one["split_gain"] for one in nodes], dtype=float),
        count=np.array([one["internal_count"] for one in nodes], dtype=np.int64),
        leaf_count=np.array([one.get("leaf_count", 0) for one in leaves], dtype=np.int64),
    )


def _decision(node: dict[str, Any]) -> tuple[float, Integers | None, bool]:
    """Threshold, categories that go left, and whether a missing number does."""
    if node["decision_type"] == "==":
        return float("nan"), np.array(str(node["threshold"]).split("||"), dtype=np.int64), False
    threshold, missing = float(node["threshold"]), node["missing_type"]
    if missing == "Zero":
        raise ValueError("trees that take 0 for missing are none of ours.")
    return threshold, None, bool(node["default_left"] if missing == "NaN" else threshold >= 0)


def merged(outputs: Sequence[Sequence[Share]]) -> list[list[Tree]]:
    """For each output, its trees with their weights in the values of leaves."""
    return [[replace(tree, value=weight * tree.value) for tree, weight in shares] for shares in outputs]
