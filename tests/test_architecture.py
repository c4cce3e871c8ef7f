"""ARCHITECTURE.md tells of the tree as it is, and the tests mirror it."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE, TESTS = ROOT / "src" / "bagwise", ROOT / "tests"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGES = sorted(path.parent for path in SOURCE.glob("*/**/__init__.py"))
OF_ALL = {  # modules of no package
    f"test_{name}"
    for name in (
        "architecture",
        "build",
        "docs",
        "history",
        "hostile_calls",
        "package",
        "public",
        "purchases",
        "values",
    )
}

NOBODYS = {
    "_check_tolerance",
    "_typeshed",
}  # what `bagwise.checks` lets users set, and a package of type checkers alone


def section(title):
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def walks():
    """The diagrams, by the line that stands above each."""
    return re.findall(r"^(\S.*):\n\n((?:    .*\n)+)", section("Walks") + "\n", re.MULTILINE)


def test_every_package_and_module_has_a_line_of_its_own():
    listed = re.findall(r"^\| `([\w./]+)` \|", section("Modules"), re.MULTILINE)
    packages = [f"{path.relative_to(SOURCE).as_posix()}/" for path in PACKAGES]
    modules = [path.name for path in SOURCE.glob("*.py") if not path.name.startswith("__")]
    assert sorted(listed) == sorted([*packages, *modules])


def test_modules_named_in_a_line_are_there():
    for name, job in re.findall(r"^\| `([\w/]+)/` \| (.*) \|$", section("Modules"), re.MULTILINE):
        text = "\n".join(path.read_text(encoding="utf-8") for path in (SOURCE / name).glob("*.py"))
        for word in re.findall(r"`(\w+)`", job):
            there = (SOURCE / name / f"{word}.py").exists() or (SOURCE / name / word).is_dir()
            assert there or re.search(rf"^(def|class) {word}\b|^{word}\b.* =", text, re.MULTILINE), (name, word)


def test_the_direction_of_imports_is_the_one_that_is_held():
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (drawn,) = re.findall(r"((?:    .*→.*\n)+)", section("Modules"))
    layers = [sorted(re.findall(r"\w+", layer)) for layer in contract["layers"]]
    assert [sorted(re.findall(r"\w+", layer)) for layer in drawn.split("→")] == layers[::-1]


@pytest.mark.parametrize("diagram", [pytest.param(drawn, id=title) for title, drawn in walks()])
def test_a_walk_crosses_no_module_twice(diagram):
    crossed = re.findall(r"[a-z_.]+", re.sub(r"\(.*?\)", "", diagram))  # in parentheses: what happens there
    assert len(set(crossed)) == len(crossed) > 3
    for name in crossed:
        path = SOURCE / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), name


def test_three_walks_are_drawn():
    assert len(walks()) == 3


PRIVATE = r"\b_[a-zA-Z]\w*(?<!__)\b"
TAKEN = re.compile(rf"""(?:\.|import |attr\(\w+, ["'])({PRIVATE})""")  # as an attribute, a module, or by its name
DEFINED = re.compile(rf"(?:def|class) ({PRIVATE})")
ASSIGNED = re.compile(r"^([^=#\"'\n]+?)(?: [-+*/|&]?= |$)", re.MULTILINE)  # with a type alone, too


def test_nothing_private_of_a_dependency_is_used():
    """Such names change with any version: what is used is defined or assigned here."""
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    made = {name for text in texts.values() for name in made_in(text)}
    used = [(name, path) for path, text in texts.items() for name in TAKEN.findall(text)]
    assert len(used) > 100
    assert [one for one in used if one[0] not in made | NOBODYS] == []


def made_in(text):
    """The private names that are defined or assigned."""
    left = [line for line in ASSIGNED.findall(text) if "import" not in line]
    return {*DEFINED.findall(text), *re.findall(rf"({PRIVATE})(?=,|:|$)", "\n".join(left), re.MULTILINE)}


@pytest.mark.parametrize(
    "line", ["x = model._fit(y)", "from numpy._core import a", 'getattr(x, "_fit")', "import _fit"]
)
def test_private_names_are_found(line):
    assert TAKEN.findall(line)
    assert made_in(line) == set()


def test_every_package_has_tests_where_it_stands():
    for package in PACKAGES:
        mirror = TESTS / package.relative_to(SOURCE)
        nested = mirror.with_name(f"test_{mirror.name}.py")
        assert (mirror / "__init__.py").exists() or (package.parent != SOURCE and nested.exists()), package
    for folder in {path.parent for path in TESTS.rglob("test_*.py")}:
        assert (SOURCE / folder.relative_to(TESTS)).is_dir(), folder


def test_every_test_stands_where_its_module_does():
    astray = []
    for path in TESTS.rglob("test_*.py"):
        name, place = path.stem.removeprefix("test_"), SOURCE / path.parent.relative_to(TESTS)
        of_the_package = place != SOURCE and name == place.name
        there = (place / f"{name}.py").exists() or (place / name).is_dir() or of_the_package
        if not there and not (place == SOURCE and path.stem in OF_ALL):
            astray.append(path.relative_to(ROOT).as_posix())
    assert astray == []


def test_every_test_can_fail():
    """A test asserts, expects an error, or calls something that checks: by its name, or a helper that asserts."""
    idle = []
    for path in TESTS.rglob("*.py"):
        functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
        called = [(one.name, calls(one)) for one in functions]
        checking, before = {"raises", "warns", "fail", "check"}, 0
        while len(checking) > before:  # helpers that call helpers
            before = len(checking)
            checking |= {name for name, names in called if names is None or names & checking}
        idle += [
            f"{path.name}: {one.name}" for one in functions if one.name[:5] == "test_" and one.name not in checking
        ]
    assert idle == []


def calls(function):
    """The names of what a function calls, or None where it checks by itself."""
    nodes = list(ast.walk(function))
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = {getattr(one, "attr", getattr(one, "id", "")) for one in called}
    asserts = any(isinstance(node, ast.Assert) for node in nodes)
    return None if asserts or any(name.startswith(("assert_", "check_")) for name in names) else names
