"""LightGBM's text, cut to what prediction needs, and checked before LightGBM reads it.

LightGBM's reader trusts its input: a child that points back at its parent would make prediction run for ever, a wrong
count would make it read beyond an array. So every tree is checked to be a tree. It also finds the end of a tree by an
empty line: without one it would mix a tree with the next, or look for more beyond the end of the text. So the text is
laid out as LightGBM writes it, to the last line break.
"""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.saving.kinds import require
from bagwise.utils.parameters import DEEPEST, LEAVES

_END = "end of trees\n"
_HEADER = {
    "version": r"v\d",
    "num_class": r"1",  # an output has a file of its own
    "num_tree_per_iteration": r"1",
    "label_index": r"0",
    "max_feature_idx": r"\d{1,8}",
    "objective": r"regression|cross_entropy",  # others may expect more outputs than there are trees
    "feature_names": r"\S+( \S+)*",
    "feature_infos": r"[^\s=]+( [^\s=]+)*",
}
_SPLITS = ("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child")
_PER_NODE = (*_SPLITS, "internal_value", "internal_weight", "internal_count")
_PER_LEAF = ("leaf_value", "leaf_weight", "leaf_count")
_WORD = re.compile(r"(?<![^ ])[^ ]*")
_INTEGER = re.compile(r"-?\d{1,10}", re.ASCII)
_NUMBER = re.compile(r"-?(\d+\.?\d*(e[-+]?\d{1,3})?|inf|nan)", re.ASCII)
_WHOLE = {"split_feature", "decision_type", "left_child", "right_child", "leaf_count", "internal_count"}


def to_text(booster: Any, *, redact: bool = False) -> str:
    """The trees of a booster in LightGBM's text, without the parameters it was trained with.

    redact: without the least and the greatest value of each column, by which nothing is predicted, either.
    """
    text = booster.model_to_string(num_iteration=-1)
    # Without the line of sizes, by which it would jump to places in the text, LightGBM reads in order.
    trees = re.sub(r"^tree_sizes=.*\n", "", text[: text.index(_END)] + _END, flags=re.MULTILINE)
    if redact:
        trees = re.sub(r"^feature_infos=.*$", _without_ranges, trees, count=1, flags=re.MULTILINE)
    check(trees)
    return trees


def _without_ranges(line: re.Match[str]) -> str:
    return "feature_infos=" + " ".join("[0:1]" for _ in line[0].split(" "))


def from_text(data: bytes, name: str) -> Any:
    """The booster of a text that `to_text` made."""
    import lightgbm as lgb

    try:
        text = data.decode("utf-8")
        check(text)
        return lgb.Booster(model_str=text)
    except (ValueError, lgb.basic.LightGBMError) as error:
        raise ValueError(f"{name} is no sound LightGBM model ({str(error)[:100]})") from None


def check(text: str) -> None:
    """Raise unless the text is a header and trees of which each is one."""
    require("\0" not in text and "\r" not in text and text.endswith("\n" + _END), "it does not end where it should")
    header, *trees = text.removesuffix(_END).split("Tree=")  # at the start of a line, since empty lines come before
    n_features = _check_header(header)
    for number, tree in enumerate(trees):
        first, _, rest = tree.partition("\n")
        require(first == str(number), f"tree {number} is out of order")
        try:
            _check_tree(_pairs(rest, end="\n\n\n"), n_features)
        except ValueError as error:
            raise ValueError(f"tree {number}: {error}") from None


def _pairs(block: str, *, end: str) -> dict[str, str]:
    """The lines ``key=value`` of a block; of its empty lines there are neither more nor fewer than LightGBM writes."""
    require(block.endswith(end), "an empty line is missing")
    pairs: dict[str, str] = {}
    for line in block.removesuffix(end).split("\n"):
        key, equals, value = line.partition("=")
        require(equals and key not in pairs, f"wrong line {line[:30]!r}")
        pairs[key] = value
    return pairs


def _check_header(header: str) -> int:
    """The number of features."""
    first, _, rest = header.partition("\n")
    pairs = _pairs(rest, end="\n\n")
    require(first == "tree" and set(_HEADER) - {"objective"} <= set(pairs) <= set(_HEADER), "wrong header")
    for key, value in pairs.items():
        require(re.fullmatch(_HEADER[key], value, re.ASCII), f"{key} is {value[:30]!r}")
    n_features = int(pairs["max_feature_idx"]) + 1
    same = pairs["feature_names"].count(" ") == pairs["feature_infos"].count(" ") == n_features - 1
    require(same, "the number of features differs")
    return n_features


def _check_tree(pairs: dict[str, str], n_features: int) -> None:
    """Raise unless every node but the first, and every leaf, is the child of one earlier node."""
    leaves, categorical = (int(_numbers(pairs, key, 1, whole=True)[0]) for key in ("num_leaves", "num_cat"))
    require(leaves <= 1 or LEAVES.holds(leaves), "it has more leaves than LightGBM gives a tree")
    require(leaves >= 1 and categorical >= 0 and pairs.get("is_linear") == "0", "it has no leaves, or linear ones")
    optional = ("cat_boundaries", "cat_threshold") if categorical else ()
    plain = ("num_leaves", "num_cat", "is_linear", "shrinkage")
    require(set(pairs) == {*plain, *_PER_NODE, *_PER_LEAF, *optional}, "lines are missing")
    sizes = {**dict.fromkeys(_PER_NODE, leaves - 1), **dict.fromkeys(_PER_LEAF, leaves)}
    if leaves == 1 and not pairs["leaf_weight"]:
        sizes["leaf_weight"] = 0  # LightGBM does not weigh the leaf of a constant tree
    node = {key: _numbers(pairs, key, size, whole=key in _WHOLE) for key, size in sizes.items()}
    _numbers(pairs, "shrinkage", 1)
    children = np.concatenate([node["left_child"], node["right_child"]])
    wanted = np.r_[-leaves : 0 if leaves > 1 else -leaves, 1 : leaves - 1]
    parent = np.tile(np.arange(leaves - 1), 2)
    later = (parent[children > 0] < children[children > 0]).all()
    require(np.array_equal(np.sort(children), wanted) and later, "its nodes form no tree")
    require(_depth(node) <= DEEPEST, f"it asks more than {DEEPEST} questions one after the other")
    feature, decision = node["split_feature"], node["decision_type"]
    require(((feature >= 0) & (feature < n_features)).all(), "it splits on a feature that is not there")
    require(((decision >= 0) & (decision <= 15)).all(), "it decides in an unknown way")
    place = node["threshold"][decision % 2 == 1]
    sound = bool(((place >= 0) & (place < categorical) & (place == np.floor(place))).all())
    if sound and categorical:
        n_words = pairs["cat_threshold"].count(" ") + 1
        start = _numbers(pairs, "cat_boundaries", categorical + 1, whole=True)
        words = _numbers(pairs, "cat_threshold", n_words, whole=True, below=2**32)
        sound = start[0] == 0 and start[-1] == n_words and not ((np.diff(start) < 1).any() or (words < 0).any())
    require(sound, "its categories are not there")


def _depth(node: dict[str, NDArray[Any]]) -> int:
    """The decisions on the longest way to a leaf, or one more than may be."""
    level, depth = np.zeros(min(1, len(node["left_child"])), dtype=np.int64), 0
    while len(level) and depth <= DEEPEST:
        level, depth = np.concatenate([node["left_child"][level], node["right_child"][level]]), depth + 1
        level = level[level > 0]
    return depth


def _numbers(pairs: dict[str, str], key: str, size: int, *, whole: bool = False, below: int = 2**31) -> NDArray[Any]:
    """The numbers of a line, as many as there must be; whole ones are such that LightGBM's integers hold them."""
    text = pairs.get(key, "")
    found = text.count(" ") + 1 if text else 0
    require(found == size, f"{key} has {found} numbers instead of {size}")
    if not text:
        return np.zeros(0)
    for word in _WORD.finditer(text):  # one after the other: a list of them would cost much more than the text
        require((_INTEGER if whole else _NUMBER).fullmatch(word[0]), f"{key} holds {word[0][:30]!r}")
    numbers = np.fromstring(text, dtype=np.int64 if whole else np.float64, sep=" ")
    require(not (whole and (np.abs(numbers) >= below).any()), f"{key} holds numbers that are too large")
    return numbers
