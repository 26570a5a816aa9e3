"""Waiting jobs of a service: where and when each starts, or why not now; by the kernel of queues over sites.

The kernel (`twin.sites`, which plays the queues of scenarios) has no present: running jobs are given to it as
jobs that started at time 0 on their own GPUs, and GPUs that are free now as jobs that hold them until now.
Waiting jobs are submitted in between, at their own times, so that an order that counts waits counts them.
A job runs on one domain, and as long as its estimate says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingest.core.units import NS_PER_S
from policy.placement.sites import site_choice
from policy.queue.registry import recipe
from service.session.job_book import BookedJob
from twin.queue.jobs import LONGEST_NS, QueueJobs
from twin.sites.inputs import FULL_RATE, NOWHERE, SiteJobs, SiteLinks, SiteOptions
from twin.sites.simulation import SiteWorld, simulate_on_sites

Json = dict[str, Any]
PLACEMENT = "least-loaded"
EARLIEST_NS = NS_PER_S
"""Waiting jobs are submitted so long after what holds GPUs now, and the present is later still."""


@dataclass(frozen=True, slots=True)
class JobsNow:
    """A queue at a time (UTC): the jobs that are open, and the GPUs by domain.

    `alive` work, `held` are those of the job that the service follows, and `left_s` the seconds to its end;
    None: nobody knows.
    """

    now_ns: int
    names: tuple[str, ...]
    jobs: tuple[BookedJob, ...]
    alive: tuple[int, ...]
    held: tuple[int, ...]
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Holder:
    """GPUs by domain for a time from now; None: nobody knows how long."""

    name: str
    on: tuple[int, ...]
    left_ns: int | None


def forecast(now: JobsNow, scheduler: str) -> dict[str, Json]:
    """Returns for each waiting job by id: `starts_in_s`, `domain`, `reason`; None where nobody knows.

    Jobs that cannot start as far as is known hold nobody up.

    Raises:
        UsageError: an unknown scheduler.
    """
    chosen = recipe(scheduler)
    waiting = [job for job in now.jobs if job.state == "waiting"]
    holders = _holders(now)
    endless = [one for one in holders if one.left_ns is None]
    usable = _less(now.alive, endless)
    ending = [one for one in holders if one.left_ns is not None]
    free = _less(usable, ending)
    found = dict[str, Json]()
    able = [job for job in waiting if job.gpus <= max(usable)]
    for job in waiting:
        if job.gpus > max(usable):
            found[job.id] = {"starts_in_s": None, "domain": None, "reason": _never(job, now, endless)}
    if not able:
        return found
    starts = _played(now, able, ending, usable, free, chosen)
    for job, (after_ns, domain) in zip(able, starts, strict=True):
        reason = _reason(job, after_ns, now, free)
        found[job.id] = {
            "starts_in_s": after_ns / NS_PER_S, "domain": now.names[domain], "reason": reason,
        }  # fmt: skip
    return found


def _holders(now: JobsNow) -> list[_Holder]:
    # An end decades away, or behind a dead link, is none: the simulated queue has 64-bit nanoseconds.
    left_s = None if now.left_s is None or now.left_s * NS_PER_S > LONGEST_NS // 2 else now.left_s
    left_ns = None if left_s is None else max(1, round(left_s * NS_PER_S))
    found = [_Holder("the job that is followed", now.held, left_ns)] if any(now.held) else []
    for job in now.jobs:
        if job.state == "running":
            assert job.started_ns is not None
            left = job.started_ns + round(job.estimate_s * NS_PER_S) - now.now_ns
            found.append(_Holder(f"job {job.id}", job.on, left if left > 0 else None))
    return found


def _less(gpus: Sequence[int], holders: Sequence[_Holder]) -> tuple[int, ...]:
    return tuple(max(0, have - sum(one.on[k] for one in holders)) for k, have in enumerate(gpus))


def _played(
    now: JobsNow, waiting: list[BookedJob], ending: list[_Holder], usable: Sequence[int],
    free: Sequence[int], chosen: Any,
) -> list[tuple[int, int]]:  # fmt: skip
    """Returns nanoseconds from now to the start of each waiting job, and its domain."""
    first_ns = min(min(job.submitted_ns for job in waiting), now.now_ns)
    present_ns = now.now_ns - first_ns + 2 * EARLIEST_NS
    domains = len(now.names)
    held = [(one.on, present_ns + (one.left_ns or 0)) for one in ending]
    held += [
        (tuple(free[k] * (k == at) for k in range(domains)), present_ns) for at in range(domains) if free[at]
    ]
    # A site that reports more jobs than it has GPUs is believed: they run.
    gpus = np.maximum(usable, np.sum([on for on, _ in held], axis=0, dtype=np.int64)).astype(np.int64)
    by_size = {size: n for n, size in enumerate(sorted({job.gpus for job in waiting}))}
    needs = [(tuple(size * (k == at) for k in range(domains)), at)
             for size in by_size for at in range(domains) if size <= usable[at]]  # fmt: skip
    counts = [sum(size <= have for have in usable) for size in by_size] + [1] * len(held)
    needs += [(on, int(np.argmax(on))) for on, _ in held]
    options = SiteOptions(
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        np.array([need for need, _ in needs], np.int64).reshape(len(needs), domains),
        np.array([home for _, home in needs], np.int64),
        np.full((1, len(needs)), FULL_RATE, np.int64), np.zeros(len(needs), np.int64),
    )  # fmt: skip
    # What holds GPUs has a size of its own each, so that it goes where it is.
    rows = [(0, ns, sum(on), len(by_size) + n) for n, (on, ns) in enumerate(held)]
    rows += [
        (job.submitted_ns - first_ns + EARLIEST_NS, round(job.estimate_s * NS_PER_S), job.gpus,
         by_size[job.gpus])
        for job in waiting
    ]  # fmt: skip
    order = np.argsort(np.array([row[0] for row in rows], np.int64), kind="stable")
    submit, run, size, kind = (np.array(column, np.int64)[order] for column in zip(*rows, strict=True))
    unknown = np.full(len(rows), -1, np.int64)
    jobs = QueueJobs(
        np.arange(1, len(rows) + 1), submit, run, size, run.copy(), unknown, unknown.copy(), unknown.copy(),
        unknown.copy(),
    )  # fmt: skip
    links = SiteLinks(np.zeros(1, np.int64), np.zeros((1, domains, domains), np.int64),
                      np.zeros((domains, domains), np.int64))  # fmt: skip
    asked = SiteJobs(kind, np.zeros(len(rows), np.int64), np.full(len(rows), NOWHERE, np.int64))
    world = SiteWorld(now.names, gpus, links, options)
    done = simulate_on_sites(jobs, asked, world, chosen, site_choice(PLACEMENT))
    place = np.argsort(order)[len(held) :]
    return [(int(done.start_ns[k]) - present_ns, int(options.home[done.option[k]])) for k in place.tolist()]


def _reason(job: BookedJob, after_ns: int, now: JobsNow, free: Sequence[int]) -> str:
    if after_ns == 0:
        return "it fits now"
    most = max(free)
    at = now.names[free.index(most)]
    if job.gpus <= most:
        return f"{most} GPUs are free in {at}, but jobs before it start first, or would be delayed"
    return f"it needs {job.gpus} GPUs in one domain; at most {most} are free now, in {at}"


def _never(job: BookedJob, now: JobsNow, endless: Sequence[_Holder]) -> str:
    alive = max(now.alive)
    if job.gpus > alive:
        return f"it needs {job.gpus} GPUs in one domain; at most {alive} are alive in one"
    return f"it waits for GPUs of {', '.join(one.name for one in endless[:3])}, whose end nobody knows"


def free_now(now: JobsNow) -> tuple[int, ...]:
    """Returns the GPUs of each domain that nobody holds."""
    return _less(now.alive, _holders(now))
