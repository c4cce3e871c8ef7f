"""Chromium without a window, spoken to through a pipe: enough of the DevTools protocol to look at a page."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """One tab. `events` holds all that the browser told of on its own."""

    def __init__(self, folder: Path, *, patience: float = 120.0) -> None:
        self.events: list[dict[str, Any]] = []
        self._patience, self._number, self._session, self._rest = patience, 0, None, b""
        theirs, self._ours = os.pipe()
        self._answers, back = os.pipe()
        # The browser listens at descriptor 3 and answers at 4.
        moved = f"exec {CHROMIUM} {' '.join(_OPTIONS)} --user-data-dir={folder} about:blank 3<&{theirs} 4>&{back}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(["bash", "-c", moved], pass_fds=(theirs, back), **quiet)
        os.close(theirs)
        os.close(back)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        os.close(self._ours)
        os.close(self._answers)
        self._process.terminate()
        self._process.wait(timeout=30)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(
            self._ours, json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        )
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + self._patience
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self._answers, 1 << 20) if ready else b""
            assert piece, "the browser does not answer"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def open(self, page: Path, *, width: int = 1200, scheme: str = "light", media: str = "") -> None:
        """Load a file in a window of this width, with the reader's preferences."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.call(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self, *, whole: bool = False) -> bytes:
        """What the window shows, or the whole page, as PNG."""
        if not whole:
            return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        box = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": box["width"], "height": min(box["height"], 16_000), "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])

    def told(self, *methods: str) -> list[dict[str, Any]]:
        """Parameters of the events of these kinds since the page was opened."""
        return [event["params"] for event in self.events if event.get("method") in methods]
