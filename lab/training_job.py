"""The training job of a lab: torchrun in every site, what the workers print, changes of plan."""

import json
import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from ingest.core import durable
from ingest.core.errors import TwinError
from lab.emulated_wan import ROOT, EmulatedWan
from lab.instructions import Instruction, Job, write_instruction, write_job
from lab.site_process import DEVICE, address

PORT = 29_511
STARTING_S, SILENT_S = 120.0, 300.0  # a move over a slow link says nothing for minutes
LINES_KEPT = 60


class LabError(TwinError):
    """A process of a lab failed; the message has what it said last."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the whole pipeline; seconds of the lab since the links began to play.

    `ended_s` is the end in the last site to end, `loss` nats, `late_s` the largest sum over sites of how much
    operations overran because this machine was busy.
    """

    number: int
    plan: int
    began_s: float
    ended_s: float
    loss: float
    late_s: float

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.ended_s - self.began_s


@dataclass(frozen=True, slots=True)
class Move:
    """A change of plan before step `step`: begin, end of the copying and end, seconds as in `Step`."""

    plan: int
    step: int
    began_s: float
    copied_s: float
    ended_s: float
    sent_bytes: int

    @property
    def pause_s(self) -> float:
        """Seconds without training."""
        return self.ended_s - self.began_s


class TrainingJob:
    """Workers of one job, running `first` from the start; `events` yields steps and moves as they end."""

    def __init__(self, wan: EmulatedWan, job: Job, first: Instruction) -> None:
        self._wan, self._job, self._folder = wan, job, wan.folder
        write_job(self._folder, job)
        write_instruction(self._folder, 0, first)
        self._plans = [first]
        self._lines: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
        self._last: dict[int, list[str]] = {}
        self._processes = [self._start(site) for site in range(job.sites)]
        self._ended_s = 0.0  # end of the last step or move
        self._steps: dict[int, list[dict[str, Any]]] = {}
        self._moves: dict[int, list[dict[str, Any]]] = {}

    def _start(self, site: int) -> Any:
        command = [
            sys.executable, "-m", "torch.distributed.run", "--nnodes", str(self._job.sites),
            "--nproc-per-node", "1", "--node-rank", str(site), "--master-addr", address(0),
            "--master-port", str(PORT),
            str(ROOT / "lab" / "stage_worker.py"), str(self._folder),
        ]  # fmt: skip
        environment = {"GLOO_SOCKET_IFNAME": DEVICE, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        process = self._wan.start(site, command, environment)
        assert process.stdout is not None and process.stderr is not None
        self._last[site] = []
        for stream, read in ((process.stdout, self._read), (process.stderr, self._keep)):
            threading.Thread(target=read, args=(site, stream), daemon=True).start()
        return process

    def _read(self, site: int, stream: IO[str]) -> None:
        for line in stream:
            if line.startswith("{"):
                self._lines.put((site, json.loads(line)))
        self._lines.put((site, None))

    def _keep(self, site: int, stream: IO[str]) -> None:
        for line in stream:
            self._last[site] = [*self._last[site][-LINES_KEPT:], line.rstrip()]

    def begin(self) -> None:
        """Waits until all workers are ready, then lets links and training begin together."""
        ready: set[int] = set()
        until = time.monotonic() + STARTING_S
        while len(ready) < self._job.sites:
            site, said = self._next(until)
            if said is not None and said["event"] == "ready":
                ready.add(site)
        self._wan.relay(self._plans[0].routes)
        self._wan.play()
        durable.put(self._folder / "go", b"")

    def _next(self, until_s: float) -> tuple[int, dict[str, Any] | None]:
        try:
            site, said = self._lines.get(timeout=max(0.0, until_s - time.monotonic()))
        except queue.Empty:
            raise LabError("the workers of the lab were silent for too long" + self._heard()) from None
        if said is None and self._processes[site].wait(SILENT_S) != 0:
            raise LabError(f"the worker of site {site} ended{self._heard()}")
        return site, said

    def _heard(self) -> str:
        """Lines in which workers name an error, or else the last that each wrote."""
        heard = [(site, line) for site, kept in self._last.items() for line in kept]
        errors = [(site, line) for site, line in heard if "Error" in line]
        lines = errors or [(site, kept[-1]) for site, kept in self._last.items() if kept]
        return "".join(f"\n  site {site}: {line.strip()}" for site, line in lines[:6])

    def change(self, plan: Instruction) -> int:
        """Gives the workers their next plan; its number."""
        write_instruction(self._folder, len(self._plans), plan)
        self._plans.append(plan)
        return len(self._plans) - 1

    def end(self, at_step: int) -> None:
        """Ends the training before step `at_step`."""
        self.change(Instruction(at_step, (), self._plans[-1].schedule, 1, (), 0.0))

    def events(self) -> Iterator[Step | Move]:
        """Yields steps and moves in order until the training has ended.

        Raises:
            LabError: a worker failed or is silent.
        """
        ended: set[int] = set()
        while len(ended) < self._job.sites:
            site, said = self._next(time.monotonic() + SILENT_S)
            if said is None:
                ended.add(site)
            elif said["event"] == "step":
                found = self._steps.setdefault(said["step"], [])
                found.append(said)
                if len(found) == len(self._plans[said["plan"]].stages):
                    yield self._step(self._steps.pop(said["step"]))
            elif said["event"] == "moved":
                moved = self._moves.setdefault(said["plan"], [])
                moved.append(said)
                if len(moved) == self._job.sites:
                    yield self._move(self._moves.pop(said["plan"]))

    def _seconds(self, ns: int) -> float:
        return (ns - self._wan.epoch_ns) / 1e9

    def _step(self, said: list[dict[str, Any]]) -> Step:
        ended_s = max(self._seconds(one["ended_ns"]) for one in said)
        began_s = max(self._ended_s, min(self._seconds(one["began_ns"]) for one in said))
        self._ended_s = ended_s
        loss = next(one["loss"] for one in said if one["loss"] is not None)
        late_s = max(one["late_s"] for one in said)
        following = self._plans[min(said[0]["plan"] + 1, len(self._plans) - 1)]
        if following.stages and following.at_step == said[0]["step"] + 1:
            self._wan.relay(following.routes)  # those of the plan that begins, its move included
        return Step(said[0]["step"], said[0]["plan"], began_s, ended_s, loss, late_s)

    def _move(self, said: list[dict[str, Any]]) -> Move:
        began_s = max(self._ended_s, min(self._seconds(one["began_ns"]) for one in said))
        copied_s, ended_s = (
            max(self._seconds(one[key]) for one in said) for key in ("copied_ns", "ended_ns")
        )
        self._ended_s = ended_s
        sent = sum(one["sent_bytes"] for one in said)
        return Move(said[0]["plan"], said[0]["step"], began_s, copied_s, ended_s, sent)
