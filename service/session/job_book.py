"""Jobs of the queue that a service keeps: submitted by clients, started and ended as the site reports.

An item of a batch is a JSON object with `kind`: `submit` (`id`, `gpus`, `estimate_s`, may have `user`),
`cancel`, `start` (`gpus` by domain) or `end`, with the `id` of the job; `epoch_ns` is the time of the change,
without it the service's own. A faulty item is an answer, never an error of the batch. What a job is known by
is its id: the same item once more changes nothing.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ingest.core.terminal import clipped, shown
from ingest.core.units import NS_PER_S
from replay.log.events import Event
from service.session.job_items import KINDS, fault_of
from service.session.reported_time import AHEAD_NS

Json = dict[str, Any]
JobState = Literal["waiting", "running", "ended", "cancelled"]
MOST_OPEN = 2_000
"""Jobs that may wait or run; more are refused."""
KEPT_CLOSED = 10_000
"""Ended and cancelled jobs that are known again by their id."""
MOST_ITEMS = 5_000
"""Items of one batch."""


@dataclass(frozen=True, slots=True)
class BookedJob:
    """A job with its GPUs and estimate, and when it changed (epoch, ns); `on`: GPUs by domain once it ran."""

    id: str
    gpus: int
    estimate_s: float
    user: str
    state: JobState
    submitted_ns: int
    started_ns: int | None = None
    closed_ns: int | None = None
    on: tuple[int, ...] = ()


class JobBook:
    """Jobs of a service by id; the changes in its log bring it to where it was.

    `domains` are the GPUs of each domain by name, in the order of the cluster.
    """

    def __init__(self, domains: Mapping[str, int]) -> None:
        self._domains = dict(domains)
        self.open: dict[str, BookedJob] = {}
        self.closed: OrderedDict[str, BookedJob] = OrderedDict()

    def judged(self, items: Sequence[Any], now_ns: int) -> tuple[list[Json], Json]:
        """Returns the changes that a batch makes, for `take`, and the answer; `now_ns` is UTC.

        An item sees what the items before it have changed. Nothing is changed yet.
        """
        seen = _Overlay(self)
        changes, refused, unchanged = list[Json](), list[Json](), 0
        for number, item in enumerate(items):
            try:
                change = self._change(item, now_ns, seen)
            except _RefusalError as error:
                refused.append({"item": number, "reason": str(error)})
                continue
            if change is None:
                unchanged += 1
                continue
            changes.append(change)
            seen.changed(_after(seen.job(change["id"]), change))
        return changes, {"accepted": len(changes), "unchanged": unchanged, "refused": refused}

    def take(self, changes: Sequence[Json]) -> None:
        """Makes changes that are part of the log, or will be."""
        for change in changes:
            name = change["id"]
            job = _after(self.open.pop(name, None), change)
            if job.state in ("waiting", "running"):
                self.open[name] = job
                self.closed.pop(name, None)
            else:
                self.closed[name] = job
                if len(self.closed) > KEPT_CLOSED:
                    self.closed.popitem(last=False)

    def opening(self, before: Iterable[Event], _now_ns: int) -> list[Json]:
        """Returns the first changes of a new run: the open jobs of the run whose events are `before`."""
        self.take([one for e in before if e.type == "jobs_changed" for one in e.payload["changes"]])
        return self.carried()

    def carried(self) -> list[Json]:
        """Returns the changes that give an empty book the open jobs of this one, for a new run."""
        found = list[Json]()
        for job in self.open.values():
            found.append(
                {"kind": "submit", "id": job.id, "epoch_ns": job.submitted_ns, "gpus": job.gpus,
                 "estimate_s": job.estimate_s, "user": job.user}
            )  # fmt: skip
            if job.started_ns is not None:
                found.append(
                    {"kind": "start", "id": job.id, "epoch_ns": job.started_ns, "gpus": list(job.on)}
                )
        return found

    def _change(self, item: Any, now_ns: int, seen: "_Overlay") -> Json | None:
        """Returns the change that an item makes; None: it was made before."""
        if not isinstance(item, dict):
            raise _RefusalError("not a JSON object")
        kind, name = item.get("kind"), item.get("id")
        if not isinstance(kind, str) or kind not in KINDS:
            raise _RefusalError(f"kind {shown(clipped(str(kind), 60))}: there are {', '.join(KINDS)}")
        if fault := fault_of(item):
            raise _RefusalError(fault)
        assert isinstance(name, str)
        job, ns = seen.job(name), _time(item, now_ns)
        if kind == "submit":
            return self._submitted(item, name, ns, job, seen)
        if job is None:
            raise _RefusalError(f"no job {name} was submitted")
        change: Json = {"kind": kind, "id": name, "epoch_ns": ns}
        if kind == "cancel":
            return None if job.state == "cancelled" else _from(job, "waiting", change)
        if kind == "end":
            if job.state == "ended":
                return None
            if job.started_ns is not None and ns < job.started_ns:
                raise _RefusalError("epoch_ns: it would end before it started")
            return _from(job, "running", change)
        on = self._on(item["gpus"], job)
        if job.state == "running" and job.on == tuple(on):
            return None
        if ns < job.submitted_ns:
            raise _RefusalError("epoch_ns: it would start before it was submitted")
        return _from(job, "waiting", {**change, "gpus": on})

    def _submitted(
        self, item: Json, name: str, ns: int, job: BookedJob | None, seen: "_Overlay"
    ) -> Json | None:
        largest = max(self._domains.values())
        gpus = item["gpus"]
        if not 1 <= gpus <= largest:
            raise _RefusalError(f"gpus: a whole number from 1 to {largest}, the largest domain, is needed")
        asked = (gpus, float(item["estimate_s"]), item.get("user", ""))
        if job is not None:
            if asked == (job.gpus, job.estimate_s, job.user):
                return None
            raise _RefusalError(f"job {name} was submitted with other figures; take another id")
        if seen.open >= MOST_OPEN:
            raise _RefusalError(f"{MOST_OPEN:,} jobs wait or run already")
        figures = dict(zip(("gpus", "estimate_s", "user"), asked, strict=True))
        return {"kind": "submit", "id": name, "epoch_ns": ns, **figures}

    def _on(self, gpus: dict[str, int], job: BookedJob) -> list[int]:
        """Returns the GPUs of each domain on which a job started."""
        if not gpus:
            raise _RefusalError('gpus: GPUs by domain are needed, as {"NAME": 4}')
        for name, count in gpus.items():
            if name not in self._domains:
                known = ", ".join(self._domains)
                raise _RefusalError(f"unknown domain {shown(clipped(name, 60))}: there are {known}")
            if count > self._domains[name]:
                raise _RefusalError(
                    f"gpus of {name}: a whole number from 0 to {self._domains[name]} is needed"
                )
        on = [gpus.get(name, 0) for name in self._domains]
        if sum(on) != job.gpus:
            raise _RefusalError(f"{sum(on)} GPUs; job {job.id} asked for {job.gpus}")
        return on


class _RefusalError(Exception):
    """An item is not accepted, and why."""


class _Overlay:
    """Jobs as they are after the items of a batch so far."""

    def __init__(self, book: JobBook) -> None:
        self._book, self._changed = book, dict[str, BookedJob]()
        self.open = len(book.open)

    def job(self, name: str) -> BookedJob | None:
        """Returns the job of an id; None: there is none."""
        return self._changed.get(name) or self._book.open.get(name) or self._book.closed.get(name)

    def changed(self, job: BookedJob) -> None:
        """Takes a job as it is now."""
        self.open += {"waiting": 1, "running": 0, "ended": -1, "cancelled": -1}[job.state]
        self._changed[job.id] = job


def _from(job: BookedJob, state: JobState, change: Json) -> Json:
    if job.state != state:
        raise _RefusalError(f"{change['kind']}: job {job.id} is {job.state}, not {state}")
    return change


def _time(item: Json, now_ns: int) -> int:
    """Time of a change, at most now."""
    given = item.get("epoch_ns")
    ns: int = now_ns if given is None else given
    if ns > now_ns + AHEAD_NS:
        ahead_s = (ns - now_ns) / NS_PER_S
        raise _RefusalError(f"from the future: {ahead_s:.1f} s ahead of the service's clock")
    return min(ns, now_ns)


def _after(job: BookedJob | None, change: Json) -> BookedJob:
    """Returns a job after a change of the log."""
    kind, ns = change["kind"], change["epoch_ns"]
    if kind == "submit":
        return BookedJob(
            change["id"], change["gpus"], float(change["estimate_s"]), change["user"], "waiting", ns
        )
    assert job is not None, "a change of a job that was never submitted is refused"
    if kind == "start":
        return replace(job, state="running", started_ns=ns, on=tuple(change["gpus"]))
    return replace(job, state="ended" if kind == "end" else "cancelled", closed_ns=ns)
