"""Outages of nodes: schedules by hand, what the scheduler knows, and faults that are drawn."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from policy.placement.registry import placement
from policy.queue.registry import recipe
from tests.support.event_streams import of_kernel
from tests.support.node_queues import cases, outages
from twin.nodes.metrics import node_figures
from twin.nodes.on_nodes import NodeSchedule, simulate_on_nodes
from twin.nodes.outages import NodeOutages, drawn
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands
from twin.queue.jobs import QueueJobs
from twin.queue.rules import INSTANT, PREDICTSIM, QueueRules

ONE, TWO = NodeCluster.parse("1 x 4 A100"), NodeCluster.parse("2 x 4 A100")
Rows = list[tuple[int, int, int]]


def out(*rows: tuple[int, int, int, str]) -> NodeOutages:
    """Outages of rows: node, begin and end in seconds, kind."""
    return NodeOutages.of_rows([(n, a * NS_PER_S, b * NS_PER_S, kind == "drain") for n, a, b, kind in rows])


def played(
    rows: Rows, when: NodeOutages, policy: str = "fcfs", *, cluster: NodeCluster = ONE, interval_s: int = 0,
    rules: QueueRules = INSTANT,
) -> NodeSchedule:  # fmt: skip
    """Rows of submit, run and GPUs."""
    submit, run, gpus = zip(*rows, strict=True)
    jobs, demands = QueueJobs.of_seconds(submit, run, gpus), Demands.of_jobs(cluster, gpus)
    return simulate_on_nodes(
        jobs, demands, cluster, recipe(policy), placement("first-fit"), rules=rules, outages=when,
        checkpoint_interval_ns=interval_s * NS_PER_S,
    )  # fmt: skip


def spans(done: NodeSchedule) -> list[tuple[int, int]]:
    """Start and end of each job's last run, seconds."""
    columns = (done.start_ns // NS_PER_S).tolist(), (done.end_ns // NS_PER_S).tolist()
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("rules", [INSTANT, PREDICTSIM])
def test_a_fault_ends_a_job_which_begins_anew_or_at_its_last_checkpoint(rules: QueueRules) -> None:
    fault = out((0, 4, 6, "fault"))
    plain = played([(0, 10, 2)], fault, rules=rules)
    assert spans(plain) == [(6, 16)]
    assert plain.broken.lost_ns.tolist() == [4 * NS_PER_S]
    kept = played([(0, 10, 2)], fault, rules=rules, interval_s=3)  # checkpoints at 3 s of a run
    assert spans(kept) == [(6, 13)]
    head = ("head of the queue", [2], {"places": [[0, 0], [0, 1]]})
    assert [(time // NS_PER_S, *rest) for time, *rest in of_kernel(kept)] == [
        (0, "submitted", 0, None), (0, "started", 0, head), (4, "out", 0, None),
        (4, "killed", 0, 3 * NS_PER_S), (6, "back", 0, None), (6, "started", 0, head), (13, "ended", 0, None),
    ]  # fmt: skip
    twice = out((0, 4, 6, "fault"), (0, 10, 11, "fault"))  # keeps 3 s, then 3 of 4 s
    again = played([(0, 10, 2)], twice, rules=rules, interval_s=3)
    assert spans(again) == [(11, 15)]
    assert again.broken.kept_ns.tolist() == [3 * NS_PER_S, 3 * NS_PER_S]


def test_figures_count_runs_lost_work_and_time_without_nodes() -> None:
    done = node_figures(played([(0, 10, 2), (1, 10, 2)], out((0, 4, 6, "fault")), interval_s=3))
    assert (done.restarts, done.most_restarts) == (2, 1)
    # Both begin at 0 and 1, are ended at 4 and keep 3 s: 1 s of two GPUs is lost, and nothing of the other.
    assert done.lost_gpu_s == pytest.approx(2.0)
    assert done.of_pool.makespan_s == 13 and done.availability == pytest.approx(1 - 2 / 13)
    # Ends 13 and 13, so JCT 13 and 12; what is not run time is wait; 2 x 10 s x 2 GPUs of 13 s x 4.
    assert done.of_pool.avg_jct_s == 12.5 and done.of_pool.avg_wait_s == 2.5
    assert done.of_pool.utilisation == pytest.approx(40 / 52)


def test_a_drain_lets_jobs_end_and_none_start() -> None:
    done = played([(0, 10, 2), (5, 3, 2)], out((0, 4, 20, "drain")))
    assert spans(done) == [(0, 10), (20, 23)] and len(done.broken) == 0
    later = played([(0, 10, 2)], out((0, 4, 20, "drain"), (0, 6, 8, "fault")))
    assert spans(later) == [(20, 30)]  # a fault ends the jobs of a node that drains; the drain outlasts it


def test_a_job_that_ends_when_the_fault_comes_has_ended() -> None:
    for rules in (INSTANT, PREDICTSIM):
        assert spans(played([(0, 4, 2)], out((0, 4, 6, "fault")), rules=rules)) == [(0, 4)]


def test_only_jobs_of_the_node_are_ended_and_a_gang_with_any_of_its_nodes() -> None:
    fault = out((1, 4, 6, "fault"))
    apart = played([(0, 10, 4), (0, 10, 4)], fault, cluster=TWO)
    assert spans(apart) == [(0, 10), (6, 16)]
    assert spans(played([(0, 10, 8)], fault, cluster=TWO)) == [(6, 16)]


def test_an_ended_job_stands_before_those_that_came_later() -> None:
    fault = out((0, 4, 6, "fault"))
    assert spans(played([(0, 10, 4), (1, 2, 4), (2, 2, 4)], fault)) == [(6, 16), (16, 18), (18, 20)]
    # Under sjf the key goes first: the shorter jobs are run before the one that was ended.
    assert spans(played([(0, 10, 4), (1, 2, 4), (2, 2, 4)], fault, "sjf")) == [(10, 20), (6, 8), (8, 10)]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_nobody_waits_for_a_job_that_fits_on_no_nodes_of_now(policy: str) -> None:
    # The head wants both nodes; while one is out it has no reservation, and a long job goes first.
    rows, fault = [(0, 5, 2), (1, 5, 8), (2, 50, 2), (20, 30, 4)], out((1, 0, 10, "fault"))
    done = spans(played(rows, fault, policy, cluster=TWO))
    assert done[:3] == [(0, 5), (52, 57), (2, 52)]
    # Back at 10 it is reserved at 52 again: the last job ends at 50, and may use the node.
    assert done[3] == (20, 50)
    longer = [*rows[:3], (20, 40, 4)]
    assert spans(played(longer, fault, policy, cluster=TWO))[3] == (57, 97)


@given(data=st.data(), case=cases())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_start_depends_on_later_outages(data: st.DataObject, case: tuple[Any, ...]) -> None:
    jobs, asked, cluster, place, policy, rules, prediction, seed = case
    first = data.draw(outages(len(cluster)))
    now = data.draw(st.integers(0, 30)) * NS_PER_S
    columns = (column.tolist() for column in (first.node, first.down_ns, first.up_ns, first.drain))
    longer = [
        (node, down, up + (up > now) * 7 * NS_PER_S, drain)
        for node, down, up, drain in zip(*columns, strict=True)
        if down <= now
    ]

    one, other = (
        simulate_on_nodes(
            jobs, asked, cluster, policy, place, prediction=prediction, rules=rules, seed=seed, outages=when
        )
        for when in (first, NodeOutages.of_rows(longer))
    )

    assert _until(one, now) == _until(other, now)


def _until(done: NodeSchedule, now: int) -> list[tuple[int, int]]:
    """Starts of runs up to a time, and their jobs."""
    job = np.concatenate((np.arange(len(done.jobs)), done.broken.job))
    start = np.concatenate((done.start_ns, done.broken.start_ns))
    return sorted(zip(job[start <= now].tolist(), start[start <= now].tolist(), strict=True))


def test_drawn_faults_stay_when_more_are_drawn_and_have_the_means_asked_for() -> None:
    some, more = drawn(50, 3600, 600, 400_000, 7), drawn(50, 3600, 600, 800_000, 7)
    before = more.down_ns < 400_000 * NS_PER_S
    assert more.down_ns[before].tolist() == some.down_ns.tolist()
    assert more.up_ns[before].tolist() == some.up_ns.tolist()
    lasted = (more.up_ns - more.down_ns) / NS_PER_S
    # 9,524 repairs are expected: the mean of so many has a standard error of 1 %.
    assert lasted.mean() == pytest.approx(600, rel=0.05)
    assert len(more) == pytest.approx(50 * 800_000 / 4200, rel=0.05)
    assert not (drawn(50, 3600, 600, 400_000, 8).down_ns == some.down_ns[0]).any()


def test_outages_that_overlap_count_once() -> None:
    twice = out((0, 2, 8, "fault"), (0, 4, 12, "drain"), (1, 0, 1, "fault"))
    assert twice.out_gpu_s(TWO.gpus, 0, 10 * NS_PER_S) == 4 * 8 + 4


def test_outages_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="ends before it begins"):
        out((0, 5, 5, "fault"))
    with pytest.raises(UsageError, match="an outage of node 1: the nodes are 0 to 0"):
        played([(0, 1, 1)], out((1, 0, 5, "fault")))
    with pytest.raises(UsageError, match="say more than 0"):
        drawn(1, 0.0, 1.0, 10.0, 0)
    with pytest.raises(UsageError, match="more than 500,000 faults"):
        drawn(1000, 1.0, 1.0, 1e9, 0)
