"""Damaged and hostile folders, drawn at random: the model comes back, or one sentence does.

Whatever is in a folder, `load` must come to an end without running code, opening other files or importing anything,
with a model, a ValueError or an OSError. Where checksums would hide what lies behind them, they are put right again, as
an attacker would. A crash of a library's compiled code ends the whole test run, so it does not go unnoticed either.
"""

import hashlib
import json
import os
import re
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bagwise as bw
from bagwise import saving
from bagwise.saving.soundness import hints_of

SECONDS = 30  # a load takes milliseconds; machines that run tests may be busy
KINDS = ["ridge", "boosting", "network", "auto"]
WITHOUT_TORCH = find_spec("torch") is None
KNOWN = [name for name, room in saving.kinds._MODULE_OF.items() if not (WITHOUT_TORCH and room == "bagwise.neural")]


def counts(few, many):
    """How many examples: few by default, many among the slow tests."""
    return pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])


def run(check, examples):
    """Run `check(data)` on that many examples, the same in each run."""
    options = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}
    settings(max_examples=examples, **options)(given(st.data())(check))()


# -- models to be damaged -----------------------------------------------------------------------------------------


def rows(n=240):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    frame["device"] = np.array(["phone", "tablet", "radio"])[rng.integers(0, 3, n)]
    return frame, (frame["a"] + (frame["device"] == "radio") > 0).to_numpy().astype(int)


def estimator(kind):
    if kind == "ridge":
        return bw.BagRidgeClassifier(alphas=np.array([0.1, 1.0]), cv=2, random_state=0)
    if kind == "boosting":
        return bw.BagBoostingClassifier(n_estimators=3, num_leaves=4, n_fits=1, cv=2, n_jobs=1, random_state=0)
    if kind == "network":
        pytest.importorskip("torch", reason="torch is not installed: pip install 'bagwise[neural]'")
        return bw.BagNeuralClassifier(hidden=(3,), learning_rate=0.01, max_epochs=2, cv=2, random_state=0)
    candidates = {kind: estimator(kind) for kind in KINDS[: 2 if WITHOUT_TORCH else 3]}
    return bw.BagAutoClassifier(candidates=candidates, stack=True, cv=2, held_out_bags=20, random_state=0)


class Model:
    """A saved model, its files, and a place for damaged copies of it."""

    def __init__(self, kind, place):
        X, y = rows()
        self.X = X if kind in ("boosting", "auto") else X[["a", "b"]]
        ids = bw.random_bags(len(X), 4, random_state=0)
        fitted = estimator(kind).fit(self.X, bw.aggregate(y, ids), bags=ids)
        saving.save(fitted, place / "model", about={"columns": list(self.X.columns), "accuracy": 0.8})
        self.files = {name: (place / "model" / name).read_bytes() for name in sorted(os.listdir(place / "model"))}
        self.copy = place / "copy"
        self.copy.mkdir()
        self.predicted = fitted.predict_proba(self.X)
        warm_up(fitted)
        assert self.same(self.load(self.files))

    def load(self, files):
        """The model that these files make; None where they make none, and the user is told so in one sentence."""
        for name in set(os.listdir(self.copy)) - set(files):
            os.unlink(self.copy / name)
        for name, data in files.items():
            (self.copy / name).write_bytes(data)
        loaded = told = None
        with watched(self.copy):
            try:
                loaded = saving.load(self.copy)
            except (ValueError, OSError) as error:
                told = str(error)
            with suppress(ValueError, OSError):
                saving.inspect(self.copy)
        if told is not None:
            assert re.fullmatch(r".+ cannot be (loaded: .+|read \(.+\))\.", told)  # . is no line break
            assert len(told) < 600
        return loaded

    def same(self, loaded):
        return np.array_equal(loaded.predict_proba(self.X), self.predicted)

    def document(self):
        return json.loads(self.files["model.json"])


def warm_up(fitted):
    """Import what a model may name before it is watched, and what libraries need to show a value in a message."""
    for name in KNOWN:
        cls = saving.kinds.find(name)
        if is_dataclass(cls):
            hints_of(cls)  # written as text in our modules, which Python compiles once
    repr(fitted)
    if not WITHOUT_TORCH:
        import torch

        repr(torch.zeros(1))


@pytest.fixture(scope="module", params=KINDS)
def model(request, tmp_path_factory):
    return Model(request.param, tmp_path_factory.mktemp(request.param))


def sealed(document, files):
    """The files with the checksums they should have, unless the document says something else of them on purpose."""
    others = {name: data for name, data in files.items() if name != "model.json"}
    if isinstance(document.get("files"), dict):
        for name, data in others.items():
            entry = document["files"].get(name)
            if isinstance(entry, dict) and "sha256" in entry:
                entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    document.pop("sha256", None)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    document["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    return {**others, "model.json": json.dumps(document).encode()}


# -- what loading must not do -------------------------------------------------------------------------------------


class HangError(BaseException):
    """Not an Exception, which `load` would turn into its sentence."""


RUNS_CODE = {
    *("exec", "compile", "import", "code.__new__", "marshal.loads", "pickle.find_class", "ctypes.dlopen"),
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen"),
    *("socket.__new__", "socket.connect", "os.remove", "os.rename", "shutil.rmtree"),
}
_watch = {}


def _audit(event, arguments):
    if not _watch or _watch["thread"] != threading.get_ident():
        return
    path = arguments[0] if event == "open" else None
    elsewhere = isinstance(path, (str, bytes)) and not os.fsdecode(path).startswith(_watch["folder"])
    if event in RUNS_CODE or elsewhere:
        _watch["seen"].append((event, arguments[:2]))


sys.addaudithook(_audit)


@contextmanager
def watched(folder):
    """Fails if code is run, other files are opened, or the end does not come."""

    def give_up(*_):
        raise HangError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    seen = []
    _watch.update(thread=threading.get_ident(), folder=str(folder), seen=seen)
    try:
        yield
    finally:
        _watch.clear()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert seen == []


def test_the_watch_sees_what_it_should(tmp_path):
    (tmp_path / "file").write_text("")
    with watched(tmp_path):
        (tmp_path / "file").read_text()
    for action in (lambda: eval("1"), lambda: open(os.devnull).close(), lambda: os.system("true")):
        with pytest.raises(AssertionError), watched(tmp_path):
            action()


# -- damage -------------------------------------------------------------------------------------------------------


def damaged(data, content):
    """Bytes cut off, flipped, put in or overwritten."""
    content = bytearray(content)
    at = data.draw(st.integers(0, len(content) - 1))
    how = data.draw(st.sampled_from(["cut", "flip", "insert", "overwrite", "repeat"]))
    if how == "cut":
        del content[at:]
    elif how == "flip":
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "insert":
        content[at:at] = data.draw(st.binary(min_size=1, max_size=9))
    elif how == "overwrite":
        content[at : at + 4] = data.draw(st.sampled_from([b"\0\0\0\0", b"\xff\xff\xff\xff", b"    ", b"1e99"]))
    else:
        content[at:at] = content[: data.draw(st.integers(1, 50))]
    return bytes(content)


@counts(25, 2000)
def test_no_damage_goes_unnoticed(model, examples):
    """A sentence, or the same model where only white space changed."""

    def check(data):
        files = dict(model.files)
        name, other = (data.draw(st.sampled_from(sorted(files))) for _ in range(2))
        how = data.draw(st.sampled_from(["damaged", "damaged", "damaged", "swapped", "missing", "more"]))
        if how == "damaged":
            files[name] = damaged(data, files[name])
        elif how == "swapped":
            files[name], files[other] = files[other], files[name]
        elif how == "missing":
            del files[name]
        else:
            files[data.draw(st.sampled_from(["trees-99.txt", "arrays.npz", "model.pkl", "__init__.py"]))] = b"import os"
        loaded = model.load(files)
        if how == "more":
            assert loaded is not None
        elif files != model.files and how != "damaged":
            assert loaded is None
        if loaded is not None:
            assert name == "model.json" or files == model.files or how == "more"
            assert model.same(loaded)

    run(check, examples)


# -- hostile documents --------------------------------------------------------------------------------------------

WORDS = [
    *("", "a0", "a1", "a999", "trees-0.txt", "../model.json", "/etc/passwd", "os.system", "builtins.eval", "numpy"),
    *(
        "__class__",
        "__init__",
        "__reduce__",
        "predict",
        "coef_",
        "float64",
        "bfloat16",
        "bool",
        "str",
        "<U3",
        "|O",
        "nan",
    ),
    *("-inf", "<M8[s]", ">f8", "\ud800", "a\0b", "a\nb", "é" * 700, "cpu", "meta", "cuda", "hub", "load"),
]
TAGS = [
    *("float", "tuple", "dict", "pairs", "scalar", "array", "objects", "trees", "Popen"),
    *(KNOWN if WITHOUT_TORCH else [*KNOWN, "tensor"]),
]
KEYS = ["kind", "items", "name", "value", "type", "shape", "number", "transposed", "fields", "state", "parameters"]
NUMBERS = [0, 1, -1, 2, 3, 255, 2**31, 2**53 + 1, -(2**63), 2**64, 10**30, 10**400, 0.5, -0.0, 5e-324, 1e308]
SMALL = [-1, 0, 1, 2, 3, 4, 5, 64]
atoms = st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(WORDS) | st.sampled_from(TAGS)
small = st.sampled_from(SMALL)
json_values = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
        | st.fixed_dictionaries(
            {"kind": st.sampled_from(TAGS), "name": st.sampled_from(["a0", "a1"]), "number": st.just(0)},
            optional={
                "type": st.sampled_from(["float64", "int8", "bfloat16", "<U2", ">i8", "|S8"]),
                "items": inner,
                "value": inner,
                "shape": st.lists(small, max_size=3),
                "transposed": st.booleans(),
                "fields": st.dictionaries(st.sampled_from(KEYS), inner, max_size=2),
                "parameters": st.dictionaries(st.sampled_from(["cv", "n_jobs", "x"]), inner, max_size=2),
                "fitted": st.dictionaries(st.sampled_from(WORDS), inner, max_size=2),
            },
        )
    ),
    max_leaves=6,
)


def paths(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from paths(child, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def mutate(data, document):
    """Somewhere in the document, something else: nothing, another value, or what stands elsewhere in it."""
    places = [path for path in paths(document) if path]
    path = data.draw(st.sampled_from(places))
    parent, last = at(document, path[:-1]), path[-1]
    how = data.draw(st.sampled_from(["delete", "value", "value", "elsewhere", "wrap", "rename"]))
    if how == "delete":
        del parent[last]
    elif how == "value":
        parent[last] = data.draw(json_values)
    elif how == "elsewhere":
        copied = json.dumps(at(document, data.draw(st.sampled_from(places))))
        parent[last] = json.loads(copied)
    elif how == "wrap":
        for _ in range(data.draw(st.sampled_from([1, 50, 300]))):
            parent[last] = [parent[last]]
    elif isinstance(parent, dict):
        parent[data.draw(st.sampled_from([*WORDS, *KEYS]))] = parent.pop(last)


@counts(50, 4000)
def test_any_change_of_the_document_loads_or_gets_a_sentence(model, examples):
    def check(data):
        document = model.document()
        for _ in range(data.draw(st.sampled_from([1, 1, 1, 2, 4]))):
            if len(document):
                mutate(data, document)
        predicts(model, model.load(sealed(document, model.files)))

    run(check, examples)


def predicts(model, loaded):
    """What loads predicts, or says in a sentence what is wrong with the rows."""
    if loaded is not None and hasattr(loaded, "predict_proba"):
        with np.errstate(all="ignore"), suppress(ValueError, UserWarning):  # names may be lost
            assert len(loaded.predict_proba(model.X)) == len(model.X)


# -- hostile arrays -----------------------------------------------------------------------------------------------


@counts(40, 2000)
def test_any_change_of_the_arrays_loads_or_gets_a_sentence(model, examples):
    """Of the table of contents, of its length, or anywhere in the file."""
    whole = model.files["arrays.safetensors"]
    length = int.from_bytes(whole[:8], "little")
    table, numbers = whole[8 : 8 + length], whole[8 + length :]

    def check(data):
        how = data.draw(st.sampled_from(["content", "content", "length", "table", "numbers", "anywhere"]))
        changed, size, rest = table, None, numbers
        if how == "content":
            document = json.loads(table)
            mutate_table(data, document)
            changed = json.dumps(document).encode()
        elif how == "length":
            size = data.draw(
                st.sampled_from([0, 1, 7, length - 1, length + 1, length + 8, len(whole), 2**32, 2**64 - 1])
            )
        elif how == "table":
            changed = damaged(data, table)
        elif how == "numbers":
            rest = damaged(data, numbers)
        content = (len(changed) if size is None else size).to_bytes(8, "little") + changed + rest
        content = damaged(data, whole) if how == "anywhere" else content
        predicts(model, model.load(sealed(model.document(), {**model.files, "arrays.safetensors": content})))

    run(check, examples)


def mutate_table(data, table):
    name = data.draw(st.sampled_from(sorted(table)))
    how = data.draw(st.sampled_from(["delete", "shape", "offsets", "type", "name", "value"]))
    entry = table[name]
    if how == "delete":
        del table[name]
    elif how == "shape":
        entry["shape"] = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, -1, 2**31, 2**62, 2**63, 2**64]), max_size=70))
    elif how == "offsets":
        place = data.draw(st.sampled_from([0, 1]))
        entry["data_offsets"][place] = data.draw(st.sampled_from([0, 1, 8, -1, 2**31, 2**63, 2**64 - 1]))
    elif how == "type":
        types = ["BOOL", "U8", "I8", "I16", "F16", "BF16", "F32", "F64", "I64", "C64", "F8_E4M3", "F4", "O", "pickle"]
        entry["dtype"] = data.draw(st.sampled_from(types))
    elif how == "name":
        table[data.draw(st.sampled_from(["a0", "a1", "", "__metadata__", "\ud800"]))] = table.pop(name)
    else:
        table[name] = data.draw(json_values)


# -- hostile trees ------------------------------------------------------------------------------------------------

TREE_WORDS = [
    *("0", "1", "-1", "2", "-3", "7", "99999", "2147483647", "4294967295", "-2147483648", "1e300", "1e-300", "nan"),
    *("inf", "-inf", "", " ", "\n", "\n\n", "=", "Tree=0", "Tree=1", "end of trees", "\0", "\r", "\x0b", "é", "0x1"),
    *("num_leaves", "left_child", "tree_sizes=1", "objective=regression", "objective=lambdarank", "is_linear=1"),
]


@pytest.mark.parametrize("model", ["boosting", "auto"], indirect=True)
@counts(60, 5000)
def test_any_change_of_the_trees_predicts_or_gets_a_sentence(model, examples):
    """Words, lines and bytes. What LightGBM takes must also predict, and come to an end."""
    names = [name for name in model.files if name.startswith("trees")]
    predicted = 0

    def check(data):
        nonlocal predicted
        name = data.draw(st.sampled_from(names))
        content = model.files[name]
        for _ in range(data.draw(st.integers(1, 3))):
            content = mutate_text(data, content)
        loaded = model.load(sealed(model.document(), {**model.files, name: content}))
        if loaded is not None:
            with watched(""), suppress(ValueError):
                assert len(loaded.predict_proba(model.X)) == len(model.X)
            predicted += 1

    run(check, examples)
    assert predicted >= examples // 20  # not all that is drawn may be refused at once


def mutate_text(data, content):
    how = data.draw(st.sampled_from(["word", "word", "digit", "drop", "repeat", "move", "join", "byte"]))
    if how == "byte" and content:
        return damaged(data, content)
    text = content.decode("utf-8", "replace")
    if how == "word":
        words = re.split(r"([ =\n])", text)
        words[data.draw(st.integers(0, len(words) - 1))] = data.draw(st.sampled_from(TREE_WORDS))
        return "".join(words).encode()
    if how == "digit":
        digits = [match.start() for match in re.finditer("[0-9]", text)] or [0]
        place = data.draw(st.sampled_from(digits))
        return (text[:place] + data.draw(st.sampled_from("0123456789-.e")) + text[place + 1 :]).encode()
    lines = text.split("\n")
    first, second = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    if how == "drop":
        del lines[first]
    elif how == "repeat":
        lines.insert(second, lines[first])
    elif how == "move":
        lines.insert(min(second, len(lines) - 1), lines.pop(first))
    else:
        lines[first : first + 2] = ["".join(lines[first : first + 2])]
    return "\n".join(lines).encode()
