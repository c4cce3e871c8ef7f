"""`bagwise serve` under load: requests per second whose 99th percentile stays below 50 ms, on this machine's loopback.

    python benchmarks/serving.py [seconds]    # of each measurement; writes docs/results/serving.json and serving.md

The demo's tables, a row a request unless said otherwise, connections that are kept, server and clients on the same two
cores. For each model the number of connections grows while the 99th percentile allows. Then, with ridge: 10,000 bodies
that are damaged, 50 connections that send nothing, and a restart, while others are answered.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bagwise as bw
from bagwise.demo import run

RESULTS = Path(__file__).parents[1] / "docs" / "results"
MODELS, CONNECTIONS, ROWS = ("ridge", "logistic", "boosting"), (1, 2, 4, 8, 16, 32), (1, 100, 1000)
MOST = 0.05  # seconds of the 99th percentile
SECONDS, DAMAGED, SLOW = 8.0, 10_000, 50


class Service:
    """`bagwise serve` in a process of its own."""

    def __init__(self, model: Path, port: int) -> None:
        command = [sys.executable, "-m", "bagwise", "serve", str(model), "--port", str(port)]
        self.process, self.port = subprocess.Popen(command, stdout=subprocess.DEVNULL), port

    async def ready(self) -> float:
        """Seconds until it answers."""
        start = time.perf_counter()
        while True:
            try:
                if (await one(self.port, request(b"", "GET", "/health")))[0] == 200:
                    return time.perf_counter() - start
            except OSError:
                await asyncio.sleep(0.02)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


def request(body: bytes, method: str = "POST", path: str = "/score") -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of an answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length:")[1].split("\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def one(port: int, text: bytes) -> tuple[int, bytes]:
    """The answer on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(text)
        return await asyncio.wait_for(answer(reader), 30)
    finally:
        writer.close()


async def load(port: int, text: bytes, connections: int, seconds: float) -> dict[str, float]:
    """Requests per second, and percentiles of what each took."""
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (start := time.perf_counter()) < end:
            writer.write(text)
            status, said = await answer(reader)
            assert status == 200, said
            took.append(time.perf_counter() - start)
        writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))
    p50, p99 = np.quantile(took, [0.5, 0.99])
    return {"per_second": len(took) / seconds, "p50": float(p50), "p99": float(p99), "connections": connections}


async def most(port: int, text: bytes, seconds: float) -> dict[str, float]:
    """The load with the most requests per second whose 99th percentile is below what is allowed; else the lightest."""
    found = [await load(port, text, 1, 1.0)]
    for connections in CONNECTIONS:
        found.append(await load(port, text, connections, seconds))
        if found[-1]["p99"] > MOST:
            break
    held = [each for each in found[1:] if each["p99"] <= MOST]
    return max(held, key=lambda each: each["per_second"]) if held else found[1]


async def hostile(model: Path, port: int, good: bytes, seconds: float) -> dict[str, Any]:
    """Damaged bodies, clients that send nothing, and a restart, beside requests that are answered."""
    service, rng = Service(model, port), random.Random(0)
    await service.ready()
    statuses: Counter[int] = Counter()
    for _ in range(DAMAGED):
        body = bytearray(good)
        for _ in range(rng.randint(1, 8)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        end = rng.choice([len(body), rng.randint(0, len(body))])  # half of them cut off
        statuses[(await one(port, request(bytes(body[:end]))))[0]] += 1
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(SLOW)]
    for _, writer in silent:
        writer.write(request(good)[:-10])
    beside = await load(port, request(good), 4, seconds)
    late = [await asyncio.wait_for(answer(reader), 30) for reader, _ in silent]
    for _, writer in silent:
        writer.close()
    lost = asyncio.create_task(load(port, request(good), 4, 60.0))
    await asyncio.sleep(1.0)
    code = service.stop()
    await asyncio.gather(lost, return_exceptions=True)
    again = Service(model, port)
    ready = await again.ready()
    status, _ = await one(port, request(good))
    again.stop()
    return {
        "damaged": dict(sorted(statuses.items())),
        "beside_silent": beside,
        "silent": dict(Counter(status for status, _ in late)),
        "exit_code": code,
        "ready_again": ready,
        "answers_again": status,
    }


def table(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["| model | rows a request | requests per second | rows per second | median | p99 | connections |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for one_of in found["load"]:
        r = one_of["held"]
        times = f"{r['p50'] * 1e3:.1f} ms | {r['p99'] * 1e3:.1f} ms"
        rates = f"{r['per_second']:,.0f} | {r['per_second'] * one_of['rows']:,.0f}"
        lines.append(f"| {one_of['model']} | {one_of['rows']:,} | {rates} | {times} | {r['connections']:.0f} |")
    h = found["hostile"]
    damaged = ", ".join(f"{n:,} by {status}" for status, n in h["damaged"].items())
    lines += [
        "",
        f"- {DAMAGED:,} damaged bodies: {damaged}; none by 500.",
        f"- {SLOW} connections that send part of a body and stop: all answered by "
        f"{', '.join(str(status) for status in h['silent'])}; beside them "
        f"{h['beside_silent']['per_second']:,.0f} requests per second, p99 {h['beside_silent']['p99'] * 1e3:.1f} ms.",
        f"- Stopped by SIGTERM under load: exit code {h['exit_code']}; started again it answers after "
        f"{h['ready_again']:.1f} s.",
        "",
        f"{found['date']}, {found['cores']} cores for server and clients together.",
    ]
    return "\n".join(lines) + "\n"


async def main(seconds: float) -> None:
    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(), "load": []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run(folder / "demo", rows=100_000)
        events, reports = folder / "demo/events.parquet", folder / "demo/reports.parquet"
        data = bw.tables.join(str(events), str(reports))
        rows = json.loads(pd.read_parquet(events).drop(columns="bag").head(1000).to_json(orient="records"))
        port = 8400
        for name in MODELS:
            model = folder / name
            bw.save(bw.tables.fit(data, name, random_state=0), model)
            port += 1
            service = Service(model, port)
            await service.ready()
            for n in ROWS if name == "boosting" else ROWS[:1]:
                text = request(json.dumps({"rows": rows[:n]}).encode())
                held = await most(port, text, seconds)
                found["load"].append({"model": name, "rows": n, "held": held})
                print(name, n, held, flush=True)
            service.stop()
        good = json.dumps({"rows": rows[:1]}).encode()
        found["hostile"] = await hostile(folder / "ridge", port + 1, good, seconds)
    assert 500 not in found["hostile"]["damaged"], found["hostile"]
    (RESULTS / "serving.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "serving.md").write_text(table(found), encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS))
