"""Any requests in any order: the service lives, answers 2xx or 4xx, and its log can be gone on with.

`TWIN_FUZZ=20000` sets the number of requests; the default keeps the suite short.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from replay.audit.audit import audit
from service.api.app import ApiSettings, make_app
from service.api.limits import RequestLimits
from service.console import routes
from service.session.session import Session, SessionSettings
from tests.support.border_requests import Sent, requests
from tests.support.serving import links, toy_session

REQUESTS = int(os.environ.get("TWIN_FUZZ", "500"))
BATCH = 20
EVERY = 5 if REQUESTS <= 1000 else 20
"""Batches between two kills."""
LIMITS = ApiSettings(limits=RequestLimits(per_s=1e9, burst=1e9))
QUIET = "ignore:.*(overflow|underflow|divide by zero|invalid value).*:RuntimeWarning"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        one = toy_session(tmp_path_factory.mktemp("border"), patch)
        yield one
        one.close()


@pytest.fixture(scope="module")
def client(session: Session) -> Iterator[TestClient]:
    app = make_app(session, LIMITS)
    routes.mount(app)
    with TestClient(app, raise_server_exceptions=False) as one:
        yield one


def known(session: Session) -> dict[str, Any]:
    """What a client may have been told of the state of a run."""
    published = session.ask(lambda: session.published).result(60)
    jobs = session.ask(lambda: session.jobs.carried()).result(60)
    now = {name: asdict(job) for name, job in published.jobs.items()}
    for job in now.values():
        job["decision"] = job["decision"] and {**job["decision"], "latency_s": 0}
    forecast = session.ask(lambda: session.world.link_filter.forecast(session.world.now_ns)).result(60)
    return {
        "run": session.run_id,
        "mode": published.mode,
        "decisions": published.decisions,
        "tokens": published.tokens,
        "events": published.events,
        "accepted": session.intake.accepted,
        "jobs": now,
        "queue": jobs,
        "links": forecast.bandwidth_bps.tolist(),
    }


def killed(session: Session, folder: Path) -> None:
    """What lies on the disk now, as after a kill, is gone on with: in the same state, and audited."""
    before = known(session)
    shutil.copytree(session.store, folder)
    again = Session(folder, session.setup.scenario, SessionSettings(session.settings.policy, renew_s=0))
    again.inbox.period_ns = 2**62  # its own clock decides nothing
    again.start()
    try:
        assert known(again) == before
    finally:
        again.close()
    report = audit(folder, again.run_id)
    assert report.ok, report
    shutil.rmtree(folder)


def test_requests_from_the_border_leave_the_service_alive_and_its_log_sound(
    session: Session, client: TestClient, tmp_path: Path
) -> None:
    session.inbox.period_ns = 2**62
    answers, batches = Counter[str](), 0
    sent = requests(client.get("/openapi.json").json())

    @pytest.mark.filterwarnings(QUIET)
    @settings(
        max_examples=max(1, REQUESTS // BATCH), deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    @given(st.lists(sent, min_size=BATCH, max_size=BATCH))
    def batch(these: list[Sent]) -> None:
        nonlocal batches
        for one in these:
            answer = client.request(
                one.method, one.path, params=one.query, headers=one.head, content=one.content(session)
            )
            answers[f"{answer.status_code // 100}xx"] += 1
            if one.path == "/v1/observations" and answer.status_code == 200:
                answers["accepted"] += answer.json()["accepted"]
            assert "set aside" not in answer.text, (one.method, one.path, answer.text, str(one.body)[:2000])
            assert answer.status_code < 500, (
                one.method,
                one.path,
                one.query,
                answer.text,
                str(one.body)[:2000],
            )
        assert client.get("/health").status_code == 200 and session.failure is None
        batches += 1
        if batches % EVERY == 0:
            killed(session, tmp_path / "killed")

    batch()
    killed(session, tmp_path / "last")
    client.post("/v1/observations", json=links()).raise_for_status()
    assert answers["2xx"] + answers["4xx"] == REQUESTS // BATCH * BATCH, answers
    assert answers["accepted"] > REQUESTS // 20, answers
    print(dict(answers))
