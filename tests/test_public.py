"""What is public stands in one table, `bagwise.PUBLIC`; the documents and the docstrings say the same."""

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bagwise
from bagwise.base import BagEstimator

pytest.importorskip("torch", reason="networks are public, too")

ROOT = Path(__file__).parent.parent
OF_THE_TOP = [module for module in bagwise.PUBLIC if "." not in module]
FEW_TRIALS = {
    "BagAutoClassifier": {"candidates": {"ridge": bagwise.BagRidgeClassifier()}},
    "BagAutoRegressor": {"candidates": {"ridge": bagwise.BagRidgeRegressor()}},
    "BagBoostingClassifier": {"n_estimators": 8},
    "BagBoostingRegressor": {"n_estimators": 8},
}


@cache
def public():
    """Every public name with its object: those of `bagwise` under the short name, others under their module's."""
    found = {}
    for module, short in bagwise.PUBLIC.items():
        room = import_module(f"bagwise.{module}")
        found |= {name if name in short else f"{module}.{name}": getattr(room, name) for name in room.__all__}
    return found


@cache
def described():
    """Classes and functions of `public`, and the methods that such classes have from bagwise, once each."""
    found = {}
    for key, value in public().items():
        if inspect.isclass(value):
            found[key] = value
            for name, method in inspect.getmembers(value, inspect.isroutine):
                if not name.startswith("_") and (getattr(method, "__module__", None) or "").startswith("bagwise"):
                    found.setdefault(method.__qualname__, method)
        elif inspect.isroutine(value):
            found[key] = value
    return found


def sections(text):
    """The sections of a numpydoc docstring: the names that each lists, without their descriptions.

    A regressor may point to its classifier, and describe what it has beside that.
    """
    lines = inspect.cleandoc(text or "").split("\n")
    heads = [at for at, line in enumerate(lines[:-1]) if line and set(lines[at + 1]) == {"-"}]
    found = {}
    for at, end in zip(heads, [*heads[1:], len(lines)], strict=False):
        listed = [line.split(" : ")[0] for line in lines[at + 2 : end] if line and not line.startswith(" ")]
        found[lines[at]] = [name.strip().lstrip("*") for line in listed for name in line.split(",")]
    if pointed := re.search(r"arameters and attributes as `(\w+)`", text or ""):
        for head, names in sections(public()[pointed[1]].__doc__).items():
            found[head] = [*found.get(head, []), *names]
    return found


def in_words(annotation):
    """A type as it is written, whether the module keeps its annotations as text or not."""
    return (
        annotation if isinstance(annotation, str) else re.sub(r"\b[a-z_]+\.", "", inspect.formatannotation(annotation))
    )


def faults(value):
    """What is missing in a docstring, or too much.

    What takes records of ours, or two things at most as a method, may do without sections: records are described by
    their classes, and for the rest it is enough that the sentences name it.
    """
    if not value.__doc__:
        return ["it has no docstring"]
    if inspect.isclass(value) and (issubclass(value, BaseException) or getattr(value, "_is_protocol", False)):
        return []
    found, signature = sections(value.__doc__), inspect.signature(value)
    taken = [name for name in signature.parameters if name not in ("self", "cls") and not name.startswith("_")]
    listed = found.get("Parameters", [])
    wrong = [f"{name} is described and is no parameter" for name in listed if name not in taken]
    if inspect.isclass(value):
        known = {*listed, *found.get("Attributes", [])}
        return wrong + [f"parameter {name} is not described" for name in taken if name not in known]
    if {"Parameters", "Returns", "Yields"} & set(found):
        silent = in_words(signature.return_annotation) in ("None", "NoReturn", "Iterator[None]", "_empty")
        if not silent and not {"Returns", "Yields"} & set(found):
            wrong.append("what it returns is not described")
        return wrong + [f"parameter {name} is not described" for name in taken if name not in listed]
    if "." in value.__qualname__ and len(taken) < 3:
        return wrong
    records = {one.__name__ for one in public().values() if inspect.isclass(one)}
    named = re.findall(r"`(\w+)`", value.__doc__)
    given = {name: in_words(signature.parameters[name].annotation) for name in taken}
    return wrong + [
        f"parameter {name} is not named" for name in taken if name not in named and given[name] not in records
    ]


@pytest.mark.parametrize("name", sorted(described()))
def test_docstrings_describe_what_is_taken_and_returned(name):
    assert faults(described()[name]) == []


def estimators():
    return [name for name, value in public().items() if inspect.isclass(value) and issubclass(value, BagEstimator)]


@pytest.mark.parametrize("name", estimators())
def test_docstrings_describe_what_fit_sets(name):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(640, 2)), columns=["a", "b"])
    ids = bagwise.random_bags(640, size=8, random_state=0)
    y = X["a"] + rng.normal(size=640)
    model = public()[name](**FEW_TRIALS.get(name, {}))
    y = y - y.min() if name.endswith("Regressor") else y > 0
    model.fit(X, bagwise.aggregate(y, ids), bags=ids)
    described = sections(model.__doc__).get("Attributes", [])
    learned = {one for one in vars(model) if one.endswith("_") and not one.startswith("_")}
    wrong = [one for one in described if f"{one} :" in model.__doc__ and not hasattr(model, one)]
    wrong += sorted(learned - {*described, "classes_", "feature_names_in_", "n_features_in_"})  # scikit-learn's own
    assert wrong == []


@pytest.mark.parametrize("module", bagwise.PUBLIC)
def test_public_modules_say_what_is_public(module):
    room = import_module(f"bagwise.{module}")
    assert room.__doc__
    assert len(set(room.__all__)) == len(room.__all__)
    assert set(bagwise.PUBLIC[module]) <= set(room.__all__)
    assert not [name for name in room.__all__ if name.startswith("_") or inspect.ismodule(getattr(room, name))]
    # Sphinx finds what is said of a constant only below it, in the module itself.
    body = ast.parse(Path(room.__file__).read_text(encoding="utf-8")).body
    told = {
        ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
        for node, below in pairwise(body)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(below, ast.Expr)
    }
    constants = {name for name in room.__all__ if not hasattr(getattr(room, name), "__qualname__")}
    assert constants <= told


def test_all_that_is_public_can_be_reached_from_the_top():
    assert bagwise.__all__ == sorted(name for names in bagwise.PUBLIC.values() for name in names)
    assert dir(bagwise) == sorted({*bagwise.__all__, *OF_THE_TOP, "__version__"})
    for name in dir(bagwise):
        assert getattr(bagwise, name).__doc__


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(bagwise.__file__).read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    seen = {(node.module, name.name, name.asname) for node in imports for name in node.names}
    names = {(f"bagwise.{module}", name, name) for module, names in bagwise.PUBLIC.items() for name in names}
    assert seen == names | {("bagwise", module, module) for module in OF_THE_TOP}


def test_the_reference_shows_all_that_is_public_and_nothing_else():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    modules = re.findall(r"^\.\. automodule:: (\S+)\n   :members:$", text, re.MULTILINE)  # members: those of `__all__`
    assert sorted(modules) == [f"bagwise.{module}" for module in sorted(bagwise.PUBLIC)]
    assert not re.findall(r"^\.\. auto(?!module::|method:: bagwise)", text, re.MULTILINE)
    short = re.findall(r"`bagwise\.(\w+) <bagwise\.(\w+)\.\1>`", text)
    assert sorted(short) == sorted((name, module) for module, names in bagwise.PUBLIC.items() for name in names)


def test_names_in_the_readme_are_public():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    known = {*public(), *bagwise.PUBLIC}
    for quoted in re.findall(r"`(?:bagwise\.|bw\.)?([A-Za-z_.]+…?)`", text[text.index("## What is there") :]):
        if quoted.endswith("…"):
            assert [name for name in bagwise.__all__ if name.startswith(quoted[:-1])], quoted
        else:
            assert quoted in known, quoted
