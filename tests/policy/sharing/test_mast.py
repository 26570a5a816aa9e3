"""MAST's queue of one cluster, events found by hand."""

import numpy as np

from policy.sharing.registry import RECIPES
from twin.queue.jobs import QueueJobs
from twin.sharing import engine
from twin.sharing.changes import FREE
from twin.sharing.curves import SpeedCurves
from twin.sharing.engine import SharedSchedule, SharingWorld
from twin.sharing.speeds import MeasuredSpeeds


def played(submit_s: list[int], gpus: list[int], priority: list[int]) -> SharedSchedule:
    """Jobs of 100 s on one node of 8 GPUs, changes free."""
    jobs = QueueJobs.of_seconds(submit_s, [100] * len(gpus), gpus, priority=priority)
    count = len(jobs)
    speeds = MeasuredSpeeds(np.zeros(count), np.zeros((count, 3)), SpeedCurves.rigid(jobs.processors))
    world = SharingWorld(jobs, jobs.run_ns, np.full(count, 10**10), 1, 8, FREE, speeds)
    return engine.play(world, RECIPES["mast"].make())


def ends(done: SharedSchedule) -> list[float]:
    return [one / 1e9 for one in done.states.ended.tolist()]


def test_a_higher_priority_preempts_the_latest_of_the_lowest() -> None:
    done = played([0, 10, 20], [4, 4, 4], [1, 1, 0])
    assert done.states.preempted.tolist() == [0, 1, 0]
    assert ends(done) == [100, 190, 120]  # the second has run 10 s, and goes on at 100


def test_an_equal_or_lower_priority_waits_and_small_jobs_pass() -> None:
    done = played([0, 10, 20], [6, 4, 2], [1, 1, 2])
    assert done.states.preempted.sum() == 0
    assert ends(done) == [100, 200, 120]


def test_jobs_without_a_priority_come_last() -> None:
    done = played([0, 10, 20], [8, 8, 8], [-1, 1, 0])
    assert done.states.preempted.tolist() == [1, 1, 0]
    assert ends(done) == [300, 210, 120]


def test_without_priorities_jobs_go_by_submission() -> None:
    assert ends(played([0, 10, 20], [8, 8, 8], [-1, -1, -1])) == [100, 200, 300]
