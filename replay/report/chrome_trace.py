"""A window of a run as a Chrome trace: operations of every stage and link, micro-batch by micro-batch.

The log holds iterations, not operations. The reference simulator repeats each iteration of the window under
the links at its start; if a link changed meanwhile, the operations are stretched to the logged length and
marked. The file is in the trace event format (JSON object form): complete events ("X") on one track a stage
and one a direction of a link, separate for each job, instants ("i") for decisions, counters ("C") for
telemetry, names and order as metadata ("M"); times in microseconds of simulated time. Perfetto opens it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ingest.core import durable
from ingest.core.errors import DamageError, UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S, to_ns
from replay.log.events import Event, Json
from replay.log.fold import Fold, fold
from replay.log.run_log import RunReader
from replay.report.iteration_operations import name_operations, simulate
from replay.run import runner
from replay.store import run_index
from replay.store.decision_codec import plan_from_json
from replay.store.run_header import from_payload
from replay.store.run_kind import require_plans
from twin.core.plan import Plan
from twin.core.plan_text import plan_text, with_names
from twin.costs.wan_traffic import boundaries, stage_domains
from twin.estimation.estimator import Estimator

MOST = 500_000
"""Most operations of a file; viewers are slow with more."""
RUN, LINKS = 1, 2
"""Process ids of the run's own tracks and of the links; domain k has `DOMAINS` + k."""
DOMAINS = 10


@dataclass(frozen=True, slots=True)
class ChromeTrace:
    """A written trace."""

    run_id: str
    path: Path
    from_s: float
    to_s: float
    iterations: int
    events: int
    stretched: int  # iterations in which a link changed

    def to_json(self) -> Json:
        """Returns the object of `twin trace --json`."""
        own = {name: getattr(self, name) for name in self.__slots__ if name not in ("run_id", "path")}
        return {"schema": "twin.trace/1", "run": self.run_id, "path": str(self.path), **own}


def write(
    store: Path, run_id: str, out: Path, *, from_s: float, to_s: float, progress: Progress = SILENT
) -> ChromeTrace:
    """Writes the trace of [from_s, to_s] of a run to `out`, replacing an older file.

    Raises:
        NotFoundError: no such run, or its data set has left the lake. UsageError: no such window, or more
        than `MOST` operations in it. StorageError: the file cannot be written.
    """
    reader = RunReader(run_index.folder(store, run_id))
    header = from_payload(reader.header())
    require_plans(run_id, header, "a trace")
    prepared, _ = runner.prepare_rerun(store, header, ())
    if not 0 <= from_s < to_s:
        raise UsageError(f"--from {from_s:g} --to {to_s:g}: write a window, such as --from 0 --to 60")
    end_s = prepared.setup.wan.end_ns / NS_PER_S
    if from_s >= end_s:
        raise UsageError(f"--from {from_s:g}: the run goes from 0 to {end_s:g} s")
    trace = TraceFold(prepared, to_ns(from_s), to_ns(to_s), progress)
    fold(reader.events(), trace)
    events = [*trace.names(), *trace.events]
    body = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"run": run_id}}
    durable.write_output(out, json.dumps(body, allow_nan=False, separators=(",", ":")).encode())
    return ChromeTrace(run_id, out, from_s, to_s, trace.iterations, len(events), trace.stretched)


@dataclass
class _Job:
    """State of a job while the log is read."""

    estimator: Estimator
    plan: Plan | None = None


@dataclass
class TraceFold(Fold):
    """Builds trace events from the events of a run, in order; keeps those of the window."""

    prepared: runner.PreparedRun
    from_ns: int
    to_ns: int
    progress: Progress = SILENT
    events: list[Json] = field(default_factory=list)
    iterations: int = 0
    stretched: int = 0

    def __post_init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._names = [domain.name for domain in self.prepared.setup.cluster.domains]
        self._slowdown = np.ones(len(self._names))
        self._tracks: dict[tuple[int, str], int] = {}  # (process, name) -> number
        self.progress.start(None, "trace", "iterations")

    def names(self) -> Iterator[Json]:
        """Yields the names and order of processes and tracks as metadata."""
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
        """Returns the number of a track; jobs never share one, because their operations overlap."""
        key = (pid, f"{job}: {name}" if job else name)
        if key not in self._tracks:
            self._tracks[key] = sum(process == pid for process, _ in self._tracks)
        return self._tracks[key]

    def _job(self, name: str) -> _Job:
        if name not in self._jobs:
            context = runner.context_of(self.prepared.header, self.prepared.setup, name)
            self._jobs[name] = _Job(context.estimator)
        return self._jobs[name]

    def _on_plan_applied(self, event: Event, applied: Json) -> None:
        job = self._job(event.job)
        job.plan = plan_from_json(applied["plan"])
        if applied["pause_ns"]:
            moved = {f"{self._names[i]}>{self._names[j]}": size for i, j, size in applied["moved_bytes"]}
            args = {"plan": plan_text(applied["plan"], self._names), "moved_bytes": moved}
            run = self._track(RUN, "run", event.job)
            self._slice("move", RUN, run, event.sim_ns - applied["pause_ns"], event.sim_ns, args)

    def _on_iteration_done(self, event: Event, done: Json) -> None:
        start, number = done["start_ns"], done["first"]
        for count, length in done["durations"]:
            # Only iterations that overlap the window are simulated.
            first = max(0, (self.from_ns - start) // length)
            last = min(count, -(-(self.to_ns - start) // length))
            for n in range(first, last):
                self._iteration(event.job, number + n, start + n * length, length)
            start, number = start + count * length, number + count

    def _iteration(self, job: str, number: int, start_ns: int, length_ns: int) -> None:
        state, run = self._job(job), self._track(RUN, "run", job)
        if state.plan is None:
            raise DamageError("an iteration comes before any plan in this log; `twin audit` says more")
        self.iterations += 1
        self.progress.advance()
        args = {"plan": str(state.plan)}
        self._slice(f"iteration {number}", RUN, run, start_ns, start_ns + length_ns, args)
        found = simulate(state.estimator, state.plan, self.prepared.setup.wan, start_ns, self._slowdown)
        if found is None:  # it began while a link was dead: its operations are unknown
            return
        operations, whole_ns = found
        ratio = length_ns / whole_ns
        self.stretched += whole_ns != length_ns
        stretching = {} if whole_ns == length_ns else {"stretched": round(ratio, 4)}
        domains, crossings = stage_domains(state.plan), boundaries(state.plan)
        for name, what, where, begin, end in name_operations(operations, state.plan):
            track = self._operation_track(what, where, job, domains, crossings)
            if track is not None:
                begin_ns, end_ns = start_ns + round(begin * ratio), start_ns + round(end * ratio)
                self._slice(name, *track, begin_ns, end_ns, stretching)
        if len(self.events) > MOST:
            raise UsageError(
                f"more than {MOST:,} operations between {self.from_ns / NS_PER_S:g} s and "
                f"{self.to_ns / NS_PER_S:g} s: ask for a shorter window"
            )

    def _operation_track(
        self, what: str, where: int, job: str, domains: list[int], crossings: list[tuple[int, int] | None]
    ) -> tuple[int, int] | None:
        """Returns process and track of an operation; None for a message within a domain (not shown)."""
        if what not in ("down", "up"):
            pid = DOMAINS + domains[where]
            return pid, self._track(pid, f"stage {where}", job)
        pair = crossings[where]
        if pair is None:
            return None
        i, j = pair if what == "down" else pair[::-1]
        return LINKS, self._track(LINKS, f"{self._names[i]} > {self._names[j]}", job)

    def _on_time_lost(self, event: Event, lost: Json) -> None:
        start, run = lost["start_ns"], self._track(RUN, "run", event.job)
        self._slice(f"lost: {lost['reason']}", RUN, run, start, start + lost["lost_ns"], {})

    def _on_decided(self, event: Event, decided: Json) -> None:
        args = {
            "reason": with_names(decided["reason"], self._names),
            "trigger": decided["observation"].get("trigger"),
        }
        name = f"decision {decided['number']}: {decided['action']}"
        self._instant(name, self._track(RUN, "decisions", event.job), event.sim_ns, args)

    def _on_link_failed(self, event: Event, link: Json) -> None:
        name = f"{event.type.replace('_', ' ')}: {self._names[link['src']]} > {self._names[link['dst']]}"
        self._instant(name, self._track(RUN, "links"), event.sim_ns, {})

    _on_link_restored = _on_link_failed

    def _on_link_observed(self, _: Event, observed: Json) -> None:
        at_ns = observed["sampled_ns"]
        if self.from_ns <= at_ns <= self.to_ns:
            for i, j, bandwidth_bps, _sd in observed["samples"]:
                name = f"{self._names[int(i)]} > {self._names[int(j)]} Gb/s"
                args = {"measured": bandwidth_bps / 1e9}
                self.events.append({"name": name, "ph": "C", "ts": at_ns / 1e3, "pid": LINKS, "args": args})

    def _on_domain_slowed(self, _: Event, slowed: Json) -> None:
        self._slowdown[slowed["domain"]] = slowed["factor"]

    def _slice(self, name: str, pid: int, tid: int, start_ns: int, end_ns: int, args: Json) -> None:
        if end_ns > self.from_ns and start_ns < self.to_ns:
            # Viewers add both: their sum is exactly the earliest begin of the next slice.
            start_us, end_us = start_ns / 1e3, end_ns / 1e3
            own = {"ts": start_us, "dur": end_us - start_us, "pid": pid, "tid": tid}
            self.events.append({"name": name, "cat": name.split()[0], "ph": "X", **own, "args": args})

    def _instant(self, name: str, tid: int, at_ns: int, args: Json) -> None:
        if self.from_ns <= at_ns <= self.to_ns:
            own = {"ts": at_ns / 1e3, "pid": RUN, "tid": tid, "s": "t"}
            self.events.append({"name": name, "ph": "i", **own, "args": args})


def _meta(what: str, pid: int, tid: int, **args: str | int) -> Json:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": args}
