"""The queue of a service as it is now, and its jobs as clients read them."""

from itertools import islice
from typing import Any

from ingest.core.units import NS_PER_S
from service.session.job_book import BookedJob, JobBook
from service.session.job_forecast import JobsNow
from service.session.job_roll import JobRoll
from service.session.questions import free_beside, seconds_left
from service.session.session import Session

Json = dict[str, Any]


def jobs_now(session: Session, closed: int, left: int | None) -> tuple[JobsNow, list[BookedJob]]:
    """Returns the queue, and the last jobs that ended or were cancelled. Called by `Session.ask`.

    `left`: tokens that the followed job has still to train; None: nobody knows when it ends.
    """
    assert isinstance(session.jobs, JobBook), "a scenario with several jobs has no queue beside them"
    view, cluster = session.world.glimpse(), session.setup.cluster
    beside = free_beside(view)
    now = JobsNow(
        session.now_epoch_ns(),
        tuple(domain.name for domain in cluster.domains),
        tuple(session.jobs.open.values()),
        tuple(view.free_gpus),
        tuple(alive - free for alive, free in zip(view.free_gpus, beside, strict=True)),
        None if left is None else seconds_left(session, view, left),
    )
    return now, list(islice(reversed(session.jobs.closed.values()), closed))


def listed_jobs(session: Session, closed: int) -> Json:
    """Returns the jobs of a scenario with several, as `/v1/jobs` answers. Called by `Session.ask`."""
    assert isinstance(session.jobs, JobRoll)
    held = [job.held for job in session.world.active]
    return {
        "at": session.now_epoch_ns() / NS_PER_S,
        "scheduler": "priority",
        "free_gpus": {
            domain.name: max(0, alive - sum(taken))
            for domain, alive, *taken in zip(
                session.setup.cluster.domains, session.world.free_gpus, *held, strict=True
            )
        },
        "jobs": session.jobs.lines(session.intake.epoch_ns(0), closed),
    }


def job_line(job: BookedJob, now: JobsNow, found: Json) -> Json:
    """Returns a job with its times in seconds; `found` is what the forecast says of one that waits."""
    on = {name: count for name, count in zip(now.names, job.on, strict=False) if count}
    return {
        "id": job.id, "state": job.state, "gpus": job.gpus, "estimate_s": job.estimate_s, "user": job.user,
        "submitted_at": job.submitted_ns / NS_PER_S, "started_at": _s(job.started_ns),
        "closed_at": _s(job.closed_ns), "on": on or None,
        "starts_in_s": found.get("starts_in_s"), "domain": found.get("domain"),
        "reason": found.get("reason", ""),
    }  # fmt: skip


def _s(ns: int | None) -> float | None:
    return None if ns is None else ns / NS_PER_S
