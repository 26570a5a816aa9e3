"""A run again, byte for byte; another policy in the same world; branches that leave a run in its middle."""

import json
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import DamageError, InputError, UsageError
from replay.audit import audit, rerun
from replay.log.events import Event, canonical
from replay.log.run_log import RunReader, RunWriter
from replay.metrics import store_status
from replay.metrics.kpis import of_events
from replay.run import branching, whatif
from replay.sql.query import query
from replay.store import run_header, run_index, world_reconstruction
from tests.support import toys
from tests.support.toys import toy_run, without_lake
from twin.settings.disturbances import LinkChange


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_lake(monkeypatch)
    return tmp_path / "store"


def events_of(store: Path, run_id: str) -> list[Event]:
    return list(RunReader(run_index.folder(store, run_id)).events())


def test_a_repeated_run_is_equal_in_every_event(store: Path) -> None:
    done = toy_run(store)
    events = events_of(store, done.run_id)
    found = rerun.recompute(store, done.run_id)
    assert found.equal and found.compared == len(events)
    part = rerun.recompute(store, done.run_id, until_s=200.0)
    assert part.equal and part.compared == sum(event.sim_ns <= 200e9 for event in events) < len(events)
    assert len(run_index.all_ids(store)) == 1
    shown = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert shown["schema"] == "twin.rerun/1" and shown["first_difference"] is None


def test_the_same_policy_where_a_link_is_slower_from_some_time_on(store: Path) -> None:
    done = toy_run(store)
    slower = LinkChange(src="d0", dst="*", bandwidth_factor=0.1, at_s=300, both_ways=True)
    found = whatif.what_if(store, done.run_id, links=[slower])
    assert found.policy == found.base_policy == "greedy" and found.other.tokens < found.base.tokens
    before = [
        [e for e in events_of(store, run) if 0 < e.sim_ns < 300e9] for run in (done.run_id, found.run_id)
    ]
    assert [(e.type, e.payload) for e in before[0]] == [(e.type, e.payload) for e in before[1]] != []
    assert "what if d0 <> *: bandwidth x 0.1 from 300 s" in found.notes
    assert audit.audit(store, found.run_id).ok
    with pytest.raises(UsageError, match="no domain 'd9'"):
        whatif.what_if(store, done.run_id, links=[slower.model_copy(update={"src": "d9"})])
    with pytest.raises(UsageError, match="@SECONDS"):
        whatif.what_if(store, done.run_id, links=[slower], from_decision=1)


def test_changes_of_a_base_that_is_a_what_if_are_reported(store: Path) -> None:
    done = toy_run(store, "static")
    half = LinkChange(src="d0", dst="d1", bandwidth_factor=0.5, both_ways=True)
    first = whatif.what_if(store, done.run_id, links=[half])
    assert first.base_branch is None and first.base_links == ()
    second = whatif.what_if(store, first.run_id, links=[half])
    assert second.base_branch == {"run": done.run_id, "decision": 0}
    assert second.base_links == ("what if d0 <> d1: bandwidth x 0.5",)
    body = json.loads(json.dumps(second.to_json(), allow_nan=False))
    assert body["base_branch"]["run"] == done.run_id and body["base_links"] == list(second.base_links)


def test_sql_and_status_distinguish_what_ifs_from_other_runs(store: Path) -> None:
    base = toy_run(store, "static").run_id
    changes = [
        LinkChange(src="d0", dst="*", bandwidth_factor=0.5, at_s=300, for_s=60),
        LinkChange(src="d1", dst="d2", latency_factor=2.0, both_ways=True),
    ]
    found = whatif.what_if(store, base, links=changes).run_id
    asked = "SELECT run, branch_of, link_changes, weights FROM runs ORDER BY branch_of NULLS FIRST"
    assert [tuple(row.values()) for row in query(store, asked).to_pylist()] == [
        (base, None, None, "0.6,0.2,0.2"),
        (found, base, "d0 > * = 0.5 @ 300.0 + 60.0; d1 <> d2 = 1.0, latency x 2.0", "0.6,0.2,0.2"),
    ]
    lines = {line.run_id: line.branch_of for line in store_status.status(store).runs}
    assert lines == {base: None, found: base}


def test_a_change_of_a_link_that_changes_nothing_is_refused_or_says_so(store: Path) -> None:
    base = toy_run(store, "static").run_id
    with pytest.raises(UsageError, match="d0 > d0 is no link: name two domains"):
        whatif.what_if(store, base, links=[LinkChange(src="d0", dst="d0", bandwidth_factor=0.5)])
    late = LinkChange(src="d0", dst="d1", bandwidth_factor=0.5, at_s=400)
    assert whatif.what_if(store, base, links=[late], until_s=300.0).notes == (
        "what if d0 > d1: bandwidth x 0.5 from 400 s, after the end at 300 s: nothing changes",
    )


def test_the_first_event_that_differs_is_named(store: Path) -> None:
    done = toy_run(store)
    events = events_of(store, done.run_id)
    forged = [event for event in events if event.type == "iteration_done"][2]
    forged.payload["energy_j"] += 1.0
    with RunWriter.create(run_index.folder(store, "forged")) as writer:
        for event in events[:-1]:
            writer.append(event.sim_ns, event.type, event.payload, wall=event.wall)
        writer.finish(events[-1].payload["totals"], sim_ns=events[-1].sim_ns)
    found = rerun.recompute(store, "forged")
    assert not found.equal and found.seq == forged.seq == found.compared
    assert "energy_j" in (found.difference or "")
    before = rerun.recompute(store, "forged", until_s=forged.sim_ns / 1e9 - 30)
    assert before.equal


def test_another_policy_meets_the_same_world(store: Path) -> None:
    base = toy_run(store, "greedy")
    found = whatif.what_if(store, base.run_id, "static")
    direct = toy_run(store, "static")
    assert found.other.tokens == direct.kpis.tokens and found.base.tokens == base.kpis.tokens
    assert found.differences["tokens"] == direct.kpis.tokens - base.kpis.tokens
    assert found.differences["egress_usd"] == pytest.approx(direct.kpis.egress_usd - base.kpis.egress_usd)
    (tokens, *_) = found.verdicts
    assert tokens.low <= tokens.mean <= tokens.high
    assert (tokens.mean > 0) == (direct.kpis.tokens > base.kpis.tokens)
    assert found.divergence is not None
    json.dumps(found.to_json(), allow_nan=False)
    report = audit.audit(store, found.run_id)
    assert report.ok, report.findings


def test_the_same_policy_never_diverges(store: Path) -> None:
    base = toy_run(store, "greedy")
    found = whatif.what_if(store, base.run_id, "greedy", from_decision=3)
    assert found.divergence is None
    assert {
        value for name, value in found.differences.items() if not name.startswith(("decision_", "coord"))
    } <= {
        0,
        None,
    }
    ours, theirs = events_of(store, base.run_id), events_of(store, found.run_id)
    assert [canonical(e.payload) for e in ours[1:]] == [canonical(e.payload) for e in theirs[1:]]


def test_a_branch_keeps_the_past_and_is_audited_alone(store: Path) -> None:
    base = toy_run(store, "greedy")
    found = whatif.what_if(store, base.run_id, "static", from_decision=5)
    ours, theirs = events_of(store, base.run_id), events_of(store, found.run_id)
    split = next(event.seq for event in ours if event.type == "decided" and event.payload["number"] == 5)
    assert [canonical(e.payload) for e in ours[1:split]] == [canonical(e.payload) for e in theirs[1:split]]
    assert found.divergence is None or found.divergence.number >= 5
    assert theirs[split].payload["reason"] != ours[split].payload["reason"]
    for path in run_index.folder(store, base.run_id).iterdir():
        path.unlink()  # the branch needs the run it left no longer
    report = audit.audit(store, found.run_id)
    assert report.ok, report.findings
    assert audit.decision(store, found.run_id, 6).reproduced
    assert rerun.recompute(store, found.run_id).equal


def test_both_sides_end_at_until(store: Path) -> None:
    base = toy_run(store, "greedy")
    found = whatif.what_if(store, base.run_id, "static", from_decision=1, until_s=330.0)
    assert found.base.wall_s == found.other.wall_s == 330.0
    ours = [e for e in events_of(store, base.run_id) if e.sim_ns <= 200e9]
    assert 0 < of_events(ours).tokens < found.base.tokens < base.kpis.tokens
    report = audit.audit(store, found.run_id)
    assert report.ok, report.findings


def test_mistakes_are_errors(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = toy_run(store, "greedy")
    for wrong, words in (({"until_s": 0.0}, "0 to 600"), ({"until_s": 601.0}, "0 to 600"),
                         ({"from_decision": 99}, "made"), ({"from_decision": -1}, "from 0")):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            whatif.what_if(store, base.run_id, "static", **wrong)  # type: ignore[arg-type]
    with RunWriter.create(run_index.folder(store, "half")) as writer:
        for event in events_of(store, base.run_id)[:40]:
            writer.append(event.sim_ns, event.type, event.payload, wall=event.wall)
    with pytest.raises(InputError, match="not finished"):
        whatif.what_if(store, "half", "static")
    assert rerun.recompute(store, "half").compared == 40
    monkeypatch.setitem(toys.STEPS, (0, 1), [(100.0, 3e9)])
    with pytest.raises(InputError, match="link samples of toy from that time are no longer"):
        whatif.what_if(store, base.run_id, "static", from_decision=5)
    monkeypatch.setattr(
        world_reconstruction, "changed", lambda *_: ()
    )  # a fault of the code, not of the data
    with pytest.raises(DamageError, match="another view"):
        whatif.what_if(store, base.run_id, "static", from_decision=5)


def test_a_header_survives_its_payload(store: Path) -> None:
    base = toy_run(store, "static")
    found = whatif.what_if(store, base.run_id, "static")
    payload = RunReader(run_index.folder(store, found.run_id)).header()
    made = run_header.from_payload(payload)
    assert made.branch == {"run": base.run_id, "decision": 0} and made.payload() == payload


def test_only_runs_that_ended_together_are_set_side_by_side(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = toy_run(store, "static")
    short = whatif.what_if(store, base.run_id, "single", until_s=300.0).run_id
    with pytest.raises(InputError, match="600 s and 300 s"):
        whatif.pair(store, base.run_id, short)
    events = events_of(store, base.run_id)
    with RunWriter.create(run_index.folder(store, "open")) as writer:
        for event in events[:-1]:
            writer.append(event.sim_ns, event.type, event.payload)
    with pytest.raises(InputError, match="open: the run is not finished"):
        whatif.pair(store, base.run_id, "open")
    assert rerun.last_event(events, 10**15) == events[-1].seq
    assert rerun.last_event([], 5) == 0


def test_a_base_run_of_other_code_is_said(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = toy_run(store, "static")
    monkeypatch.setattr(branching, "code_version", lambda: {"version": "9", "sources": "f" * 64})
    found = whatif.what_if(store, base.run_id, "single")
    assert any("the base run was made by other code" in note for note in found.notes)


@pytest.mark.parametrize(
    ("base", "other", "more"), [(1.0, 1.0 + 1e-14, 0.0), (1.0, 1.5, 0.5), (None, 1.0, None), (2, 2, 0)]
)
def test_a_difference_of_rounding_is_none(base: Any, other: Any, more: Any) -> None:
    assert whatif._difference(base, other) == more
