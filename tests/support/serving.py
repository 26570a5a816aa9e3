"""A decision service on a toy world: three domains d0, d1, d2, constant links, no lake, no network.

Clients of tests get the token here: `asking` in this process, `http` over a socket.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from service import local_token
from service.api.app import ApiSettings
from service.api.tokens import Tokens
from service.session import resumption
from service.session import session as sessions
from service.session.session import Session, SessionSettings
from tests.support.fork_server import PROCESSES
from tests.support.worlds import toy_setup
from twin.scenario.prepare import PreparedScenario

NAMES = ("d0", "d1", "d2")
Json = dict[str, Any]
TOKEN = "token-of-the-tests"
"""The token of services that tests start in their own code; `twin serve` makes one of its own."""
LOCAL = "http://127.0.0.1"


def bearer(token: str = TOKEN) -> dict[str, str]:
    """The header that shows a token."""
    return {"Authorization": f"Bearer {token}"}


def api_settings(**more: Any) -> ApiSettings:
    """Settings of a service whose token is `TOKEN`; `more` are fields of `ApiSettings`."""
    return ApiSettings(**{"tokens": Tokens(None, TOKEN), **more})


def asking(app: FastAPI, token: str = TOKEN, **more: Any) -> TestClient:
    """A client of an application in this process that shows a token; "": none."""
    return TestClient(app, base_url=LOCAL, headers=bearer(token) if token else {}, **more)


def http(address: str, token: str = TOKEN, **more: Any) -> httpx.Client:
    """A client of a service behind a socket that shows a token."""
    return httpx.Client(base_url=address, headers=bearer(token) if token else {}, **{"timeout": 60, **more})


def http_of_twin_serve(address: str, **more: Any) -> httpx.Client:
    """A client of a `twin serve` that this user has started."""
    return http(address, local_token.find(address), **more)


def links(
    bps: float = 2e9, *, at_ns: int | None = None, latency_s: float = 0.05, names: tuple[str, ...] = NAMES
) -> list[Json]:
    """A sample of every link, as a client sends it."""
    now = time.time_ns() if at_ns is None else at_ns
    return [
        {"kind": "link", "epoch_ns": now, "src": a, "dst": b, "bandwidth_bps": bps, "latency_s": latency_s}
        for a, b in permutations(names, 2)
    ]


def observe(session: Session, key: str, items: list[Any]) -> Json:
    """What the session answers to a batch."""
    answer: Json = session.observe(session.reader.batch(key, "test", items)).result(20)
    return answer


def without_lake(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> PreparedScenario:
    """The toy world, which all that prepare a scenario get from now on; `changes` are of its scenario."""
    setup = toy_setup(**changes)
    monkeypatch.setattr(sessions.scenarios, "prepare", lambda *_, **__: setup)
    monkeypatch.setattr(resumption.world_reconstruction, "prepare", lambda *_, **__: setup)
    return setup


def toy_session(
    store: Path, monkeypatch: pytest.MonkeyPatch, *, policy: str = "greedy", mode: str = "shadow",
    order_s: float = 600.0, renew_s: float = 0.0, **changes: Any,
) -> Session:  # fmt: skip
    """A session that has begun; its scenario is prepared without a lake, `changes` are of it."""
    setup = without_lake(monkeypatch, **changes)
    session = Session(store, setup.scenario, SessionSettings(policy, None, mode, order_s, renew_s))
    session.start()
    return session


@contextmanager
def listening(store: Path) -> Iterator[str]:
    """The address of a service of the toy world in a thread of this process."""
    import uvicorn

    from service.api.app import make_app
    from service.console import routes

    with pytest.MonkeyPatch.context() as patch:
        session = toy_session(store, patch)
        app = make_app(session, api_settings())
        routes.mount(app)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        thread = Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        thread.join()
        session.close()


def serve(store: Path, pipe: Connection) -> None:
    """Serves the toy world over a socket of this machine and sends its address; ends by a signal."""
    from service.api import server
    from service.api.app import make_app
    from service.api.limits import RequestLimits

    session = toy_session(store, pytest.MonkeyPatch())
    address = server.ListenAddress(port=0)
    app = make_app(session, api_settings(limits=RequestLimits(per_s=1e6, burst=1e6)))
    server.run(app, address, server.bound(address), pipe.send)
    session.close()


def service(store: Path) -> tuple[BaseProcess, str]:
    """A process that serves the toy world, and its address."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=serve, args=(store, theirs), daemon=True)
    process.start()
    theirs.close()
    if not ours.poll(60):
        process.kill()
        raise TimeoutError("the service did not begin")
    return process, ours.recv()
