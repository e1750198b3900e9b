"""A headless Chromium, driven through its debugging pipe with the standard library alone.

Only what the tests of the HTML report need: load a page, evaluate, click, press keys, take a picture, and hear
of every message on the console, every exception and every request.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One headless Chromium with one page."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="deblur-browser-", ignore_cleanup_errors=True)
        commands, self._out = os.pipe()
        self._in, events = os.pipe()
        options = [
            "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self._folder.name}", "--disable-gpu",
            "--no-first-run", "--hide-scrollbars", "--disable-dev-shm-usage", "--disable-extensions",
            "--disable-background-networking", "--disable-component-update",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium refuses to sandbox root
        ]  # fmt: skip
        # The browser reads commands from file descriptor 3 and writes events to 4.
        pipes = f'exec "$@" 3<&{commands} 4>&{events}'
        shell = ["bash", "-c", pipes, "bash", str(find()), *options, "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(shell, stdout=quiet, stderr=quiet, pass_fds=(commands, events))
        os.close(commands)
        os.close(events)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        target = self._send("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self._send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def close(self) -> None:
        """End the browser that was started here."""
        os.close(self._out)
        try:
            self._process.wait(timeout=5)  # it ends when its pipe does
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        self._folder.cleanup()

    # -- the pipe ----------------------------------------------------------------------------

    def _send(
        self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            reply = self._receive(deadline)
            if reply.get("id") == self._number:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        if "id" not in message:
            self.events.append(message)
        return message

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the DevTools protocol to the page."""
        return self._send(method, parameters, self._session)

    # -- what tests do -----------------------------------------------------------------------

    def open(self, path: Path) -> None:
        """Load a file, and wait until its scripts have run."""
        self.load(path)
        state = "document.readyState + (document.documentElement?.dataset.ready || '')"
        deadline = time.monotonic() + 30
        while self.evaluate(state) != "completeyes":
            assert time.monotonic() < deadline, "the page's scripts did not come to their end"
            time.sleep(0.05)

    def load(self, path: Path) -> None:
        """Load a file, scripts or not."""
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + 30
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive(deadline)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise RuntimeError(reply["exceptionDetails"])
        return reply["result"].get("value")

    def click(self, expression: str, *, at: tuple[float, float] = (0.5, 0.5)) -> None:
        """Press and release the mouse on an element, at a fraction of its width and height."""
        box = self.evaluate(
            f"(() => {{ const e = {expression}; e.scrollIntoView({{block: 'center', inline: 'center'}});"
            "const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()"
        )
        x, y = box[0] + at[0] * box[2], box[1] + at[1] * box[3]
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        """Set the size of the window in CSS pixels."""
        size = {"width": width, "height": height}
        self.call("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=mobile)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """A PNG of the page."""
        reply = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(reply["data"]))

    def complaints(self) -> list[str]:
        """Errors and warnings of the console and uncaught exceptions since the page was opened."""
        found = []
        for event in self.events:
            kind, details = event["method"], event["params"]
            bad = ("error", "warning", "assert")
            if kind == "Runtime.exceptionThrown":
                found.append(details["exceptionDetails"]["text"])
            elif kind == "Runtime.consoleAPICalled" and details["type"] in bad:
                found.append(str(details["args"]))
            elif kind == "Log.entryAdded" and details["entry"]["level"] in bad:
                found.append(details["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for, but for itself and what it carries inside."""
        sent = [e["params"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        asked = [parameters["request"]["url"] for parameters in sent]
        return [url for url in asked if not url.startswith(("file:", "data:"))]
