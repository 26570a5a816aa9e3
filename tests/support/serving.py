"""A decision service on a toy world: three domains d0, d1, d2, constant links, no lake, no network."""

import time
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from service.session import session as sessions
from service.session.session import Session, SessionSettings
from tests.support.worlds import toy_setup

NAMES = ("d0", "d1", "d2")
Json = dict[str, Any]


def links(bps: float = 2e9, *, at_ns: int | None = None, latency_s: float = 0.05) -> list[Json]:
    """A sample of every link, as a client sends it."""
    now = time.time_ns() if at_ns is None else at_ns
    return [
        {"kind": "link", "epoch_ns": now, "src": a, "dst": b, "bandwidth_bps": bps, "latency_s": latency_s}
        for a, b in permutations(NAMES, 2)
    ]


def observe(session: Session, key: str, items: list[Any]) -> Json:
    """What the session answers to a batch."""
    answer: Json = session.observe(session.reader.batch(key, "test", items)).result(20)
    return answer


def toy_session(
    store: Path, monkeypatch: pytest.MonkeyPatch, *, policy: str = "greedy", mode: str = "shadow",
    order_s: float = 600.0,
) -> Session:  # fmt: skip
    """A session that has begun; its scenario is prepared without a lake."""
    setup = toy_setup()
    monkeypatch.setattr(sessions.scenarios, "prepare", lambda *_, **__: setup)
    monkeypatch.setattr(sessions.world_reconstruction, "prepare", lambda *_, **__: setup)
    session = Session(store, setup.scenario, SessionSettings(policy, None, mode, order_s))
    session.start()
    return session
