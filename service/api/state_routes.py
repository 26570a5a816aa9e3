"""Health, metrics, the whole state, the past at hand, and the stream of events."""

from asyncio import wrap_future
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from ingest.core.errors import NotFoundError
from service.api import errors
from service.api.access import client_of, may, needs, session_of
from service.api.stream import EventStream, Hub
from service.api.tokens import Client
from service.session import overview

router = APIRouter(tags=["state"])
Json = dict[str, Any]
Reader = Annotated[Client, Depends(needs("read"))]


@router.get("/health")
async def health() -> Json:
    """Answers while the process lives."""
    return {"status": "ok"}


NOT_READY = "the log cannot be written, the clock is in doubt, or the run has failed"


@router.get("/ready", responses={503: {"description": NOT_READY}})
async def ready(request: Request) -> JSONResponse:
    """Answers 200 while observations are accepted and decisions are made."""
    session = session_of(request)
    why = session.problem or (str(session.failure) if session.failure else "") or session.clock_watch.problem
    if why:
        return errors.reply(503, "NotReady", why)
    return JSONResponse({"status": "ready", "run": session.run_id, "mode": session.published.mode})


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request, client: Reader) -> Response:
    """Returns the metrics in the text format of Prometheus."""
    text, kind = await wrap_future(session_of(request).ask(request.app.state.metrics.text))
    return Response(text, media_type=kind)


@router.get("/v1/state")
async def state(request: Request, client: Reader) -> Json:
    """Returns the run as a page shows it: domains, links with forecasts, job, plan, order, webhook."""
    session, webhook = session_of(request), request.app.state.webhook
    found = await wrap_future(session.ask(partial(overview.state, session)))
    return {**found, "webhook": None if webhook is None else webhook.to_json()}


@router.get("/v1/history")
async def history(
    request: Request,
    client: Reader,
    what: Literal["decisions", "events", "links", "steps", "costs"] = "decisions",
    since: Annotated[float, Query(ge=0, le=1e12)] = 0.0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    src: Annotated[str, Query(max_length=200)] = "",
    dst: Annotated[str, Query(max_length=200)] = "",
) -> Json:
    """Returns what is kept at hand, the newest last; `src` and `dst` choose a link. `twin sql` has all."""
    session = session_of(request)
    names = [domain.name for domain in session.setup.cluster.domains]
    for name in filter(None, (src, dst)):
        if name not in names:
            raise NotFoundError(f"no domain {name!r}; there are {', '.join(names)}")
    link = (names.index(src), names.index(dst)) if src and dst else None
    rows = await wrap_future(session.ask(partial(overview.history, session, what, since, limit, link)))
    return {"what": what, "rows": rows}


@router.get("/v1/stream", response_class=StreamingResponse)
async def stream(request: Request, client: Reader) -> StreamingResponse:
    """Sends events as they become durable (server-sent events); a client that is too slow for them, or whose
    token is revoked, is let go."""
    hub: Hub = request.app.state.hub
    hub.take_place()
    last = request.headers.get("last-event-id", "")
    after = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None
    head = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    events = hub.events(after, partial(_may_read, request))
    return EventStream(hub, events, media_type="text/event-stream", headers=head)


def _may_read(request: Request) -> bool:
    """True while the token of a request is valid and has the role."""
    client = client_of(request)
    return client is not None and may(client, "read", "GET")
