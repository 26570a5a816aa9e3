"""A window of a run as a Chrome trace: what every stage and every link did, micro-batch by micro-batch.

The log holds iterations, not operations. Each iteration of the window is simulated again by the referee
under the links that the world had when it began; if a link changed on the way its operations are stretched
to the length that was logged, and say so. The file is the trace event format (JSON object form): complete
events ("X") on one track a stage and one a direction of a link, for each job its own, instants ("i") for
decisions, counters ("C") for telemetry, names and order as metadata ("M"); times in microseconds of simulated
time. Perfetto opens it.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core import durable
from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S, to_ns
from replay.run import runner
from replay.store import run_index as runs
from replay.log.events import Event
from replay.store.run_header import from_payload
from replay.log.run_log import RunReader
from replay.store.decision_codec import plan_from_json
from replay.report.iteration_operations import called, simulate
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.costs.wan_traffic import boundaries, stage_domains

Json = dict[str, Any]
MOST = 500_000
"""Operations that a file may hold; viewers become slow beyond."""
RUN, LINKS = 1, 2
"""Process numbers of the run's own track and of the links; domain k is `DOMAINS` + k."""
DOMAINS = 10


@dataclass(frozen=True, slots=True)
class Traced:
    """A written trace."""

    run_id: str
    path: Path
    from_s: float
    to_s: float
    iterations: int
    events: int
    stretched: int  # iterations in which a link changed

    def to_json(self) -> Json:
        """The object of `twin trace --json`."""
        own = {name: getattr(self, name) for name in self.__slots__ if name not in ("run_id", "path")}
        return {"schema": "twin.trace/1", "run": self.run_id, "path": str(self.path), **own}


def write(
    store: Path, run_id: str, out: Path, *, from_s: float, to_s: float, progress: Progress = SILENT
) -> Traced:
    """Write the trace of [from_s, to_s] of a run to `out`, replacing what is there.

    Raises:
        NotFoundError: no such run, or its data set has left the lake. UsageError: no such window, or more
        than `MOST` operations in it. StorageError: the file cannot be written.
    """
    reader = RunReader(runs.folder(store, run_id))
    stage, _ = runner.restage(store, from_payload(reader.header()), ())
    if not 0 <= from_s < to_s:
        raise UsageError(f"--from {from_s:g} --to {to_s:g}: write a window, such as --from 0 --to 60")
    end_s = stage.setup.wan.end_ns / NS_PER_S
    if from_s >= end_s:
        raise UsageError(f"--from {from_s:g}: the run goes from 0 to {end_s:g} s")
    drawing = Drawing(stage, to_ns(from_s), to_ns(to_s), progress)
    for event in reader.events():
        drawing.add(event)
    events = [*drawing.names(), *drawing.events]
    body = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"run": run_id}}
    durable.replace(out, json.dumps(body, allow_nan=False, separators=(",", ":")).encode())
    return Traced(run_id, out, from_s, to_s, drawing.iterations, len(events), drawing.stretched)


@dataclass
class _Job:
    """What is known of a job on the way through the log."""

    estimator: Estimator
    plan: Plan | None = None


@dataclass
class Drawing:
    """Takes the events of a run in order; draws those of the window."""

    stage: runner.Stage
    from_ns: int
    to_ns: int
    progress: Progress = SILENT
    events: list[Json] = field(default_factory=list)
    iterations: int = 0
    stretched: int = 0

    def __post_init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._names = [domain.name for domain in self.stage.setup.cluster.domains]
        self._slowdown = np.ones(len(self._names))
        self._tracks: dict[tuple[int, str], int] = {}  # (process, name) -> number
        self._take: dict[str, Callable[[Event], None]] = {
            "plan_applied": self._plan_applied,
            "iteration_done": self._iteration_done,
            "time_lost": self._time_lost,
            "decided": self._decided,
            "link_observed": self._link_observed,
            "link_failed": self._link,
            "link_restored": self._link,
            "domain_slowed": self._slowed,
        }
        self.progress.start(None, "iterations")

    def add(self, event: Event) -> None:
        """One more event of the log."""
        take = self._take.get(event.type)
        if take is not None:
            take(event)

    def names(self) -> Iterator[Json]:
        """Metadata: what processes and tracks are called."""
        processes = {RUN: "run", LINKS: "links"} | {DOMAINS + k: name for k, name in enumerate(self._names)}
        used = {(event["pid"], event.get("tid")) for event in self.events}
        for pid in sorted({pid for pid, _ in used}):
            yield _meta("process_name", pid, 0, name=processes[pid])
            yield _meta("process_sort_index", pid, 0, sort_index=pid)
        for (pid, name), tid in self._tracks.items():
            if (pid, tid) in used:
                yield _meta("thread_name", pid, tid, name=name)
                yield _meta("thread_sort_index", pid, tid, sort_index=tid)

    def _track(self, pid: int, name: str, job: str = "") -> int:
        """Number of a track: jobs never share one, because what they do overlaps."""
        key = (pid, f"{job}: {name}" if job else name)
        if key not in self._tracks:
            self._tracks[key] = sum(process == pid for process, _ in self._tracks)
        return self._tracks[key]

    def _job(self, name: str) -> _Job:
        if name not in self._jobs:
            context = runner.context_of(self.stage.header, self.stage.setup, name)
            self._jobs[name] = _Job(context.estimator)
        return self._jobs[name]

    def _plan_applied(self, event: Event) -> None:
        said, job = event.payload, self._job(event.job)
        job.plan = plan_from_json(said["plan"])
        if said["pause_ns"]:
            start = event.sim_ns - said["pause_ns"]
            moved = {f"{self._names[i]}>{self._names[j]}": size for i, j, size in said["moved_bytes"]}
            self._slice(
                "move",
                RUN,
                self._track(RUN, "run", event.job),
                start,
                event.sim_ns,
                {"plan": str(job.plan), "moved_bytes": moved},
            )

    def _iteration_done(self, event: Event) -> None:
        said, start = event.payload, event.payload["start_ns"]
        number = said["first"]
        for count, length in said["durations"]:
            # Only the iterations that touch the window are looked at one by one.
            first = max(0, (self.from_ns - start) // length)
            last = min(count, -(-(self.to_ns - start) // length))
            for n in range(first, last):
                self._iteration(event.job, number + n, start + n * length, length)
            start, number = start + count * length, number + count

    def _iteration(self, job: str, number: int, start_ns: int, length_ns: int) -> None:
        known = self._job(job)
        assert known.plan is not None, "an iteration follows a plan"
        self.iterations += 1
        self.progress.advance()
        told, run = {"plan": str(known.plan)}, self._track(RUN, "run", job)
        self._slice(f"iteration {number}", RUN, run, start_ns, start_ns + length_ns, told)
        found = simulate(known.estimator, known.plan, self.stage.setup.wan, start_ns, self._slowdown)
        if found is None:  # it began while a link was dead: nothing is known of its inside
            return
        operations, whole_ns = found
        ratio = length_ns / whole_ns
        self.stretched += whole_ns != length_ns
        shown = {} if whole_ns == length_ns else {"stretched": round(ratio, 4)}
        domains, crossings = stage_domains(known.plan), boundaries(known.plan)
        for name, what, where, begin, end in called(operations, known.plan.chunks):
            place = self._place(what, where, job, domains, crossings)
            if place is not None:
                at, to = start_ns + round(begin * ratio), start_ns + round(end * ratio)
                self._slice(name, *place, at, to, shown)
        if len(self.events) > MOST:
            raise UsageError(
                f"more than {MOST:,} operations between {self.from_ns / NS_PER_S:g} s and "
                f"{self.to_ns / NS_PER_S:g} s: ask for a shorter window"
            )

    def _place(
        self, what: str, where: int, job: str, domains: list[int], crossings: list[tuple[int, int] | None]
    ) -> tuple[int, int] | None:
        """Process and track of an operation; None: it is not shown (a message inside a domain)."""
        if what not in ("down", "up"):
            pid = DOMAINS + domains[where]
            return pid, self._track(pid, f"stage {where}", job)
        pair = crossings[where]
        if pair is None:
            return None
        i, j = pair if what == "down" else pair[::-1]
        return LINKS, self._track(LINKS, f"{self._names[i]} > {self._names[j]}", job)

    def _time_lost(self, event: Event) -> None:
        said = event.payload
        start, run = said["start_ns"], self._track(RUN, "run", event.job)
        self._slice(f"lost: {said['reason']}", RUN, run, start, start + said["lost_ns"], {})

    def _decided(self, event: Event) -> None:
        said = event.payload
        told = {"reason": said["reason"], "trigger": said["observation"].get("trigger")}
        name = f"decision {said['number']}: {said['action']}"
        self._instant(name, self._track(RUN, "decisions", event.job), event.sim_ns, told)

    def _link(self, event: Event) -> None:
        i, j = event.payload["src"], event.payload["dst"]
        what = event.type.replace("_", " ")
        name = f"{what}: {self._names[i]} > {self._names[j]}"
        self._instant(name, self._track(RUN, "links"), event.sim_ns, {})

    def _link_observed(self, event: Event) -> None:
        at_ns = event.payload["sampled_ns"]
        if self.from_ns <= at_ns <= self.to_ns:
            for i, j, bandwidth_bps, _ in event.payload["samples"]:
                name = f"{self._names[int(i)]} > {self._names[int(j)]} Gb/s"
                self.events.append(
                    {
                        "name": name,
                        "ph": "C",
                        "ts": at_ns / 1e3,
                        "pid": LINKS,
                        "args": {"measured": bandwidth_bps / 1e9},
                    }
                )

    def _slowed(self, event: Event) -> None:
        self._slowdown[event.payload["domain"]] = event.payload["factor"]

    def _slice(self, name: str, pid: int, tid: int, start_ns: int, end_ns: int, args: Json) -> None:
        if end_ns > self.from_ns and start_ns < self.to_ns:
            # Viewers add the two: the sum is the very number at which the next slice may begin.
            start_us, end_us = start_ns / 1e3, end_ns / 1e3
            own = {"ts": start_us, "dur": end_us - start_us, "pid": pid, "tid": tid}
            self.events.append({"name": name, "cat": name.split()[0], "ph": "X", **own, "args": args})

    def _instant(self, name: str, tid: int, at_ns: int, args: Json) -> None:
        if self.from_ns <= at_ns <= self.to_ns:
            own = {"ts": at_ns / 1e3, "pid": RUN, "tid": tid, "s": "t"}
            self.events.append({"name": name, "ph": "i", **own, "args": args})


def _meta(what: str, pid: int, tid: int, **args: str | int) -> Json:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": args}
