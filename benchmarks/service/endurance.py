"""Endurance of `twin serve`: kills, crowds, hostile clients, a slow receiver, a clock that jumps.

    python -m benchmarks.service.endurance --kills 100 --write

Each trial starts `twin serve` as a process of its own on SYNTHETIC links of tri-7b (policy `greedy`, so that
the service and not the planner is tried), looks at it from outside, and says what was done and what was seen.
Clients and service share this machine.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from replay.audit.audit import audit
from replay.store import run_index
from service import local_token
from tests.support.service_trials import RememberingClient, check_log
from tests.support.serving import http_of_twin_serve, links

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "measured" / "service-endurance.md"
NAMES = ("us-east-1", "eu-west-1", "ap-northeast-1")
LOWEST, HIGHEST = 1e9, 4e9
BATCH = "/v1/observations"
CLOCK = """
import time
from pathlib import Path

PLACE, REAL, REAL_NS, LOOKED, OFFSET = Path({place!r}), time.time, time.time_ns, [0.0], [0]

def offset_ns():
    if time.monotonic() - LOOKED[0] > 0.05:
        LOOKED[0], OFFSET[0] = time.monotonic(), int(float(PLACE.read_text() or 0) * 1e9)
    return OFFSET[0]

time.time = lambda: REAL() + offset_ns() / 1e9
time.time_ns = lambda: REAL_NS() + offset_ns()
"""
"""Moves the wall clock of a process by the seconds that a file says."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One trial: what was done, what was seen, and whether nothing was wrong."""

    name: str
    done: str
    seen: str
    sound: bool


@contextmanager
def served(store: Path, *words: str, before: str = "") -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A service that is ready, and its address; it must end by SIGTERM with 0 if it still runs."""
    twin = [sys.executable, "-c", f"{before}\nimport cli; cli.process()", "--store", str(store)]
    process = subprocess.Popen(
        [*twin, "serve", "-s", "tri-7b", "-p", "greedy", "--port", "0", "--json", *words],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(process.stderr.read()[-500:])
    try:
        yield process, json.loads(line)["url"]
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, "it does not end in order"
    finally:
        process.kill()
        process.wait()


def store_at(folder: str) -> Path:
    """A store with the links that ship."""
    twin = [sys.executable, "-c", "import cli; cli.process()", "--store", folder]
    subprocess.run(
        [*twin, "ingest", "traces/synthetic-tri", "--quiet"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )
    return Path(folder)


def batch(chance: random.Random) -> list[dict[str, Any]]:
    """A sample of every link, now."""
    return links(chance.uniform(LOWEST, HIGHEST), names=NAMES)


def pushed_ms(http: httpx.Client, count: int) -> list[float]:
    """Milliseconds of each of `count` batches, every one of which is taken in full."""
    chance, found = random.Random(7), []
    for _ in range(count):
        began = time.perf_counter()
        answer = http.post(BATCH, json=batch(chance)).raise_for_status().json()
        found.append(1e3 * (time.perf_counter() - began))
        time.sleep(0.01)  # 200 requests a second are allowed
        assert answer["accepted"] == len(NAMES) * (len(NAMES) - 1), answer
    return found


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def kills(count: int) -> Seen:
    """kill -9 under load; a client that remembers checks every answer against the log."""
    chance, resumed = random.Random(5), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        store = store_at(folder)
        client = RememberingClient(NAMES, token=local_token.made(store))
        for kill in range(count):
            began = time.monotonic()
            with served(store) as (process, url):
                resumed.append(time.monotonic() - began)

                def killed(process: "subprocess.Popen[str]" = process) -> None:
                    time.sleep(chance.uniform(0, 0.5))
                    process.kill()
                    process.wait()

                client.load(url, str(kill), after=killed)
            if kill % 10 == 9:
                print(f"{kill + 1} kills, {len(client.batches):,} batches", file=sys.stderr, flush=True)
        with served(store) as (_, url):
            client.send_again(url)
        check_log(store, client)
    return Seen(
        "kill -9 under load",
        f"{count} kills; two clients push, one asks for decisions; all batches are sent again at the end",
        f"{len(client.batches):,} acknowledged batches and {len(client.decisions):,} decisions: all in the "
        f"log, once; audit sound; goes on after {statistics.median(resumed):.1f} s (median), "
        f"{max(resumed):.1f} at most",
        bool(client.batches and client.decisions),
    )


def crowd(idle: int, streams: int) -> Seen:
    """Idle connections and stream clients, while batches are pushed."""
    with tempfile.TemporaryDirectory() as folder, served(store_at(folder)) as (_, url):
        host, port = url.removeprefix("http://").split(":")
        with http_of_twin_serve(url) as http:
            alone = pushed_ms(http, 100)
            held = [socket.create_connection((host, int(port)), 20) for _ in range(idle)]
            beside = pushed_ms(http, 100)
            got: list[int] = []
            listening = threading.Thread(target=lambda: got.extend(asyncio.run(_listen(url, streams, 10.0))))
            listening.start()
            _until(lambda: _metric(http, "twin_stream_clients") >= streams)
            watched = pushed_ms(http, 60)
            listening.join()
            dropped = _metric(http, "twin_stream_dropped_total")
        for one in held:
            one.close()
    alike = len(got) == streams and len(set(got)) == 1 and got[0] >= 60
    return Seen(
        "a crowd",
        f"{idle:,} idle connections, then {streams} stream clients beside them; 100, 100 and 60 batches",
        f"a batch in p99 {p99(alone):.0f} ms alone, {p99(beside):.0f} beside the idle ones, "
        f"{p99(watched):.0f} with listeners, each of whom got {min(got, default=0)} to "
        f"{max(got, default=0)} events; {dropped:.0f} were let go",
        alike and not dropped,
    )


async def _listen(url: str, count: int, seconds: float) -> list[int]:
    """Events that each of `count` clients of the stream got."""

    async def one(http: httpx.AsyncClient) -> int:
        events = 0
        try:
            async with asyncio.timeout(seconds), http.stream("GET", "/v1/stream") as answer:
                async for line in answer.aiter_lines():
                    events += line.startswith("event:")
        except TimeoutError:
            pass
        return events

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as http:
        return list(await asyncio.gather(*(one(http) for _ in range(count))))


def _metric(http: httpx.Client, name: str) -> float:
    """The sum of a metric's samples."""
    lines = http.get("/metrics").raise_for_status().text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


def _until(condition: Callable[[], bool], most_s: float = 30.0) -> None:
    end = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def bodies(count: int) -> Seen:
    """Bodies that are too large or garbage, on every route."""
    chance, codes = random.Random(11), Counter[int]()
    with (
        tempfile.TemporaryDirectory() as folder, served(store_at(folder)) as (process, url),
        http_of_twin_serve(url) as http,
    ):  # fmt: skip
        http.headers["Content-Type"] = "application/json"
        large = [http.post(BATCH, content=b"[" + b" " * (10 << 20)).status_code for _ in range(20)]
        routes = http.get("/openapi.json").raise_for_status().json()["paths"]
        calls = [(method, path) for path, methods in routes.items() for method in methods]
        sound = json.dumps(batch(chance)).encode()
        while codes.total() < count:
            method, path = chance.choice(calls)
            if path == "/v1/stream" and method == "get":
                continue  # it does not end
            target = path.replace("{number}", chance.choice(["0", "-1", "x" * 9, "%00", "9" * 30]))
            answer = http.request(method, target, content=_garbage(sound, chance))
            codes[answer.status_code] += 1
            if answer.status_code == 429:
                time.sleep(0.5)
        after = pushed_ms(http, 20)
        memory = int(Path(f"/proc/{process.pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    faults = sum(number for code, number in codes.items() if code >= 500)
    said = ", ".join(f"{number:,} x {code}" for code, number in sorted(codes.items()))
    return Seen(
        "hostile bodies",
        f"20 bodies of 10 MB; {count:,} requests with broken, cut or random bodies over {len(calls)} routes",
        f"10 MB: {Counter(large)[413]} x 413; else {said}; {faults} x 5xx; peak memory {memory:.0f} MB; "
        f"then a batch in p99 {p99(after):.0f} ms",
        not faults and large == [413] * 20,
    )


def _garbage(sound: bytes, chance: random.Random) -> bytes:
    """A body that is cut, changed at some bytes, deep, random, or of other types."""
    match chance.randrange(6):
        case 0:
            return sound[: chance.randrange(len(sound))]
        case 1:
            changed = bytearray(sound)
            for _ in range(chance.randint(1, 8)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            return bytes(changed)
        case 2:
            return b"[" * chance.randint(1, 5_000)
        case 3:
            return chance.randbytes(chance.randint(0, 400))
        case 4:
            values = [None, -1, 1e308, "", "\u0000", {}, [], True, "9" * 400]
            names = (
                "kind",
                "epoch_ns",
                "src",
                "dst",
                "bandwidth_bps",
                "plan",
                "mode",
                "gpus",
                "model",
                "links",
            )
            return json.dumps({name: chance.choice(values) for name in names}).encode()
    wrong = [None, "x", -1, 1e400]
    items = [{**one, "bandwidth_bps": chance.choice(wrong)} for one in json.loads(sound)]
    return json.dumps(items).encode()


def tokens(count: int) -> Seen:
    """Wrong, expired and lacking tokens."""
    codes = Counter[str]()
    past = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S")
    kinds = ("ops admin", "good", ""), ("old admin", "old", past), ("eyes read", "eyes", "")
    lines = [f"{who} {hashlib.sha256(token.encode()).hexdigest()} {until}" for who, token, until in kinds]
    chance, wanted = random.Random(3), {"good": 200, "old": 401, "eyes": 403, "": 401, "wrong": 401}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokens")
        path.write_text("\n".join(lines) + "\n")
        words = "--tokens", str(path)
        with served(store_at(f"{folder}/store"), *words) as (_, url), httpx.Client(base_url=url) as http:
            for _ in range(count):
                token = chance.choice(list(wanted))
                sent = token if token != "wrong" else chance.randbytes(chance.randint(1, 40)).hex()
                head = {"Authorization": f"Bearer {sent}"} if sent else {}
                answer = http.post(BATCH, json=batch(chance), headers=head)
                while answer.status_code == 429:
                    time.sleep(0.5)
                    answer = http.post(BATCH, json=batch(chance), headers=head)
                right = answer.status_code == wanted[token]
                codes["as it should be" if right else f"{token}: {answer.status_code}"] += 1
    said = ", ".join(f"{number:,} {name}" for name, number in codes.items())
    done = f"{count:,} batches with a valid, expired, powerless, wrong or no token"
    return Seen("tokens", done, said, len(codes) == 1)


def slow_webhook(seconds: float) -> Seen:
    """A receiver that takes 30 s for every event."""

    class Slow(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            time.sleep(30)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    receiver.daemon_threads = True
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    hook = f"http://127.0.0.1:{receiver.server_address[1]}/"
    with tempfile.TemporaryDirectory() as folder:
        words = "--webhook", hook
        with served(store_at(folder), *words) as (_, url), http_of_twin_serve(url) as http:
            found, end = list[float](), time.monotonic() + seconds
            while time.monotonic() < end:
                began = time.perf_counter()
                http.post("/v1/decide").raise_for_status()
                found.append(1e3 * (time.perf_counter() - began))
                found += pushed_ms(http, 5)
                time.sleep(0.05)
    receiver.shutdown()
    receiver.server_close()
    return Seen(
        "slow webhook",
        f"a receiver that answers nothing for 30 s; decisions and batches for {seconds:.0f} s; then SIGTERM",
        f"{len(found):,} requests in p99 {p99(found):.0f} ms, {max(found):.0f} at most; it ends in order",
        max(found) < 5_000,
    )


def clock() -> Seen:
    """The wall clock of the service is set forward and back; telemetry comes by the clock that is right."""
    jumps = (0.0, 3600.0, -7200.0, 86_400.0, 0.0)
    refused, taken = Counter[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "offset")
        place.write_text("0")
        store, before = store_at(f"{folder}/store"), CLOCK.format(place=str(place))
        with served(store, before=before) as (_, url), http_of_twin_serve(url) as http:
            for jump in jumps:
                place.write_text(str(jump))
                time.sleep(0.2)
                for _ in range(20):
                    answer = http.post(BATCH, json=batch(random.Random(1))).raise_for_status().json()
                    taken += answer["accepted"]
                    refused.update(one["reason"] for one in answer["refused"])
                    http.post("/v1/decide").raise_for_status()
        (run,) = run_index.all_ids(store)
        for jump in (-3600.0, 0.0):
            place.write_text(str(jump))
            with served(store, before=before) as (_, url), http_of_twin_serve(url) as http:
                answer = http.post(BATCH, json=batch(random.Random(1))).raise_for_status().json()
                taken += answer["accepted"]
                refused.update(one["reason"] for one in answer["refused"])
        report = audit(store, run)
    said = ", ".join(f"{number} {why!r}" for why, number in refused.items()) or "none"
    return Seen(
        "clock jumps",
        f"the wall clock is set by {', '.join(f'{one:+,.0f}' for one in jumps[1:-1])} s and back, 100 "
        "batches and 100 decisions; restarts with the clock an hour slow and right again, a batch each",
        f"{taken} of 612 samples taken, refused: {said}; audit {'sound' if report.ok else report.findings}",
        report.ok and taken + refused.total() == 612 and taken >= 606,
    )


TRIALS: dict[str, Callable[[argparse.Namespace], Seen]] = {
    "kills": lambda asked: kills(asked.kills),
    "crowd": lambda asked: crowd(asked.idle, asked.streams),
    "bodies": lambda asked: bodies(asked.requests),
    "tokens": lambda asked: tokens(asked.requests // 10),
    "webhook": lambda asked: slow_webhook(20.0),
    "clock": lambda asked: clock(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--idle", type=int, default=1_000)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--only", nargs="+", choices=list(TRIALS), default=list(TRIALS))
    parser.add_argument("--write", action="store_true", help="write the page")
    asked = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65_536), most))
    rows = []
    for name in asked.only:
        seen = TRIALS[name](asked)
        rows.append(f"| {seen.name} | {seen.done} | {seen.seen} | {'yes' if seen.sound else '**no**'} |")
        print(rows[-1], flush=True)
    if asked.write:
        from ingest.core.durable import replace

        words = " ".join(sys.argv[1:])
        load, cores = os.getloadavg()[1], os.cpu_count()
        text = PAGE_TEXT.format(words=words, load=load, cores=cores, rows="\n".join(rows))
        replace(PAGE, text.encode())


PAGE_TEXT = """# Endurance of the decision service

`python -m benchmarks.service.endurance {words}` wrote this page. Each trial starts `twin serve` as a process
of its own on SYNTHETIC links of tri-7b with the policy `greedy` and looks at it from outside. Clients and
service share the machine of {cores} cores, whose load average at the end was {load:.0f}.
[service.md](service.md) has the load of 5,000 observations a second.

| trial | what was done | what was seen | sound |
|---|---|---|---|
{rows}

The wall clock of the process is moved by replacing the functions of Python that read it, not the machine's.
Power cuts are not tried here: the log's own tests cut power by the calls that a file system promises to keep.
"""


if __name__ == "__main__":
    main()
