"""Figures that the page asks for: who asks, accounts, and history in columns."""

from asyncio import wrap_future
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request

from service.api.access import needs, session_of
from service.api.tokens import ROLES, Client
from service.console import figures, page

router = APIRouter(prefix="/v1", tags=["console"])
Json = dict[str, Any]
Reader = Annotated[Client, Depends(needs("read"))]


def mount(app: FastAPI) -> None:
    """Gives the application of a session the page and these routes."""
    app.include_router(page.router)
    app.include_router(router)


@router.get("/me")
async def me(client: Reader) -> Json:
    """Returns whose token the request has, and its roles."""
    return {"name": client.name, "roles": [role for role in ROLES if role in client.roles]}


@router.get("/accounts")
async def accounts(request: Request, client: Reader) -> Json:
    """Returns cost, egress and tokens: rates now, measured and expected, sums of this month and the run."""
    session = session_of(request)
    return await wrap_future(session.ask(partial(figures.accounts, session)))


@router.get("/series")
async def series(
    request: Request,
    client: Reader,
    hours: Annotated[float, Query(gt=0, le=24)] = 24.0,
    points: Annotated[int, Query(ge=2, le=1440)] = 480,
) -> Json:
    """Returns step time, rates and each domain's utilisation over the last hours, and the plans in force."""
    session = session_of(request)
    return await wrap_future(session.ask(partial(figures.series, session, hours, points)))
