"""The audit: clean on an honest run, and every way of being dishonest is found and named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import NotFoundError, UsageError
from replay.audit import audit
from replay.audit.conservation import Accounts
from replay.log.run_log import RunReader, RunWriter
from replay.run import runner
from replay.store import run_index
from tests.support.toys import Peeking, prepare, register, toy_run, without_lake
from tests.support.worlds import toy_scenario

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_lake(monkeypatch)
    return tmp_path / "store"


def forged(store: Path, kind: str, change: Change, nth: int = 0) -> tuple[str, int]:
    """A run in which one event was changed and every hash made to fit; its id and the event's number."""
    honest = toy_run(store, "greedy").run_id
    reader = RunReader(run_index.folder(store, honest))
    events = list(reader.events())
    changed = [event for event in events if event.type == kind][nth]
    change(changed.payload)
    with RunWriter.create(run_index.folder(store, "forged")) as writer:
        for event in events[:-1]:
            writer.append(event.sim_ns, event.type, event.payload, wall=event.wall)
        writer.finish(events[-1].payload["totals"], sim_ns=events[-1].sim_ns)
    return "forged", changed.seq


@pytest.mark.parametrize("policy", ["static", "single", "greedy", "mpc", "hippo"])
def test_an_honest_run_is_clean(store: Path, policy: str) -> None:
    done = toy_run(store, policy)
    report = audit.audit(store, done.run_id, chain_head=done.chain_head)
    assert report.ok, report.findings
    assert (report.digest, report.chain_head) == (done.digest, done.chain_head)
    shown = json.loads(json.dumps(report.to_json()))
    assert shown["schema"] == "twin.audit/1" and shown["ok"] is True and shown["findings"] == []


def test_faults_and_the_event_engine_are_audited_too(store: Path) -> None:
    faults = [{"domain": "d1", "gpus": 4, "at_s": 150, "for_s": 200}]
    done = runner.run(store, policy="greedy", scenario=toy_scenario(gpu_faults=faults), engine="des")
    report = audit.audit(store, done.run_id)
    assert report.ok, report.findings
    assert done.kpis.tokens > 0


def test_missed_deadlines_are_inputs_that_the_re_execution_takes_from_the_log(store: Path) -> None:
    hurried = toy_scenario(control={"period_s": 60, "horizons_s": [0, 60, 300], "deadline_s": 1e-9})
    done = runner.run(store, policy="greedy", scenario=hurried, enforce_deadline=True)
    assert done.kpis.fallbacks == done.kpis.late == done.kpis.decisions > 5 and done.kpis.moves == 0
    report = audit.audit(store, done.run_id)
    assert report.ok, report.findings


@pytest.mark.parametrize("suffix", [".parquet", ".json"])
def test_one_flipped_byte_is_detected_and_the_file_named(store: Path, suffix: str) -> None:
    done = toy_run(store, "static")
    path = max(run_index.folder(store, done.run_id).glob(f"*{suffix}"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    report = audit.audit(store, done.run_id)
    assert not report.ok and path.name in report.findings[0].problem


def test_a_cut_tail_needs_the_chain_head(store: Path) -> None:
    done = toy_run(store, "static")
    folder = run_index.folder(store, done.run_id)
    max(folder.glob("*.json")).unlink()
    max(folder.glob("*.parquet")).unlink()
    report = audit.audit(store, done.run_id, chain_head=done.chain_head)
    assert not report.ok and report.findings[0].check == "chain"


@pytest.mark.parametrize("kept", ["", "0" * 63, "0" * 65, "g" * 64, "A" * 64, "0" * 64 + "\n"])
def test_what_no_chain_can_hold_is_a_slip_of_the_pen_and_no_damage(store: Path, kept: str) -> None:
    done = toy_run(store, "static")
    with pytest.raises(UsageError, match="64 digits"):
        audit.audit(store, done.run_id, chain_head=kept)


def test_events_after_the_last_are_not_called_clean(store: Path) -> None:
    done = toy_run(store, "static")
    end = RunReader(run_index.folder(store, done.run_id)).contents().end
    assert audit.audit(store, done.run_id, since=end - 1).events == 1
    with pytest.raises(UsageError, match=rf"--since {end}: the last event of .* is {end - 1}"):
        audit.audit(store, done.run_id, since=end)
    with pytest.raises(UsageError, match=rf"is {end - 1}"):
        audit.audit(store, done.run_id, since=end + 100)


def more_money(payload: dict[str, Any]) -> None:
    payload["egress_usd"] *= 1.01


def more_tokens(payload: dict[str, Any]) -> None:
    payload["tokens"] += 1


def another_sample(payload: dict[str, Any]) -> None:
    payload["samples"][0][2] *= 1.5


def another_reason(payload: dict[str, Any]) -> None:
    payload["reason"] = "because"


@pytest.mark.parametrize(
    ("kind", "nth", "change"),
    [
        ("iteration_done", 1, more_money),
        ("iteration_done", 1, more_tokens),
        ("link_observed", 3, another_sample),
        ("decided", 2, another_reason),
    ],
)
def test_a_forged_event_is_named_by_the_re_execution(
    store: Path, kind: str, nth: int, change: Change
) -> None:
    run_id, seq = forged(store, kind, change, nth)
    report = audit.audit(store, run_id)
    (found,) = [finding for finding in report.findings if finding.check == "re-execution"]
    assert f"event {seq} differs" in found.problem and kind in found.problem


@pytest.mark.parametrize("change", [more_money, more_tokens])
def test_accounts_that_do_not_add_up_are_named_from_the_events_alone(store: Path, change: Change) -> None:
    run_id, seq = forged(store, "iteration_done", change, 1)
    problems = Accounts().check(RunReader(run_index.folder(store, run_id)).events())
    assert any(f"event {seq} (iteration_done)" in problem for problem in problems)
    assert any("totals." in problem for problem in problems)


def test_a_policy_that_knows_the_future_is_found(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "peeking", "Peeking")
    real = runner.World

    def knowing(setup: Any, **arguments: Any) -> Any:
        Peeking.future = setup.wan
        return real(setup, **arguments)

    monkeypatch.setattr(runner, "World", knowing)
    done = toy_run(store, "peeking")
    (found,) = audit.audit(store, done.run_id).findings
    assert found.check == "look-ahead" and "depends on what happened after" in found.problem


def test_the_other_future_shares_the_past() -> None:
    setup = prepare(toy_scenario(), Path())
    cut = 300 * 10**9
    other = audit.other_future(setup, cut)
    for pair, link in setup.wan.series.items():
        there = other.wan.series[pair]
        for at in (0, 200 * 10**9, cut):
            assert link.bandwidth_bps[link.index(at)] == there.bandwidth_bps[there.index(at)]
        assert link.bandwidth_bps[link.index(cut + 1)] != there.bandwidth_bps[there.index(cut + 1)]


def test_other_code_is_a_note_not_a_fault(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = toy_run(store, "static")
    monkeypatch.setattr(runner, "code_version", lambda: {"version": "9", "sources": "f" * 64})
    report = audit.audit(store, done.run_id)
    assert report.ok and "its code was" in report.notes[0]


def test_a_decision_is_recomputed_alone_and_followed_up(store: Path) -> None:
    done = toy_run(store, "greedy")
    reader = RunReader(run_index.folder(store, done.run_id))
    decided = [event for event in reader.events() if event.type == "decided"]
    moved = next(e.payload["number"] for e in decided[1:] if e.payload["action"] == "move")
    found = audit.decision(store, done.run_id, moved)
    assert found.reproduced, found.difference
    assert found.recorded == decided[moved].payload
    assert found.aftermath["pause_s"] > 0 and found.aftermath["moved_bytes"] > 0
    assert set(found.explanation.baselines) >= {"static", "single", "mpc"}
    shown = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert shown["schema"] == "twin.decision/1" and shown["ok"] is True
    assert shown["recorded"]["observation"]["bandwidth_bps"]


def test_a_forged_decision_is_not_reproduced(store: Path) -> None:
    run_id, _ = forged(store, "decided", another_reason, 2)
    found = audit.decision(store, run_id, 2)
    assert not found.reproduced and "payload.reason" in (found.difference or "")
    with pytest.raises(NotFoundError, match="no decision 99"):
        audit.decision(store, run_id, 99)


def test_recorded_views_are_held_to_their_digest_number_and_time(store: Path) -> None:
    events = list(RunReader(run_index.folder(store, toy_run(store, "static").run_id)).events())
    decided = [event for event in events if event.type == "decided"]
    assert audit.observations(events) == []
    decided[0].payload["number"] = 7
    decided[1].payload["observation"]["now_ns"] += 1
    problems = audit.observations(events)
    assert f"event {decided[0].seq} is decision 7, counted 0" in problems
    assert f"event {decided[1].seq}: the observation is not the one its digest was made of" in problems
    assert any(text.startswith(f"event {decided[1].seq}: the view is of") for text in problems)


def test_a_run_whose_measurements_are_gone_is_checked_without_being_executed(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = toy_run(store, "static")
    monkeypatch.undo()  # from here on links come from the lake, which is empty
    report = audit.audit(store, done.run_id)
    assert report.ok and report.events > 0
    (note,) = report.notes
    assert note.startswith("not executed again: ") and "link samples" in note


def test_a_run_killed_before_its_first_decision_is_audited_as_far_as_it_goes(store: Path) -> None:
    whole = RunReader(run_index.folder(store, toy_run(store, "static").run_id))
    first = next(whole.events())
    with RunWriter.create(run_index.folder(store, "killed")) as writer:
        writer.append(first.sim_ns, first.type, first.payload)
    report = audit.audit(store, "killed")
    assert report.ok, report.findings
    assert report.events == 1


def computes_too_long(payload: dict[str, Any]) -> None:
    payload["compute_ns"][0] = payload["active_ns"][0] + 1


def test_a_domain_that_computes_longer_than_it_runs_is_named_from_the_events_alone(store: Path) -> None:
    run_id, seq = forged(store, "iteration_done", computes_too_long, 1)
    problems = Accounts().check(RunReader(run_index.folder(store, run_id)).events())
    assert any(f"event {seq} (iteration_done): domain 0 computed" in problem for problem in problems)
