"""A run of a service is renewed: another takes its place and knows what it knew."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import UsageError
from replay.audit.audit import audit
from replay.log.run_log import RunReader
from replay.store import run_index
from service.session.session import Session
from tests.support.serving import links, observe, toy_session

JOB = {"kind": "submit", "id": "waits", "gpus": 1, "estimate_s": 60}


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    session = toy_session(tmp_path, monkeypatch)
    yield session
    session.close()


def events(session: Session, run: str) -> list[Any]:
    return list(RunReader(run_index.folder(session.store, run)).events())


def step(number: int, epoch_ns: int) -> dict[str, Any]:
    return {"kind": "step", "epoch_ns": epoch_ns, "step": number, "seconds": 1.0}


def test_the_new_run_knows_what_the_old_one_knew(session: Session, tmp_path: Path) -> None:
    batch = links(3e9)
    lost = {"kind": "domain", "epoch_ns": batch[0]["epoch_ns"], "domain": "d1", "gpus": 3}
    observe(session, "a", [*batch, lost])
    decided = session.published.only.plan
    reported = {"kind": "plan", "state": "running", "plan": decided, "epoch_ns": session.now_epoch_ns()}
    observe(session, "b", [reported, step(0, session.now_epoch_ns())])
    session.change_jobs([JOB]).result(20)
    session.change_mode("active", "test").result(20)
    old, state = session.run_id, session.state
    answer = session.renew("test", "me").result(20)
    assert answer == {"ended": old, "run": session.run_id} and session.run_id != old
    assert observe(session, "a", batch)["duplicate"]  # known again by its key
    job = session.published.only
    assert session.state is not state and session.published.mode == "active"
    assert job.plan == decided and not job.virtual
    assert session.world.free_gpus[1] == 3 and "waits" in session.jobs.open
    assert {pair: kept[-1][1] for pair, kept in session.state.links.items()} == dict.fromkeys(
        state.links, 3e9
    )
    new = observe(session, "c", [*links(3e9), step(1, session.now_epoch_ns())])
    assert new["accepted"] == len(batch) + 1, new
    assert [e.type for e in events(session, old)[-2:]] == ["renewal_requested", "run_finished"]
    kinds = [e.type for e in events(session, session.run_id)]
    assert kinds[:2] == ["run_started", "run_continued"]
    for run in (old, session.run_id):
        assert audit(tmp_path, run).ok


def test_late_samples_are_taken_and_doubled_ones_are_not(session: Session) -> None:
    first, second = links(2e9), links(2e9)
    observe(session, "a", first[:1])
    session.renew("test").result(20)
    answer = observe(session, "b", [first[0], second[0], first[1]])
    assert answer["accepted"] == 2  # the second sample, and one that comes late
    assert [one["reason"] for one in answer["refused"]] == ["a duplicate in time"]


def test_a_service_that_was_killed_between_two_runs_begins_the_second(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe(session, "a", links(3e9))
    session.change_jobs([JOB]).result(20)
    monkeypatch.setattr(Session, "_renew", lambda _: (_ for _ in ()).throw(UsageError("killed")))
    renewal, old = session.renew("test"), session.run_id
    with pytest.raises(Exception, match="killed"):
        renewal.result(20)
    monkeypatch.undo()
    again = toy_session(session.store, monkeypatch)
    assert again.run_id != old and "waits" in again.jobs.open and len(again.state.links) == 6
    assert events(again, again.run_id)[1].payload["after"] == old
    again.close()
    third = toy_session(session.store, monkeypatch)
    assert third.run_id == again.run_id
    third.close()


def test_no_run_is_renewed_while_an_order_waits(session: Session) -> None:
    observe(session, "a", links())
    session.change_mode("active", "test").result(20)
    assert session.published.only.order is not None
    with pytest.raises(UsageError, match="order 0 waits for the job"):
        session.renew("test").result(20)


def test_orders_go_on_counting(session: Session) -> None:
    observe(session, "a", links())
    session.change_mode("active", "test").result(20)
    applied = {
        "kind": "plan",
        "epoch_ns": session.now_epoch_ns(),
        "state": "applied",
        "order": 0,
        "pause_s": 1.0,
    }
    observe(session, "b", [{**applied, "epoch_ns": session.now_epoch_ns()}])
    session.renew("test").result(20)
    assert session.world.jobs[""].orders.next_number == 1


def test_a_run_is_renewed_when_it_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = toy_session(tmp_path, monkeypatch, renew_s=1e-6)
    old = session.run_id
    observe(session, "a", links())
    observe(session, "b", links())
    assert session.run_id != old
    session.close()
