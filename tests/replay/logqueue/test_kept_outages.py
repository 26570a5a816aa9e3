"""Queue runs on nodes with outages: their events, their audit, their jobs' waits, SQL and page."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from policy.placement.registry import placement
from policy.queue.registry import recipe
from replay.audit import rerun
from replay.audit.audit import audit
from replay.audit.queue_run import looks_ahead
from replay.log.run_log import RunReader, RunWriter
from replay.logqueue import run_events, start_forecast, waiting, whatif
from replay.logqueue.job_changes import changes
from replay.logqueue.logged_run import load, used_processors
from replay.logqueue.on_nodes import compare_on_nodes
from replay.logqueue.waiting import EndedRun, OutNode
from replay.report import page
from replay.sql.query import query
from replay.store import run_index
from tests.support import queue_log
from tests.support.node_queues import cases, outages
from twin.nodes.metrics import node_figures, node_use
from twin.nodes.on_nodes import NodeSchedule, simulate_on_nodes
from twin.nodes.outage_plan import OutagePlan
from twin.nodes.outages import NodeOutages
from twin.nodes.selection import NodeJobs
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands
from twin.queue.jobs import QueueJobs
from twin.queue.rules import INSTANT

S = 10**9
TWO = NodeCluster.parse("2 x 4 A100")
EXAMPLES = int(os.environ.get("TWIN_FUZZ", "3"))
ORDERS = ("fcfs", "easy", "conservative", "saf+easy", "las")


def by_hand() -> NodeSchedule:
    """Job 1 has node 0 until it fails at 4 s and 3 s of work are kept; it goes on at 12 s on node 1, which
    job 2 has had and which has drained since 8 s. Job 3 comes at 1 s and follows at 19 s."""
    jobs = QueueJobs.of_seconds([0, 0, 1], [10, 10, 5], [4, 2, 4], user=[7, 8, 7])
    out = NodeOutages.of_rows([(0, 4 * S, 20 * S, False), (1, 8 * S, 12 * S, True)])
    return simulate_on_nodes(
        jobs, Demands.of_jobs(TWO, jobs.processors), TWO, recipe("fcfs"), placement("first-fit"),
        outages=out, checkpoint_interval_ns=3 * S,
    )  # fmt: skip


def kept(store: Path, done: NodeSchedule, **choices: Any) -> str:
    said = {"policy": "fcfs", "rules": INSTANT, "placement": "first-fit", "prediction": "estimate"} | choices
    log = NodeJobs("by-hand.csv", done.cluster, done.jobs, done.demands, (), ())
    return run_events.record(store, log, done, said.pop("policy"), **said)


def test_outages_and_the_runs_that_faults_end_are_events_in_order(tmp_path: Path) -> None:
    events = list(RunReader(run_index.folder(tmp_path, kept(tmp_path, by_hand()))).events())
    assert [(one.sim_ns // S, one.type, one.job or one.payload["node"]) for one in events[1:-1]] == [
        (0, "job_submitted", "1"), (0, "job_submitted", "2"), (0, "job_started", "1"),
        (0, "job_started", "2"), (1, "job_submitted", "3"), (4, "node_down", 0), (4, "job_preempted", "1"),
        (8, "node_down", 1), (10, "job_finished", "2"), (12, "node_up", 1), (12, "job_started", "1"),
        (19, "job_finished", "1"), (19, "job_started", "3"), (20, "node_up", 0), (24, "job_finished", "3"),
    ]  # fmt: skip
    ended = next(one.payload for one in events if one.type == "job_preempted")
    assert ended["spec"] == {"node": 0, "kept_ns": 3 * S, "lost_ns": S}
    assert [one.payload["reason"] for one in events if one.type == "node_down"] == ["fault", "drain"]
    totals = events[-1].payload["totals"]
    assert totals["processor_ns"] == (4 * (4 + 7) + 2 * 10 + 4 * 5) * S and totals["wait_ns"] == (8 + 18) * S
    assert totals["figures"]["restarts"] == 1 and totals["figures"]["lost_gpu_s"] == 4.0


def test_a_run_with_outages_is_made_again_from_its_events(tmp_path: Path) -> None:
    done = by_hand()
    run_id = kept(tmp_path, done)
    assert audit(tmp_path, run_id).ok and rerun.recompute(tmp_path, run_id).equal
    run = load(tmp_path, run_id)
    assert run.nodes is not None and node_figures(run.nodes) == node_figures(done)
    assert list(changes(run.nodes, run.names)) == list(changes(done, run.names))
    times, used = used_processors(run.runs)
    assert ((times // S).tolist(), used.tolist()) == ([0, 4, 10, 12, 19, 24], [6, 2, 0, 4, 4, 0])
    times, out = run.taken_out  # job 2 holds two GPUs of node 1 while that drains
    assert ((times // S).tolist(), out.tolist()) == ([4, 8, 10, 12, 20], [4, 6, 8, 4, 0])


@given(data=st.data(), case=cases(8, ORDERS))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_runs_with_outages_are_kept_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, case: tuple[Any, ...]
) -> None:
    jobs, asked, cluster, place, with_, rules, prediction, seed = case
    assume(len(jobs))
    interval_s = data.draw(st.sampled_from((0, 1, 4)))
    done = simulate_on_nodes(
        jobs, asked, cluster, with_, place, prediction=prediction, rules=rules, seed=seed,
        outages=data.draw(outages(len(cluster))), checkpoint_interval_ns=interval_s * S,
    )  # fmt: skip
    store = tmp_path_factory.mktemp("kept")
    run_id = kept(
        store, done, policy=with_.name, rules=rules, placement=place.name, prediction=prediction,
        origin=run_events.QueueOrigin(seed=seed),
    )  # fmt: skip
    found = audit(store, run_id)
    assert found.findings == ()


def forged(store: Path, run_id: str, change: Callable[[Any], Any]) -> str:
    """A run whose log is whole, with events that another program could have written; None leaves one out."""
    with RunWriter.create(run_index.folder(store, "forged")) as writer:
        for event in RunReader(run_index.folder(store, run_id)).events():
            payload = change(event)
            if event.type == "run_finished":
                writer.finish(event.payload["totals"], sim_ns=event.sim_ns)
            elif payload is not None:
                writer.append(event.sim_ns, event.type, payload, job=event.job)
    return "forged"


def _kept_more(event: Any) -> Any:
    if event.type != "job_preempted":
        return event.payload
    return {**event.payload, "spec": {**event.payload["spec"], "kept_ns": 4 * S}}


def _longer_out(event: Any) -> Any:
    if event.type != "run_started":
        return event.payload
    scenario = event.payload["scenario"]
    out = {**scenario["nodes"]["outages"], "rows": [[0, 4 * S, 21 * S, 0], [1, 8 * S, 12 * S, 1]]}
    nodes = {**scenario["nodes"], "outages": out}
    return {**event.payload, "scenario": {**scenario, "nodes": nodes}}


def _no_repair(event: Any) -> Any:
    return None if event.type == "node_up" else event.payload


def _all_drain(event: Any) -> Any:
    return {**event.payload, "reason": "drain"} if event.type == "node_down" else event.payload


@pytest.mark.parametrize("change", [_kept_more, _longer_out, _no_repair, _all_drain])
def test_an_outage_that_was_changed_is_found(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    found = audit(tmp_path, forged(tmp_path, kept(tmp_path, by_hand()), change))
    assert "re-execution" in [one.check for one in found.findings]


def test_what_cannot_be_on_nodes_that_are_out_is_named(tmp_path: Path) -> None:
    done = by_hand()
    early = replace(done, start_ns=done.start_ns - np.array((2 * S, 0, 0)))
    found = audit(tmp_path, kept(tmp_path, early)).findings
    assert "job 1 starts on node 1, which is out" in [one.problem for one in found]
    later = NodeOutages.of_rows([(0, 4 * S, 20 * S, False), (1, 9 * S, 12 * S, False)])
    found = audit(tmp_path, kept(tmp_path, replace(done, outages=later))).findings
    assert "job 2 goes on after a fault of its node 1" in [one.problem for one in found]


def test_a_scheduler_that_knew_a_repair_ahead_is_found(tmp_path: Path) -> None:
    run = load(tmp_path, kept(tmp_path, by_hand()))
    assert looks_ahead(run) == [] and run.nodes is not None
    waits = replace(run.nodes, start_ns=run.nodes.start_ns + np.array((0, S, 0)))
    assert "start of job 2 depends" in looks_ahead(replace(run, nodes=waits))[0]


def test_why_a_job_waited_names_the_outage_and_the_lost_work(tmp_path: Path) -> None:
    run_id = kept(tmp_path, by_hand())
    first = waiting.explain(tmp_path, run_id, "1")
    assert first.ended_runs == (EndedRun(0, 0.0, 4.0, 3.0, 1.0, 8.0),)
    assert (first.waited_s, first.busy_s, first.out_s, first.held_back_s) == (8, 0, 8, 0)
    assert first.out_nodes == (OutNode(0, "fault", 4.0, 20.0), OutNode(1, "drain", 8.0, 12.0))
    third = waiting.explain(tmp_path, run_id, "3")
    assert (third.waited_s, third.busy_s, third.out_s, third.outages) == (18, 3, 15, 2)
    assert third.forecast is not None and third.to_json()["out_nodes"][0]["kind"] == "fault"
    # At 5 s node 0 has been out for 1 s, and no outage is over: it is out as long again.
    again = waiting.explain(tmp_path, run_id, "1", 5.0).forecast
    assert again is not None and (again.low_s, again.high_s) == (6, 6)
    with pytest.raises(UsageError, match="waits from 0 to 0 s and from 4 to 12 s"):
        waiting.explain(tmp_path, run_id, "1", 13.0)


def test_a_forecast_knows_no_outage_to_come_and_no_end_of_one(tmp_path: Path) -> None:
    run = load(tmp_path, kept(tmp_path, by_hand()))
    assert run.nodes is not None
    out = run.nodes.outages.known_at(5 * S, run.nodes.outages.up_ns + 7 * S)
    other = replace(run, nodes=replace(run.nodes, outages=out))
    told, same = (start_forecast.forecast(one, 2, 5 * S) for one in (run, other))
    assert told == same and told.median_s == 10  # job 1 has node 0 from 6 s on; job 2 ends at 10 s


def test_sql_counts_restarts_lost_work_and_every_wait(tmp_path: Path) -> None:
    kept(tmp_path, by_hand())
    text = "select job, started_s, wait_s, run_s, restarts, lost_s from queue_jobs order by job"
    assert [tuple(row.values()) for row in query(tmp_path, text).to_pylist()] == [
        ("1", 0.0, 8.0, 11.0, 1, 1.0), ("2", 0.0, 0.0, 10.0, 0, 0.0), ("3", 19.0, 18.0, 5.0, 0, 0.0),
    ]  # fmt: skip


def test_sql_has_a_row_for_each_stretch_in_which_a_node_is_out(tmp_path: Path) -> None:
    rows = [(0, 4, 20, False), (0, 15, 18, True), (0, 20, 22, True), (1, 8, 12, True), (1, 14, 99, True)]
    out = NodeOutages.of_rows([(node, a * S, b * S, drain) for node, a, b, drain in rows])
    kept(tmp_path, replace(by_hand(), outages=out))
    found = query(tmp_path, "select * exclude run from node_outages order by node, down_s").to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (0, "fault", 4.0, 20.0), (0, "drain", 20.0, 22.0), (1, "drain", 8.0, 12.0), (1, "drain", 14.0, None),
    ]  # fmt: skip


def test_the_page_shows_nodes_that_are_out(tmp_path: Path) -> None:
    done = by_hand()
    times, counts = node_use(done)
    assert (times // S).tolist() == [0, 4, 8, 10, 12, 19, 20, 24]
    assert counts[:, 3].tolist() == [0, 1, 2, 2, 1, 1, 0, 0] and (counts.sum(axis=1) == 2).all()
    text = page.write(tmp_path, kept(tmp_path, done)).read_text(encoding="utf-8")
    assert '"out"' in text and "GPU hours of work are lost in 1 run that" in text


def test_drawn_faults_are_drawn_further_for_another_scheduler(tmp_path: Path) -> None:
    plan = OutagePlan(mtbf_s=72_000, mttr_s=7_200, seed=3, checkpoint_interval_s=600)
    found = compare_on_nodes(queue_log.TARGET, "10 x 8 V100", ["easy"], outages=plan, keep=tmp_path)
    (run_id,) = found.runs.values()
    header = RunReader(run_index.folder(tmp_path, run_id)).header()
    assert "synthetic faults" in header["note"] and audit(tmp_path, run_id).ok
    other = whatif.what_if(tmp_path, run_id, "fcfs")
    direct = compare_on_nodes(queue_log.TARGET, "10 x 8 V100", ["fcfs"], outages=plan)
    assert other.other == next(iter(direct.figures.values())).to_json()
    assert other.starts_differ > 0 and other.other["makespan_s"] > other.base["makespan_s"]
    assert audit(tmp_path, other.run_id).ok
