"""Decisions: the last one, a new one, a supposed one; admission; mode and rollback."""

from asyncio import wrap_future
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool

from ingest.core.config import suggestion
from ingest.core.errors import NotFoundError
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
async def decision(request: Request, client: Reader) -> Json:
    """Returns the last decision, the plan in force, and the order that waits."""
    session = session_of(request)
    now = session.published
    return {
        "run": session.run_id,
        "mode": now.mode,
        "at": session.utc(now.now_ns),
        "decision": now.decision,
        "plan": now.plan,
        "virtual": now.virtual,
        "order": now.order,
        "obstacle": now.obstacle,
    }


@router.post("/decide", response_model=Made)
async def decide(request: Request, client: Decider) -> Json:
    """Makes a decision now, unless something stands against it, and returns it when it is durable."""
    return await wrap_future(session_of(request).decide(client.name))


@router.post("/dry-run")
async def dry_run(request: Request, client: Reader, question: DryRun | None = None) -> Json:
    """Returns what would be decided now, or if links or GPUs were others, and why it is not done."""
    session, asked = session_of(request), question or DryRun()
    links = {
        (_domain(session, link.src), _domain(session, link.dst)): link.bandwidth_bps for link in asked.links
    }
    gpus = {_domain(session, name): count for name, count in asked.gpus.items()}
    now = await wrap_future(session.ask(partial(questions.moment, session)))
    return await run_in_threadpool(questions.dry_run, now, links, gpus)


@router.post("/admission")
async def admission(request: Request, client: Reader, job: Admission) -> Json:
    """Returns when a job that is not submitted yet could start, its tokens/s, its egress and price."""
    session = session_of(request)
    gpus = {_domain(session, name): count for name, count in job.gpus.items()}
    now = await wrap_future(session.ask(partial(questions.moment, session)))
    asked = questions.AdmissionQuestion(
        job.model, job.job, job.tokens, job.present_job_tokens_left, gpus, job.plan
    )
    return await run_in_threadpool(questions.admission, session, now, asked)


@router.post("/queue")
async def queue(request: Request, client: Reader, asked: Queue) -> Json:
    """Returns where and when each of some jobs would start, first come, first served, or why it would not."""
    session = session_of(request)
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
    reason = "" if why is None else why.reason
    return await wrap_future(session_of(request).roll_back(reason, client.name))


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
