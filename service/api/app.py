"""The application: routes, limits, errors, and what hangs on the life of the event loop."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fastapi import FastAPI

from replay.store.run_header import code_version
from service.api import decision_routes, errors, job_routes, state_routes, telemetry_routes
from service.api.limits import LimitBody, LimitRate, RequestLimits
from service.api.metrics import ServiceMetrics
from service.api.origins import CheckOrigin
from service.api.stream import Hub
from service.api.tokens import Tokens
from service.api.webhook import Webhook
from service.session.session import Session
from service.sources.feeder import Feeder


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Tokens and limits of requests; `hosts` are names of this service other than loopback names."""

    tokens: Tokens = field(default_factory=lambda: Tokens(None))
    limits: RequestLimits = field(default_factory=RequestLimits)
    hosts: tuple[str, ...] = ()


def make_app(
    session: Session,
    settings: ApiSettings,
    feeders: Sequence[Feeder] = (),
    webhook: Webhook | None = None,
) -> FastAPI:
    """Returns the application of a session that has been started and is fed by `feeders`; `webhook` posts its
    events."""
    hub = Hub()

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        hub.attach()
        yield
        hub.close()

    app = FastAPI(
        title="twin serve",
        version=code_version()["version"],
        description="Decision service of a digital twin: telemetry in, plans out.",
        lifespan=life,
        redoc_url=None,
        docs_url=None,  # its page loads scripts from elsewhere
        responses={400: {"description": "twin.error/1"}, 401: {"description": "twin.error/1"}},
    )
    app.state.session, app.state.tokens, app.state.hub = session, settings.tokens, hub
    app.state.metrics, app.state.webhook = ServiceMetrics(session, hub, feeders, webhook), webhook
    session.listeners.append(hub.publish)
    for part in (state_routes, telemetry_routes, decision_routes, job_routes):
        app.include_router(part.router)
    errors.install(app)
    app.add_middleware(LimitBody, limits=settings.limits)
    app.add_middleware(CheckOrigin, hosts=settings.hosts)
    app.add_middleware(LimitRate, limits=settings.limits)
    return app
