"""A service of a scenario with several jobs: who is there, what each is ordered, who stops for whom."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import NotFoundError, UsageError
from replay.audit.audit import audit
from replay.log.run_log import RunReader
from replay.store import run_index
from service.api.app import make_app
from service.console import routes
from service.session.session import Session
from tests.support.serving import api_settings, asking, links, observe, toy_session

JOBS = [
    {"name": "long"},
    {"name": "short", "submit_s": 60, "tokens": 300_000},  # three steps of 32 x 4096 tokens
    {"name": "urgent", "submit_s": 60, "priority": 1},
]
Start = Callable[..., Session]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Begins sessions of three jobs on one store, where one plan takes all GPUs; those left are closed."""
    begun: list[Session] = []

    def one(**settings: Any) -> Session:
        begun.append(toy_session(tmp_path, monkeypatch, jobs=JOBS, **settings))
        return begun[-1]

    yield one
    for session in begun:
        session.close()


def told(session: Session, kind: str, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = session.change_jobs([{"kind": kind, "id": name}], "test").result(20)
    return answer


def reported(session: Session, job: str, **fields: Any) -> dict[str, Any]:
    seen = {"epoch_ns": time.time_ns(), "job": job, **fields}
    return observe(session, f"{job}-{seen['epoch_ns']}", [seen])


def applied(session: Session, job: str) -> None:
    order = session.published.jobs[job].order
    assert order is not None
    answer = reported(session, job, kind="plan", state="applied", order=order["number"], pause_s=0.0)
    assert answer["accepted"] == 1, answer


def happened(session: Session, job: str) -> list[str]:
    return [e.type for e in RunReader(session.run_dir).events() if e.job == job]


def test_jobs_are_there_from_their_submission_to_their_end_also_after_a_restart(
    start: Start, tmp_path: Path
) -> None:
    first = start()
    assert list(first.published.jobs) == ["long"]  # from the start, as the scenario has it
    assert told(first, "submit", "short") == {"accepted": 1, "unchanged": 0, "refused": []}
    assert "job_submitted" in happened(first, "short")  # durable when it is answered
    assert told(first, "submit", "short")["unchanged"] == 1
    for kind, name, reason in (
        ("submit", "other", "no job 'other' in the scenario: there are long, short, urgent"),
        ("end", "urgent", "no job urgent was submitted"),
        ("start", "short", "says itself what it runs"),
    ):
        assert reason in told(first, kind, name)["refused"][0]["reason"]
    first.close()

    second = start()
    assert second.run_id == first.run_id and list(second.published.jobs) == ["long", "short"]
    assert told(second, "end", "short")["accepted"] == 1
    assert not second.published.jobs["short"].active
    assert "a job is submitted once" in told(second, "submit", "short")["refused"][0]["reason"]
    second.close()
    report = audit(tmp_path, second.run_id)
    assert report.ok, report.findings


def test_a_job_of_greater_priority_takes_the_gpus_when_the_other_has_stopped(
    start: Start, tmp_path: Path
) -> None:
    session = start(mode="active")
    applied(session, "long")
    assert not session.published.jobs["long"].virtual
    told(session, "submit", "urgent")
    long, urgent = session.published.jobs["long"], session.published.jobs["urgent"]
    assert long.order is not None and long.order["plan"] is None and long.order["reason"] == "for urgent"
    assert urgent.order is None and urgent.obstacle == "its next plan waits for long to stop"

    applied(session, "long")
    long, urgent = session.published.jobs["long"], session.published.jobs["urgent"]
    assert long.plan is None and urgent.order is not None and urgent.order["plan"]
    applied(session, "urgent")
    assert happened(session, "long")[-2:] != ["job_preempted"] and "job_preempted" in happened(
        session, "long"
    )
    held = session.world.jobs["urgent"].held
    free = session.world.glimpse("long").free_gpus
    assert all(n + left <= 4 for n, left in zip(held, free, strict=True))

    told(session, "end", "urgent")
    assert session.published.jobs["long"].order is not None  # its GPUs are free again
    session.close()
    report = audit(tmp_path, session.run_id)
    assert report.ok, report.findings


def test_a_job_that_does_not_stop_keeps_its_gpus(start: Start) -> None:
    session = start(mode="active")
    applied(session, "long")
    told(session, "submit", "urgent")
    order = session.published.jobs["long"].order
    assert order is not None
    reported(session, "long", kind="plan", state="refused", order=order["number"], reason="not now")
    assert session.published.jobs["urgent"].obstacle is None
    assert session.published.jobs["long"].plan is not None


def test_each_job_has_its_own_steps_decisions_and_orders(start: Start) -> None:
    session = start(mode="active")
    for job, reason in (("short", "job short was not submitted yet"), ("other", "unknown job 'other'")):
        (refused,) = reported(session, job, kind="step", step=0, seconds=1.0)["refused"]
        assert reason in refused["reason"]
    (refused,) = reported(session, "", kind="step", step=0, seconds=1.0)["refused"]
    assert "name one of long, short, urgent" in refused["reason"]
    with pytest.raises(UsageError, match="name one; in the run now: long"):
        session.roll_back("which").result(20)
    with pytest.raises(NotFoundError, match="no job 'short' is in the run now: long"):
        session.decide(job="short").result(20)

    applied(session, "long")
    told(session, "submit", "short")
    for step in range(3):
        reported(session, "short", kind="step", step=step, seconds=0.001)
    assert session.world.jobs["short"].tokens == 3 * 32 * 4096 and session.world.jobs["long"].tokens == 0
    assert not session.published.jobs["short"].active  # it has trained all its tokens
    made = session.decide(job="long").result(20)
    assert made["made"] and made["decision"]["job"] == "long"


def test_routes_show_all_jobs_and_say_what_they_do_not_offer(start: Start) -> None:
    session = start(mode="active")
    app = make_app(session, api_settings())
    routes.mount(app)
    with asking(app) as client:
        assert client.post("/v1/jobs", json={"kind": "submit", "id": "short"}).json()["accepted"] == 1
        state = client.get("/v1/state").json()
        assert state["listed"] == ["long", "short", "urgent"]
        assert [job["name"] for job in state["jobs"]] == ["long", "short"]
        long = state["jobs"][0]
        assert long["state"] == "placed" and long["decision"]["job"] == "long" and long["order"]["plan"]
        applied(session, "long")
        long = client.get("/v1/state").json()["jobs"][0]
        assert long["state"] == "running" and long["estimate"]["tokens_per_s"] > 0
        assert client.get("/v1/order?job=urgent").json() == {"order": None}
        assert "name one of long, short, urgent" in client.get("/v1/order").json()["message"]
        assert client.get("/v1/decision?job=long").json()["plan"] == long["plan"]
        listed = client.get("/v1/jobs").json()["jobs"]
        assert [(job["id"], job["state"]) for job in listed] == [("long", "running"), ("short", "waiting")]
        assert client.post("/v1/dry-run", json={"job": "long"}).json()["action"]
        refused = client.post("/v1/admission", json={"model": "llama2-7b"})
        assert refused.status_code == 409 and "several jobs" in refused.json()["message"]
        assert client.get("/v1/accounts").json()["expected"]["tokens_per_s"] > 0
        metrics = client.get("/metrics").text
        assert 'twin_job_running{job="long"} 1.0' in metrics and 'twin_job_active{job="short"} 1.0' in metrics


def test_a_renewed_run_has_the_same_jobs(start: Start, tmp_path: Path) -> None:
    first = start()
    reported(first, "long", kind="plan", state="running", plan=first.published.jobs["long"].plan)
    told(first, "submit", "short")
    told(first, "end", "short")
    told(first, "submit", "urgent")
    old, plans = first.run_id, {name: job.plan for name, job in first.published.jobs.items()}
    first.renew("test").result(20)
    assert first.run_id != old
    assert {name: job.plan for name, job in first.published.jobs.items()} == plans
    assert not first.published.jobs["short"].active and not first.published.jobs["long"].virtual
    assert told(first, "submit", "short")["refused"][0]["reason"].startswith("job short has ended")
    for run in (old, first.run_id):
        assert audit(tmp_path, run).ok
    first.close()
    again = start()
    assert again.run_id == first.run_id
    assert {name: job.plan for name, job in again.published.jobs.items()} == plans


def test_a_run_without_a_decision_keeps_what_it_acknowledged(start: Start, tmp_path: Path) -> None:
    """When all jobs have ended, a renewed run takes observations and decides nothing."""
    session = start()
    for name in ("long", "short", "urgent"):
        told(session, "end", name)
    session.renew("test").result(20)
    assert observe(session, "acknowledged", links())["accepted"] == 6
    events = session.published.events
    # The folder as it lies on the disk now: what a kill would leave.
    copy = tmp_path.parent / f"{tmp_path.name}-killed"
    shutil.copytree(session.store, copy)
    kinds = [event.type for event in RunReader(run_index.folder(copy, session.run_id)).events()]
    assert len(kinds) == events and "telemetry_received" in kinds and "decided" not in kinds

    session.renew("test").result(20)  # the run ends without a decision, the service goes on
    assert session.failure is None and observe(session, "next", links())["accepted"] == 6
    session.close()
    again = start()
    assert again.run_id == session.run_id and observe(again, "next", links())["duplicate"] is True
    again.close()
    assert audit(again.store, again.run_id).ok
