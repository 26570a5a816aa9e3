"""Crux on two jobs that share an uplink, by hand and by the paper's example 1."""

import numpy as np
import pytest

from policy.sharing.crux import Crux, FairLinks, correction, intensity
from twin.queue.jobs import QueueJobs
from twin.sharing import engine, referee
from twin.sharing.changes import FREE
from twin.sharing.curves import SpeedCurves
from twin.sharing.engine import SharedSchedule, SharingWorld
from twin.sharing.iterations import Pattern
from twin.sharing.speeds import MeasuredSpeeds
from twin.sharing.uplinks import Uplinks, patterns_of
from twin.sharing.view import SharingScheduler


def shared(stages: list[tuple[float, float, float]], gpus: list[int]) -> SharingWorld:
    """Jobs of 100 s that lie in both of two racks of two nodes, on an uplink of one stream each."""
    jobs = QueueJobs.of_seconds([0] * len(gpus), [100] * len(gpus), gpus)
    measured = np.array(stages)
    speeds = MeasuredSpeeds(measured.sum(axis=1), measured, SpeedCurves.rigid(jobs.processors))
    links = Uplinks.oversubscribed(np.array([0, 1, 0, 1]), 2.0, patterns_of(speeds.iteration, measured))
    pause = np.zeros(len(jobs), np.int64)
    return SharingWorld(jobs, jobs.run_ns, pause, 4, 2, FREE, speeds, uplinks=links)


def ends(world: SharingWorld, scheduler: SharingScheduler) -> list[float]:
    done: SharedSchedule = engine.play(world, scheduler)
    return [round(float(one) / 1e9, 2) for one in done.states.ended]


def test_the_higher_intensity_goes_first_and_is_not_slowed() -> None:
    # Job 0 computes 1 s and sends 3, job 1 computes 2 and sends 2: intensities 4/3 and 4. Job 1 leaves 2 of
    # 4 s; job 0 sends 2 s, then 1 in the next gap and computes: 8 s in place of 4 until job 1 ends.
    world = shared([(0, 1, 3), (0, 2, 2)], [4, 4])
    assert ends(world, Crux()) == [150, 100]
    fair = ends(world, FairLinks())
    assert fair[1] > 100


def test_the_referee_writes_the_same_events_of_jobs_that_contend() -> None:
    world = shared([(0, 1, 3), (0, 2, 2), (0, 1, 1)], [4, 4, 4])
    events = referee.named(engine.play(world, Crux()).events)
    assert events == referee.referee_events(world, Crux())
    assert [kind for _, kind, *_ in events].count("speed") > 0


def test_example_1_gives_the_shorter_iteration_the_factor_of_the_paper() -> None:
    long, short = Pattern(2, 2, 2), Pattern(1, 1, 1)
    assert correction(short, long) == pytest.approx(1.5)
    assert correction(long, long) == 1
    world = shared([(0, 2, 2), (0, 1, 1)], [4, 4])
    assert ends(world, Crux())[1] == 100  # equal intensity, so the factor decides


def test_a_job_that_loses_nothing_gives_way() -> None:
    assert correction(Pattern(0, 1, 1), Pattern(1, 1, 2)) >= 1
    assert correction(Pattern(5, 1, 5), Pattern(5, 1, 5)) == 1


def test_intensity_is_work_over_traffic() -> None:
    found = intensity(np.array([4, 2]), np.array([[9.0, 3, 2], [9, 3, 0]]))
    assert found.tolist() == [6, np.inf]
