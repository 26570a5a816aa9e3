"""kill -9 of a service under load: a client that remembers finds all that was acknowledged, nothing twice."""

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from replay.audit.audit import audit
from replay.log.run_log import RunReader
from replay.store import run_index
from tests.support.crash_workload import EFFORT
from tests.support.serving import links, service, without_lake
from tests.support.tally import tally

KILLS = 2 * EFFORT
LONGEST_S = 0.3


@dataclass
class RememberingClient:
    """Pushes batches and asks for decisions until the service is gone; keeps every answer."""

    batches: dict[str, tuple[list[Any], dict[str, Any]]] = field(default_factory=dict)
    decisions: dict[int, dict[str, Any]] = field(default_factory=dict)
    unsure: dict[str, list[Any]] = field(default_factory=dict)
    """Batches whose answer never came."""

    def push(self, address: str, name: str) -> None:
        """Sends batch after batch."""
        with httpx.Client(base_url=address) as http:
            for number in range(10_000):
                key, items = f"{name}-{number}", links(random.uniform(1e9, 4e9))
                self.unsure[key] = items
                try:
                    answer = self.sent(http, key, items)
                except httpx.TransportError:
                    return
                self.batches[key] = items, answer
                del self.unsure[key]

    def decide(self, address: str) -> None:
        """Asks for decision after decision."""
        with httpx.Client(base_url=address) as http:
            while True:
                try:
                    made = http.post("/v1/decide").raise_for_status().json()
                except httpx.TransportError:
                    return
                decision = made["decision"]
                same = self.decisions.setdefault(decision["number"], decision)
                assert same["seq"] == decision["seq"] and same["at"] == decision["at"]

    @staticmethod
    def sent(http: httpx.Client, key: str, items: list[Any]) -> dict[str, Any]:
        """The answer to one batch."""
        answer = http.post("/v1/observations", json=items, headers={"Idempotency-Key": key})
        found: dict[str, Any] = answer.raise_for_status().json()
        return found


def test_nothing_acknowledged_is_lost_and_nothing_is_decided_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, chance = RememberingClient(), random.Random(5)
    for kill in range(KILLS):
        process, address = service(tmp_path)
        threads = [threading.Thread(target=client.push, args=(address, f"{kill}-{n}")) for n in range(2)]
        threads.append(threading.Thread(target=client.decide, args=(address,)))
        for thread in threads:
            thread.start()
        before, end = len(client.batches), time.monotonic() + 60
        while len(client.batches) == before and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, LONGEST_S))
        process.kill()
        for thread in [*threads, process]:
            thread.join()
    tally("service kills", KILLS)
    process, address = service(tmp_path)
    assert client.batches and client.decisions
    with httpx.Client(base_url=address) as http:
        for key, (items, answer) in client.batches.items():
            assert client.sent(http, key, items) == {**answer, "duplicate": True}
        for key, items in client.unsure.items():  # sent again, as the hook does
            assert client.sent(http, key, items)["key"] == key
    process.terminate()
    process.join()
    assert process.exitcode == 0
    check_log(tmp_path, client, monkeypatch)


def check_log(store: Path, client: RememberingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every acknowledged batch and decision is in the log, once, and the log follows from its inputs."""
    (run,) = run_index.all_ids(store)
    events = list(RunReader(run_index.folder(store, run)).events())
    keys = [e.payload["key"] for e in events if e.type == "telemetry_received"]
    assert len(keys) == len(set(keys)) and client.batches.keys() <= set(keys)
    samples = [tuple(row[:3]) for e in events if e.type == "telemetry_received" for row in e.payload["links"]]
    assert len(samples) == len(set(samples))
    decided = {e.payload["number"]: e for e in events if e.type == "decided"}
    assert [e.payload["number"] for e in events if e.type == "decided"] == [*range(len(decided))]
    for number, decision in client.decisions.items():
        assert decided[number].seq == decision["seq"] and decided[number].payload["plan"] == decision["plan"]
    reader = RunReader(run_index.folder(store, run))
    assert reader.verify() == []
    without_lake(monkeypatch)
    report = audit(store, run)  # every event made again from what came from outside
    assert report.ok, report.findings
