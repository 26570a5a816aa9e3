"""Queues on nodes: schedules by hand, and the kernel against the SimPy referee and against one pool.

`TWIN_FUZZ=1000` sets the number of random clusters and policies; the default keeps the suite short.
"""

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from policy.placement.registry import placement
from policy.queue.registry import recipe
from tests.support.event_streams import of_kernel, of_referee
from tests.support.node_queues import both, cases, outages
from twin.nodes.metrics import fragmentation_over_time, node_figures, node_use, nodes_per_gang, racks_per_gang
from twin.nodes.on_nodes import NodeSchedule, simulate_on_nodes
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands
from twin.queue.jobs import QueueJobs
from twin.queue.referee import STARTED
from twin.queue.rules import PREDICTSIM, RLSCHEDULER
from twin.queue.simulation import simulate

EXAMPLES = int(os.environ.get("TWIN_FUZZ", "40"))
TWO = NodeCluster.parse("2 x 4 A100")


def played(
    rows: list[tuple[int, int, int]], policy: str, place: str, cluster: NodeCluster = TWO, **columns: Any
) -> NodeSchedule:
    """Rows of submit, run and GPUs."""
    submit, run, gpus = zip(*rows, strict=True)
    jobs = QueueJobs.of_seconds(submit, run, np.maximum(gpus, 1))
    demands = Demands.of_jobs(cluster, gpus, **columns)
    return simulate_on_nodes(jobs, demands, cluster, recipe(policy), placement(place))


def starts(done: NodeSchedule) -> list[int]:
    return (done.start_ns // 10**9).tolist()


@given(case=cases())
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_kernel_and_referee_have_the_same_events(case: tuple[Any, ...]) -> None:
    done, happened = both(case)
    assert of_kernel(done) == of_referee(happened, done)


@given(data=st.data(), case=cases())
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_kernel_and_referee_have_the_same_events_when_nodes_are_out(
    data: st.DataObject, case: tuple[Any, ...]
) -> None:
    out, interval_s = data.draw(outages(len(case[2]))), data.draw(st.sampled_from((0, 1, 4)))
    done, happened = both(case, out=out, interval_s=interval_s)
    assert of_kernel(done) == of_referee(happened, done)


def test_what_delayed_the_head_before_is_asked_again_for_another_head() -> None:
    # At 0 the second job, of three GPUs, heads the queue, and the third, a share of one, would delay it. At
    # 1 s the fifth, which wants processors alone, comes first by its wait: the third is not in its way.
    cluster = NodeCluster.of_nodes([3], ["A100"], [3000], [192])
    submit, run = [0, 0, 0, 0, 0, 1], [1] * 6
    jobs = QueueJobs.of_seconds(submit, run, [1, 3, 1, 1, 1, 1], [2, 2, 3, 2, 1, 1])
    asked = Demands.of_jobs(
        cluster, [1, 3, 1, 0, 0, 0], [200, 1000, 200, 1000, 1000, 1000], [0, 0, 0, 700, 2800, 0],
        [0, 0, 0, 40, 160, 0], [""] * 6,
    )  # fmt: skip
    case = (
        jobs, asked, cluster, placement("best-fit"), recipe("wfp3+easy"), PREDICTSIM, "estimate", 0
    )  # fmt: skip

    done, happened = both(case)

    assert of_kernel(done) == of_referee(happened, done)
    assert starts(done) == [0, 2, 1, 0, 1, 1]


@pytest.mark.parametrize("policy", ["fcfs", "easy", "saf+easy-sjbf", "wfp3+easy"])
def test_free_gpus_wherever_they_are_make_one_pool(policy: str) -> None:
    random = np.random.default_rng(5)
    jobs = QueueJobs.of_seconds(
        np.sort(random.integers(0, 300, 60)), random.integers(1, 50, 60), random.integers(1, 9, 60),
        random.integers(50, 80, 60),
    )  # fmt: skip
    pool = simulate(jobs, 12, recipe(policy), rules=PREDICTSIM)
    nodes = NodeCluster.parse("3 x 4 A100")
    done = simulate_on_nodes(
        jobs, Demands.of_jobs(nodes, jobs.processors), nodes, recipe(policy), placement("scattered"),
        rules=PREDICTSIM,
    )  # fmt: skip
    assert done.start_ns.tolist() == pool.start_ns.tolist()
    assert done.backfilled.tolist() == pool.backfilled.tolist()


def test_a_job_waits_for_a_node_though_enough_gpus_are_free() -> None:
    rows = [(0, 10, 2), (0, 20, 2), (1, 5, 4)]
    spread = played(rows, "fcfs", "worst-fit")
    assert [spread.nodes_of(job) for job in range(3)] == [[0], [1], [0]] and starts(spread) == [0, 0, 10]
    packed = played(rows, "fcfs", "best-fit")
    assert [packed.nodes_of(job) for job in range(3)] == [[0], [0], [1]] and starts(packed) == [0, 0, 1]
    assert starts(played(rows, "fcfs", "scattered")) == [0, 0, 1]


def test_who_overtakes_leaves_room_for_the_head() -> None:
    # The head needs a node: node 0 is free at 10. A pair that runs past 10 may lie on node 1 alone.
    rows = [(0, 10, 4), (0, 30, 1), (1, 10, 4), (2, 50, 2), (3, 50, 1)]
    done = played(rows, "easy", "first-fit")
    assert starts(done) == [0, 0, 10, 2, 3]
    assert [done.nodes_of(job) for job in range(5)] == [[0], [1], [0], [1], [1]]
    assert done.backfilled.tolist() == [False, False, False, True, True]
    assert starts(played([*rows[:3], (2, 50, 4)], "easy", "first-fit"))[3] == 20


def test_shares_lie_on_one_gpu_as_long_as_it_has_room() -> None:
    one = NodeCluster.parse("1 x 2 T4")
    done = played([(0, 10, 1)] * 5, "fcfs", "best-fit", one, milli=[600, 400, 600, 600, 400])
    assert starts(done) == [0, 0, 0, 10, 10]
    assert done.slots.tolist()[:3] == [0, 0, 1]
    # Of 2 GPUs x 20 s: (0.6 + 0.4 + 0.6 + 0.6 + 0.4) x 10 s.
    assert node_figures(done).of_pool.utilisation == pytest.approx(26 / 40)


def test_a_gang_waits_for_whole_nodes_of_one_model() -> None:
    rows = [(0, 9, 1), (0, 5, 4), (1, 5, 6)]
    done = played(rows, "fcfs", "first-fit", NodeCluster.parse("2 x 4 A100, 2 x 2 V100"))
    assert starts(done) == [0, 0, 5] and [done.nodes_of(job) for job in range(3)] == [[0], [1], [0, 1]]
    assert nodes_per_gang(done) == 1.5
    with pytest.raises(UsageError, match="1 jobs, job 1 the first, fit on no nodes"):
        played([(0, 5, 6)], "fcfs", "best-fit", NodeCluster.parse("1 x 4 A100, 2 x 2 V100"))


def test_a_gang_waits_for_one_rack_takes_one_that_is_free_or_crosses_racks() -> None:
    # Two racks of three nodes. At 1 two nodes of rack 0 and one of rack 1 are free; job 2 asks for two nodes,
    # job 3 for two more, job 4 for four, more than any rack has.
    racks = NodeCluster.parse("2 x 3 x 4 A100")
    rows = [(0, 10, 4), (0, 20, 8), (1, 5, 8), (2, 5, 8), (30, 5, 16)]
    waits = played(rows, "fcfs", "rack", racks)
    assert [waits.nodes_of(job) for job in range(4)] == [[0], [1, 2], [3, 4], [3, 4]]
    assert starts(waits) == [0, 0, 1, 6, 30] and len(waits.nodes_of(4)) == 4
    assert racks_per_gang(waits) == (1 + 1 + 1 + 2) / 4
    first = played([*rows[:2], (1, 5, 4), *rows[2:]], "fcfs", "rack-first", racks)
    assert first.nodes_of(2) == [3] and first.nodes_of(3) == [4, 5]
    assert starts(played([(0, 10, 8), (0, 20, 8), (1, 5, 8)], "fcfs", "rack-first", racks)) == [0, 0, 1]
    assert starts(played([(0, 10, 8), (0, 20, 8), (1, 5, 8)], "fcfs", "rack", racks)) == [0, 0, 10]


def test_fragmentation_is_a_mean_over_time() -> None:
    # One job of half a GPU on a node of one: half of it is free, and of no use to a job of a whole GPU.
    one = NodeCluster.parse("1 x 1 T4")
    done = played([(0, 10, 1), (0, 10, 1)], "fcfs", "best-fit", one, milli=[500, 1000])
    # 0 to 10: 500 are lost to the whole GPU, one job of two; 10 to 20: nothing is free.
    assert node_figures(done).fragmentation == pytest.approx(0.5 * 500 / 1000 / 2)
    times, share = fragmentation_over_time(done)
    assert (times // 10**9).tolist() == [0, 10, 10, 20]
    assert share[[0, 2]] == pytest.approx([0.25, 0.0])


def test_nodes_are_idle_partly_used_or_full() -> None:
    # Two of four GPUs of node 0 from 0 to 10, all of them from 1 to 6; node 1 is full from 2 to 5.
    done = played([(0, 10, 2), (1, 5, 2), (2, 3, 4)], "fcfs", "best-fit")
    times, counts = node_use(done)
    assert (times // 10**9).tolist() == [0, 1, 2, 5, 6, 10]
    assert counts.tolist() == [
        [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 2, 0], [1, 0, 1, 0], [1, 1, 0, 0], [2, 0, 0, 0],
    ]  # fmt: skip


def test_a_reserved_place_is_kept_from_all_who_come_later() -> None:
    # The third job wants a node: node 0 is free at 10. The fourth fits on node 1 beside the second; under
    # easy it may stay there past 30, when the fifth job, of eight GPUs, has both nodes.
    rows = [(0, 10, 4), (0, 30, 1), (1, 10, 4), (2, 50, 8), (3, 40, 3)]
    assert starts(played(rows, "easy", "first-fit")) == [0, 0, 10, 43, 3]
    done = played(rows, "conservative", "first-fit")
    assert starts(done) == [0, 0, 10, 30, 80]
    assert starts(played([*rows[:4], (3, 27, 3)], "conservative", "first-fit")) == [0, 0, 10, 30, 3]


def test_places_are_reserved_on_one_gpu_for_all_of_a_run() -> None:
    # On a pool the last job has a GPU from 5 on: one until 10, the other one then. Here it stays on one.
    rows = [(0, 10, 1), (0, 5, 1), (1, 10, 2), (2, 5, 1), (2, 8, 1)]
    one = NodeCluster.parse("1 x 2 T4")
    assert starts(played(rows, "conservative", "first-fit", one)) == [0, 0, 10, 5, 20]


@given(case=cases(names=("conservative",)))
@settings(max_examples=EXAMPLES // 4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_conservative_delays_nobody_on_nodes(case: tuple[Any, ...]) -> None:
    promised: dict[int, int] = {}

    def promise(time: int, job: int, start: int) -> None:
        assert start <= promised.get(job, start)
        promised[job] = start

    _, happened = both(case, promise)
    assert promised == {job: time for time, kind, job, _ in happened if kind == STARTED}


def test_what_cannot_be_played_on_nodes_is_refused() -> None:
    jobs = QueueJobs.of_seconds([0], [1], [1])
    demands = Demands.of_jobs(TWO, [1])
    with pytest.raises(UsageError, match="conservative needs runs that end by their prediction"):
        simulate_on_nodes(
            jobs, demands, TWO, recipe("conservative"), placement("best-fit"), rules=RLSCHEDULER
        )
