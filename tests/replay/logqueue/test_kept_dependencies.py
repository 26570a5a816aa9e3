"""Queue runs whose jobs follow others: their events, their audit, their jobs' waits, SQL and what-ifs."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cli
from ingest.core.errors import DamageError, UsageError
from policy.queue.registry import recipe
from replay.audit import rerun
from replay.audit.audit import audit
from replay.audit.queue_run import badly_submitted, looks_ahead
from replay.log.run_log import RunReader, RunWriter
from replay.logqueue import logged_run, run_events, start_forecast, waiting, whatif
from replay.logqueue.comparison import compare
from replay.logqueue.job_changes import JobNames, changes
from replay.logqueue.logged_run import load
from replay.report import page
from replay.sql.query import query
from replay.store import run_index
from tests.support import queue_log
from tests.support.queues import PLAYABLE, POOL, RECIPES, dependencies, queues
from twin.queue.dependencies import Dependencies
from twin.queue.jobs import QueueJobs
from twin.queue.rules import INSTANT
from twin.queue.simulation import QueueSchedule, simulate
from twin.workload.selection import LogJobs

S = 10**9
NAMES = JobNames({1: "first", 3: "third"}, {7: "ann"})
EXAMPLES = int(os.environ.get("TWIN_FUZZ", "6"))
MOVABLE = [name for name in RECIPES if "-slip" not in name and "accounts" not in name]


def by_hand(policy: str = "easy") -> QueueSchedule:
    """On 4 processors: "first" holds 3 until 100 s; 2 was recorded at 10 s, follows it after 30 s and asks
    for 4; "third" has 3 at 120 s until 240 s, and 4 follows it with no think time."""
    jobs = QueueJobs.of_seconds(
        [0, 10, 120, 125], [100, 40, 120, 20], [3, 4, 3, 1], [100, 40, 120, 20], user=[7, 8, 7, 8]
    )
    waits = Dependencies(np.array([-1, 0, -1, 2]), np.array([0, 30, 0, 0]) * S)
    return simulate(jobs, 4, recipe(policy), rules=INSTANT, dependencies=waits)


def kept(store: Path, done: QueueSchedule, policy: str = "easy", **said: Any) -> str:
    log = LogJobs("by-hand.swf", done.processors, done.jobs, (), (), NAMES.ids, NAMES.users)
    return run_events.record(store, log, done, policy, **{"prediction": "estimate", "rules": INSTANT, **said})


def test_submissions_are_events_of_the_replay_and_say_whom_a_job_follows(tmp_path: Path) -> None:
    events = list(RunReader(run_index.folder(tmp_path, kept(tmp_path, by_hand()))).events())
    assert [(one.sim_ns // S, one.type, one.job) for one in events[1:-1]] == [
        (0, "job_submitted", "first"), (0, "job_started", "first"), (100, "job_finished", "first"),
        (120, "job_submitted", "third"), (120, "job_started", "third"), (130, "job_submitted", "2"),
        (240, "job_submitted", "4"), (240, "job_finished", "third"), (240, "job_started", "2"),
        (280, "job_finished", "2"), (280, "job_started", "4"), (300, "job_finished", "4"),
    ]  # fmt: skip
    assert events[0].payload["scenario"]["queue"]["dependencies"] is True
    said = {one.job: one.payload["spec"] for one in events if one.type == "job_submitted"}
    assert said["third"]["place"] == 2 and "after" not in said["third"]
    follows = {"place": 1, "after": "first", "think_ns": 30 * S, "recorded_ns": 10 * S}
    assert follows.items() <= said["2"].items()


def test_a_run_whose_jobs_follow_others_is_made_again_from_its_events(tmp_path: Path) -> None:
    done = by_hand()
    run_id = kept(tmp_path, done)
    assert audit(tmp_path, run_id).ok and rerun.recompute(tmp_path, run_id).equal
    run = load(tmp_path, run_id)
    assert run.moved is not None and (run.moved.recorded_ns // S).tolist() == [0, 10, 120, 125]
    assert list(changes(run.schedule, run.names)) == list(changes(done, NAMES))
    assert (run.by_submission.schedule.jobs.submit_ns // S).tolist() == [0, 120, 130, 240]


def test_sql_counts_waits_from_the_submission_in_the_replay(tmp_path: Path) -> None:
    kept(tmp_path, by_hand())
    text = "select job, submitted_s, wait_s, follows, think_s from queue_jobs order by job"
    rows = query(tmp_path, text).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("2", 130.0, 110.0, "first", 30.0), ("4", 240.0, 40.0, "third", 0.0), ("first", 0.0, 0.0, None, None),
        ("third", 120.0, 0.0, None, None),
    ]  # fmt: skip


def test_an_audit_names_the_job_that_one_waited_for_before_it_was_submitted(tmp_path: Path) -> None:
    run_id = kept(tmp_path, by_hand())
    found = waiting.explain(tmp_path, run_id, "2")
    assert (found.follows, found.think_s, found.submitted_s, found.waited_s) == ("first", 30.0, 130.0, 110.0)
    assert (found.in_front, found.released_by, found.to_json()["follows"]) == (0, ("third",), "first")
    assert found.forecast is not None and found.forecast.median_s == 240
    assert found.fits_now == ((1, 60),)  # ends before job 2 can start
    last = waiting.explain(tmp_path, run_id, "4")
    assert (last.follows, last.think_s, last.in_front, last.waited_s) == ("third", 0.0, 0, 40.0)
    assert waiting.explain(tmp_path, run_id, "third").follows is None
    words = ["--store", str(tmp_path), "audit", run_id, "--job", "2"]
    said = CliRunner().invoke(cli.twin, words, obj=cli.Output())
    assert "submitted 30 s after the end of job first" in said.output


def forged(store: Path, run_id: str, change: Callable[[Any], None]) -> str:
    """A run whose log is whole, with other specs of submissions."""
    with RunWriter.create(run_index.folder(store, "forged")) as writer:
        for event in RunReader(run_index.folder(store, run_id)).events():
            if event.type == "run_finished":
                writer.finish(event.payload["totals"], sim_ns=event.sim_ns)
                continue
            if event.type == "job_submitted":
                change(event.payload["spec"])
            writer.append(event.sim_ns, event.type, event.payload, job=event.job)
    return "forged"


@pytest.mark.parametrize(("changed", "problem"), [
    ({"think_ns": 31 * S}, "the first is job 2: 31 s after the end of job first"),
    ({"after": "third"}, "the first is job 2: 30 s after the end of job third"),
    ({"recorded_ns": 11 * S}, "an input was changed"),
])  # fmt: skip
def test_an_audit_finds_a_changed_think_time_or_predecessor(
    tmp_path: Path, changed: dict[str, Any], problem: str
) -> None:
    name = forged(
        tmp_path, kept(tmp_path, by_hand()), lambda spec: spec["place"] == 1 and spec.update(changed)
    )
    found = [str(one) for one in audit(tmp_path, name).findings]
    assert any(problem in one for one in found)
    assert any("re-execution" in one for one in found) == ("recorded_ns" not in changed)


@pytest.mark.parametrize(("changed", "problem"), [
    ({"after": "nobody"}, "no such job"), ({"think_ns": None}, "no think time"),
    ({"after": "2"}, "lead back"), ({"think_ns": -S}, "negative"), ({"think_ns": 2**70}, "who followed"),
    ({"place": 3}, "not 0, 1, 2"),
])  # fmt: skip
def test_what_cannot_have_been_is_damage(tmp_path: Path, changed: dict[str, Any], problem: str) -> None:
    name = forged(
        tmp_path, kept(tmp_path, by_hand()), lambda spec: spec["place"] == 1 and spec.update(changed)
    )
    with pytest.raises(DamageError, match=problem):
        load(tmp_path, name)


@given(data=st.data(), jobs=queues(10), policy=st.sampled_from(MOVABLE))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_runs_whose_jobs_follow_others_are_kept_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, jobs: QueueJobs, policy: str
) -> None:
    rules = data.draw(st.sampled_from(PLAYABLE[policy]))
    waits = data.draw(dependencies(len(jobs)))
    done = simulate(jobs, POOL, recipe(policy), rules=rules, dependencies=waits)
    store = tmp_path_factory.mktemp("kept")
    log = LogJobs("random.swf", POOL, done.jobs, (), ())
    run_id = run_events.record(store, log, done, policy, prediction="estimate", rules=rules)
    assert audit(store, run_id).findings == ()
    run = load(store, run_id).by_submission
    again = logged_run.played(run, run.schedule.jobs)
    assert np.array_equal(again.start_ns, run.schedule.start_ns)  # in whatever order the jobs are
    for job in np.flatnonzero(run.schedule.start_ns > run.schedule.jobs.submit_ns)[:2].tolist():
        found = start_forecast.forecast(run, job, int(run.schedule.jobs.submit_ns[job]))
        assert found.high_s * S >= run.schedule.jobs.submit_ns[job]


def test_sessions_are_kept_audited_and_played_by_another_scheduler(tmp_path: Path) -> None:
    found = compare(queue_log.SESSIONS, ["fcfs", "sjf"], processors=40, dependencies=True, keep=tmp_path)
    run_id = found.runs["fcfs"]
    headers = [load(tmp_path, one).header for one in found.runs.values()]
    assert headers[0].world["traces"] == headers[1].world["traces"]  # of the inputs, not of the replay
    assert audit(tmp_path, run_id).ok
    run = load(tmp_path, run_id)
    assert run.moved is not None and int(run.moved.dependencies.waits.sum()) == 154
    other = whatif.what_if(tmp_path, run_id, "easy")
    fresh = compare(queue_log.SESSIONS, ["easy"], processors=40, dependencies=True).figures["easy"]
    assert other.other == fresh.to_json() and other.starts_differ > 0
    assert audit(tmp_path, other.run_id).ok
    said = "154 jobs are submitted a think time after the end of another"
    assert said in page.write(tmp_path, run_id).read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="goes by recorded submit times"):
        whatif.what_if(tmp_path, run_id, "wfp3-slip")


def test_a_scheduler_that_reads_the_future_of_followers_is_found(tmp_path: Path) -> None:
    found = compare(queue_log.SESSIONS, ["saf+easy"], processors=40, dependencies=True, keep=tmp_path)
    run = load(tmp_path, found.runs["saf+easy"])
    assert looks_ahead(run) == [] == badly_submitted(run)
    knows = replace(run, choices=replace(run.choices, prediction="actual"))
    future = logged_run.played(knows, run.schedule.jobs)
    assert isinstance(future, QueueSchedule)
    (problem,) = looks_ahead(replace(run, schedule=future))
    assert "depends on what happened after it" in problem
