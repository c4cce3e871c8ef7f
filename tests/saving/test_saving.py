"""Saved models: the same predictions to the last bit, and one sentence for whatever is not a sound model."""

import hashlib
import json
import os
import pickle
import re
import socket
import struct
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.numpy import load_file
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise import saving
from bagwise.base import BagEstimator
from bagwise.export.trees import trees_of
from bagwise.saving import folder as folders
from bagwise.saving import load, save, trees
from bagwise.saving.codec import Decoder, Encoder
from bagwise.utils.parameters import DEEPEST

SMALL = {"n_estimators": 6, "num_leaves": 5, "n_fits": 2, "cv": 2, "n_jobs": 1, "random_state": 0}


def rows(n=400):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    frame["device"] = np.array(["phone", "tablet", "radio"])[rng.integers(0, 3, n)]
    return frame, (frame["a"] + (frame["device"] == "radio") > 0).to_numpy().astype(float)


@pytest.fixture(scope="module")
def boosted():
    X, y = rows()
    ids = bw.random_bags(len(X), 4, random_state=0)
    return bw.BagBoostingClassifier(**SMALL).fit(X, bw.aggregate(y, ids), bags=ids)


@pytest.fixture
def ridge():
    X, y = rows()
    return bw.BagRidgeClassifier(random_state=0).fit(X[["a", "b"]], y)


@pytest.fixture
def place(tmp_path, ridge):
    save(ridge, tmp_path / "model")
    return tmp_path / "model"


# -- what comes back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", ["binary", "strings", "classes"])
@pytest.mark.parametrize("kind", ["BagRidgeClassifier", "BagSGDClassifier", "BagBoostingClassifier"])
def test_classifiers_predict_the_same_bit_for_bit(tmp_path, kind, labels):
    frame, y = rows()
    X = frame if "Boosting" in kind else frame[["a", "b"]]
    y = {"binary": y, "strings": np.where(y, "yes", "no"), "classes": np.digitize(frame["a"], [-0.5, 0.5])}[labels]
    model = getattr(bw, kind)(**(SMALL if "Boosting" in kind else {"random_state": 0})).fit(X, y)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.classes_.dtype == model.classes_.dtype
    assert again.get_params() == model.get_params()
    assert set(vars(again)) == set(vars(model))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(X[X.columns[::-1]])


@pytest.mark.parametrize("kind", ["BagRidgeRegressor", "BagSGDRegressor", "BagBoostingRegressor"])
def test_regressors_predict_the_same_bit_for_bit(tmp_path, kind):
    X = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    model = getattr(bw, kind)(**(SMALL if "Boosting" in kind else {"random_state": 0})).fit(X, X[:, 0] + 3)
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X), model.predict(X))


@pytest.mark.parametrize("kind", ["BagRidgeClassifier", "BagLogisticClassifier", "BagBoostingClassifier"])
def test_a_redacted_model_predicts_the_same_and_keeps_nothing_else(tmp_path, kind):
    (table, y), more = (rows(), {"n_estimators": 2, "n_fits": 1} if "Boosting" in kind else {})
    table, ids = table[["a", "b"]], bw.random_bags(len(y), 4, random_state=0)
    table.loc[7, "a"] = 12345.678  # the greatest
    model = getattr(bw, kind)(cv=2, random_state=0, **more).fit(table, bw.aggregate(y, ids), bags=ids)
    save(model, tmp_path / "whole")
    save(model, tmp_path / "redacted", redact=True)
    again = load(tmp_path / "redacted")
    np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))
    assert again._bags_seen is None
    assert load(tmp_path / "whole")._bags_seen == model._bags_seen
    if "Boosting" in kind:
        assert any("12345.6" in file.read_text() for file in (tmp_path / "whole").glob("trees-*.txt"))
        assert not any("12345.6" in file.read_text() for file in (tmp_path / "redacted").glob("trees-*.txt"))
        return
    assert model.memory_ is not None
    assert again.memory_ is None
    with pytest.raises(ValueError, match=r"cannot be updated.*saved redacted"):
        again.partial_fit(table, bw.aggregate(y, ids), bags=ids)
    if "Ridge" in kind:
        with pytest.raises(ValueError, match=r"keeps no moments.*saved redacted"):
            again.predict_interval(table)


def test_a_redacted_model_of_tables_names_no_bag(tmp_path):
    X, y = rows()
    events = pd.DataFrame({"x": X["a"], "bag": [f"bag {j}" for j in bw.random_bags(len(y), 4, random_state=0)]})
    reports = pd.DataFrame({"count": y.astype(int), "bag": events["bag"]}).groupby("bag", as_index=False).sum()
    reports = pd.concat([reports, pd.DataFrame({"bag": ["bag of nobody"], "count": [1]})])
    model = bw.tables.fit(bw.tables.join(events, reports, on_mismatch="drop"), bw.BagRidgeClassifier(random_state=0))
    for redact in (False, True):
        save(model, tmp_path / "model", redact=redact, force=True)
        assert ("bag of nobody" in (tmp_path / "model" / "model.json").read_text()) is not redact
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(events), model.predict_proba(events))
    with pytest.raises(ValueError, match="redact must be True or False"):
        save(model, tmp_path / "other", redact=1)


def test_a_model_without_trees_is_saved_too(tmp_path):
    X, y = np.zeros((40, 2)), np.arange(40) % 2
    model = bw.BagBoostingClassifier(**SMALL).fit(X, y)
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(X), model.predict_proba(X))


def test_the_folder_holds_json_arrays_and_trees_and_no_pickle(tmp_path, boosted):
    save(boosted, tmp_path / "model")
    names = sorted(os.listdir(tmp_path / "model"))
    fits = [fit for fits in boosted.fits_.values() for fit in fits]
    assert names == ["arrays.safetensors", "model.json", *(f"trees-{number}.txt" for number in range(len(fits)))]
    document = json.loads((tmp_path / "model/model.json").read_text())
    assert document["format"] == 4
    assert document["kind"] == "BagBoostingClassifier"
    assert document["parameters"]["num_leaves"] == 5
    assert document["versions"]["bagwise"] == bw.__version__
    assert set(document["files"]) == set(names) - {"model.json"}
    assert load_file(tmp_path / "model/arrays.safetensors")  # an ordinary safetensors file
    import lightgbm as lgb

    booster = lgb.Booster(model_file=str(tmp_path / "model/trees-0.txt"))  # and ordinary LightGBM files
    assert booster.num_trees() == fits[0].boosters[0].num_trees()


def test_parameters_come_back_and_generators_do_not(tmp_path):
    X, y = rows()
    parameters = {"alphas": np.array([0.1, 1.0]), "scaling": 1.0, "random_state": np.random.default_rng(0)}
    save(bw.BagRidgeClassifier(**parameters).fit(X[["a", "b"]], y), tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.alphas, parameters["alphas"])
    assert again.scaling == 1.0
    assert again.random_state is None


def test_a_loaded_model_can_be_fitted_and_saved_again(tmp_path, place, ridge):
    X, y = rows()
    again = load(place)
    save(again, tmp_path / "again")
    assert load(tmp_path / "again").intercept_ == ridge.intercept_
    again.fit(X[["a", "b"]], y)
    np.testing.assert_array_equal(again.coef_, ridge.coef_)


# -- values -------------------------------------------------------------------------------------------------------


def through(value):
    encoder = Encoder()
    text = json.dumps(encoder.encode(value, "it"), allow_nan=False)
    return Decoder(encoder.files()).decode(json.loads(text))


def equal(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype == object:
            return all(equal(x, y) for x, y in zip(a.ravel(), b.ravel(), strict=True))
        return a.tobytes() == b.tobytes()
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    return a == b or (a != a and b != b)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.sampled_from([np.float32(0.1), np.float64(np.nan), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True)]),
    st.sampled_from([np.str_("é"), np.float16(np.inf)]),
)
arrays = st.sampled_from(
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(12.0)[::5],
        np.array(["a", "bcd"]),
        np.array([], dtype=np.float32),
        np.array(3.0),
        np.array([True, False]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array([1 + 2j]),
        np.arange(6, dtype=">f8").reshape(3, 2),
        np.asfortranarray(np.arange(6, dtype=">u2").reshape(2, 3)),
        np.arange(24, dtype=np.float16).reshape(2, 3, 4).transpose(1, 2, 0),
        np.array([0x7FC00001, 0xFF800001], dtype=np.uint32).view(np.float32),  # NaN with something to tell
        np.array(["é", "\ud800", "a\0b"]),
        np.array([b"a\0", b"bcd"]),
        np.array("text"),
        np.empty((2, 0, 3), dtype="<U7"),
        np.array([["2020", "NaT"]], dtype=">M8[25s]"),
        np.array([1, 2], dtype="m8[h]"),
        np.array([1 / np.longdouble(3)]),
        np.array([1 + 1j / np.longdouble(3)]),
        np.array([1j], dtype=np.complex64),
        np.broadcast_to(np.float32(1), (2, 2)),
        np.array(["x", 1, None, 2.5, (1, "y"), (2, "z")], dtype=object),
        np.empty((0, 2), dtype=object),
    ]
)
keys = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.tuples(st.integers())
)
values = st.recursive(
    scalars | arrays,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=25)
@given(values)
def test_values_come_back_with_their_types(value):
    assert equal(through(value), value)


def test_arrays_come_back_writable_and_in_their_order():
    """Products of matrices depend on the order of the axes in memory, in their last bit."""
    for array in (np.ones((2, 3)), np.ones((2, 3), order="F"), np.ones((2, 3), dtype=">f4", order="F"), np.ones(3)):
        again = through(array)
        assert again.flags.writeable
        assert again.flags.aligned
        assert again.strides == array.strides


def test_tensors_come_back(torch):
    state = torch.nn.Linear(3, 2).state_dict()
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16"):
        state[name] = torch.tensor([[0.1, 7.0], [0.0, 1.0]]).to(getattr(torch, name))
    state["steps"] = torch.tensor(3)
    state["none"] = torch.empty((0, 3), dtype=torch.bfloat16)
    state["turned"] = torch.arange(6).reshape(2, 3).T
    state["cut"] = torch.arange(12, dtype=torch.bfloat16)[::5]
    state["image"] = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    state["repeated"] = torch.ones(1).expand(2, 3)
    state["negative"] = torch.randn(3, dtype=torch.cfloat).conj().imag  # a view with a sign to be changed
    state["learned"] = torch.nn.Parameter(torch.randn(2))
    again = through(state)
    assert list(again) == list(state)
    for name, tensor in state.items():
        assert again[name].dtype == tensor.dtype
        assert again[name].shape == tensor.shape
        assert torch.equal(again[name], tensor)


def test_tensors_without_numbers_of_their_own_are_refused(torch):
    for tensor in (torch.eye(2).to_sparse(), torch.empty(2, device="meta"), torch.zeros(2, dtype=torch.complex64)):
        with pytest.raises(ValueError, match="it holds a Tensor, which cannot be saved"):
            through(tensor)


def test_many_small_arrays_come_back():
    values = [np.array([number]) for number in range(5000)]
    assert equal(through(values), values)


def test_more_arrays_than_safetensors_lists_get_a_sentence(monkeypatch):
    def too_many(_):
        raise SafetensorError("header too large")

    monkeypatch.setattr("safetensors.numpy.save", too_many)
    with pytest.raises(ValueError, match=r"the model holds 1 arrays, which cannot be saved \(header too large\)"):
        through(np.zeros(1))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda x: x, "it holds a function, which cannot be saved: set it to None or to plain data first"),
        ({frozenset(): 1}, "it holds a frozenset"),
        (pd.Series([1]), "it holds a Series"),
        (np.ma.array([1]), "it holds a MaskedArray"),
        (np.zeros(1, dtype=[("a", int)]), "it holds a ndarray"),
        (np.array([{1}], dtype=object), "it holds a set"),
        (re.compile("x"), "it holds a Pattern"),
        (bw.Bags.from_rows([0.0, 1.0], [0, 1]), "it holds a Bags"),
        (True.__class__, "it holds a type"),
    ],
)
def test_what_is_no_plain_data_is_refused_by_name(value, message):
    with pytest.raises(ValueError, match=message):
        through(value)


def test_a_value_that_contains_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(ValueError, match="nested too deeply"):
        through(value)


def test_the_parameter_is_named(tmp_path, ridge):
    ridge.cv = len
    with pytest.raises(ValueError, match="parameter 'cv' of BagRidgeClassifier holds a builtin_function_or_method"):
        save(ridge, tmp_path / "model")
    assert os.listdir(tmp_path) == []


# -- classes of one's own, nested models, modules -----------------------------------------------------------------


@saving.register
@dataclass(frozen=True)
class Weights:
    share: float
    names: tuple[str, ...]


@saving.register
class Committee(ClassifierMixin, BaseEstimator):
    """The mean of several models, which are its parameter and what it learns."""

    def __init__(self, candidates=()):
        self.candidates = candidates

    def fit(self, X, y):
        self.chosen_ = [candidate.fit(X, y) for candidate in self.candidates]
        self.weights_ = Weights(0.5, ("first", "second"))
        return self

    def predict_proba(self, X):
        return sum(self.weights_.share * model.predict_proba(X) for model in self.chosen_)


def test_models_inside_models_are_saved(tmp_path):
    X, y = rows()
    X = X[["a", "b"]]
    model = Committee([bw.BagRidgeClassifier(random_state=0), bw.BagBoostingClassifier(**SMALL)]).fit(X, y)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.weights_ == model.weights_
    assert [type(candidate).__name__ for candidate in again.candidates] == [
        "BagRidgeClassifier",
        "BagBoostingClassifier",
    ]


@saving.register
class Network(ClassifierMixin, BaseEstimator):
    """A torch module, its own or the user's: the pattern for estimators with parts that no file can hold."""

    def __init__(self, module=None):
        self.module = module

    def fit(self, X, y):
        self.module_ = self._fresh() if self.module is None else self.module
        return self

    def predict_proba(self, X):
        import torch

        with torch.no_grad():
            return self.module_(torch.as_tensor(X)).numpy()

    @staticmethod
    def _fresh():
        import torch

        return torch.nn.Linear(2, 2, dtype=torch.float64)

    def _to_state(self):
        return {"weights": self.module_.state_dict(), "users": self.module is not None}

    @classmethod
    def _from_state(cls, state, *, module=None):
        if state["users"] and module is None:
            raise ValueError("it holds weights of a module of yours: pass a new one, load(folder, module=…)")
        model = cls(module)
        model.module_ = cls._fresh() if module is None else module
        model.module_.load_state_dict(state["weights"])
        return model


@pytest.mark.parametrize("users", [False, True])
def test_a_module_of_the_users_is_given_to_load(tmp_path, torch, users):
    def module():
        return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2)).double()

    X = np.random.default_rng(0).normal(size=(20, 2))
    model = Network(module() if users else None).fit(X, None)
    save(model, tmp_path / "model")
    if users:
        with pytest.raises(ValueError, match=r"model cannot be loaded: .*load\(folder, module=…\)\.$"):
            load(tmp_path / "model")
    again = load(tmp_path / "model", module=module() if users else None)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_module_that_nothing_takes_is_refused(place):
    with pytest.raises(ValueError, match="module was given, but this model takes none"):
        load(place, module=object())


@pytest.mark.usefixtures("torch")
def test_every_estimator_can_be_named():
    for name in bw.__all__:
        value = getattr(bw, name)
        if isinstance(value, type) and issubclass(value, BagEstimator):
            assert saving.kinds.find(name) is value


def test_registering_is_explicit_and_names_are_unique(tmp_path):
    class Stranger(bw.BagRidgeClassifier):
        pass

    X, y = rows()
    model = Stranger().fit(X[["a", "b"]], y)
    with pytest.raises(ValueError, match=r"a Stranger cannot be saved: .*bagwise\.saving\.register"):
        save(model, tmp_path / "model")
    with pytest.raises(ValueError, match="a class named Weights is known already"):

        @saving.register
        class Weights(BaseEstimator):
            pass

    with pytest.raises(ValueError, match="a class named BagRidgeClassifier is known already"):
        saving.register(type("BagRidgeClassifier", (BaseEstimator,), {}))
    with pytest.raises(ValueError, match="Plain is no estimator and no dataclass"):
        saving.register(type("Plain", (), {}))


# -- where to -----------------------------------------------------------------------------------------------------


def test_models_that_are_not_ours_get_a_sentence(tmp_path, ridge):
    with pytest.raises(ValueError, match="a Pipeline cannot be saved, only bagwise models: save its last step"):
        save(make_pipeline(StandardScaler(), ridge), tmp_path / "model")
    search = GridSearchCV(bw.BagRidgeClassifier(), {"alphas": [0.1, 1.0]}, cv=2)
    search.fit(*map(np.asarray, ([[0.0], [1.0]] * 20, [0, 1] * 20)))
    with pytest.raises(ValueError, match="a GridSearchCV cannot be saved: save its best_estimator_"):
        save(search, tmp_path / "model")
    with pytest.raises(ValueError, match="a dict cannot be saved"):
        save({}, tmp_path / "model")
    with pytest.raises(NotFittedError):
        save(bw.BagRidgeClassifier(), tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_an_existing_folder_is_kept(tmp_path, place, ridge):
    ridge.intercept_ = 7.0
    with pytest.raises(FileExistsError, match="exists already: choose another folder, or pass force=True"):
        save(ridge, place)
    assert load(place).intercept_ != 7.0
    save(ridge, place, force=True)
    assert load(place).intercept_ == 7.0
    assert os.listdir(tmp_path) == ["model"]


def test_only_a_saved_model_is_replaced(tmp_path, place, ridge):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("a file")
    for path in (precious, tmp_path / "file", tmp_path):
        with pytest.raises(FileExistsError, match="is no saved model: only a saved model is replaced"):
            save(ridge, path, force=True)
    (place / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"holds 'notes\.txt', which is no part of the model"):
        save(ridge, place, force=True)
    assert (precious / "thesis.txt").exists()
    assert (place / "notes.txt").exists()
    load(place)  # what else lies in the folder does not disturb
    (place / "notes.txt").unlink()
    (place / "arrays.safetensors").unlink()
    (place / "arrays.safetensors").mkdir()
    with pytest.raises(FileExistsError, match=r"holds 'arrays\.safetensors', which is no part of the model"):
        save(ridge, place, force=True)


def test_a_damaged_model_can_be_replaced_only_where_it_can_be_told_that_it_is_one(place, ridge):
    (place / "arrays.safetensors").write_bytes(b"damaged")
    save(ridge, place, force=True)
    load(place)
    (place / "model.json").write_text("{")
    with pytest.raises(FileExistsError, match="no saved model"):
        save(ridge, place, force=True)


@pytest.mark.parametrize("force", [False, True])
def test_a_failed_save_leaves_things_as_they_were(tmp_path, place, ridge, monkeypatch, force):
    before = load(place).intercept_
    target = place if force else tmp_path / "other"
    listed = sorted(os.listdir(tmp_path))

    def full(*_):
        raise OSError("disk full")

    ridge.intercept_ = 7.0
    monkeypatch.setattr(folders.Path, "write_bytes", full)
    with pytest.raises(OSError, match="disk full"):
        save(ridge, target, force=force)
    monkeypatch.undo()
    assert sorted(os.listdir(tmp_path)) == listed
    assert load(place).intercept_ == before


def test_a_failed_move_puts_the_old_model_back(tmp_path, place, ridge, monkeypatch):
    before, rename = load(place).intercept_, os.rename
    ridge.intercept_ = 7.0

    def fails(source, target):
        if os.path.basename(target) == "whole":
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(folders.os, "rename", fails)
    with pytest.raises(OSError, match="no"):
        save(ridge, place, force=True)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["model"]
    assert load(place).intercept_ == before


def test_links_are_followed(tmp_path, place, ridge):
    link = tmp_path / "link"
    link.symlink_to(place)
    ridge.intercept_ = 7.0
    save(ridge, link, force=True)
    assert link.is_symlink()
    assert load(place).intercept_ == load(link).intercept_ == 7.0


# -- what a model tells about itself ------------------------------------------------------------------------------


ABOUT = {
    "columns": ["a", "b"],
    "training": {"rows": 400, "bags": 400, "seconds": 0.25, "budget": None, "done": True},
    "evaluation": {"accuracy": [0.81, 0.79, 0.83], "größte": "é\n"},
}


def test_facts_come_back_without_building_the_model(tmp_path, boosted):
    save(boosted, tmp_path / "model", about=ABOUT)
    saved = saving.inspect(tmp_path / "model")
    assert saved.about == ABOUT
    assert saved.kind == "BagBoostingClassifier"
    assert saved.format == 4
    assert saved.versions["bagwise"] == bw.__version__
    assert saved.files == {name: os.path.getsize(tmp_path / "model" / name) for name in os.listdir(tmp_path / "model")}
    np.testing.assert_array_equal(load(tmp_path / "model").predict(rows()[0]), boosted.predict(rows()[0]))


def test_a_model_without_facts_tells_none(place):
    assert saving.inspect(place).about == {}


@pytest.mark.slow
def test_inspecting_imports_neither_torch_nor_lightgbm(tmp_path, torch, boosted):
    X, y = rows()
    save(bw.BagNeuralClassifier(hidden=(3,), max_epochs=1, cv=2, random_state=0).fit(X[["a", "b"]], y), tmp_path / "n")
    save(boosted, tmp_path / "b")
    program = (
        "import sys; from bagwise.saving import inspect; "
        "print(*(inspect(path).kind for path in sys.argv[1:]), {'torch', 'lightgbm'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", program, tmp_path / "n", tmp_path / "b"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "BagNeuralClassifier BagBoostingClassifier set()"


def test_inspecting_finds_damage_and_knows_kinds_of_others(place):
    change(place, kind="Theirs")
    assert saving.inspect(place).kind == "Theirs"
    change(place, versions={"bagwise": 1})
    with pytest.raises(ValueError, match="it does not tell which versions saved it"):
        saving.inspect(place)
    change(place, kind=["Theirs"])
    with pytest.raises(ValueError, match=r"it names the kind \['Theirs'\], which is none"):
        saving.inspect(place)
    (place / "arrays.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"model cannot be loaded: arrays\.safetensors has 7 bytes instead of"):
        saving.inspect(place)


def endless():
    value = {}
    value["again"] = value
    return value


def many():
    value = ["x" * 10]
    for _ in range(12):
        value = [value] * 10
    return value


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ([], "about must be a dict of facts, got a list"),
        ({"a": {1: 2}}, r"about\['a'\] has the key 1: give strings as keys"),
        ({"a": [0, float("nan")]}, r"about\['a'\]\[1\] is nan: give finite numbers, or None"),
        ({"a": np.float64("inf")}, r"about\['a'\] is inf"),
        ({"a": 2**64}, r"about\['a'\] is a number of more than 64 bits: give it as a string"),
        ({"a": 10**5000}, r"about\['a'\] is a number of more than 64 bits"),
        ({"a": (1, 2)}, r"about\['a'\] is a tuple: give numbers, strings, True, False, None, lists and dicts only"),
        ({"a": np.zeros(2)}, r"about\['a'\] is a ndarray"),
        ({"a": pd.Timestamp("2020")}, r"about\['a'\] is a Timestamp"),
        ({"a": np.datetime64("2020")}, r"about\['a'\] is a date"),
        ({"a": "\ud800"}, r"about\['a'\] holds letters that cannot be written to a file"),
        ({"\ud800": 1}, r"about\['\\ud800'\] holds letters that cannot be written to a file"),
        (endless(), r"about\['again'\]\['again'\].* is nested too deeply"),
        ({"a": "x" * 2**21}, r"about holds more than 1048576 letters and values \(at about\['a'\]\)"),
        ({"x" * 2**21: 1}, "about holds more than 1048576 letters and values"),
        ({"a": many()}, "about holds more than 1048576 letters and values"),
    ],
)
def test_facts_that_are_none_are_refused_by_name(tmp_path, ridge, about, message):
    with pytest.raises(ValueError, match=message) as caught:
        save(ridge, tmp_path / "model", about=about)
    assert len(str(caught.value)) < 500
    assert os.listdir(tmp_path) == []


# -- damaged and hostile folders ----------------------------------------------------------------------------------


def seal(place, document, files=None):
    """Write a document with the checksums it should have: what an attacker would do."""
    for name, data in (files or {}).items():
        (place / name).write_bytes(data)
        document["files"][name] = {"bytes": len(data), "sha256": folders._digest(data)}
    document.pop("sha256", None)
    document["sha256"] = folders._digest(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())
    (place / "model.json").write_text(json.dumps(document))


def change(place, **parts):
    document = json.loads((place / "model.json").read_text())
    document.update(parts)
    seal(place, document)


def safetensors(header, data=b"", *, length=None):
    """A file with that table of contents, sound or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape, offsets, dtype="F64"):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"kind": "Popen"}, "it names the kind 'Popen', which this bagwise does not know"),
        ({"kind": "os.system"}, "it names the kind 'os.system'"),
        ({"kind": ["x" * 1000]}, r"it names the kind \['xxx.{10,60}, which"),
        ({"kind": "FeatureCodes"}, "it holds a FeatureCodes, which is no model"),
        ({"format": 3}, "it has format 3 and this version of bagwise reads format 4"),
        ({"format": 5}, "it has format 5 and this version of bagwise reads format 4"),
        ({"format": True}, "it has format True"),
        ({"parameters": []}, "the parameters of a BagRidgeClassifier are missing"),
        ({"parameters": {"shell": 1}}, "BagRidgeClassifier has no parameter 'shell'"),
        ({"fitted": {"predict": 1}}, "'predict' is no attribute that fitting"),
        ({"fitted": {"_predict_mean": 1}}, "'_predict_mean' is no attribute"),
        ({"fitted": {"__class__": 1}}, "'__class__' is no attribute"),
        ({"fitted": {"cv": 1}}, "'cv' is no attribute"),
        ({"fitted": {"a b": 1}}, "'a b' is no attribute"),
        ({"fitted": {"coef_": {"kind": "array", "name": "b"}}}, "the array 'b' is missing"),
        ({"fitted": {"coef_": {"kind": "array"}}}, "the array None is missing"),
        ({"fitted": {"coef_": {"kind": "array", "name": "a0", "type": "|O"}}}, r"the type '\|O', which is none of"),
        ({"fitted": {"coef_": {"kind": "array", "name": "a0", "type": "V8"}}}, "the type 'V8', which is none of"),
        ({"fitted": {"coef_": {"kind": "array", "name": "a0", "type": 7}}}, "the type 7, which is none of"),
        ({"fitted": {"coef_": {"kind": "array", "name": "a0", "type": "<f16:5"}}}, "which this machine does not have"),
        ({"fitted": {"coef_": {"kind": "array", "name": "a0", "type": "|i8"}}}, "which this machine does not have"),
        (
            {"fitted": {"coef_": {"kind": "array", "name": "a0", "type": "<U9"}}},
            "does not consist of items of 36 bytes",
        ),
        ({"fitted": {"coef_": {"kind": "array", "name": "a0", "type": "<m8[eon]"}}}, r"damaged \(TypeError\)"),
        ({"fitted": {"coef_": {"kind": "pairs", "items": [[0, 1, 2]]}}}, "a dict does not consist of pairs"),
        (
            {"fitted": {"coef_": {"kind": "pairs", "items": [[number * (2**61 - 1), 0] for number in range(99)]}}},
            "the keys of a dict are too much alike",  # 100,000 of them would take minutes
        ),
        ({"fitted": {"coef_": {"kind": "trees", "number": 0}}}, "the file 'trees-0.txt' is missing"),
        ({"fitted": {"coef_": {"kind": "trees", "number": "/../x"}}}, "is missing"),
        ({"fitted": {"coef_": {"kind": "scalar", "type": "object", "value": 1}}}, "1 is no number of type 'object'"),
        ({"fitted": {"coef_": {"kind": "scalar", "type": "int8", "value": 10**9}}}, r"damaged \(OverflowError\)"),
        ({"fitted": {"coef_": {"kind": "objects", "shape": [3], "items": [1]}}}, "does not have the shape it claims"),
        ({"fitted": {"coef_": {"kind": "objects", "shape": [-1], "items": [1]}}}, "does not have the shape it claims"),
        ({"fitted": {"coef_": {"kind": "FeatureCodes", "fields": {"other": 1}}}}, "must have the fields categories"),
        ({"fitted": {"coef_": {"kind": "FeatureCodes"}}}, "the fields of a FeatureCodes are missing"),
        ({"fitted": {"coef_": {"no": "kind"}}}, "it names the kind None"),
        ({"files": ["arrays.safetensors"]}, "lists no files"),
        (
            {"files": {"../model/arrays.safetensors": {}}},
            r"names the file '\.\./model/arrays\.safetensors', which is no part",
        ),
        ({"files": {"/etc/passwd": {}}}, "names the file '/etc/passwd'"),
        ({"files": {"Arrays.safetensors": {}}}, "names the file 'Arrays.safetensors'"),
        ({"files": {"trees-01.txt": {}}}, "names the file 'trees-01.txt'"),
        ({"about": []}, "about must be a dict of facts, got a list"),
        ({"about": {"key": "\ud800"}}, r"about\['key'\] holds letters that cannot be written"),
        ({"files": {"model.json": {}}}, "names the file 'model.json'"),
        ({"files": {"arrays.safetensors": {"sha256": ""}}}, "does not say how large arrays.safetensors is"),
        ({"files": {"arrays.safetensors": {"bytes": 10**30}}}, "arrays.safetensors has .* bytes instead of 1000000"),
        ({"files": {"trees-7.txt": {"bytes": 1}}}, "trees-7.txt is missing"),
    ],
)
def test_hostile_documents_get_a_sentence(place, parts, message):
    change(place, **parts)
    with pytest.raises(ValueError, match=rf"model cannot be loaded: .*{message}"):
        load(place)


HOSTILE_ARRAYS = {
    "empty": b"",
    "cut off": safetensors({})[:7],
    "no table": bytes(8),
    "table beyond the file": safetensors({}, length=100),
    "endless table": safetensors({}, length=2**63),
    "pickle": pickle.dumps(print),
    "negative": safetensors({"a0": entry([-1], [0, 8])}, bytes(8)),
    "fraction": safetensors({"a0": entry([1.0], [0, 8])}, bytes(8)),
    "constant": safetensors(b'{"a0": {"dtype": "F64", "shape": [NaN], "data_offsets": [0, 8]}}', bytes(8)),
    "more than the file": safetensors({"a0": entry([2**40], [0, 2**43])}, bytes(8)),
    "more than memory": safetensors({"a0": entry([2**61], [0, 8])}, bytes(8)),
    "more than 64 bits": safetensors({"a0": entry([2**63, 2], [0, 0])}),
    "endless emptiness": safetensors({"a0": entry([0, 2**62], [0, 0])}),
    "too short": safetensors({"a0": entry([2], [0, 16])}, bytes(12)),
    "too long": safetensors({"a0": entry([1], [0, 8])}, bytes(12)),
    "gap": safetensors({"a0": entry([1], [4, 12])}, bytes(12)),
    "backwards": safetensors({"a0": entry([1], [8, 0])}, bytes(8)),
    "overlapping": safetensors({"a0": entry([1], [0, 8]), "a1": entry([1], [4, 12])}, bytes(12)),
    "shared": safetensors({"a0": entry([1], [0, 8]), "a1": entry([1], [0, 8])}, bytes(8)),
    "type twice": safetensors(
        b'{"a0": {"dtype": "F64", "dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}', bytes(8)
    ),
    "deep": safetensors(b'{"a0": ' * 100_000),
    "unknown type": safetensors({"a0": entry([1], [0, 1], "OBJECT")}, bytes(1)),
    "type that NumPy lacks": safetensors({"a0": entry([1], [0, 2], "BF16")}, bytes(2)),
    "too many axes": safetensors({"a0": entry([1] * 100, [0, 8])}, bytes(8)),
    "no text": safetensors(b'{"\xff": 1}'),
    "neither true nor false": safetensors({"a0": entry([1], [0, 1], "BOOL")}, b"\7"),
}


@pytest.mark.parametrize("data", HOSTILE_ARRAYS.values(), ids=HOSTILE_ARRAYS)
def test_hostile_arrays_get_a_sentence(place, data):
    document = json.loads((place / "model.json").read_text())
    seal(place, document, {"arrays.safetensors": data})
    with pytest.raises(ValueError, match=r"model cannot be loaded: arrays\.safetensors is damaged[^.\n]*\.$"):
        load(place)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        '{"format": 4',
        "[" * 100_000,
        '{"format": NaN, "kind": 1}',
        '{"format": 4, "kind": 1e999}',
        "\ud800",
        "9" * 10_000,
        '{"format": 4, "kind": "BagRidgeClassifier", "kind": "Popen"}',
    ],
    ids=[
        "empty",
        "list",
        "dict",
        "word",
        "cut off",
        "deep",
        "constant",
        "infinity",
        "no UTF-8",
        "long number",
        "twice",
    ],
)
def test_a_document_that_is_none_gets_a_sentence(place, text):
    (place / "model.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError, match=r"model cannot be loaded: model\.json is not "):
        load(place)


def test_deep_nesting_gets_a_sentence(place):
    deep = 0
    for _ in range(200):
        deep = [deep]
    change(place, fitted={"coef_": deep})
    with pytest.raises(ValueError, match="it is nested too deeply"):
        load(place)


def test_folders_that_are_no_model_get_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no saved model at .*nowhere"):
        load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file is no folder"):
        load(tmp_path / "file")
    with pytest.raises(ValueError, match=r"model\.json is missing"):
        load(tmp_path)


def swapped_for(place, name, make):
    """The folder with something else in the place of a file, which is kept outside."""
    outside = place.parent / f"outside-{name}"
    (place / name).rename(outside)
    make(place / name, outside)
    return place


NOT_FILES = {
    "link": (lambda path, outside: path.symlink_to(outside), "is a link: put the file itself in its place"),
    "link to nothing": (lambda path, _: path.symlink_to("nothing"), "is a link"),
    "link to itself": (lambda path, _: path.symlink_to(path), "is a link"),
    "link to a device": (lambda path, _: path.symlink_to("/dev/zero"), "is a link"),
    "pipe": (lambda path, _: os.mkfifo(path), "is no file"),  # reading it would wait for ever
    "folder": (lambda path, _: path.mkdir(), "is no file"),
    "socket": (lambda path, _: socket.socket(socket.AF_UNIX).bind(os.path.relpath(path)), "is no file"),
    "nothing": (lambda path, _: None, "is missing"),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", ["model.json", "arrays.safetensors"])
@pytest.mark.parametrize(("make", "message"), NOT_FILES.values(), ids=NOT_FILES)
def test_what_is_no_file_of_the_folder_is_refused(place, make, message, name, monkeypatch):
    monkeypatch.chdir(place)  # the address of a socket must be short
    swapped_for(place, name, make)
    for read in (load, saving.inspect):
        with pytest.raises(ValueError, match=rf"model cannot be loaded: {name} {message}"):
            read(place)


def test_a_pipe_that_comes_a_moment_later_is_not_waited_for(place, monkeypatch):
    """What is opened is looked at again."""
    look = os.lstat(place / "arrays.safetensors")
    swapped_for(place, "arrays.safetensors", lambda path, _: os.mkfifo(path))
    monkeypatch.setattr(folders.Path, "lstat", lambda _: look)
    with pytest.raises(ValueError, match=r"arrays\.safetensors is no file"):
        load(place)


def test_a_link_that_comes_a_moment_later_is_not_followed(place, monkeypatch):
    look = os.lstat(place / "arrays.safetensors")
    swapped_for(place, "arrays.safetensors", lambda path, outside: path.symlink_to(outside))
    monkeypatch.setattr(folders.Path, "lstat", lambda _: look)
    with pytest.raises(OSError, match=r"arrays\.safetensors cannot be read \(.+\)\.$"):
        load(place)


def test_unreadable_files_get_a_sentence(place, monkeypatch):
    def refuses(path, flags):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(folders.os, "open", refuses)
    with pytest.raises(PermissionError, match=r"^.*model\.json cannot be read \(Permission denied\)\.$"):
        load(place)


def test_huge_files_are_not_read(place):
    """Files full of nothing, which take no room on the disk."""
    with open(place / "arrays.safetensors", "r+b") as file:
        file.truncate(2**42)
    with pytest.raises(ValueError, match=r"arrays\.safetensors has 4398046511104 bytes instead of"):
        load(place)
    with open(place / "model.json", "r+b") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match=r"model\.json is larger than any model's"):
        load(place)


def test_too_little_memory_gets_a_sentence(place, monkeypatch):
    def fails(*_):
        raise MemoryError

    monkeypatch.setattr(saving.Decoder, "decode_model", fails)
    with pytest.raises(ValueError, match="model cannot be loaded: there is not enough memory for it"):
        load(place)


def test_a_long_message_of_a_library_becomes_one_sentence(place, monkeypatch):
    def fails(*_):
        raise ValueError("first line\nsecond line " + "x" * 1000)

    monkeypatch.setattr(saving.Decoder, "decode_model", fails)
    with pytest.raises(ValueError, match=r"^.* cannot be loaded: first line second line x{10,400}…\.$"):
        load(place)


def test_text_of_letters_that_are_none_is_refused():
    encoder = Encoder()
    entry = encoder.encode(np.array([[255, 255, 255, 255]], dtype=np.uint8), "it")
    with pytest.raises(ValueError, match="an array of text holds numbers that stand for no letter"):
        Decoder(encoder.files()).decode({**entry, "type": ">U1"})


def test_objects_in_messages_are_named_by_their_class(place):
    """Showing a whole model may take long, or fail."""
    value = {"kind": "BagRidgeClassifier", "parameters": {"cv": [0] * 1000}, "fitted": {}}
    change(place, fitted={"coef_": {"kind": "scalar", "type": "float64", "value": value}})
    with pytest.raises(ValueError, match="a BagRidgeClassifier is no number of type 'float64'"):
        load(place)


def test_trees_are_used_once(tmp_path, boosted):
    """Read again and again, a small file would take for ever."""
    save(boosted, tmp_path / "model")
    change(tmp_path / "model", fitted={"trees_": [{"kind": "trees", "number": 0}] * 2})
    with pytest.raises(ValueError, match=r"trees-0\.txt is used twice"):
        load(tmp_path / "model")


def test_changed_and_missing_files_are_told(place):
    data = (place / "arrays.safetensors").read_bytes()
    (place / "arrays.safetensors").write_bytes(data[:-10])
    with pytest.raises(
        ValueError, match=rf"arrays\.safetensors has {len(data) - 10} bytes instead of {len(data)}: it was cut off"
    ):
        load(place)
    (place / "arrays.safetensors").write_bytes(data[:-10] + b"0123456789")
    with pytest.raises(ValueError, match=r"arrays\.safetensors was changed or damaged after it was saved"):
        load(place)
    (place / "arrays.safetensors").unlink()
    with pytest.raises(ValueError, match=r"arrays\.safetensors is missing"):
        load(place)


def test_a_changed_number_in_the_document_is_found(place):
    text = (place / "model.json").read_text()
    changed = text.replace('"cv": 5', '"cv": 6')
    assert changed != text
    (place / "model.json").write_text(changed)
    with pytest.raises(ValueError, match=r"model\.json was changed or damaged after it was saved"):
        load(place)


def test_a_class_that_cannot_be_imported_is_told(place, monkeypatch):
    monkeypatch.setitem(saving.kinds._MODULE_OF, "BagRidgeClassifier", "bagwise.nothing")
    with pytest.raises(ValueError, match="it holds a BagRidgeClassifier, which cannot be imported here"):
        load(place)


# -- LightGBM's text ----------------------------------------------------------------------------------------------


TEXT = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=1
feature_names=Column_0 Column_1
feature_infos=[-3.89:3.06] -1:2:1:0

Tree=0
num_leaves=4
num_cat=1
split_feature=1 0 0
split_gain=27.2234 45.0166 7.10543e-15
threshold=0 1.0000000180025095e-35 0.95590394161158609
decision_type=1 2 2
left_child=1 -1 -3
right_child=-2 2 -4
leaf_value=-0.013857142857058025 -0.0139 0.0844 0.0833
leaf_weight=97 419 53 31
leaf_count=97 419 53 31
internal_value=1.49012e-09 0.324088 0.86
internal_weight=600 181 84
internal_count=600 181 84
cat_boundaries=0 1
cat_threshold=1
is_linear=0
shrinkage=1


Tree=1
num_leaves=1
num_cat=0
split_feature=
split_gain=
threshold=
decision_type=
left_child=
right_child=
leaf_value=1
leaf_weight=
leaf_count=100
internal_value=
internal_weight=
internal_count=
is_linear=0
shrinkage=1


end of trees
"""


def test_sound_trees_are_read():
    booster = trees.from_text(TEXT.encode(), "trees-0.txt")
    assert booster.predict([[0.5, 0.0], [0.5, 1.0]], raw_score=True).tolist() == [1.0844, 1 - 0.0139]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("right_child=-2 2", "right_child=-2 0", "its nodes form no tree"),  # a loop: predicting would never end
        (
            "left_child=1 -1 -3\nright_child=-2 2 -4",
            "left_child=-1 2 1\nright_child=-2 -3 -4",
            "its nodes form no tree",
        ),
        ("left_child=1 -1", "left_child=900 -1", "its nodes form no tree"),
        ("left_child=1 -1 -3", "left_child=1 -1", "left_child has 2 numbers instead of 3"),
        ("split_feature=1", "split_feature=2", "it splits on a feature that is not there"),
        ("split_feature=1", "split_feature=-1", "it splits on a feature that is not there"),
        ("num_leaves=4", "num_leaves=100000", "split_feature has 3 numbers instead of 99999"),
        ("num_leaves=4", "num_leaves=0", "it has no leaves"),
        ("num_cat=1", "num_cat=9", "cat_boundaries has 2 numbers instead of 10"),
        ("num_cat=1", "num_cat=0", "lines are missing"),
        ("threshold=0 1", "threshold=1 1", "its categories are not there"),
        ("threshold=0 1", "threshold=0.5 1", "its categories are not there"),
        ("cat_boundaries=0 1", "cat_boundaries=0 99", "its categories are not there"),
        ("cat_threshold=1", "cat_threshold=1 2", "its categories are not there"),
        ("is_linear=0", "is_linear=1", "linear"),
        ("decision_type=1", "decision_type=99", "it decides in an unknown way"),
        ("leaf_value=1", "leaf_value=1_0", "leaf_value holds '1_0'"),
        ("num_tree_per_iteration=1", "num_tree_per_iteration=0", "num_tree_per_iteration is '0'"),
        ("num_tree_per_iteration=1", "num_tree_per_iteration=2", "num_tree_per_iteration is '2'"),
        ("num_class=1\nnum_tree_per_iteration=1", "num_class=3\nnum_tree_per_iteration=3", "num_class is '3'"),
        ("split_feature=1 0 0\n", "split_feature=1 0 0\n\n", "wrong line"),
        # LightGBM would look for "=" beyond the text,
        ("shrinkage=1\n\n\nend", "shrinkage=1\nend", "an empty line is missing"),
        ("shrinkage=1\n\n\nend", "shrinkage=1\n\n\n\nend", "wrong line"),
        # or mix two trees that are sound into one that is not.
        ("shrinkage=1\n\n\nTree=1", "shrinkage=1\nTree=1", "an empty line is missing"),
        ("shrinkage=1\n\n\nTree=1", "shrinkage=1Tree=1", "an empty line is missing"),
        ("-1:2:1:0\n\nTree=0", "-1:2:1:0\nTree=0", "an empty line is missing"),
        ("-1:2:1:0", "-1=2", "feature_infos is"),
        ("max_feature_idx=1", "max_feature_idx=١", "max_feature_idx is '١'"),
        ("leaf_count=97", "leaf_count=2147483648", "leaf_count holds numbers that are too large"),
        ("cat_threshold=1", "cat_threshold=4294967296", "cat_threshold holds numbers that are too large"),
        ("is_linear=0\n", "", "linear"),
        ("num_cat=1\n", "", "num_cat has 0 numbers instead of 1"),
        ("feature_names=Column_0 ", "feature_names= ", "feature_names is"),
        ("label_index=0", "label_index=0\ntree_sizes=5", "wrong header"),
        ("label_index=0", "label_index=0\nobjective=multiclass num_class:9", "objective is 'multiclass num_class:9'"),
        ("max_feature_idx=1", "max_feature_idx=99999999", "the number of features differs"),
        ("Tree=1", "Tree=2", "tree 1 is out of order"),
        ("shrinkage=1", "shrinkage=1\nshrinkage=1", "wrong line"),
        ("split_gain=\n", "", "lines are missing"),
        ("end of trees", "end", "it does not end where it should"),
    ],
)
def test_trees_that_are_none_are_refused_before_lightgbm_reads_them(before, after, message):
    changed = TEXT.replace(before, after, 1)
    assert changed != TEXT
    with pytest.raises(ValueError, match=rf"trees-0\.txt is no sound LightGBM model \(.*({message})"):
        trees.from_text(changed.encode(), "trees-0.txt")


def chain(n_leaves):
    """A tree that asks one question after the other."""
    n = n_leaves - 1
    lines = {
        "num_leaves": [n_leaves],
        "num_cat": [0],
        "split_feature": [0] * n,
        "split_gain": [1] * n,
        "threshold": range(n),
        "decision_type": [2] * n,
        "left_child": range(-1, -n_leaves, -1),
        "right_child": [*range(1, n), -n_leaves],
        "leaf_value": [0.001] * n_leaves,
        "leaf_weight": [1] * n_leaves,
        "leaf_count": [1] * n_leaves,
        "internal_value": [0] * n,
        "internal_weight": [1] * n,
        "internal_count": range(n_leaves, 1, -1),
        "is_linear": [0],
        "shrinkage": [1],
    }
    text = "".join(f"{key}={' '.join(map(str, numbers))}\n" for key, numbers in lines.items())
    return f"{TEXT[: TEXT.index('Tree=')]}Tree=0\n{text}\n\nend of trees\n"


def test_trees_that_are_too_deep_or_large_are_refused():
    """What LightGBM and those who read its trees do by calling themselves would end the process."""
    booster = trees.from_text(chain(DEEPEST + 1).encode(), "trees-0.txt")
    assert np.isfinite(booster.predict(np.full((1, 2), 1e9), pred_contrib=True)).all()
    assert len(trees_of(booster)[0].value) == DEEPEST + 1
    for n_leaves, said in [(DEEPEST + 2, "it asks more than 256 questions"), (2**17 + 1, "it has more leaves than")]:
        with pytest.raises(ValueError, match=rf"trees-0\.txt is no sound LightGBM model \(tree 0: {said}"):
            trees.from_text(chain(n_leaves).encode(), "trees-0.txt")


# -- what small folders may cost ----------------------------------------------------------------------------------


def hostile(place, change, arrays=None):
    """The folder with its document changed, other arrays, and the checksums that it should have."""
    document = json.loads((place / "model.json").read_text())
    if arrays is not None:
        arrays(place / "arrays.safetensors")
        with (place / "arrays.safetensors").open("rb") as file:
            told = {"bytes": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
        document["files"]["arrays.safetensors"] = told
    change(document["fitted"])
    del document["sha256"]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    document["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (place / "model.json").write_text(json.dumps(document))


def test_a_file_of_holes_is_not_read(place):
    """Gigabytes that are not there take no memory, whatever their checksum is."""

    def holes(path):
        header = json.dumps({"a0": {"dtype": "U8", "shape": [2**27], "data_offsets": [0, 2**27]}}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        os.truncate(path, 8 + len(header) + 2**27)

    hostile(place, lambda fitted: None, holes)
    tracemalloc.start()
    with pytest.raises(
        ValueError, match=r"arrays\.safetensors is made of holes: of its 134217\d+ bytes, \d+ are there"
    ):
        load(place)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**24


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[]] * 2**21, "model.json lists more than 2,097,152 values: numbers belong into arrays"),
        ([{"kind": "array", "name": "a0"}] * 2, "the array 'a0' is used twice"),
    ],
    ids=["lists", "references"],
)
def test_what_a_small_document_would_blow_up_is_refused(place, value, message):
    hostile(place, lambda fitted: fitted.update(more_=value))
    with pytest.raises(ValueError, match=message):
        load(place)


def test_a_folder_costs_at_most_four_times_its_size(tmp_path):
    """Beside what the libraries take: 32 MB of arrays and 4 MB of trees."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4))
    model = bw.BagBoostingClassifier(
        n_estimators=150,
        num_leaves=255,
        n_fits=1,
        cv=2,
        min_child_samples=1,
        n_jobs=1,
        early_stopping_rounds=150,
        random_state=0,
    )
    model.fit(X, rng.integers(0, 2, 4000))
    model.more_ = rng.normal(size=2**22)
    save(model, tmp_path / "model")
    size = sum(path.stat().st_size for path in (tmp_path / "model").iterdir())
    tracemalloc.start()
    load(tmp_path / "model")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda fitted: fitted.update(n_features_in_=3), "its parts do not fit each other"),
        (lambda fitted: fitted.update(n_features_in_=10**9), "its parts do not fit each other"),
        (lambda fitted: fitted.update(n_features_in_="2"), "how many features"),
        (lambda fitted: fitted.update(intercept_="x"), "its parts do not fit each other"),
        (lambda fitted: fitted.update(coef_=None), "its parts do not fit each other"),
        (lambda fitted: fitted.update(classes_=[0, 1, 2]), "as many classes as it knows"),
        (lambda fitted: fitted.pop("coef_"), "its parts do not fit each other"),
    ],
)
def test_parts_that_do_not_fit_each_other_are_found_by_load(place, change, message):
    hostile(place, change)
    with pytest.raises(ValueError, match=message):
        load(place)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model["parameters"].update(n_jobs="x"), "n_jobs must be a whole number"),
        (lambda model: model["parameters"].update(num_leaves="x"), "num_leaves must be a whole number"),
        (lambda model: model["fitted"].update(classes_=[0]), "as many classes as it knows"),
        (lambda model: model.clear() or model.update(kind="dict", items={}), "something else than models"),
    ],
)
def test_models_inside_of_a_model_are_held_to_what_they_may_be(tmp_path, change, message):
    """With one row, and one thread, some predict that do not for more."""
    frame, y = rows()
    boosting = bw.BagBoostingClassifier(**SMALL)
    model = bw.BagAutoClassifier(candidates={"boosting": boosting}, cv=2, random_state=0).fit(frame, y)
    save(model, tmp_path / "model")
    hostile(tmp_path / "model", lambda fitted: change(fitted["models_"][0]))
    with pytest.raises(ValueError, match=f"its parts do not fit each other.*{message}"):
        load(tmp_path / "model")


def test_fields_of_the_wrong_kind_are_found_by_load():
    document = Encoder().encode(Weights(0.5, ("first",)), "it")
    document["fields"]["share"] = "much"
    with pytest.raises(ValueError, match="share of a Weights is 'much', which is of the wrong kind"):
        Decoder({}).decode(document)
