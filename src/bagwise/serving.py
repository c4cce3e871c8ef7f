"""A model of tables behind HTTP: rows in as JSON, scores out.

`POST /score` takes `{"rows": [{column: value, …}, …]}` and answers with the columns that `bagwise predict` writes,
`{"prediction": [0.31, …], "remarks": […]}`. `GET /model` tells the columns and the limits, `GET /health` that it is
there, `GET /openapi.json` both as a schema. Rows are scored one request after the other, in a thread of their own, so
that health is answered meanwhile. A body that is too long, too slow or not what is asked for is answered by one
sentence, `{"error": …}`, and nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import json
import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

import bagwise
from bagwise.tables.columns import Role
from bagwise.tables.model import TableModel
from bagwise.utils.parameters import check_parameters, number, whole
from bagwise.utils.text import listed, number_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_ROWS, MAX_BYTES, SECONDS = 10_000, 8 * 2**20, 10.0
_VALUES = (str, int, float, bool, type(None))
_LARGEST_INTEGER = 2**63
_TYPES = {Role.number: {"type": ["number", "null"]}, Role.time: {"type": ["string", "null"], "format": "date-time"}}
_REQUESTS = "send POST /score, or ask for GET /model, /health or /openapi.json"
_ANY: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}


class RefusedError(Exception):
    """A request that is not answered by scores.  status: of HTTP."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


def make_app(
    model: TableModel, *, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES, seconds: float = SECONDS
) -> FastAPI:
    """An application that any ASGI server runs, as uvicorn does for `bagwise serve`.

    Parameters
    ----------
    model : TableModel
        What `bagwise.load` reads from a folder that `bagwise fit` wrote.
    max_rows, max_bytes : int
        Most rows and most bytes of a request.
    seconds : float
        Within which the body of a request must have come.

    Returns
    -------
    FastAPI
    """
    given = {"max_rows": max_rows, "max_bytes": max_bytes, "seconds": seconds}
    check_parameters(given, {"max_rows": whole(1), "max_bytes": whole(2), "seconds": number(above=0)})
    facts = _facts(model) | {"max_rows": max_rows, "max_bytes": max_bytes}
    scorer = ThreadPoolExecutor(1, thread_name_prefix="bagwise-score")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        scorer.shutdown(cancel_futures=True)

    app = FastAPI(title="bagwise", version=bagwise.__version__, docs_url=None, redoc_url=None, lifespan=lifespan)

    @app.exception_handler(RefusedError)
    async def refuse(_: Request, error: RefusedError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, error.status)

    @app.exception_handler(HTTPException)
    async def not_there(request: Request, error: HTTPException) -> JSONResponse:
        said = f"there is no {request.method} {request.url.path}: {_REQUESTS}."
        return JSONResponse({"error": said}, error.status_code, error.headers)

    @app.get("/health", summary="Whether the service is there.")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/model", summary="What the model reads and says, and the limits of a request.")
    async def about() -> dict[str, Any]:
        return facts

    async def score(request: Request) -> JSONResponse:
        body = await _body(request, max_bytes, seconds)
        answer = await asyncio.get_running_loop().run_in_executor(scorer, partial(_answer, model, body, max_rows))
        return JSONResponse(answer)

    told = {"requestBody": {"required": True, "content": {"application/json": {"schema": _schema(facts)}}}}
    app.add_api_route("/score", score, methods=["POST"], summary="Scores of rows.", openapi_extra=told)
    return app


def _facts(model: TableModel) -> dict[str, Any]:
    """What a model reads and says."""
    unused, features = set(model.unused), model.features.columns
    columns = [
        {"name": one.name, "role": one.role.value, "needed": one.name not in unused}
        for one in features
        if one.role is not Role.ignored
    ]
    offset = model.of_rows.offset
    columns += [] if offset is None else [{"name": offset, "role": Role.number.value, "needed": True}]
    return {
        "model": model.kind,
        "target": model.target,
        "classes": None if model.classes is None else list(model.classes),
        "scores": list(model.predictions),
        "columns": columns,
    }


def _schema(facts: dict[str, Any]) -> dict[str, Any]:
    """Of the body of a request."""
    of_row = {one["name"]: _TYPES.get(Role(one["role"]), _ANY) for one in facts["columns"]}
    row = {
        "type": "object",
        "properties": of_row,
        "required": [one["name"] for one in facts["columns"] if one["needed"]],
    }
    rows = {"type": "array", "items": row, "minItems": 1, "maxItems": facts["max_rows"]}
    return {"type": "object", "properties": {"rows": rows}, "required": ["rows"]}


async def _body(request: Request, most: int, seconds: float) -> bytes:
    """The body of a request, no longer than allowed and no later."""
    too_long = f"the body is longer than {most:,} bytes: send fewer rows at once."
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > most:
        raise RefusedError(413, too_long)
    parts, length = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                parts.append(part)
                length += len(part)
                if length > most:
                    raise RefusedError(413, too_long)
    except TimeoutError:
        raise RefusedError(408, f"the body did not come within {seconds:g} seconds.") from None
    return b"".join(parts)


def _answer(model: TableModel, body: bytes, max_rows: int) -> dict[str, Any]:
    """Scores of the rows of a body."""
    table = table_of(body, max_rows)
    with warnings.catch_warnings(record=True) as said:  # one thread scores, so that no other hears of them
        warnings.simplefilter("always")
        try:
            h = model.predict(table) if model.target == "value" else model.predict_proba(table)
        except ValueError as error:
            raise RefusedError(422, str(error)) from None
    remarks = list(dict.fromkeys(str(one.message) for one in said))
    columns = [h] if h.ndim == 1 else [h[:, 1]] if model.classes is None else list(h.T)
    return {name: each.tolist() for name, each in zip(model.predictions, columns, strict=True)} | {"remarks": remarks}


def table_of(body: bytes, max_rows: int) -> pa.Table:
    """The rows of a body as a table; raises `RefusedError` where they are not what is asked for.

    Examples
    --------
    >>> table_of(b'{"rows": [{"age": 41, "device": "phone"}, {"age": null}]}', 10).to_pydict()
    {'age': [41, None], 'device': ['phone', None]}
    """
    try:
        told = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise RefusedError(400, 'the body is no JSON: send {"rows": [{"column": value}]}.') from None
    rows = told.get("rows") if isinstance(told, dict) else None
    if not isinstance(rows, list) or not rows:
        raise RefusedError(400, 'the body must be {"rows": […]}, with one object per row.')
    if len(rows) > max_rows:
        raise RefusedError(413, f"{number_of(len(rows), 'row')} are more than {max_rows:,}: send fewer at once.")
    columns: dict[str, None] = {}
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise RefusedError(400, f"row {place} is no object of columns and values.")
        columns |= dict.fromkeys(row)
    made = {}
    for name in columns:
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values} - {type(None)}
        if not kinds <= {*_VALUES} or (len(kinds) > 1 and kinds != {int, float}):
            names = sorted({"object" if kind in (dict, list) else kind.__name__ for kind in kinds})
            said = f"column {name!r} holds {listed(names, 'and')}: send texts, numbers, true or false, of one kind."
            raise RefusedError(400, said)
        if any(isinstance(value, (int, float)) and not _can_be_told(value) for value in values):
            raise RefusedError(400, f"column {name!r} holds a number that is too large.")
        try:
            made[name] = pa.array([float(v) if v is not None else None for v in values] if float in kinds else values)
        except (pa.ArrowInvalid, UnicodeEncodeError):
            raise RefusedError(400, f"column {name!r} holds what is no text.") from None
    if not made:
        raise RefusedError(400, "the rows have no columns.")
    return pa.table(made)


def _can_be_told(value: float) -> bool:
    return -_LARGEST_INTEGER <= value < _LARGEST_INTEGER if isinstance(value, int) else math.isfinite(value)


def _no_number(name: str) -> None:
    raise ValueError(name)
