"""A page in a headless Chromium, driven by its DevTools protocol over two pipes, without another library.

Source: Chrome DevTools Protocol, `--remote-debugging-pipe`: JSON messages that end with a zero byte, read by
the browser from descriptor 3 and written to descriptor 4.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_S = 60.0
MOVED = """import fcntl, os, sys
ends = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])"""
"""Begins a program with two descriptors at 3 and 4."""
Json = dict[str, Any]


class Page:
    """One page; `errors` are the exceptions that its scripts did not catch."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from, self._rest, self._number = to_browser, from_browser, b"", 0
        self.errors: list[str] = []
        target = self.send("Target.createTarget", {"url": "about:blank"}, page=False)["targetId"]
        self._session = ""
        attached = self.send("Target.attachToTarget", {"targetId": target, "flatten": True}, page=False)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime"):
            self.send(f"{domain}.enable")

    def open(self, address: str, *, width: int = 1440, height: int = 900, before: str = "") -> None:
        """Goes to an address in a window of this size; the script `before` runs ahead of its own."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", size)
        if before:
            self.send("Page.addScriptToEvaluateOnNewDocument", {"source": before})
        self.send("Page.navigate", {"url": address})

    def value(self, expression: str) -> Any:
        """Returns the value of an expression, waited for if it is a promise."""
        words = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        found = self.send("Runtime.evaluate", words)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"].get("exception", found["exceptionDetails"]))
        return found["result"].get("value")

    def until(self, expression: str, seconds: float = PATIENCE_S) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < end, f"not in {seconds:g} s: {expression}"
            time.sleep(0.05)

    def send(self, method: str, words: Json | None = None, *, page: bool = True) -> Json:
        """Returns the answer to a command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": words or {}}
        if page:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(answer["params"]["exceptionDetails"]))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: Json = answer["result"]
                return result

    def _message(self) -> Json:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], PATIENCE_S)
            assert ready, "Chromium says nothing"
            part = os.read(self._from, 1 << 16)
            assert part, "Chromium has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        found: Json = json.loads(text)
        return found


@contextmanager
def page(folder: Path) -> Iterator[Page]:
    """Yields a page of a browser of its own, which keeps its files in `folder`."""
    assert BROWSER is not None
    (read, to_browser), (from_browser, write) = os.pipe(), os.pipe()
    command = [
        sys.executable, "-c", MOVED, str(read), str(write), BROWSER, "--headless=new", "--no-sandbox",
        "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", f"--user-data-dir={folder}",
        "--remote-debugging-pipe",
    ]  # fmt: skip
    browser = subprocess.Popen(
        command, pass_fds=(read, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(read)
    os.close(write)
    try:
        yield Page(to_browser, from_browser)
    finally:
        browser.terminate()
        browser.wait(20)
        os.close(to_browser)
        os.close(from_browser)
