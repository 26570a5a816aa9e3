"""A client of a decision service that remembers every answer, and what the log must hold of them."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from replay.audit.audit import audit
from replay.log.run_log import RunReader
from replay.store import run_index
from tests.support import serving
from tests.support.serving import NAMES, links


@dataclass
class RememberingClient:
    """Pushes batches and asks for decisions until the service is gone; keeps every answer."""

    names: tuple[str, ...] = NAMES
    token: str = serving.TOKEN
    batches: dict[str, tuple[list[Any], dict[str, Any]]] = field(default_factory=dict)
    decisions: dict[int, dict[str, Any]] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    """State of every job whose change was acknowledged."""
    unsure: dict[str, list[Any]] = field(default_factory=dict)
    """Batches whose answer never came."""

    def push(self, address: str, name: str) -> None:
        """Sends batch after batch."""
        with serving.http(address, self.token) as http:
            for number in range(10_000):
                key, items = f"{name}-{number}", links(random.uniform(1e9, 4e9), names=self.names)
                self.unsure[key] = items
                try:
                    answer = self.sent(http, key, items)
                except httpx.TransportError:
                    return
                self.batches[key] = items, answer
                del self.unsure[key]

    def submit(self, address: str, name: str) -> None:
        """Submits job after job; every second one starts."""
        with serving.http(address, self.token) as http:
            for number in range(1_000):
                one = f"{name}-{number}"
                items: list[dict[str, Any]] = [{"kind": "submit", "id": one, "gpus": 1, "estimate_s": 60}]
                if number % 2:
                    items.append({"kind": "start", "id": one, "gpus": {self.names[0]: 1}})
                try:
                    answer = http.post("/v1/jobs", json=items)
                except httpx.TransportError:
                    return
                if answer.status_code == 429:
                    time.sleep(0.1)
                    continue
                assert answer.raise_for_status().json()["accepted"] == len(items)
                self.jobs[one] = "running" if number % 2 else "waiting"
                time.sleep(0.02)

    def decide(self, address: str) -> None:
        """Asks for decision after decision."""
        with serving.http(address, self.token) as http:
            while True:
                try:
                    answer = http.post("/v1/decide")
                except httpx.TransportError:
                    return
                if answer.status_code == 429:
                    time.sleep(0.1)
                    continue
                made = answer.raise_for_status().json()
                decision = made["decision"]
                same = self.decisions.setdefault(decision["number"], decision)
                assert same["seq"] == decision["seq"] and same["at"] == decision["at"]

    def load(self, address: str, name: str, *, after: Callable[[], object]) -> None:
        """Pushes with two threads, asks for decisions and submits jobs with one each; calls `after` once a
        batch more is acknowledged, which has to end the service.
        """
        work = [threading.Thread(target=self.push, args=(address, f"{name}-{n}")) for n in range(2)]
        work.append(threading.Thread(target=self.decide, args=(address,)))
        work.append(threading.Thread(target=self.submit, args=(address, name)))
        for one in work:
            one.start()
        before, end = len(self.batches), time.monotonic() + 60
        while len(self.batches) == before and time.monotonic() < end:
            time.sleep(0.01)
        after()
        for one in work:
            one.join()

    def send_again(self, address: str) -> None:
        """Sends every batch again: what was acknowledged is known, what was not is taken now."""
        with serving.http(address, self.token) as http:
            for key, (items, answer) in self.batches.items():
                again = self.sent(http, key, items)
                if not answer["accepted"]:  # refused as a whole: it costs no event, and is judged again
                    assert not again["accepted"]
                    continue
                assert again == {**answer, "duplicate": True}, f"{again} is not {answer}"
            for key, items in self.unsure.items():  # as the hook does
                assert self.sent(http, key, items)["key"] == key
            again = [{"kind": "submit", "id": job, "gpus": 1, "estimate_s": 60} for job in self.jobs]
            answered = http.post("/v1/jobs", json=again).raise_for_status().json()
            assert answered == {"accepted": 0, "unchanged": len(again), "refused": []}

    @staticmethod
    def sent(http: httpx.Client, key: str, items: list[Any]) -> dict[str, Any]:
        """The answer to one batch."""
        head = {"Idempotency-Key": key}
        answer = http.post("/v1/observations", json=items, headers=head)
        while answer.status_code == 429:  # more than 200 requests a second
            time.sleep(0.5)
            answer = http.post("/v1/observations", json=items, headers=head)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found


def check_log(store: Path, client: RememberingClient) -> None:
    """Every acknowledged batch and decision is in the log, once, and the log follows from its inputs."""
    (run,) = run_index.all_ids(store)
    events = list(RunReader(run_index.folder(store, run)).events())
    keys = [e.payload["key"] for e in events if e.type == "telemetry_received"]
    taken = {key for key, (_, answer) in client.batches.items() if answer["accepted"]}
    assert len(keys) == len(set(keys)) and taken and taken <= set(keys)
    samples = [tuple(row[:3]) for e in events if e.type == "telemetry_received" for row in e.payload["links"]]
    assert len(samples) == len(set(samples))
    decided = {e.payload["number"]: e for e in events if e.type == "decided"}
    assert [e.payload["number"] for e in events if e.type == "decided"] == [*range(len(decided))]
    for number, decision in client.decisions.items():
        assert decided[number].seq == decision["seq"] and decided[number].payload["plan"] == decision["plan"]
    changes = [one for e in events if e.type == "jobs_changed" for one in e.payload["changes"]]
    made = [(one["kind"], one["id"]) for one in changes]
    assert len(made) == len(set(made))
    for job, state in client.jobs.items():
        assert ("submit", job) in made and (("start", job) in made) == (state == "running")
    reader = RunReader(run_index.folder(store, run))
    assert reader.verify() == []
    report = audit(store, run)  # every event made again from what came from outside
    assert report.ok, report.findings
