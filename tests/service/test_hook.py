"""The hook of a training loop: what it tells, and what becomes of it when the service is away."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from service import observation_sinks
from service.hook import TrainingHook
from service.spool import Spool


class Listener:
    """A service that remembers what it was sent, and answers with `code`."""

    def __init__(self) -> None:
        self.code, self.order = 200, None
        self.bodies: dict[str, bytes] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if outer.code == 200:
                    outer.bodies[self.headers["Idempotency-Key"]] = body
                self.answer(b"{}")

            def do_GET(self) -> None:
                self.answer(json.dumps({"order": outer.order}).encode())

            def answer(self, body: bytes) -> None:
                self.send_response(outer.code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def seen(self) -> list[dict[str, Any]]:
        return [json.loads(line) for body in self.bodies.values() for line in body.splitlines()]


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener()
    yield one
    one.server.shutdown()
    one.server.server_close()


def until(condition: Any, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_importing_the_hook_brings_nothing_heavy(repository: Path) -> None:
    heavy = ("numpy", "torch", "pydantic", "fastapi", "pyarrow", "click", "yaml")
    code = f"import sys, service.hook; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_steps_arrive_with_their_sends(listener: Listener) -> None:
    with TrainingHook(listener.address, every_s=0.02) as hook:
        for _ in hook.steps(range(3)):
            hook.sent("a", "b", 100, 0.5)
            hook.computed("a", 0.25)
            hook.computed("a", 0.25)
        hook.link("a", "b", 1e9, 0.03)
    steps = [seen for seen in listener.seen if seen["kind"] == "step"]
    assert [seen["step"] for seen in steps] == [0, 1, 2]
    assert steps[0]["sent"] == [["a", "b", 100, 0.5]]
    assert steps[0]["compute_s"] == {"a": 0.5}
    assert [seen["bandwidth_bps"] for seen in listener.seen if seen["kind"] == "link"] == [1e9]
    assert hook.dropped == 0


def test_a_dead_service_stops_nothing_and_the_telemetry_arrives_later(
    listener: Listener, tmp_path: Path
) -> None:
    listener.code = 503
    hook = TrainingHook(listener.address, spool=tmp_path / "spool", every_s=0.02)
    for number in range(5):
        hook.add_step(0.05)
        until(lambda number=number: len(list((tmp_path / "spool").glob("*.ndjson"))) > 0 or number < 1)
    until(lambda: "503" in hook.last_error)
    listener.code = 200
    until(lambda: len([seen for seen in listener.seen if seen["kind"] == "step"]) == 5)
    hook.close()
    assert hook.dropped == 0
    assert list((tmp_path / "spool").glob("*.ndjson")) == []


def test_what_a_killed_job_left_in_its_spool_is_sent_by_the_next(listener: Listener, tmp_path: Path) -> None:
    listener.code = 503
    with TrainingHook(listener.address, spool=tmp_path, every_s=0.02) as first:
        first.add_step(0.05)
    assert listener.seen == []
    listener.code = 200
    with TrainingHook(listener.address, spool=tmp_path, every_s=0.02):
        until(lambda: len(listener.seen) == 1)


def test_a_full_spool_drops_the_oldest_and_counts(listener: Listener, tmp_path: Path) -> None:
    listener.code = 503
    hook = TrainingHook(listener.address, spool=tmp_path, spool_bytes=400, every_s=0.01)
    for step in range(12):
        hook.add_step(0.05)
        until(lambda step=step: not hook._queue)
        time.sleep(0.02)
    hook.close()
    assert sum(path.stat().st_size for path in tmp_path.glob("*.ndjson")) <= 400
    kept = [
        json.loads(path.read_text().splitlines()[-1])["step"] for path in sorted(tmp_path.glob("*.ndjson"))
    ]
    assert kept[-1] == 11
    assert hook.dropped + len(kept) == 12


def test_a_batch_that_the_service_refuses_for_good_is_dropped(listener: Listener, tmp_path: Path) -> None:
    listener.code = 422
    with TrainingHook(listener.address, spool=tmp_path, every_s=0.02) as hook:
        hook.add_step(0.05)
        until(lambda: hook.dropped == 1)
    assert "422" in hook.last_error
    assert list(tmp_path.glob("*.ndjson")) == []


def test_no_place_for_the_spool_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with TrainingHook(tmp_path / "file", every_s=0.02) as hook:
        hook.add_step(0.05)
        until(lambda: hook.dropped == 1)
    assert "file" in hook.last_error


def test_a_folder_takes_lines_of_json(tmp_path: Path) -> None:
    with TrainingHook(tmp_path / "out", job="gpt", every_s=0.02) as hook:
        hook.add_step(0.05, memory_peak_bytes=7)
        hook.domain("a", gpus=3)
    (file,) = (tmp_path / "out").glob("*.ndjson")
    step, domain = map(json.loads, file.read_text().splitlines())
    assert (step["job"], step["seconds"], step["memory_peak_bytes"]) == ("gpt", 0.05, 7)
    assert (domain["domain"], domain["gpus"]) == ("a", 3)


def test_an_order_is_handed_over_until_it_is_answered(listener: Listener) -> None:
    with TrainingHook(listener.address, every_s=0.02) as hook:
        assert hook.plan_change() is None
        listener.order = {"number": 4, "plan": {"dp": 1}, "reason": "faster"}  # type: ignore[assignment]
        until(lambda: hook.plan_change() is not None)
        change = hook.plan_change()
        assert change is not None and (change.number, change.plan) == (4, {"dp": 1})
        hook.applied(change, 1.5)
        assert hook.plan_change() is None
        time.sleep(0.1)  # the service still answers with the same order: it is not handed over again
        assert hook.plan_change() is None
        until(lambda: any(seen["kind"] == "plan" for seen in listener.seen))
    (seen,) = [seen for seen in listener.seen if seen["kind"] == "plan"]
    assert (seen["order"], seen["state"], seen["pause_s"]) == (4, "applied", 1.5)


def test_what_is_no_batch_in_a_spool_is_passed_over(listener: Listener, tmp_path: Path) -> None:
    names = [f"{n:012d}-{'0' * 32}.ndjson" for n in range(3)]
    os.mkfifo(tmp_path / names[0])
    (tmp_path / names[1]).symlink_to("/dev/zero")
    with (tmp_path / names[2]).open("wb") as file:
        file.truncate(1 << 30)
    spool = Spool(tmp_path, 1_000)
    assert len(spool) == 0 and spool.first() is None


def test_an_order_that_is_none_stops_nothing() -> None:
    for answer in (None, [], {}, {"order": 1}, {"order": {"number": "1", "plan": None, "reason": ""}}):
        with pytest.raises(ValueError, match="answer"):
            observation_sinks._order(answer)
    assert observation_sinks._order({"order": None}) is None
