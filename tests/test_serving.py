"""A model behind HTTP: the scores of `predict`, one sentence for each body that is none, and limits that hold."""

import asyncio
import http.client
import json
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import uvicorn

import bagwise as bw
from bagwise.serving import RefusedError, make_app, table_of


class Client:
    """Requests to a service on this machine."""

    def __init__(self, port):
        self.port = port

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
            return SimpleNamespace(status_code=answer.status, text=text, json=lambda: json.loads(text))
        finally:
            connection.close()

    def get(self, path):
        return self.ask("GET", path)

    def post(self, path, json=None, content=None):
        return self.ask("POST", path, content if json is None else dumps(json))


def dumps(told):
    return json.dumps(told).encode()


@contextmanager
def serving(app):
    """A client of the application, run by uvicorn in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield Client(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()


def fitted(model="ridge", classes=None):
    """A model of 60 bags of 20 rows with a number, a text and a time."""
    rng = np.random.default_rng(0)
    events = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 1200),
            "device": rng.choice(["phone", "radio"], 1200),
            "seen": pd.Timestamp("2026-01-05") + pd.to_timedelta(rng.integers(0, 2_000_000, 1200), unit="s"),
            "bag": np.repeat(np.arange(60), 20),
        }
    )
    y = rng.random(1200) < 0.2 + 0.5 * (events["device"] == "phone")
    count = y.groupby(events["bag"]).sum()
    reports = pd.DataFrame({"bag": np.arange(60), "count": count})
    if classes:
        reports = reports.assign(**{classes[0]: count, classes[1]: 20 - count, classes[2]: 0}).drop(columns="count")
        reports.loc[0, [classes[1], classes[2]]] = [19 - count[0], 1]
    data = bw.tables.join(events, reports, **({"count": list(classes)} if classes else {}))
    return bw.tables.fit(data, model, random_state=0), events.drop(columns="bag")


@pytest.fixture(scope="module")
def served():
    model, events = fitted()
    with serving(make_app(model, max_rows=50, max_bytes=20_000)) as client:
        yield client, model, events


def rows_of(events):
    return json.loads(events.assign(seen=events["seen"].dt.strftime("%Y-%m-%d %H:%M:%S")).to_json(orient="records"))


def test_scores_are_those_of_predict(served):
    client, model, events = served
    answer = client.post("/score", json={"rows": rows_of(events[:40])})
    assert answer.status_code == 200, answer.text
    np.testing.assert_allclose(answer.json()["prediction"], model.predict_proba(events[:40])[:, 1], atol=1e-12)
    assert answer.json()["remarks"] == []


def test_scores_of_classes_have_their_names():
    model, events = fitted(classes=("red", "blue", "green"))
    with serving(make_app(model)) as client:
        found = client.post("/score", json={"rows": rows_of(events[:5])}).json()
        assert client.get("/model").json()["classes"] == ["red", "blue", "green"]
    scores = np.column_stack([found[f"prediction_{name}"] for name in ("red", "blue", "green")])
    np.testing.assert_allclose(scores, model.predict_proba(events[:5]), atol=1e-12)


def test_what_is_not_known_is_remarked(served):
    client, _, events = served
    rows = [row | {"device": "watch", "shoe": 44} for row in rows_of(events[:3])]
    answer = client.post("/score", json={"rows": rows})
    assert answer.status_code == 200, answer.text
    assert any("training did not have" in said for said in answer.json()["remarks"])


def test_missing_values_are_null_or_left_out(served):
    client, model, events = served
    rows = rows_of(events[:3])
    rows[0]["age"] = None
    del rows[1]["age"]
    answer = client.post("/score", json={"rows": rows})
    known = events[:3].assign(age=[None, None, float(events["age"][2])])
    np.testing.assert_allclose(answer.json()["prediction"], model.predict_proba(known)[:, 1], atol=1e-12)


def test_it_tells_what_it_reads(served):
    client, model, _ = served
    told = client.get("/model").json()
    assert [one["name"] for one in told["columns"]] == ["age", "device", "seen"]
    assert (told["model"], told["scores"], told["max_rows"]) == ("ridge", ["prediction"], 50)
    assert client.get("/health").json() == {"status": "ok"}
    schema = client.get("/openapi.json").json()["paths"]["/score"]["post"]["requestBody"]["content"]
    row = schema["application/json"]["schema"]["properties"]["rows"]["items"]
    assert set(row["properties"]) == {"age", "device", "seen"}
    assert set(row["required"]) == {"age", "device", "seen"} - set(model.unused)


BAD = {
    "no json": (b"rows", 400, "is no JSON"),
    "not a number": (b'{"rows": [{"age": NaN}]}', 400, "is no JSON"),
    "deep": (b'{"rows": ' + b"[" * 5000, 400, "is no JSON"),
    "a list": (b"[]", 400, "must be"),
    "no rows": (b'{"rows": []}', 400, "must be"),
    "a row that is none": (b'{"rows": [3]}', 400, "row 0 is no object"),
    "an empty row": (b'{"rows": [{}]}', 400, "no columns"),
    "nested": (b'{"rows": [{"age": [1]}]}', 400, "column 'age' holds object"),
    "two kinds": (b'{"rows": [{"age": 1}, {"age": "old"}]}', 400, "column 'age' holds int and str"),
    "too large": (b'{"rows": [{"age": 1e999}]}', 400, "too large"),
    "too many digits": (b'{"rows": [{"age": 99999999999999999999}]}', 400, "too large"),
    "half a letter": (rb'{"rows": [{"device": "\ud800"}]}', 400, "is no text"),
    "a column that is missing": (b'{"rows": [{"age": 3}]}', 422, "device"),
    "a text for a number": (b'{"rows": [{"age": "old", "device": "phone", "seen": "2026-01-05"}]}', 422, "age"),
    "too many rows": (json.dumps({"rows": [{"age": 1}] * 51}).encode(), 413, "51 rows are more than 50"),
    "too many bytes": (b" " * 30_000, 413, "longer than 20,000 bytes"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_body_that_is_refused_gets_one_sentence(served, name):
    client, _, events = served
    body, status, said = BAD[name]
    answer = client.post("/score", content=body)
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    assert said in answer.json()["error"]
    assert "Traceback" not in answer.text
    assert client.post("/score", json={"rows": rows_of(events[:1])}).status_code == 200  # it goes on


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/", 404), ("GET", "/score", 405)])
def test_another_request_gets_one_sentence_too(served, method, path, status):
    answer = served[0].ask(method, path)
    said = f"there is no {method} {path}: send POST /score, or ask for GET /model, /health or /openapi.json."
    assert (answer.status_code, answer.json()) == (status, {"error": said})


def test_bodies_that_do_not_say_how_long_they_are(served):
    client, *_ = served
    answer = client.post("/score", content=(b" " * 1000 for _ in range(30)))
    assert (answer.status_code, "longer than" in answer.json()["error"]) == (413, True)


def test_a_body_that_does_not_come():
    """A client that stops sending is told so, in time."""
    app, sent = make_app(fitted()[0], seconds=0.05), []

    async def receive():
        await asyncio.sleep(5)

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/score",
        "raw_path": b"/score",
        "headers": [],
        "query_string": b"",
    }
    scope |= {"root_path": "", "scheme": "http", "server": ("a", 1), "client": ("b", 2), "http_version": "1.1"}
    asyncio.run(asyncio.wait_for(app(scope | {"app": app}, receive, send), 3))
    assert sent[0]["status"] == 408


def test_random_bodies_never_break_it(served):
    """1,000 bodies, half of them damaged copies of a good one: an answer of scores or of one sentence each."""
    client, _, events = served
    rng, good = np.random.default_rng(0), json.dumps({"rows": rows_of(events[:2])}).encode()
    for number in range(1000):
        body = bytearray(good if number % 2 else rng.integers(0, 256, rng.integers(0, 60), dtype=np.uint8).tobytes())
        for _ in range(rng.integers(1, 4)):
            if body:
                body[rng.integers(len(body))] = rng.integers(256)
        answer = client.post("/score", content=bytes(body))
        assert answer.status_code in (200, 400, 413, 422), answer.text
        assert answer.status_code == 200 or list(answer.json()) == ["error"]


def test_tables_of_bodies_have_types():
    table = table_of(b'{"rows": [{"a": 1, "b": true, "c": "x"}, {"a": 2.5}]}', 5)
    assert table.schema.types == [pa.float64(), pa.bool_(), pa.string()]
    with pytest.raises(RefusedError, match="3 rows are more than 2"):
        table_of(b'{"rows": [{"a": 1}, {"a": 1}, {"a": 1}]}', 2)
