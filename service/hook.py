"""What a training job imports: measures its steps, tells the service, and hands it changes of plan.

    from service.hook import TrainingHook

    hook = TrainingHook("http://127.0.0.1:8712", spool="spool")
    for batch in hook.steps(loader):            # one step an item, timed
        loss = train(batch)
        hook.sent("us-east-1", "eu-west-1", sent_bytes, sent_s)
        change = hook.plan_change()             # never waits; None: go on
        if change is not None:
            pause_s = move(change.plan)
            hook.applied(change, pause_s)
    hook.close()

The training thread only appends to a queue in memory; another thread sends. If the service is away, batches
go into a folder of bounded size and are sent later; what does not fit is dropped and counted in `dropped`. No
call of the training thread raises because of the service or the disk. Instead of an address, a folder may be
given: then the observations are lines of JSON in a new file there.

An observation is one JSON object with `kind` and `epoch_ns` (UTC): `step` (seconds, sent, compute_s), `link`
(src, dst, bandwidth_bps, latency_s), `domain` (gpus, slowdown) or `plan` (state, order, pause_s). A service
takes them at `POST /v1/observations` as lines of JSON, a batch known again by its `Idempotency-Key`, and
answers `GET /v1/order?job=J` with `{"order": null}` or an order's number, plan and reason. One of several
jobs may get an order whose plan is None: stop, say `applied`, and train again when a plan is ordered.
"""

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ingest.core.errors import TwinError
from service.observation_sinks import PATIENCE_S, FileSink, HttpSink, PlanChange
from service.spool import Spool

Json = dict[str, Any]
Item = TypeVar("Item")
QUEUE = 100_000
"""Observations in memory; the oldest are dropped beyond that."""
BATCH = 1_000
"""Most observations of one request."""
SPOOL_BYTES = 64 << 20


class TrainingHook:
    """Measures a training loop and exchanges telemetry and plans with the service.

    target: address of the service, or a folder for lines of JSON. token: bearer token with the role `push`;
    by default the environment's `TWIN_TOKEN`, the one in the address (`?token=`), or that of a service which
    the same user runs on this machine. job: name of the job, "" where the scenario has one. spool:
    folder for what cannot be sent; None: nothing is kept on disk.
    """

    def __init__(
        self,
        target: str | Path,
        *,
        token: str | None = None,
        job: str = "",
        spool: str | Path | None = None,
        spool_bytes: int = SPOOL_BYTES,
        every_s: float = 1.0,
    ) -> None:
        self._lost = 0
        self.sent_observations = 0
        self.last_error = ""
        self._job, self._every_s = job, every_s
        self._queue: deque[Json] = deque()
        self._change: PlanChange | None = None
        self._answered = -1  # newest order that the job has dealt with
        self._step, self._step_sent, self._step_compute = 0, [], {}  # type: ignore[var-annotated]
        self._stop, self._wake = threading.Event(), threading.Event()
        self._sink: HttpSink | FileSink | None = self._made(str(target), token, spool, spool_bytes)
        self._thread = threading.Thread(target=self._work, name="twin-hook", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Observations lost: queue full, spool full, or refused by the service."""
        spool = self._sink.spool if isinstance(self._sink, HttpSink) else None
        return self._lost + (0 if spool is None else spool.dropped)

    # -- called by the training thread

    @contextmanager
    def step(self, **figures: Any) -> Iterator[None]:
        """Times the body as one training step; `figures` are added to its observation, e.g.
        `memory_peak_bytes`."""
        began = time.perf_counter()
        yield
        self.add_step(time.perf_counter() - began, **figures)

    def steps(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yields the items; the time from one to the next is a step."""
        for item in items:
            began = time.perf_counter()
            yield item
            self.add_step(time.perf_counter() - began)

    def add_step(self, seconds: float, **figures: Any) -> None:
        """Reports a step of `seconds`, with the sends and computations told since the last one."""
        seen: Json = {"kind": "step", "job": self._job, "step": self._step, "seconds": seconds, **figures}
        if self._step_sent:
            seen["sent"], self._step_sent = self._step_sent, []
        if self._step_compute:
            seen["compute_s"], self._step_compute = self._step_compute, {}
        if "memory_peak_bytes" not in seen and (peak := _device_peak_bytes()) is not None:
            seen["memory_peak_bytes"] = peak
        self._step += 1
        self._put(seen)

    def sent(self, src: str, dst: str, size_bytes: int, seconds: float) -> None:
        """Adds a send or a collective between two domains to the step that runs: its bytes and its time."""
        self._step_sent.append([src, dst, int(size_bytes), seconds])

    def computed(self, domain: str, seconds: float) -> None:
        """Adds computing time of a domain to the step that runs."""
        self._step_compute[domain] = self._step_compute.get(domain, 0.0) + seconds

    def link(self, src: str, dst: str, bandwidth_bps: float, latency_s: float | None = None) -> None:
        """Reports a measured link, bit/s and seconds one way; 0 bit/s: dead."""
        seen: Json = {"kind": "link", "src": src, "dst": dst, "bandwidth_bps": bandwidth_bps}
        self._put(seen if latency_s is None else {**seen, "latency_s": latency_s})

    def domain(self, name: str, *, gpus: int | None = None, slowdown: float | None = None) -> None:
        """Reports the GPUs of a domain that are alive, or its computing time over the nominal one."""
        given = {"gpus": gpus, "slowdown": slowdown}
        self._put({"kind": "domain", "domain": name, **{k: v for k, v in given.items() if v is not None}})

    def running(self, plan: Mapping[str, Any]) -> None:
        """Reports the plan that the job runs now (JSON as in the log)."""
        self._put({"kind": "plan", "job": self._job, "state": "running", "plan": dict(plan)})

    def plan_change(self) -> PlanChange | None:
        """Returns the order that waits, to be asked for at a step boundary; it never waits for the network.

        It is returned until `applied` or `refused` answers it.
        """
        return self._change

    def applied(self, change: PlanChange, pause_s: float) -> None:
        """Reports that the job runs the plan of an order, after a pause of `pause_s`."""
        self._answer(change, {"state": "applied", "pause_s": pause_s})

    def refused(self, change: PlanChange, reason: str) -> None:
        """Reports that the job does not carry out an order, and why."""
        self._answer(change, {"state": "refused", "reason": reason})

    def close(self, wait_s: float = PATIENCE_S) -> None:
        """Sends or keeps what is left, waiting at most `wait_s`, and ends the thread."""
        self._stop.set()
        self._wake.set()
        self._thread.join(wait_s)

    def __enter__(self) -> "TrainingHook":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, change: PlanChange, answer: Json) -> None:
        self._answered = max(self._answered, change.number)
        if self._change is not None and self._change.number <= change.number:
            self._change = None
        self._put({"kind": "plan", "job": self._job, "order": change.number, **answer})
        self._wake.set()

    def _put(self, seen: Json) -> None:
        seen["epoch_ns"] = time.time_ns()
        self._queue.append(seen)
        if len(self._queue) > QUEUE:
            self._queue.popleft()
            self._lost += 1

    # -- the other thread

    def _made(
        self, target: str, token: str | None, spool: str | Path | None, spool_bytes: int
    ) -> "HttpSink | FileSink | None":
        try:
            if target.startswith(("http://", "https://")):
                kept = None if spool is None else Spool(Path(spool), spool_bytes)
                return HttpSink(target, token or os.environ.get("TWIN_TOKEN", ""), kept)
            return FileSink(Path(target))
        except TwinError as error:  # no place to write: training goes on, everything is dropped and counted
            self.last_error = str(error)
            return None

    def _work(self) -> None:
        while True:
            stopping = self._stop.is_set()
            self._send_all()
            if stopping:
                return
            self._wake.clear()
            self._ask()
            self._wake.wait(self._every_s)

    def _send_all(self) -> None:
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            body = "".join(json.dumps(seen, separators=(",", ":")) + "\n" for seen in batch).encode()
            arrived, lost, error = self._sent(body)
            self.last_error = error or self.last_error
            self.sent_observations += len(batch) if arrived else 0
            self._lost += len(batch) if lost else 0
        if isinstance(self._sink, HttpSink):
            self._sink.send_kept()

    def _sent(self, body: bytes) -> tuple[bool, bool, str]:
        """Returns (arrived, lost, error)."""
        return (False, True, "") if self._sink is None else self._sink.send(body)

    def _ask(self) -> None:
        if not isinstance(self._sink, HttpSink):
            return
        try:
            order = self._sink.order(self._job)
        except (OSError, ValueError) as error:
            self.last_error = f"{type(error).__name__}: {error}"
            return
        if order is None:
            self._change = None
        elif order.number > self._answered:
            self._change = order


def _device_peak_bytes() -> int | None:
    """Returns the peak of the device's memory where torch is loaded and uses one; imports nothing."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.max_memory_allocated())
