"""The queue of jobs beside the one that is followed: changes in, where and when and why not out."""

from asyncio import wrap_future
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool

from ingest.core import safe_json
from ingest.core.errors import InputError
from ingest.core.units import NS_PER_S
from service.api.access import needs, session_of
from service.api.schemas import JobChanges, JobList
from service.api.tokens import Client
from service.session import job_forecast, job_items, job_list
from service.session.job_book import MOST_ITEMS

router = APIRouter(prefix="/v1", tags=["jobs"])
Json = dict[str, Any]
_ITEM = job_items.json_schema()
_DOCUMENTED = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"anyOf": [
            _ITEM, {"type": "array", "items": _ITEM, "maxItems": MOST_ITEMS},
        ]}}},
    }
}  # fmt: skip


@router.post("/jobs", response_model=JobChanges, openapi_extra=_DOCUMENTED)
async def change_jobs(request: Request, client: Annotated[Client, Depends(needs("push"))]) -> Json:
    """Takes changes of the queue, one or a list: `submit`, `cancel`, and `start` and `end` as the site says.
    Of a scenario with several jobs these are `submit`, `cancel` and `end` with the `id` of a listed job.

    Faulty items are listed with a reason, the good ones are kept; the answer is sent when they are durable.
    A job is known by its `id`: an item that was here before changes nothing and counts as `unchanged`.
    """
    items = await run_in_threadpool(_items, await request.body())
    return await wrap_future(session_of(request).change_jobs(items, client.name))


@router.get("/jobs", response_model=JobList)
async def jobs(
    request: Request,
    client: Annotated[Client, Depends(needs("read"))],
    scheduler: Literal["fcfs", "easy", "easy-sjbf", "sjf", "conservative"] = "easy",
    present_job_tokens_left: Annotated[int | None, Query(ge=1, le=10**18)] = None,
    closed: Annotated[int, Query(ge=0, le=1000)] = 20,
) -> Json:
    """Returns the jobs that wait or run and the last `closed` ones; of those that wait, where and when they
    would start under a scheduler, and why not now. Those of a scenario with several are ordered by priority;
    `/v1/state` has their plans and estimates.
    """
    session = session_of(request)
    if session.setup.jobs:
        return await wrap_future(session.ask(partial(job_list.listed_jobs, session, closed)))
    now, done = await wrap_future(
        session.ask(lambda: job_list.jobs_now(session, closed, present_job_tokens_left))
    )
    found = await run_in_threadpool(job_forecast.forecast, now, scheduler)
    return {
        "at": now.now_ns / NS_PER_S,
        "scheduler": scheduler,
        "free_gpus": dict(zip(now.names, job_forecast.free_now(now), strict=True)),
        "jobs": [job_list.job_line(job, now, found.get(job.id, {})) for job in (*now.jobs, *done)],
    }


def _items(body: bytes) -> list[Any]:
    """Reads a body.

    Raises:
        InputError: it is no JSON, or has too many items.
    """
    try:
        found = safe_json.parsed(body)
    except ValueError as error:
        raise InputError(f"the body is not JSON: {error}") from error
    items = found if isinstance(found, list) else [found]
    if len(items) > MOST_ITEMS:
        raise InputError(f"{len(items)} items in one batch; send at most {MOST_ITEMS}")
    return items
