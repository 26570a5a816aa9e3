"""A queue run from its writing to its audit, its job's story, its SQL and its page."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import UsageError
from policy.queue.registry import recipe
from replay.audit.audit import audit
from replay.audit.queue_run import contradictions, looks_ahead
from replay.log.run_log import RunReader, RunWriter
from replay.logqueue import job_changes, logged_run, run_events, start_forecast, waiting
from replay.logqueue.comparison import compare
from replay.logqueue.logged_run import load, used_processors
from replay.metrics import kpis
from replay.report import page, queue_page
from replay.sql.query import query
from replay.store import run_index
from replay.store.run_header import from_payload
from tests.support import queue_log
from twin.queue.jobs import QueueJobs
from twin.queue.rules import INSTANT
from twin.queue.simulation import simulate
from twin.workload.selection import LogJobs

S = 10**9


def kept(store: Path, jobs: QueueJobs, policy: str, processors: int = 4) -> str:
    """A run of jobs under `instant`; two of them have names."""
    log = LogJobs("by-hand.csv", processors, jobs, (), (), {1: "first", 3: "third"}, {7: "ann"})
    done = simulate(jobs, processors, recipe(policy), rules=INSTANT)
    return run_events.record(store, log, done, policy, prediction="estimate", rules=INSTANT)


def by_hand() -> QueueJobs:
    """On 4 processors: 1 holds 3 until 100 s, 2 asks for 4, 3 for 1 for 50 s, 4 for 1 for 500 s."""
    return QueueJobs.of_seconds(
        [0, 10, 20, 30], [100, 40, 50, 500], [3, 4, 1, 1], [100, 40, 60, 500], user=[7, 8, 7, 8]
    )


def test_every_submission_start_and_end_is_an_event_in_order(tmp_path: Path) -> None:
    run_id = kept(tmp_path, by_hand(), "easy")
    events = list(RunReader(run_index.folder(tmp_path, run_id)).events())
    assert run_id.startswith("by-hand-easy-s0-")
    told = [(one.sim_ns // S, one.type, one.job, one.payload["gpus"]) for one in events[1:-1]]
    assert told == [
        (0, "job_submitted", "first", [0]), (0, "job_started", "first", [3]),
        (10, "job_submitted", "2", [0]),
        (20, "job_submitted", "third", [0]), (20, "job_started", "third", [1]),
        (30, "job_submitted", "4", [0]),
        (70, "job_finished", "third", [0]),
        (100, "job_finished", "first", [0]), (100, "job_started", "2", [4]),
        (140, "job_finished", "2", [0]), (140, "job_started", "4", [1]),
        (640, "job_finished", "4", [0]),
    ]  # fmt: skip
    reasons = {one.job: one.payload["reason"] for one in events if one.type == "job_started"}
    assert reasons["third"] == job_changes.OVERTAKES and reasons["2"] == job_changes.HEAD
    ends = {one.job: one.payload["reason"] for one in events if one.type == "job_finished"}
    assert ends == {
        "first": job_changes.CUT,
        "2": job_changes.CUT,
        "4": job_changes.CUT,
        "third": job_changes.DONE,
    }
    assert events[-1].payload["totals"]["processor_ns"] == (300 + 160 + 50 + 500) * S


def test_why_a_job_waited(tmp_path: Path) -> None:
    run_id = kept(tmp_path, by_hand(), "easy")
    found = waiting.explain(tmp_path, run_id, "4")
    assert (found.waited_s, found.busy_s, found.held_back_s) == (110, 80, 30)  # 30-70, 100-140; 70-100
    assert (found.in_front, found.in_front_processors, found.first_in_front) == (1, 4, ("2",))
    assert (found.free_at_submission, found.running, found.released_by) == (0, 2, ("2",))
    assert [(one.name, one.processor_s) for one in found.holders] == [("ann", 250.0), ("8", 160.0)]
    assert found.user == "8" and found.overtaken == 0 and not found.overtook
    head = waiting.explain(tmp_path, run_id, "2")
    assert head.overtaken_by == (waiting.JobShare("third", 1, 50.0),)
    assert head.to_json()["schema"] == "twin.queue_job/1"


def test_a_job_that_never_waited_needs_no_forecast(tmp_path: Path) -> None:
    run_id = kept(tmp_path, by_hand(), "easy")
    assert waiting.explain(tmp_path, run_id, "first").forecast is None
    with pytest.raises(UsageError, match="waits from 10 to 100 s"):
        waiting.explain(tmp_path, run_id, "2", 100.0)
    with pytest.raises(UsageError, match="has no job 'nobody'"):
        waiting.explain(tmp_path, run_id, "nobody")


def test_before_anything_has_ended_the_estimates_are_the_forecast(tmp_path: Path) -> None:
    run = load(tmp_path, kept(tmp_path, by_hand(), "easy"))
    one = start_forecast.forecast(run, 1, 10 * S)
    assert (one.low_s, one.median_s, one.high_s, one.ended) == (100, 100, 100, 0)
    assert start_forecast.fits_now(run, 10 * S) == [(1, 60)]  # ends before the head can start


def test_a_forecast_knows_nothing_of_what_comes_after_it(tmp_path: Path) -> None:
    name = run_index.find(tmp_path, kept_example(tmp_path, "easy"))
    run = load(tmp_path, name)
    done = run.schedule
    job = int(np.argmax(done.start_ns - done.jobs.submit_ns))
    at_ns = int(done.jobs.submit_ns[job])
    later = done.jobs.submit_ns > at_ns
    open_ = done.end_ns > at_ns
    changed = replace(done.jobs, run_ns=np.where(open_, done.jobs.estimate_ns, done.jobs.run_ns)).select(
        ~later
    )
    other = logged_run.played(run, changed)
    assert np.array_equal(other.start_ns <= at_ns, done.start_ns[~later] <= at_ns)
    told = start_forecast.forecast(replace(run, schedule=other), job, at_ns)
    one = start_forecast.forecast(run, job, at_ns)
    assert one == told and one.ended > 0
    assert one.low_s < one.high_s and one.low_s <= done.start_ns[job] / S <= one.high_s


def kept_example(store: Path, policy: str) -> str:
    return compare(queue_log.TARGET, [policy], keep=store).runs[policy]


@pytest.mark.parametrize("policy", ["easy", "las", "fair-tree-12h+easy", "conservative", "wfp3+easy"])
def test_a_run_is_made_again_from_its_events_alone(tmp_path: Path, policy: str) -> None:
    report = audit(tmp_path, kept_example(tmp_path, policy))
    assert report.ok and report.notes == () and report.events > 1_200


def test_an_audit_finds_a_start_that_the_scheduler_would_not_make(tmp_path: Path) -> None:
    run = load(tmp_path, kept(tmp_path, by_hand(), "easy"))
    late = replace(run.schedule, start_ns=run.schedule.start_ns + np.array([0, 0, 0, S]))
    run_dir = run_index.folder(tmp_path, "forged")
    with RunWriter.create(run_dir) as writer:
        run_events.emit(writer, run.header, late, run.names, (), {})
    (finding,) = audit(tmp_path, "forged").findings
    assert finding.check == "re-execution" and "140000000000" in finding.problem


def test_what_cannot_be_is_named() -> None:
    done = simulate(by_hand(), 4, recipe("easy"), rules=INSTANT)
    assert contradictions(done) == []
    assert used_processors(done)[1].max() == 4
    early = replace(done, start_ns=done.start_ns * 0)
    assert contradictions(early) == [
        "3 jobs start before they are submitted, the first is job 2", "9 processors are in use of 4",
    ]  # fmt: skip


def test_a_scheduler_that_reads_the_future_is_found(tmp_path: Path) -> None:
    run = load(tmp_path, kept_example(tmp_path, "saf+easy"))
    assert looks_ahead(run) == []
    knows = replace(run.choices, prediction="actual")
    future = logged_run.played(replace(run, choices=knows), run.schedule.jobs)
    (problem,) = looks_ahead(replace(run, schedule=future))
    assert "depends on what happened after it" in problem


def test_rows_that_were_left_out_are_in_the_log(tmp_path: Path) -> None:
    found = compare(queue_log.TARGET, ["easy"], processors=32, keep=tmp_path)
    run = load(tmp_path, found.runs["easy"])
    assert run.left_out == found.log.rejects and len(run.left_out) > 0
    with pytest.raises(UsageError, match="was left out: more processors"):
        run.index(run.left_out[0].raw)
    on_nodes = replace(run.left_out[0], raw="108 with 64 GPUs", reason="fits on no nodes")
    with pytest.raises(UsageError, match="job 108 was left out: fits on no nodes"):
        replace(run, left_out=(on_nodes,)).index("108")


def test_sql_has_a_row_for_each_job(tmp_path: Path) -> None:
    kept(tmp_path, by_hand(), "easy")
    text = 'select job, "user", processors, wait_s, run_s, overtook from queue_jobs order by submitted_s'
    assert [tuple(row.values()) for row in query(tmp_path, text).to_pylist()] == [
        ("first", "ann", 3, 0.0, 100.0, False), ("2", "8", 4, 90.0, 40.0, False),
        ("third", "ann", 1, 0.0, 50.0, True), ("4", "8", 1, 110.0, 500.0, False),
    ]  # fmt: skip
    states = query(tmp_path, "select state, count(*) n from jobs group by all order by all").to_pylist()
    assert [tuple(row.values()) for row in states] == [("finished", 4), ("started", 4), ("submitted", 4)]


def test_the_page_has_the_waits_of_users_and_sizes(tmp_path: Path) -> None:
    run_id = kept(tmp_path, by_hand(), "easy")
    text = page.write(tmp_path, run_id).read_text(encoding="utf-8")
    for said in ("by-hand under easy", "Waits by user", "ann", "Waits by size", "Over time", run_id):
        assert said in text
    done = load(tmp_path, run_id).schedule
    marks = np.array([0.0, 100, 140, 640]) * S
    used = queue_page._mean(*used_processors(done), marks)
    assert used.tolist() == [3.5, 4.0, 1.0]
    assert queue_page._highest(*queue_page._waiting(done), marks).tolist() == [2.0, 1.0, 0.0]


def test_a_queue_run_has_no_world(tmp_path: Path) -> None:
    run_id = kept(tmp_path, by_hand(), "easy")
    reader = RunReader(run_index.folder(tmp_path, run_id))
    with pytest.raises(UsageError, match="no world"):
        kpis.of_events(reader.events())
    with pytest.raises(UsageError, match="no world"):
        from_payload(reader.header()).scenario()
