"""Trees as ONNX holds them: arrays of the nodes and leaves of all trees, attributes of the operator TreeEnsemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bagwise.export.trees import Tree

_SUM, _LEQ, _MEMBER = 1, 0, 6  # how trees of an ensemble are joined, and how nodes decide


def ensemble(outputs: Sequence[Sequence[Tree]]) -> dict[str, Any]:
    """Attributes of the sum of some trees for each output."""
    from onnx.numpy_helper import from_array

    nodes: dict[str, list[Any]] = {name: [] for name in ("mode", "feature", "split", "missing_left")}
    child: dict[str, list[int]] = {name: [] for name in ("left", "left_leaf", "right", "right_leaf")}
    members, roots, targets, weights = list[float](), list[int](), list[int](), list[float]()
    for target, trees in enumerate(outputs):
        for given in trees:
            tree = given if len(given.feature) else _stump(given)
            node, leaf = len(nodes["mode"]), len(weights)
            roots.append(node)
            for codes in tree.codes:
                nodes["mode"].append(_LEQ if codes is None else _MEMBER)
                members += [] if codes is None else [*codes.astype(float).tolist(), float("nan")]
            nodes["feature"] += tree.feature.tolist()
            nodes["split"] += tree.threshold.tolist()
            nodes["missing_left"] += tree.missing_left.astype(int).tolist()
            for name, to in (("left", tree.left), ("right", tree.right)):
                child[name] += np.where(to >= 0, node + to, leaf - 1 - to).tolist()
                child[f"{name}_leaf"] += (to < 0).astype(int).tolist()
            targets += [target] * tree.n_leaves
            weights += tree.value.tolist()
    found = {"n_targets": len(outputs), "aggregate_function": _SUM, "post_transform": 0, "tree_roots": roots}
    found |= {"nodes_modes": from_array(np.array(nodes["mode"], np.uint8)), "nodes_featureids": nodes["feature"]}
    found |= {"nodes_splits": from_array(np.array(nodes["split"], float))}
    found |= {"nodes_missing_value_tracks_true": nodes["missing_left"]}
    found |= {"nodes_truenodeids": child["left"], "nodes_trueleafs": child["left_leaf"]}
    found |= {"nodes_falsenodeids": child["right"], "nodes_falseleafs": child["right_leaf"]}
    found |= {"leaf_targetids": targets, "leaf_weights": from_array(np.array(weights, float))}
    return found | ({"membership_values": from_array(np.array(members, float))} if members else {})


def _stump(tree: Tree) -> Tree:
    """A tree of one leaf as a node with two that are equal."""
    none = np.zeros(1, dtype=np.int64)
    node: dict[str, Any] = {"feature": none, "threshold": np.zeros(1), "codes": (None,), "missing_left": none > 0}
    return replace(tree, **node, left=none - 1, right=none - 2, value=np.repeat(tree.value, 2))
