"""What a training job talks to: observations in, the order that waits out."""

import uuid
from asyncio import wrap_future
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.concurrency import run_in_threadpool

from ingest.core import safe_json
from ingest.core.errors import InputError, NotFoundError
from service.api.access import needs, session_of
from service.api.origins import NDJSON
from service.api.schemas import Accepted, OrderWaiting
from service.api.tokens import Client
from service.session import observation_items
from service.session.observation import Batch
from service.session.session import Session

router = APIRouter(prefix="/v1", tags=["telemetry"])
MOST_ITEMS = 50_000
"""Items of one batch."""
_ITEM = observation_items.json_schema()
_DOCUMENTED = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "anyOf": [
                        {"type": "array", "items": _ITEM, "maxItems": MOST_ITEMS},
                        {"type": "object", "properties": {"observations": {"type": "array", "items": _ITEM}}},
                    ]
                }
            },
            "application/x-ndjson": {"schema": {"type": "string"}},
        },
    }
}


@router.post("/observations", response_model=Accepted, openapi_extra=_DOCUMENTED)
async def observations(
    request: Request,
    client: Annotated[Client, Depends(needs("push"))],
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> dict[str, Any]:
    """Takes a batch: a JSON list, an object with `observations`, or lines of JSON (NDJSON).

    Items that are out of order, from the future, of unknown links, no numbers or doubled are listed with a
    reason; the good ones are kept. The answer is sent when they are durable. A batch with an
    `Idempotency-Key` that was here before changes nothing and gets the same answer.
    """
    body, session = await request.body(), session_of(request)
    lines = request.headers.get("content-type", "").partition(";")[0].strip().lower() in NDJSON
    key = idempotency_key or uuid.uuid4().hex
    batch = await run_in_threadpool(_batch, session, key, client.name, body, lines)
    answer = await wrap_future(session.observe(batch))
    return {"key": key, **answer}


@router.get("/order", response_model=OrderWaiting)
async def order(
    request: Request,
    client: Annotated[Client, Depends(needs("push"))],
    job: Annotated[str, Query(max_length=200)] = "",
) -> dict[str, Any]:
    """Returns the order that waits for a job, for its hook; only an active service gives any. An order
    without a plan says: stop, and give all GPUs back."""
    session = session_of(request)
    found = session.published.jobs.get(job)
    if found is not None:
        return {"order": found.order if found.active else None}
    if not session.setup.jobs:
        raise NotFoundError("the scenario has one job, without a name")
    if job in {one.name for one in session.setup.jobs}:
        return {"order": None}  # it may wait for its submission
    raise NotFoundError(f"job: name one of {', '.join(one.name for one in session.setup.jobs)}")


def _batch(session: Session, key: str, client: str, body: bytes, lines: bool) -> Batch:
    """Reads a body.

    Raises:
        InputError: it is no JSON, or has too many items. A faulty line of NDJSON is only a faulty item.
    """
    items = [_line(line) for line in body.split(b"\n") if line.strip()] if lines else _document(body)
    if len(items) > MOST_ITEMS:
        raise InputError(f"{len(items)} items in one batch; send at most {MOST_ITEMS}")
    return session.reader.batch(key, client, items)


def _line(line: bytes) -> Any:
    try:
        return safe_json.parsed(line)
    except ValueError:
        return None  # no object: refused with its number


def _document(body: bytes) -> list[Any]:
    try:
        found = safe_json.parsed(body)
    except ValueError as error:
        raise InputError(f"the body is not JSON: {error}") from error
    items = found.get("observations") if isinstance(found, dict) else found
    if not isinstance(items, list):
        raise InputError("the body is neither a list of observations nor an object with `observations`")
    return items
