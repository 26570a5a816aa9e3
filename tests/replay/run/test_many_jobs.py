"""A run of several jobs: logged, judged, audited and answered for like a run of one."""

from pathlib import Path
from typing import Any

import pytest

from replay.audit import audit
from replay.log.run_log import RunReader
from replay.metrics import paired_comparison
from replay.report import page as report
from replay.run import runner
from replay.run.runner import RunResult
from replay.sql.query import query
from replay.store import run_index
from tests.support.worlds import toy_scenario, toy_setup
from twin.scenario import prepare
from twin.scenario.prepare import PreparedScenario, Scenario

JOBS = [
    {"name": "long"},
    {"name": "short", "submit_s": 60, "tokens": 1_000_000},
    {"name": "urgent", "submit_s": 150, "priority": 1, "tokens": 1_500_000},
]


def _scenario(**changes: Any) -> Scenario:
    return toy_scenario(jobs=JOBS, moving={"mode": "pre_copy", "checkpoint_s": 60}, **changes)


def _prepare(scenario: Scenario, store: Path, *, seed: Any = None, **_: Any) -> PreparedScenario:
    used = scenario.seed if seed is None else seed
    changes = scenario.model_dump(include={"jobs", "moving", "gpu_faults"})
    return toy_setup(bps=2e10, latency_s=0.01, steps={(0, 1): [(200.0, 3e9)]}, seed=used, **changes)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prepare, "prepare", _prepare)
    return tmp_path / "store"


def _run(store: Path, policy: str = "greedy", **changes: Any) -> RunResult:
    return runner.run(store, policy=policy, scenario=_scenario(**changes))


@pytest.mark.parametrize("policy", ["greedy", "static", "joint"])
def test_every_event_names_its_job_and_the_audit_is_clean(store: Path, policy: str) -> None:
    done = _run(store, policy)
    events = list(RunReader(run_index.folder(store, done.run_id)).events())
    assert {event.job for event in events if event.type == "job_submitted"} == {"long", "short", "urgent"}
    for kind in ("iteration_done", "plan_applied", "job_started"):
        assert {event.job for event in events if event.type == kind} >= {"long", "urgent"}
    assert {event.job for event in events if event.type == "link_observed"} == {""}
    report = audit.audit(store, done.run_id)
    assert report.ok, report.findings


def test_figures_of_the_run_are_the_sums_over_its_jobs(store: Path) -> None:
    fault = [{"domain": "d0", "gpus": 4, "at_s": 300, "for_s": 100}]
    done = _run(store, gpu_faults=fault)
    total = list(RunReader(run_index.folder(store, done.run_id)).events())[-1].payload["totals"]
    assert done.kpis.tokens == total["tokens"] == sum(job["tokens"] for job in total["jobs"].values())
    assert done.kpis.energy_j == pytest.approx(total["energy_j"])
    assert done.kpis.moved_bytes == sum(total["moved_bytes"].values())
    assert audit.audit(store, done.run_id).ok


def test_a_decision_of_one_job_is_reproduced_from_the_views_of_that_job(store: Path) -> None:
    done = _run(store)
    events = RunReader(run_index.folder(store, done.run_id)).events()
    number = [e.payload["number"] for e in events if e.type == "decided" and e.job == "urgent"][-1]
    found = audit.decision(store, done.run_id, number)
    assert found.recorded["observation"]["job"] == "urgent"
    assert found.reproduced, found.difference


def test_the_same_run_has_the_same_digest(store: Path) -> None:
    assert _run(store).digest == _run(store).digest


def test_the_page_shows_every_job_and_no_pace_of_one_model(store: Path) -> None:
    page = report.render(store, _run(store).run_id)
    assert all(f"<strong>{job}</strong>: layers" in page for job in ("long", "urgent"))
    assert "What bound the pace" not in page and "(by the model)" not in page


def test_blocks_hold_copies_and_leave_out_lost_work(store: Path) -> None:
    done = _run(store, gpu_faults=[{"domain": "d0", "gpus": 4, "at_s": 200, "for_s": 60}])
    reader = RunReader(run_index.folder(store, done.run_id))
    events = list(reader.events())
    assert {"state_copied", "work_lost"} <= {event.type for event in events}
    found = paired_comparison.blocks_of(events, reader.header()["end_ns"])
    assert found.tokens.sum() == pytest.approx(done.kpis.progress_tokens)
    assert found.usd.sum() == pytest.approx(done.kpis.egress_usd)
    assert found.compute_s.sum() / found.active_s.sum() == pytest.approx(done.kpis.utilisation)


@pytest.mark.parametrize("policy", ["greedy", "static", "mpc"])
def test_sql_has_the_figures_that_the_run_prints(store: Path, policy: str) -> None:
    done = _run(store, policy, gpu_faults=[{"domain": "d0", "gpus": 4, "at_s": 200, "for_s": 60}])
    columns = "iterations, lost_iterations, moves, turns, tokens, progress_tokens"
    (found,) = query(store, f"SELECT {columns} FROM runs").to_pylist()
    assert found["iterations"] == done.kpis.iterations
    assert (found["moves"], found["turns"]) == (done.kpis.moves, done.kpis.turns)
    assert found["tokens"] == done.kpis.tokens and found["lost_iterations"] > 0
    assert found["progress_tokens"] == pytest.approx(done.kpis.progress_tokens)
    events = RunReader(run_index.folder(store, done.run_id)).events()
    lost = sum(event.payload.get("lost_iterations", 0) for event in events if event.type != "run_finished")
    assert found["lost_iterations"] == lost


def test_sql_tells_the_jobs_of_a_run_apart(store: Path) -> None:
    done = _run(store, "greedy")
    events = list(RunReader(run_index.folder(store, done.run_id)).events())
    for view, kind in (("plans", "plan_applied"), ("iterations", "iteration_done"), ("decisions", "decided")):
        rows = query(store, f"SELECT job, seq FROM {view} ORDER BY seq").to_pylist()
        assert [(row["job"], row["seq"]) for row in rows] == [
            (e.job, e.seq) for e in events if e.type == kind
        ]
    plans = query(store, "SELECT job, time_s, until_s FROM plans ORDER BY seq").to_pylist()
    for job in ("long", "urgent"):
        own = [plan for plan in plans if plan["job"] == job]
        assert [plan["until_s"] for plan in own] == [*(plan["time_s"] for plan in own[1:]), None]
    between = [plan for plan in plans if plan["job"] != "long"]
    assert any(a["time_s"] < b["time_s"] < (a["until_s"] or 0) for a in plans for b in between), (
        "side by side"
    )
