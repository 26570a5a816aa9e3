"""Figures of windows of a schedule, by hand."""

import numpy as np
import pytest

from replay.logqueue import windowed
from twin.nodes.metrics import mean_fragmentation
from twin.nodes.on_nodes import NodeSchedule
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands
from twin.queue.jobs import QueueJobs


def two_jobs() -> NodeSchedule:
    """A job of 5 GPUs for 10 s on a node of 8, then one of 4 for as long.

    Of 3 free GPUs neither task can use any; of 4 one of both can use all.
    """
    cluster, jobs = NodeCluster.parse("1 x 8 A100"), QueueJobs.of_seconds([7, 8], [10, 10], [5, 4])
    demands = Demands.of_jobs(cluster, jobs.processors)
    start_ns, slots = np.array([7, 17]) * 10**9, np.array([0, 1, 2, 3, 4, 0, 1, 2, 3])
    return NodeSchedule(jobs, cluster, demands, start_ns, np.zeros(2, np.bool_), np.array([0, 5, 9]), slots)


def test_fragmentation_of_windows_is_the_mean_over_the_time_of_each() -> None:
    done = two_jobs()
    assert windowed.fragmentation_means(done) == pytest.approx([3 / 8] * 10 + [2 / 8] * 10)
    assert mean_fragmentation(done) == pytest.approx(windowed.fragmentation_means(done).mean())


def test_the_interval_of_fragmentation_lies_between_the_windows() -> None:
    found = windowed.fragmentation(two_jobs())
    assert found.value == pytest.approx(31.25)
    assert 25 <= found.low < found.value < found.high <= 37.5
