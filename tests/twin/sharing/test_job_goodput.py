"""Goodput of jobs by hand: step times, efficiency, epochs, and a run whose speed changes with them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from policy.sharing.srtf import Srtf
from tests.support.goodput_jobs import APPLICATIONS, SECOND, goodput_of
from twin.queue.jobs import QueueJobs
from twin.sharing import engine, referee
from twin.sharing.changes import FREE
from twin.sharing.curves import SpeedCurves
from twin.sharing.engine import SharingWorld
from twin.sharing.job_goodput import trained
from twin.sharing.speeds import MeasuredSpeeds

ONE = APPLICATIONS[0]


def at(nodes: int, replicas: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([nodes]), np.array([replicas])


def test_goodput_is_samples_a_second_times_efficiency() -> None:
    # 40 samples on 4 GPUs of a node: 10 x 0.02 + 0.1 s a step; efficiency (100 + 10) / (100 + 40).
    assert ONE.goodput("slow", *at(1, 4), 0, 40)[0] == pytest.approx(40 / 0.3 * 110 / 140)
    # Over two nodes synchronisation takes 0.4 s; the second epoch has a noise scale of 400.
    assert ONE.goodput("fast", *at(2, 4), 1, 40)[0] == pytest.approx(40 / 0.5 * 410 / 440)
    # 80 samples of one GPU are two passes of 40.
    assert ONE.goodput("slow", *at(1, 1), 0, 80)[0] == pytest.approx(80 / 1.6 * 110 / 180)


def test_a_tuned_job_takes_the_batch_of_the_most_goodput() -> None:
    each = [ONE.goodput("slow", *at(1, 8), 0, batch)[0] for batch in range(10, 161)]
    tuned = ONE.goodput("slow", *at(1, 8), 0)[0]
    assert each[30] < tuned and tuned == pytest.approx(max(each), rel=0.01)
    assert ONE.goodput("slow", *at(1, 8), 1)[0] > tuned  # more noise: larger batches pay


def test_nothing_is_promised_beyond_what_was_measured() -> None:
    assert ONE.goodput("slow", *at(5, 16), 0, 40)[0] == 0
    assert ONE.goodput("slow", *at(5, 16), 0, 40, measured=False)[0] > 0
    assert ONE.goodput("unknown", *at(1, 1), 0, 40)[0] == 0
    assert ONE.alone_s("slow", 5, 16, 40) == 0


def test_time_alone_sums_epochs() -> None:
    rates = [ONE.goodput("slow", *at(1, 2), epoch, 40)[0] for epoch in (0, 1)]
    assert ONE.alone_s("slow", 1, 2, 40) == pytest.approx(600 / rates[0] + 600 / rates[1])
    assert (ONE.epoch(0.0), ONE.epoch(0.499), ONE.epoch(0.5), ONE.epoch(1.0)) == (0, 0, 1, 1)


def world(*, tuned: bool, refresh_s: int = 1) -> SharingWorld:
    """A job alone on the GPUs that its run time is of."""
    alone = ONE.alone_s("slow", 1, 4, 40)
    jobs = replace(QueueJobs.of_seconds([0], [1], [4]), run_ns=np.array([round(alone * SECOND)]))
    jobs = replace(jobs, estimate_ns=jobs.run_ns)
    speeds = MeasuredSpeeds(np.zeros(1), np.zeros((1, 3)), SpeedCurves.rigid(jobs.processors))
    goodput = goodput_of(jobs.run_ns, np.zeros(1, np.int64), np.zeros(1, np.int64), tuned=tuned,
                         refresh_s=refresh_s)  # fmt: skip
    pause = np.full(1, 10 * SECOND)
    return SharingWorld(jobs, jobs.run_ns, pause, 1, 8, FREE, speeds, goodput=goodput)


def test_a_job_alone_takes_its_run_time_with_a_new_speed_in_each_epoch() -> None:
    made = world(tuned=False)
    done = engine.play(made, Srtf())
    kinds = [kind for _, kind, *_ in referee.named(done.events)]
    assert kinds == ["start", "speed", "end"]
    rates = [ONE.goodput("slow", *at(1, 4), epoch, 40)[0] for epoch in (0, 1)]
    crossed = 600 / rates[0]
    assert done.events[1, 0] / SECOND == np.ceil(crossed)  # asked every second: up to one late
    assert done.states.ended[0] == pytest.approx(made.jobs.run_ns[0], rel=0.01)
    assert engine.play(world(tuned=True), Srtf()).states.ended[0] < done.states.ended[0]


def test_a_table_holds_measured_placements_alone() -> None:
    goodput = world(tuned=False).goodput
    assert goodput is not None
    (found,) = goodput.speeds(np.zeros(1, np.int64), goodput.run_ns, 6, 20)
    assert found.shape == (2, 7, 21)
    assert not found[:, 5:].any() and not found[:, :, 17:].any() and not found[:, 3, :3].any()
    mean = goodput.run_ns[0] / SECOND / 1200
    assert found[0, 1, 4] == pytest.approx(ONE.goodput("slow", *at(1, 4), 0, 40)[0] * mean)


@pytest.mark.shared
def test_profiles_of_bert_say_how_long_it_trains(shared: Path) -> None:
    one = trained(shared / "jobs/sia-pollux/profiles", "bert", ("quad",))
    assert one.samples == pytest.approx(14_774 * 12) and one.ends.tolist() == [0.5, 1.0]
    assert one.alone_s("quad", 1, 4) < one.alone_s("quad", 1, 4, 48) < one.alone_s("quad", 1, 1)
