"""A live run: what it accepts, decides and orders, and how it goes on after it was stopped."""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import NotFoundError, StorageError, UsageError
from replay.audit.audit import audit
from replay.log.run_log import RunReader
from replay.store import run_index
from service.session import overview, questions
from service.session.inbox import StoppedError
from service.session.session import Session
from tests.support.serving import links, observe, toy_session

Start = Callable[..., Session]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Begins sessions on one store; those that are left are closed."""
    begun: list[Session] = []

    def one(**settings: Any) -> Session:
        begun.append(toy_session(tmp_path, monkeypatch, **settings))
        return begun[-1]

    yield one
    for session in begun:
        session.close()


def types(session: Session) -> list[str]:
    return [e.type for e in RunReader(run_index.folder(session.store, session.run_id)).events()]


def test_an_answer_comes_when_the_batch_is_in_the_log(start: Start) -> None:
    session = start()
    assert session.published.decision is not None and session.published.decision["trigger"] == "start"
    answer = observe(session, "a", links())
    assert answer == {"accepted": 6, "refused": [], "duplicate": False}
    assert types(session)[-2:] == ["telemetry_received", "link_observed"]  # with the session still running


def test_bad_items_are_named_with_their_reason_and_the_good_ones_kept(start: Start) -> None:
    session = start()
    good = links()
    late = {**good[0], "epoch_ns": good[0]["epoch_ns"] - 10**6}
    bad = [
        (late, "out of order: 0.001 s behind"),
        (good[0], "a duplicate in time"),
        ({**good[1], "epoch_ns": time.time_ns() + 60 * 10**9}, "from the future"),
        ({**good[1], "epoch_ns": 1}, "from before the run began"),
        ({**good[1], "src": "d9"}, "unknown domain 'd9': there are d0, d1, d2"),
        ({**good[1], "dst": good[1]["src"]}, "a domain and itself"),
        ({**good[1], "bandwidth_bps": math.nan}, "bandwidth_bps nan: outside 0 to 1e+15"),
        ({**good[1], "bandwidth_bps": 10**400}, "outside 0 to 1e+15"),
        ({**good[1], "bandwidth_bps": True}, "a number is needed"),
        ({**good[1], "epoch_ns": "now"}, "epoch_ns: a whole number is needed"),
        ({**good[1], "job": "other"}, "unknown job 'other'"),
        ({"kind": "linc", "epoch_ns": 5}, "kind 'linc': there are link, step, domain, plan"),
        ({"kind": "domain", "epoch_ns": time.time_ns(), "domain": "d0", "gpus": 5}, "gpus 5: outside 0 to 4"),
        ({"kind": "plan", "epoch_ns": time.time_ns(), "state": "running", "plan": {"dp": 1}}, "plan: "),
        (None, "not a JSON object"),
    ]
    answer = observe(session, "a", [*good, *(item for item, _ in bad)])
    assert answer["accepted"] == len(good)
    assert [refused["item"] for refused in answer["refused"]] == [*range(len(good), len(good) + len(bad))]
    for refused, (_, reason) in zip(answer["refused"], bad, strict=True):
        assert reason in refused["reason"]


def test_a_number_that_cannot_be_computed_with_is_refused_with_its_limits(start: Start) -> None:
    session = start()
    now, link = time.time_ns(), links()[0]
    step = {"kind": "step", "epoch_ns": now, "step": 1, "seconds": 1.0}
    plan = {**session.published.plan}
    bad = [
        ({**link, "bandwidth_bps": 5e-324}, "bandwidth_bps 5e-324: outside 1 to 1e+15"),
        ({**link, "bandwidth_bps": -0.5}, "bandwidth_bps -0.5: outside 0 to 1e+15"),
        ({**link, "bandwidth_bps": math.inf}, "bandwidth_bps inf: outside"),
        ({**link, "latency_s": 5e-324}, "latency_s 5e-324: outside 1e-09 to 1e+07"),
        ({**link, "src": "\ud800"}, "unknown domain '\\ud800'"),
        ({**step, "seconds": 5e-324}, "seconds 5e-324: outside 1e-09 to 1e+07"),
        ({**step, "step": 2**63}, "step 9223372036854775808: outside 0 to"),
        ({**step, "compute_s": {"d0": 5e-324}}, "compute_s.d0 5e-324: outside"),
        ({**step, "sent": [["d0", "d1", 1]]}, "each [source, target, bytes, seconds]"),
        ({"kind": "domain", "epoch_ns": now, "domain": "d0", "slowdown": 1e300}, "slowdown 1e+300: outside"),
        (
            {"kind": "plan", "epoch_ns": now, "state": "Running"},
            "state 'Running': there are running, applied",
        ),
        ({"kind": "plan", "epoch_ns": now, "state": "applied"}, "order: a whole number is needed"),
    ]
    for field, value, words in (
        ("p2p", "Blocking", "'blocking', 'overlapped' or 'rendezvous'"),
        ("recompute", "Full", "'none', 'selective' or 'full'"),
        ("schedule", "x", "'gpipe', '1f1b'"),
        ("zero", -1, "0 to 3"),
        ("extra_warmup", 10**18, "0 to 10,000"),
    ):
        report = {"kind": "plan", "epoch_ns": now, "state": "running", "plan": {**plan, field: value}}
        bad.append((report, words))
    answer = observe(session, "a", [item for item, _ in bad])
    assert answer["accepted"] == 0 and len(answer["refused"]) == len(bad)
    for refused, (_, reason) in zip(answer["refused"], bad, strict=True):
        assert reason in refused["reason"]
    assert "telemetry_received" not in types(session), "what is refused costs no event"
    assert session.intake.refused == len(bad)
    assert observe(session, "a", links())["accepted"] == 6  # its key is not used up


def test_a_key_that_was_here_before_changes_nothing_also_after_a_restart(start: Start) -> None:
    first = start()
    items = [*links(), {"kind": "nothing"}]
    answer = observe(first, "a", items)
    assert observe(first, "a", items) == {**answer, "duplicate": True}
    events = first.published.events
    first.close()
    second = start()
    assert second.run_id == first.run_id and second.published.events == events
    assert observe(second, "a", items) == {**answer, "duplicate": True}
    assert second.published.events == events
    refused = observe(second, "b", items)["refused"]
    assert [entry["reason"] for entry in refused[:6]] == ["a duplicate in time"] * 6


def test_a_session_that_is_stopped_goes_on_and_decides_nothing_twice(start: Start, tmp_path: Path) -> None:
    first = start()
    observe(first, "a", links())
    observe(first, "s", [{"kind": "step", "epoch_ns": time.time_ns(), "step": 3, "seconds": 1.5}])
    made = first.decide("me").result(20)
    assert made["made"] and made["decision"]["reasons"] == {"period": [{"pull": "me"}]}
    first.close()
    second = start()
    assert second.published.decisions == first.published.decisions == 2
    assert second.published.decision == made["decision"] | {"latency_s": None}  # it was not made here
    assert second.world.tokens == first.world.tokens > 0
    assert (second.world.link_filter.nis == first.world.link_filter.nis).all()
    observe(second, "b", links(3e9))
    second.close()
    numbers = [e.payload["number"] for e in RunReader(second.run_dir).events() if e.type == "decided"]
    assert numbers == [*range(len(numbers))]
    report = audit(tmp_path, second.run_id)
    assert report.ok, report.findings


def test_an_audit_finds_a_log_whose_decisions_do_not_follow(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = start()
    observe(session, "a", links())
    session.decide().result(20)
    session.close()
    monkeypatch.setattr("twin.world.observed_world.present_links", lambda forecast: [])
    found = audit(tmp_path, session.run_id).findings
    assert [finding.check for finding in found] == ["re-execution"]


def test_a_dead_link_and_lost_gpus_call_for_a_decision_at_once(start: Start) -> None:
    session = start()
    observe(session, "a", links())
    dead = {**links()[0], "bandwidth_bps": 0}
    observe(session, "b", [dead, {"kind": "domain", "epoch_ns": time.time_ns(), "domain": "d2", "gpus": 2}])
    decision = session.published.decision
    assert decision is not None and decision["trigger"] == "failure"
    assert decision["reasons"]["failure"] == [{"link": [0, 1]}, {"domain": 2}]
    assert session.world.glimpse().free_gpus == (4, 4, 2)
    assert session.world.glimpse().forecast.bandwidth_bps[0, 0, 1] == 0
    observe(session, "c", [links()[0]])
    assert session.published.decision is not None and session.published.decision["trigger"] == "repair"


def test_one_link_alone_leaves_the_others_as_they_were(start: Start) -> None:
    session = start()
    before = session.world.link_filter.forecast(10**9).bandwidth_bps[0]
    observe(session, "a", [{**links()[0], "bandwidth_bps": 4e9}])
    after = session.world.link_filter.forecast(10**9).bandwidth_bps[0]
    assert after[0, 1] > 1.5 * before[0, 1]
    assert after[1, 2] == pytest.approx(before[1, 2])


def test_shadow_orders_nothing_and_active_orders_until_the_job_answers(start: Start) -> None:
    session = start()
    assert session.published.order is None and session.published.virtual
    promoted = session.change_mode("active", "trial", "admin").result(20)
    order = promoted["order"]
    assert order["number"] == 0 and order["plan"] == session.published.plan
    held = session.decide().result(20)
    assert not held["made"] and held["obstacle"] == "order 0 waits for the job"
    applied = {"kind": "plan", "epoch_ns": time.time_ns(), "order": 0, "state": "applied", "pause_s": 2.0}
    observe(session, "a", [applied])
    assert session.published.order is None and not session.published.virtual
    assert session.published.decisions == 2  # the one that had been held up
    assert "order_closed" in types(session)


def test_an_order_expires_and_hold_stops_decisions(start: Start) -> None:
    session = start(mode="active", order_s=0.05)
    observe(session, "a", links())
    assert session.published.order is not None
    time.sleep(0.06)
    observe(session, "b", links())
    closed = [row for row in session.state.happened if row["event"] == "order_closed"]
    assert [row["state"] for row in closed] == ["expired"]
    session.change_mode("hold", "stop").result(20)
    before = session.published.decisions
    assert "hold" in session.decide().result(20)["obstacle"]
    assert session.published.decisions == before


def test_a_rollback_orders_the_plan_before(start: Start) -> None:
    session = start(mode="active")
    with pytest.raises(NotFoundError, match="no plan before"):
        session.roll_back("no").result(20)
    plan = session.published.plan
    assert plan is not None
    other = {**plan, "schedule": "gpipe", "extra_warmup": 0}

    def running(key: str, plan: dict[str, Any]) -> None:
        report = {"kind": "plan", "epoch_ns": time.time_ns(), "state": "running", "plan": plan}
        assert observe(session, key, [report])["accepted"] == 1

    running("a", plan)
    running("b", other)
    answer = session.roll_back("slower than before", "admin").result(20)
    assert answer["order"]["plan"] == plan and "slower than before" in answer["order"]["reason"]
    session.change_mode("shadow", "").result(20)
    with pytest.raises(UsageError, match="only an active service"):
        session.roll_back("again").result(20)


def test_steps_are_accounted_for_and_the_accounts_are_audited(start: Start, tmp_path: Path) -> None:
    session = start(mode="active")
    observe(session, "a", links())
    applied = {"kind": "plan", "epoch_ns": time.time_ns(), "order": 0, "state": "applied", "pause_s": 0.01}
    observe(session, "b", [applied])
    for step in range(3):
        time.sleep(0.02)
        seen = {"kind": "step", "epoch_ns": time.time_ns(), "step": step, "seconds": 0.015}
        observe(session, f"s{step}", [seen])
    accounts = session.ask(lambda: overview.state(session)).result(20)["accounts"]
    assert accounts["iterations"] == 3 and accounts["gpu_usd"] > 0 and accounts["energy_j"] > 0
    assert accounts["this_month"]["gpu_usd"] == pytest.approx(accounts["gpu_usd"])
    (hour,) = session.ask(lambda: overview.history(session, "costs", 0, 9, None)).result(20)
    assert hour["tokens"] == accounts["tokens"] == session.world.tokens
    session.close()
    report = audit(tmp_path, session.run_id)
    assert report.ok, report.findings


def test_a_question_changes_nothing(start: Start, tmp_path: Path) -> None:
    session = start()
    observe(session, "a", [*links(), *({"kind": "domain", "epoch_ns": time.time_ns(), "domain": "d0",
                                       "slowdown": 1.4} for _ in range(1))])  # fmt: skip
    now = session.ask(lambda: questions.moment(session)).result(20)
    answer = questions.dry_run(now, {(0, 1): 0.0, (1, 0): 0.0}, {2: 0})
    assert answer["why_not_now"][0] == "the question supposes other links or GPUs"
    assert questions.dry_run(now, {}, {})["plan_in_force"] == session.published.plan
    fitting = questions.admission(
        session, now, questions.AdmissionQuestion("gpt2-1.5b", {"global_batch": 8}, 10**6, 10**6)
    )
    assert fitting["alone"]["tokens_per_s"] > 0 and fitting["alone"]["whole"]["seconds"] > 0
    session.decide().result(20)
    session.close()
    assert audit(tmp_path, session.run_id).ok


def test_a_log_that_cannot_be_written_refuses_and_goes_on_when_it_can(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.session.session.RETRY_S", 0.05)
    session = start()
    observe(session, "a", links())
    flush, full = session._sink.flush, [True]

    def failing() -> None:
        if full[0]:
            raise StorageError("no space left")
        flush()

    monkeypatch.setattr(session._sink, "flush", failing)
    with pytest.raises(StoppedError, match="no space"):
        observe(session, "b", links())
    full[0] = False
    end = time.monotonic() + 10
    while session.problem and time.monotonic() < end:
        time.sleep(0.02)
    assert observe(session, "c", links())["accepted"] == 6
    assert [e.seq for e in RunReader(session.run_dir).events()] == [*range(session.published.events)]


def test_after_the_end_nothing_is_taken(start: Start) -> None:
    session = start()
    session.close()
    with pytest.raises(StoppedError):
        observe(session, "a", links())
