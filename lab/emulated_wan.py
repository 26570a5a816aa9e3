"""Starts and stops an emulated wide-area network: a router and one network namespace a site."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ingest.core import durable
from ingest.core.errors import UsageError
from lab.link_schedule import Direction, encoded
from lab.site_process import LAB
from twin.core.domain import Pair

STOPPING_S = 5.0
ROOT = Path(__file__).parents[1]


def missing() -> str | None:
    """Reason why no lab can run on this machine; None: one can."""
    if sys.platform != "linux":
        return "a lab needs Linux: network namespaces and TUN devices"
    if shutil.which("ip") is None:
        return "the command `ip` is missing (package iproute2)"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun cannot be opened: run as root, or let this user open it"
    tried = subprocess.run(
        [sys.executable, "-c", "from lab.site_process import unshare; unshare()"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if tried.returncode:
        return f"network namespaces are not allowed: {tried.stderr.strip().splitlines()[-1]}"
    return None


class EmulatedWan:
    """Links between `sites` sites as `directions` play them; a context manager.

    Commands started by `start` see their own site alone and the others behind the links. Time 0 of the links
    is the call of `play`; before it they are as at time 0.
    """

    def __init__(self, sites: int, directions: Mapping[Pair, Direction], folder: Path, seed: int = 0) -> None:
        self.folder = folder
        self._settings: dict[str, Any] = {
            "socket": str(folder / "router.socket"), "sites": sites, "seed": seed,
            "directions": encoded(directions),
        }  # fmt: skip
        self._processes: list[subprocess.Popen[str]] = []
        self._router: subprocess.Popen[str] | None = None
        self.epoch_ns = 0

    def __enter__(self) -> Self:
        if (lack := missing()) is not None:
            raise UsageError(f"no lab on this machine: {lack}")
        path = self.folder / "router.json"
        durable.replace(path, json.dumps(self._settings).encode())
        self._router = subprocess.Popen(
            [sys.executable, "-m", "lab.router", str(path)], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, LAB: str(os.getpid())},
        )  # fmt: skip
        assert self._router.stdout is not None
        if self._router.stdout.readline().strip() != "ready":
            raise RuntimeError("the router did not start")
        return self

    def start(
        self, site: int, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """Starts a command in a site; its output is piped."""
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.site_process", str(site), self._settings["socket"], "--", *command],
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), LAB: str(os.getpid()), **environment},
            start_new_session=True,
        )  # fmt: skip
        self._processes.append(process)
        return process

    def play(self) -> int:
        """Lets time 0 of the links be now; nanoseconds of the monotonic clock."""
        self.epoch_ns = time.monotonic_ns()
        self._tell(self.epoch_ns)
        return self.epoch_ns

    def relay(self, routes: Sequence[Sequence[int]]) -> None:
        """Sends packets over these relays from now on, each from its first site to its last; all other pairs
        go directly."""
        self._tell([list(route) for route in routes])

    def _tell(self, said: int | list[list[int]]) -> None:
        """Gives the router a line."""
        assert self._router is not None and self._router.stdin is not None
        self._router.stdin.write(f"{json.dumps(said)}\n")
        self._router.stdin.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self._processes, *([self._router] if self._router else ())):
            _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    """Ends a process that was started here, and those that it started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOPPING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOPPING_S)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
