"""Load of `twin serve`: observations a second, decisions asked for meanwhile, memory.

    python -m benchmarks.service.load --seconds 120 --write

The service is a process of its own with the eight domains of octo-175b on SYNTHETIC links. One client pushes
batches of lines of JSON at a steady rate, each a few samples of each of the 56 links; one asks for a decision
every second; others listen to the stream. Clients and service share this machine.
"""

import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.serving import http_of_twin_serve

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "measured" / "service.md"
BATCH = 500
SCENARIO = ("-s", "octo-175b", "--dataset", "synthetic-octo")


@dataclass
class Measured:
    """What the clients saw."""

    accepted: int = 0
    refused: int = 0
    pushes_s: list[float] = field(default_factory=list)
    asked_s: list[float] = field(default_factory=list)
    policy_s: list[float] = field(default_factory=list)
    late_s: float = 0.0  # behind the steady rate at the end
    memory_mb: list[float] = field(default_factory=list)
    streamed: list[int] = field(default_factory=list)


def lines(links: list[dict[str, Any]], chance: random.Random) -> bytes:
    """A batch whose samples end now: each link as it was forecast, with the noise of telemetry."""
    now, rows = time.time_ns(), []
    for n in range(BATCH):
        link = links[n % len(links)]
        src, dst = link["src"], link["dst"]
        at = now - (BATCH - n) * 1000
        bps = link["forecast_bps"][0] * math.exp(0.03 * chance.gauss(0, 1))
        rows.append(
            f'{{"kind":"link","epoch_ns":{at},"src":"{src}","dst":"{dst}","bandwidth_bps":{bps:.0f},"latency_s":0.05}}'
        )
    return "\n".join(rows).encode()


def push(url: str, links: list[dict[str, Any]], rate: float, until: float, found: Measured) -> None:
    """Pushes at a steady rate."""
    chance, period_s = random.Random(1), BATCH / rate
    with http_of_twin_serve(url, timeout=120) as http:
        due = time.monotonic()
        while due < until:
            time.sleep(max(0.0, due - time.monotonic()))
            body, began = lines(links, chance), time.perf_counter()
            answer = http.post(
                "/v1/observations", content=body, headers={"Content-Type": "application/x-ndjson"}
            )
            found.pushes_s.append(time.perf_counter() - began)
            counts = answer.raise_for_status().json()
            found.accepted += counts["accepted"]
            found.refused += len(counts["refused"])
            due += period_s
        found.late_s = max(0.0, time.monotonic() - due)


def decide(url: str, until: float, found: Measured) -> None:
    """Asks for a decision every second."""
    with http_of_twin_serve(url, timeout=120) as http:
        while time.monotonic() < until:
            began = time.perf_counter()
            made = http.post("/v1/decide").raise_for_status().json()
            found.asked_s.append(time.perf_counter() - began)
            if made["made"]:
                found.policy_s.append(made["decision"]["latency_s"])
            time.sleep(max(0.0, 1.0 - (time.perf_counter() - began)))


def listen(url: str, count: int, until: float, found: Measured) -> None:
    """Listens with `count` clients in one event loop."""
    import asyncio

    async def one(http: httpx.AsyncClient) -> int:
        events = 0
        try:
            async with asyncio.timeout(until - time.monotonic()), http.stream("GET", "/v1/stream") as answer:
                async for line in answer.aiter_lines():
                    events += line.startswith("event:")
        except TimeoutError:
            pass
        return events

    async def all_() -> list[int]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as http:
            return await asyncio.gather(*(one(http) for _ in range(count)))

    found.streamed = asyncio.run(all_()) if count else []


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def measure(policy: str, seconds: float, rate: float, clients: int) -> tuple[Measured, dict[str, Any]]:
    """Runs service and clients; returns what was seen and how long it takes to go on after a kill."""
    found = Measured()
    with tempfile.TemporaryDirectory() as folder:
        twin = [sys.executable, "-c", "import cli; cli.process()", "--store", folder]
        subprocess.run(
            [*twin, "ingest", str(ROOT / "traces"), "--quiet"],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        subprocess.run(
            [*twin, "doctor", "--compile", "--quiet"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )
        words = [*twin, "serve", *SCENARIO, "-p", policy, "--port", "0", "--json"]
        process, url = begun(words)
        links = httpx.get(f"{url}/v1/state", timeout=30).json()["links"]
        until = time.monotonic() + seconds
        work = [(push, (links, rate)), (decide, ()), (listen, (clients,))]
        threads = [threading.Thread(target=call, args=(url, *more, until, found)) for call, more in work]
        for thread in threads:
            thread.start()
        while time.monotonic() < until:
            found.memory_mb.append(memory_mb(process.pid))
            time.sleep(min(5.0, max(0.0, until - time.monotonic())))
        for thread in threads:
            thread.join()
        process.kill()
        process.wait()
        began = time.monotonic()
        again, _ = begun(words)
        resumed_s = time.monotonic() - began
        again.send_signal(signal.SIGTERM)
        assert again.wait(60) == 0
        stored = sum(path.stat().st_size for path in Path(folder, "runs").rglob("*") if path.is_file())
    return found, {"resumed_s": resumed_s, "stored_mb": stored / 2**20}


def begun(words: list[str]) -> tuple["subprocess.Popen[str]", str]:
    """A service that is ready, and its address."""
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


def quantiles(seconds: list[float]) -> str:
    """Median, 99th percentile and maximum, in milliseconds."""
    if len(seconds) < 2:
        return "-"
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return f"{1e3 * cuts[49]:.0f} / {1e3 * cuts[98]:.0f} / {1e3 * max(seconds):.0f}"


def row(policy: str, seconds: float, found: Measured, after: dict[str, Any]) -> str:
    """One line of the table."""
    half = len(found.memory_mb) // 2
    streams = f"{len(found.streamed)} x {min(found.streamed, default=0)}"
    return (
        f"| {policy} | {seconds:.0f} | {found.accepted / seconds:,.0f} | {found.refused} | "
        f"{quantiles(found.pushes_s)} | {quantiles(found.policy_s)} | {quantiles(found.asked_s)} | "
        f"{found.memory_mb[half]:.0f} -> {found.memory_mb[-1]:.0f} | {streams} | {after['stored_mb']:.0f} | "
        f"{after['resumed_s']:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rate", type=float, default=5000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--policies", nargs="+", default=["hippo", "mpc", "static"])
    parser.add_argument("--write", action="store_true", help="write the page")
    asked = parser.parse_args()
    rows = []
    for policy in asked.policies:
        rows.append(row(policy, asked.seconds, *measure(policy, asked.seconds, asked.rate, asked.clients)))
        print(rows[-1], flush=True)
    if asked.write:
        from ingest.core.durable import replace

        head = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"
        text = PAGE_TEXT.format(
            words=" ".join(sys.argv[1:]),
            rate=asked.rate,
            load=os.getloadavg()[1],
            cores=os.cpu_count(),
            head=head,
            rows="\n".join(rows),
        )
        replace(PAGE, text.encode())


COLUMNS = (
    "policy", "seconds", "accepted/s", "refused", "batch, ms", "policy decides, ms",
    "decision asked and durable, ms", "memory at half -> end, MB", "stream clients x events", "log, MB",
    "goes on after kill -9 in s",
)  # fmt: skip
PAGE_TEXT = """# The decision service under load

`python -m benchmarks.service.load {words}` wrote this page.
Eight domains of octo-175b, SYNTHETIC links; {rate:,.0f} observations a second are pushed in batches of 500
lines of JSON, a decision is asked for every second, stream clients listen. Clients and service share the
machine of {cores} cores, whose load average at the end was {load:.1f} (more than {cores}: it did other work).
Times are median / 99th percentile / longest, in ms. A batch is answered when it is on the disk.

{head}
{rows}

The aim is a decision in 50 ms at the 99th percentile. A batch that comes while a policy decides waits for it:
one thread takes everything in order, which is what makes a run the same when it is made again.
"""


if __name__ == "__main__":
    main()
