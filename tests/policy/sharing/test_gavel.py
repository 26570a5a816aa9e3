"""Gavel on two nodes of different GPUs, events found by hand."""

import numpy as np
import pytest

from policy.sharing.registry import RECIPES
from twin.queue.jobs import QueueJobs
from twin.sharing import engine
from twin.sharing.changes import FREE
from twin.sharing.curves import SpeedCurves
from twin.sharing.engine import SharedSchedule, SharingWorld
from twin.sharing.kinds import NodeKinds
from twin.sharing.speeds import MeasuredSpeeds

PPM = 1_000_000


def played(
    name: str, run_s: list[int], gpus: list[int], speed: list[list[float]], nodes: tuple[int, ...] = (0, 1),
    size: int = 1,
) -> SharedSchedule:  # fmt: skip
    """Jobs submitted at once, alone on nodes of the models given."""
    jobs = QueueJobs.of_seconds([0] * len(run_s), run_s, gpus)
    count = len(jobs)
    speeds = MeasuredSpeeds(np.zeros(count), np.zeros((count, 3)), SpeedCurves.rigid(jobs.processors))
    kinds = NodeKinds(tuple("ab"[: len(speed[0])]), np.array(nodes), (np.array(speed) * PPM).astype(np.int64))
    world = SharingWorld(jobs, jobs.run_ns, np.full(count, 10**10), len(nodes), size, FREE, speeds, kinds)
    return engine.play(world, RECIPES[name].make())


def ends(done: SharedSchedule) -> list[float]:
    return [round(one / 1e9, 3) for one in done.states.ended.tolist()]


def test_the_job_that_gains_most_gets_the_fast_node_whoever_came_first() -> None:
    # The first is as fast on both nodes. srtf sees no models: the second stays on the slow one to its end.
    speed = [[1.0, 1.0], [1.0, 0.25]]
    assert ends(played("gavel", [720, 1440], [1, 1], speed)) == [720, 1440]
    assert ends(played("srtf", [720, 1440], [1, 1], speed)) == [720, 1440 * 4]


def test_jobs_take_turns_on_the_fast_node_in_rounds() -> None:
    # Shares of half each. Work at 360, 720, 1080: 360, 540, 900 of the first, 180, 540, 720 of the second;
    # then the second is on the fast node, and both have their last 180 and 360 done after 360 s.
    done = played("gavel", [1080, 1080], [1, 1], [[1.0, 0.5]] * 2)
    moves = done.events[done.events[:, 1] == 4]
    assert sorted({int(one) for one in moves[:, 0] // 10**9}) == [360, 720, 1080]
    assert ends(done) == [1440, 1440]


def test_two_jobs_share_one_node_over_time() -> None:
    done = played("gavel", [720, 720], [1, 1], [[1.0]] * 2, (0,))
    assert ends(done) == [360 + 360 + 360, 1440]


def test_a_job_larger_than_each_model_spans_both_at_the_slower_speed() -> None:
    assert ends(played("gavel", [100], [4], [[1.0, 0.5]], size=2)) == [200]


def test_a_job_too_large_for_one_model_stays_on_the_other() -> None:
    done = played("gavel", [100], [4], [[1.0, 2.0]], (0, 0, 1), size=2)
    assert ends(done) == [pytest.approx(100)]
