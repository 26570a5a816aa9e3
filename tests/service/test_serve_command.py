"""`twin serve` as a process: a hook talks to it, a signal ends it, and every command reads its run."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from replay.log.run_log import RunReader
from replay.store import run_index
from service.api.server import ListenAddress, bound
from service.hook import TrainingHook
from tests.support.processes import environment


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


def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    with bound(ListenAddress(port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # without it asyncio leaves Nagle's algorithm on
