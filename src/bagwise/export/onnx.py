"""ONNX: one graph from the columns of a table to predictions, in double precision as predictions are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.data.features import Encoding
from bagwise.export.described import Described
from bagwise.export.formula import CannotExportError, prediction
from bagwise.export.onnx_trees import ensemble
from bagwise.export.trees import Share, merged
from bagwise.tables.columns import DAY, HOUR, THURSDAY, Column, Role
from bagwise.tables.engines.duckdb import connect
from bagwise.tables.sources import Source, home, in_memory, read
from bagwise.tables.table import as_number, as_text, col
from bagwise.utils.packages import needed
from bagwise.utils.typing import Floats, NDArray

if TYPE_CHECKING:
    from onnx import ModelProto

_OPSET, _ML_OPSET, _IR = 18, 5, 10  # the oldest that have what is needed: trees in double precision with sets of codes


def to_onnx(model: Any) -> ModelProto:
    """A model as a graph of ONNX, from the columns of a table to predictions.

    Each column that predictions depend on is an input of shape (rows,) with its name: numbers and times (seconds since
    1970, in UTC if the column has a time zone) in double precision, NaN where missing; categories as text, missing
    where training did not have it; of hashed text, the first two digits of its MD5 sum, which ONNX cannot compute.
    `onnx_inputs` makes all of these of a table. Each column of predictions is an output of shape (rows,). An estimator
    of arrays has one input, X of shape (rows, features).

    Parameters
    ----------
    model : TableModel, BagClassifier or BagRegressor
        A model that `tables.fit` or `load` returned, or a fitted estimator of arrays.

    Returns
    -------
    onnx.ModelProto
        For the opset 18 of ONNX and 5 of its machine learning; ``onnx.save(found, path)`` writes it.

    Examples
    --------
    >>> import bagwise as bw
    >>> X = np.random.default_rng(0).normal(size=(640, 2))
    >>> ids = bw.random_bags(640, size=16, random_state=0)
    >>> graph = to_onnx(bw.BagRidgeClassifier().fit(X, bw.aggregate(X[:, 0] > 0, ids), bags=ids))
    >>> [one.name for one in graph.graph.input], [one.name for one in graph.graph.output]
    (['X'], ['prediction'])
    """
    needed("onnx", "onnx", "graphs of ONNX")
    described = Described.of(model)
    graph = _Graph(described)
    found = prediction(described.estimator, described.encoding, graph)
    return graph.model(found)


def onnx_inputs(model: Any, table: Source) -> dict[str, NDArray[Any]]:
    """What a graph of `to_onnx` is fed with, of the rows of a table.

    Parameters
    ----------
    model : TableModel
        The model that was exported.
    table : table, dict or path
        Anything that `tables.read` takes, with columns of the types of training.

    Returns
    -------
    dict of array
        By the name of the input: ``session.run(None, onnx_inputs(model, table))``.
    """
    described, rows = Described.of(model), in_memory(table)
    rows = read(table, home(table, connection=connect(ordered=True))) if rows is None else rows
    columns = described.features.among([one.name for one in described.read])
    columns.check(rows)
    names = {f"bagwise_{number}": column for number, column in enumerate(columns.columns)}
    texts = {name: as_text(col(one.name), rows.schema[one.name]) for name, one in names.items() if one.role in _TEXTS}
    hashed = {name: texts.pop(name) for name, one in names.items() if one.role is Role.hashed}
    times = {name: col(one.name) for name, one in names.items() if one.role is Role.time}
    numbers = {name: as_number(col(one.name)) for name, one in names.items() if one.role is Role.number}
    found = rows.with_md5(**hashed).with_seconds(**times).with_columns(**texts, **numbers).select(*names).fetch()
    fed: dict[str, NDArray[Any]] = {}
    for name, column in names.items():
        values = found.column(name)
        if column.role in _TEXTS:
            missing = missing_text(column)
            known = [missing if one is None else one for one in values.to_pylist()]
            told = [one[:2] for one in known] if column.role is Role.hashed else known
            fed[column.name] = np.array(told, dtype=object)
        else:
            fed[column.name] = values.to_numpy().astype(float)
    return fed


_TEXTS = (Role.category, Role.hashed)


def missing_text(column: Column) -> str:
    """A text that stands for a missing one: none of those that training had.

    >>> missing_text(Column("place", Role.category, levels=("", "north")))
    '?'
    """
    missing = ""
    while missing in column.levels:
        missing += "?"
    return missing


class _Graph:
    """Words of ONNX; a number is the name of a tensor (rows, outputs)."""

    name = "ONNX"

    def __init__(self, described: Described) -> None:
        import onnx

        self.described, self.onnx = described, onnx
        self.nodes: list[Any] = []
        self.constants: dict[bytes, str] = {}
        self.kept: list[Any] = []
        self.encoded: dict[int, str] = {}

    # -- the graph ------------------------------------------------------------------------------------------------

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """A node; the name of what comes out."""
        name = f"bagwise/node/{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [name], domain=domain, **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """The name of a constant."""
        array = np.asarray(value, dtype=dtype)
        key = array.tobytes() + repr((array.dtype, array.shape)).encode()
        if key not in self.constants:
            self.constants[key] = f"bagwise/constant/{len(self.constants)}"
            self.kept.append(self.onnx.numpy_helper.from_array(array, self.constants[key]))
        return self.constants[key]

    def cast(self, number: str, kind: str) -> str:
        """The number in another type."""
        return self.add("Cast", number, to=getattr(self.onnx.TensorProto, kind))

    def model(self, found: str) -> ModelProto:
        """The graph that ends in predictions."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        names = self.described.outputs
        for place, name in enumerate(names):
            parts = [found, self.constant(place, np.int64)]
            self.nodes.append(helper.make_node("Gather", parts, [name], axis=1))
        outputs = [helper.make_tensor_value_info(name, types.DOUBLE, ["rows"]) for name in names]
        if self.described.bare:
            shape = ["rows", len(self.described.features.columns)]
            inputs = [helper.make_tensor_value_info("X", types.DOUBLE, shape)]
        else:
            kinds = [types.STRING if one.role in _TEXTS else types.DOUBLE for one in self.described.read]
            named = zip(self.described.read, kinds, strict=True)
            inputs = [helper.make_tensor_value_info(one.name, kind, ["rows"]) for one, kind in named]
        graph = helper.make_graph(self.nodes, "bagwise", inputs, outputs, self.kept)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR, producer_name="bagwise")
        helper.set_model_props(model, {"columns": json.dumps(self.columns(), ensure_ascii=False)})
        self.onnx.checker.check_model(model)
        return model

    def columns(self) -> list[dict[str, str]]:
        """What each input is, for readers of the file."""
        read = [] if self.described.bare else self.described.read
        missing = {one.name: missing_text(one) for one in read if one.role in _TEXTS}
        return [{"name": one.name, "role": one.role.value, "missing": missing.get(one.name, "NaN")} for one in read]

    # -- columns --------------------------------------------------------------------------------------------------

    @cached_property
    def codes(self) -> str:
        """(rows, made) what estimators read."""
        if self.described.bare:
            return "X"
        last, parts = self.constant([-1], np.int64), []
        first = self.described.read[0]
        for made in self.described.made:
            column, code = made.column, ""
            if not made.used:
                code = self.add("Expand", self.constant(0.0), self.add("Shape", first.name))
            elif made.made.levels is None and column.role is Role.number:
                code = column.name
            elif column.role is Role.time:
                code = self._of_time(column, made.made.name)
            else:
                code = self._of_text(column.name, made.made.levels or ())
            if made.used and made.made.typical is not None:
                code = self.add("Where", self.add("IsNaN", code), self.constant(made.made.typical), code)
            parts.append(self.add("Unsqueeze", code, last))
        return self.add("Concat", *parts, axis=1)

    def _of_text(self, name: str, levels: Sequence[str]) -> str:
        """Numbers of texts among the levels, NaN for others."""
        codes = [float(code) for code in range(len(levels))]
        attributes = {"keys_strings": list(levels), "values_floats": codes, "default_float": float("nan")}
        return self.cast(self.add("LabelEncoder", name, domain="ai.onnx.ml", **attributes), "DOUBLE")

    def _of_time(self, column: Column, made: str) -> str:
        """Hour, weekday or days of a time."""
        seconds = column.name
        if made.endswith("days"):
            first, last = self.constant(column.first), self.constant(column.last)
            held = self.add("Where", self.add("Greater", seconds, last), last, seconds)
            held = self.add("Where", self.add("Less", held, first), first, held)
            return self.add("Div", self.add("Sub", held, first), self.constant(float(DAY)))
        unit, start, many = (HOUR, 0, 24) if made.endswith("hour") else (DAY, THURSDAY, 7)
        whole = self.add("Floor", self.add("Div", seconds, self.constant(float(unit))))
        whole = self.add("Add", whole, self.constant(float(start)))
        turns = self.add("Floor", self.add("Div", whole, self.constant(float(many))))
        return self.add("Sub", whole, self.add("Mul", turns, self.constant(float(many))))

    def features(self, encoding: Encoding | None) -> str:
        """Codes or, if there is an encoding, (rows, width) what it makes of them, in single precision as it does."""
        if encoding is None:
            return self.codes
        if id(encoding) in self.encoded:
            return self.encoded[id(encoding)]
        parts = []
        for number, levels in enumerate(encoding.levels):
            code = self.add("Gather", self.codes, self.constant([number], np.int64), axis=1)
            if levels is not None:
                parts.append(self.cast(self.add("Equal", code, self.constant(levels[None])), "FLOAT"))
                continue
            gap = self.add("IsNaN", code)
            scaled = self.add("Sub", code, self.constant(encoding.low[number]))
            scaled = self.add("Div", scaled, self.constant(encoding.span[number]))
            scaled = self.add("Where", gap, self.constant(encoding.fill[number]), scaled)
            parts.append(self.cast(scaled, "FLOAT"))
            if encoding.missing[number]:
                parts.append(self.cast(gap, "FLOAT"))
        self.encoded[id(encoding)] = self.cast(self.add("Concat", *parts, axis=1), "DOUBLE")
        return self.encoded[id(encoding)]

    # -- words ----------------------------------------------------------------------------------------------------

    def linear(self, encoding: Encoding | None, coef: Floats, intercept: Floats) -> str:
        """See `Words`."""
        product = self.add("MatMul", self.features(encoding), self.constant(coef.T))
        return self.add("Add", product, self.constant(intercept))

    def trees(self, outputs: Sequence[Sequence[Share]], constant: Floats) -> str:
        """See `Words`."""
        shift = self.constant(np.broadcast_to(constant, len(outputs)))
        if not any(outputs):
            rows = self.add("Shape", self.codes, start=0, end=1)
            shape = self.add("Concat", rows, self.constant([len(outputs)], np.int64), axis=0)
            return self.add("Expand", shift, shape)
        found = self.add("TreeEnsemble", self.codes, domain="ai.onnx.ml", **ensemble(merged(outputs)))
        return self.add("Add", found, shift)

    def network(self, encoding: Encoding | None, module: Any) -> str:
        """See `Words`."""
        from bagwise.export.torch_modules import layers_of

        x = self.features(encoding)
        for one in layers_of(module):
            layer: Any = one
            kind = type(layer).__name__
            if kind == "Standardise":
                mean, scale = (part.detach().cpu().numpy() for part in (layer.mean, layer.scale))
                x = self.add("Div", self.add("Sub", x, self.constant(mean)), self.constant(scale))
                dtype = np.zeros(0, dtype=str(layer.dtype).removeprefix("torch.")).dtype
                x = self.cast(x, "FLOAT" if dtype == np.float32 else "DOUBLE")
            elif kind == "Linear":
                weight, bias = (part.detach().cpu().numpy() for part in (layer.weight, layer.bias))
                x = self.add("Gemm", x, self.constant(weight, weight.dtype), self.constant(bias, bias.dtype), transB=1)
            elif kind == "ReLU":
                x = self.add("Relu", x)
            else:
                said = f"a network with a layer {kind} has no words in our graphs"
                raise CannotExportError(f"{said}: export it by torch.onnx.export, or to torch.")
        return self.cast(x, "DOUBLE")

    def moved(self, number: str, factor: Floats | float, shift: Floats | float) -> str:
        """See `Words`."""
        if np.any(np.asarray(factor) != 1):
            number = self.add("Mul", number, self.constant(factor))
        return self.add("Add", number, self.constant(shift)) if np.any(shift) else number

    def added(self, numbers: Sequence[str]) -> str:
        """See `Words`."""
        return self.add("Sum", *numbers)

    def clipped(self, number: str, low: Floats | float | None, high: Floats | float | None) -> str:
        """See `Words`."""
        number = number if low is None else self.add("Max", number, self.constant(low))
        return number if high is None else self.add("Min", number, self.constant(high))

    def sigmoid(self, number: str) -> str:
        """See `Words`."""
        return self.add("Sigmoid", number)

    def logit(self, number: str) -> str:
        """See `Words`."""
        return self.log(self.add("Div", number, self.add("Sub", self.constant(1.0), number)))

    def exp(self, number: str) -> str:
        """See `Words`."""
        return self.add("Exp", number)

    def log(self, number: str) -> str:
        """See `Words`."""
        return self.add("Log", number)

    def softmax(self, number: str) -> str:
        """See `Words`."""
        return self.add("Softmax", number, axis=1)

    def shares(self, number: str) -> str:
        """See `Words`."""
        total = self.add("ReduceSum", number, self.constant([1], np.int64), keepdims=1)
        return self.add("Div", number, total)
