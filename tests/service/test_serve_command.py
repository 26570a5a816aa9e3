"""`twin serve` as a process: a hook talks to it, a signal ends it, and every command reads its run."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from replay.log.run_log import RunReader
from replay.store import run_index
from service.api.server import ListenAddress, bound
from service.hook import TrainingHook
from tests.support.processes import environment
from tests.support.serving import http_of_twin_serve

Json = dict[str, Any]


def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_a_hook_is_served_and_the_run_is_one_like_others(
    repository: Path, kept_store: Path, tmp_path: Path
) -> None:
    store = shutil.copytree(kept_store, tmp_path / "store")
    words = [sys.executable, "-c", "import cli; cli.process()"]
    process = subprocess.Popen(
        [*words, "serve", "-s", "tri-7b", "-p", "static", "--port", "0", "--active", "--json"],
        cwd=repository, env=environment(repository, store), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["schema"] == "twin.serve/1" and ready["mode"] == "active"
    hook = TrainingHook(ready["url"], every_s=0.05)
    hook.link("us-east-1", "eu-west-1", 2e9, 0.04)
    hook.add_step(1.5)
    until(lambda: hook.sent_observations == 2)
    until(lambda: hook.plan_change() is not None)
    change = hook.plan_change()
    assert change is not None and change.number == 0 and change.plan["shares"]
    hook.applied(change, 2.5)
    until(lambda: hook.sent_observations == 3)
    hook.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    process.stdout.close()
    assert (hook.dropped, hook.last_error) == (0, "")
    types = [event.type for event in RunReader(run_index.folder(store, ready["run"])).events()]
    assert [kind for kind in types if kind.startswith("order")] == ["order_given", "order_closed"]
    audited = subprocess.run(
        [*words, "audit", ready["run"], "--json"], cwd=repository, env=environment(repository, store),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(audited.stdout)
    assert (found["run"], found["ok"], found["events"]) == (ready["run"], True, len(types))


def test_a_webhook_gets_after_a_kill_what_it_had_not_got(
    repository: Path, kept_store: Path, tmp_path: Path
) -> None:
    store, got = shutil.copytree(kept_store, tmp_path / "store"), list[tuple[str, Json]]()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            got.append((self.headers["Idempotency-Key"], body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    twin = [sys.executable, "-c", "import cli; cli.process()"]
    words = [*twin, "serve", "-s", "tri-7b", "-p", "static", "--port", "0", "--json"]
    words += ["--webhook", f"http://127.0.0.1:{port}/"]

    def begun() -> tuple["subprocess.Popen[str]", Json]:
        process = subprocess.Popen(
            words, cwd=repository, env=environment(repository, store), stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())

    def stopped(process: "subprocess.Popen[str]", number: int) -> None:
        process.send_signal(number)
        process.communicate(timeout=30)

    process, ready = begun()  # nobody receives
    with http_of_twin_serve(ready["url"]) as client:
        for mode in ("active", "hold", "shadow"):
            client.post("/v1/mode", json={"mode": mode}).raise_for_status()
        until(lambda: client.get("/v1/state").json()["webhook"]["problem"])
        assert client.get("/v1/state").json()["webhook"]["waiting"] >= 4
    stopped(process, signal.SIGKILL)
    receiver = ThreadingHTTPServer(("127.0.0.1", port), Receiver)
    threading.Thread(target=receiver.serve_forever, args=(0.02,), daemon=True).start()
    process, again = begun()
    until(lambda: len(got) >= 4)
    stopped(process, signal.SIGTERM)
    receiver.shutdown()
    receiver.server_close()
    assert again["run"] == ready["run"]
    modes = [body["mode"] for _, body in got if body["event"] == "mode_changed"]
    assert got[0][1]["event"] == "decided" and modes == ["active", "hold", "shadow"]
    keys = [key for key, _ in got]
    assert len(keys) == len(set(keys)) and all(key.startswith(f"{ready['run']}/") for key in keys)


def test_a_wrong_address_of_a_webhook_is_a_mistake_of_usage(repository: Path, tmp_path: Path) -> None:
    for url in ("http://[x", "nowhere", "http://h:99999/"):
        done = subprocess.run(
            [sys.executable, "-c", "import cli; cli.process()", "serve", "-s", "tri-7b", "--webhook", url],
            cwd=repository, env=environment(repository, tmp_path), capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 2 and f"--webhook {url}" in done.stderr and "Traceback" not in done.stderr


def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    with bound(ListenAddress(port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # without it asyncio leaves Nagle's algorithm on
