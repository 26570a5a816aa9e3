"""Decisions: the last one, a new one, a supposed one; admission; mode and rollback."""

from asyncio import wrap_future
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool

from ingest.core.config import suggestion
from ingest.core.errors import NotFoundError, UsageError
from ingest.core.terminal import shown
from service.api.access import needs, session_of
from service.api.schemas import Admission, Current, DryRun, Made, Mode, ModeNow, Queue, Renewed, RollbackBody
from service.api.tokens import Client
from service.session import questions, queue_forecast
from service.session.session import Session

router = APIRouter(prefix="/v1", tags=["decisions"])
Json = dict[str, Any]
Reader = Annotated[Client, Depends(needs("read"))]
Decider = Annotated[Client, Depends(needs("decide"))]
Admin = Annotated[Client, Depends(needs("admin"))]


@router.get("/decision", response_model=Current)
async def decision(request: Request, client: Reader, job: Annotated[str, Query(max_length=200)] = "") -> Json:
    """Returns the last decision, the plan in force, and the order that waits; of several jobs those of `job`,
    or without a name the last decision of all."""
    session = session_of(request)
    now = session.published
    if job and job not in now.jobs:
        raise NotFoundError(f"no job {shown(job)} was submitted; there are {', '.join(now.jobs) or 'none'}")
    found = now.jobs.get(job, now.only)
    return {
        "run": session.run_id,
        "mode": now.mode,
        "at": session.utc(now.now_ns),
        "decision": found.decision if job else now.decision,
        "plan": found.plan,
        "virtual": found.virtual,
        "order": found.order,
        "obstacle": found.obstacle,
    }


@router.post("/decide", response_model=Made)
async def decide(request: Request, client: Decider, job: Annotated[str, Query(max_length=200)] = "") -> Json:
    """Makes a decision now, unless something stands against it, and returns it when it is durable; of several
    jobs about `job`, or about each."""
    return await wrap_future(session_of(request).decide(client.name, job))


@router.post("/dry-run")
async def dry_run(request: Request, client: Reader, question: DryRun | None = None) -> Json:
    """Returns what would be decided now, or if links or GPUs were others, and why it is not done."""
    session, asked = session_of(request), question or DryRun()
    links = {
        (_domain(session, link.src), _domain(session, link.dst)): link.bandwidth_bps for link in asked.links
    }
    gpus = {_domain(session, name): count for name, count in asked.gpus.items()}
    now = await wrap_future(session.ask(partial(questions.moment, session, asked.job)))
    return await run_in_threadpool(questions.dry_run, now, links, gpus)


@router.post("/admission")
async def admission(request: Request, client: Reader, job: Admission) -> Json:
    """Returns when a job that is not submitted yet could start, its tokens/s, its egress and price."""
    session = _with_one_job(request)
    gpus = {_domain(session, name): count for name, count in job.gpus.items()}
    now = await wrap_future(session.ask(partial(questions.moment, session)))
    asked = questions.AdmissionQuestion(
        job.model, job.job, job.tokens, job.present_job_tokens_left, gpus, job.plan
    )
    return await run_in_threadpool(questions.admission, session, now, asked)


@router.post("/queue")
async def queue(request: Request, client: Reader, asked: Queue) -> Json:
    """Returns where and when each of some jobs would start, first come, first served, or why it would not."""
    session = _with_one_job(request)
    now = await wrap_future(session.ask(partial(questions.moment, session)))
    jobs = [queue_forecast.QueuedJob(one.model, one.job, one.tokens) for one in asked.jobs]
    left = asked.present_job_tokens_left
    return {"jobs": await run_in_threadpool(queue_forecast.queue, session, now, jobs, left)}


@router.post("/mode", response_model=ModeNow)
async def mode(request: Request, client: Admin, change: Mode) -> Json:
    """Promotes to active, takes back to shadow, or halts; logged with who and why."""
    return await wrap_future(session_of(request).change_mode(change.mode, change.reason, client.name))


@router.post("/rollback", response_model=ModeNow)
async def rollback(request: Request, client: Admin, why: RollbackBody | None = None) -> Json:
    """Orders the plan that the job ran before the present one; logged with who and why."""
    asked = why or RollbackBody()
    return await wrap_future(session_of(request).roll_back(asked.reason, client.name, asked.job))


def _with_one_job(request: Request) -> Session:
    """Returns the session of a scenario with one job.

    Raises:
        UsageError: it has several.
    """
    session = session_of(request)
    if session.setup.jobs:
        raise UsageError(
            "the scenario has several jobs: what another one would get is not offered beside them; add it to "
            "`jobs` of the scenario and submit it"
        )
    return session


@router.post("/renew", response_model=Renewed)
async def renew(request: Request, client: Admin, why: RollbackBody | None = None) -> Json:
    """Ends the run and goes on in a new one that knows what it knew; 400 while an order waits."""
    reason = "" if why is None else why.reason
    return await wrap_future(session_of(request).renew(reason, client.name))


def _domain(session: Session, name: str) -> int:
    names = [domain.name for domain in session.setup.cluster.domains]
    if name not in names:
        raise NotFoundError(f"no domain {shown(name)}{suggestion(name, names)}")
    return names.index(name)
