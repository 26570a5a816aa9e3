"""Small worlds of changing jobs whose events are found by hand, in seconds."""

from dataclasses import replace

import numpy as np
import pytest

from ingest.core.errors import UsageError
from policy.sharing.preemptive_orders import EarliestDeadline, LeastAttained
from policy.sharing.srtf import Srtf
from policy.sharing.tiresias import Tiresias
from twin.queue.jobs import LONGEST_NS, QueueJobs
from twin.sharing import engine, referee
from twin.sharing.changes import FREE, MURI, STEADY, ChangeRules, change_rules, pauses_ns
from twin.sharing.curves import SpeedCurves
from twin.sharing.engine import SharedSchedule, SharingWorld
from twin.sharing.figures import sharing_figures
from twin.sharing.speeds import MeasuredSpeeds
from twin.sharing.view import SharingScheduler

Row = tuple[int, int, int]
"""Submission, run, GPUs."""


def rigid(jobs: QueueJobs) -> MeasuredSpeeds:
    count = len(jobs)
    return MeasuredSpeeds(np.zeros(count), np.zeros((count, 3)), SpeedCurves.rigid(jobs.processors))


def played(
    rows: list[Row], scheduler: SharingScheduler, rules: ChangeRules, *, nodes: int = 1, size: int = 8,
    pause_s: int = 10, deadline: list[int] | None = None,
) -> SharedSchedule:  # fmt: skip
    submit, run, gpus = zip(*rows, strict=True)
    jobs = QueueJobs.of_seconds(submit, run, gpus, deadline=deadline)
    pause = np.full(len(jobs), pause_s * 10**9)
    return engine.play(SharingWorld(jobs, jobs.run_ns, pause, nodes, size, rules, rigid(jobs)), scheduler)


def events(done: SharedSchedule) -> list[tuple[float, str, int]]:
    return [(time / 1e9, kind, job) for time, kind, job, *_ in referee.named(done.events)]


def ends(done: SharedSchedule) -> list[float]:
    return [float(one) for one in done.states.ended / 1e9]


LONG_SHORT: list[Row] = [(0, 1000, 8), (200, 100, 8)]


def test_the_shorter_rest_preempts_and_resuming_costs_a_pause() -> None:
    done = played(LONG_SHORT, Srtf(), STEADY)
    assert events(done) == [
        (0, "start", 0), (200, "preempt", 0), (200, "start", 1), (300, "end", 1), (300, "resume", 0),
        (1110, "end", 0),
    ]  # fmt: skip
    found = sharing_figures(done)
    assert (found.preemptions, found.changes) == (1, 1)
    assert found.lost_gpu_h == pytest.approx(10 * 8 / 3600)
    assert ends(played(LONG_SHORT, Srtf(), FREE)) == [1100, 300]


def test_a_young_run_is_left_alone_until_its_pause_is_amortised() -> None:
    early = [(0, 1000, 8), (30, 100, 8)]
    assert events(played(early, Srtf(), STEADY))[1:3] == [(100, "preempt", 0), (100, "start", 1)]
    assert events(played(early, Srtf(), FREE))[1] == (30, "preempt", 0)


def test_a_run_that_ends_within_its_pause_is_left_alone() -> None:
    nearly = [(0, 1000, 8), (993, 2, 8)]
    assert ends(played(nearly, Srtf(), STEADY)) == [1000, 1002]
    assert ends(played(nearly, Srtf(), FREE)) == [1002, 995]


def test_remaining_service_weighs_gpus() -> None:
    rows = [(0, 100, 8), (0, 120, 2)]
    assert events(played(rows, Srtf(), FREE))[0] == (0, "start", 0)
    assert events(played(rows, Srtf(by_service=True), FREE))[0] == (0, "start", 1)


def test_muri_takes_the_pause_at_every_event_but_not_from_who_ends() -> None:
    # The first job loses 10 of its first 200 s at the arrival, and 10 s at the other's end.
    done = played([(0, 1000, 4), (200, 100, 4)], Srtf(), MURI)
    assert ends(done) == [1020, 300]


def test_a_large_job_takes_whole_nodes_and_smaller_ones_pass_it() -> None:
    rows = [(0, 50, 2), (0, 60, 12), (0, 70, 8)]
    done = played(rows, Srtf(), FREE, nodes=2)
    assert events(done)[:2] == [(0, "start", 0), (0, "start", 2)]
    assert ends(done) == [50, 130, 70]


def test_running_jobs_keep_their_node_unless_places_are_chosen_anew() -> None:
    rows = [(0, 100, 6), (0, 400, 6), (10, 300, 2)]
    moved = played(rows, Srtf(), replace(MURI, charges_events=False, stretch_ppm=10**6), nodes=2)
    assert (100, "move", 2) not in events(moved)
    assert [kind for _, kind, _ in events(played(rows, Srtf(), FREE, nodes=2))].count("move") == 0
    assert [kind for _, kind, _ in events(moved)].count("move") > 0


def test_tiresias_sends_a_job_down_when_its_share_is_had() -> None:
    done = played([(0, 5000, 8), (10, 500, 8)], Tiresias(), FREE)
    assert events(done)[1:3] == [(407, "preempt", 0), (407, "start", 1)]  # ceil(3250 / 8) seconds
    assert events(done)[3] == (813 + 1, "preempt", 1)


def test_least_attained_service_takes_turns_of_a_quantum() -> None:
    done = played([(0, 700, 8), (0, 700, 8)], LeastAttained(), FREE)
    assert [time for time, kind, _ in events(done) if kind == "preempt"] == [360, 720]


def test_the_earlier_deadline_preempts() -> None:
    done = played([(0, 1000, 8), (200, 100, 8)], EarliestDeadline(), FREE, deadline=[2000, 350])
    assert ends(done) == [1100, 300]
    assert sharing_figures(done).deadlines_met == 1


def test_a_job_at_its_bound_runs_to_its_end() -> None:
    rows = [(0, 1000, 8), *((200 * i, 100, 8) for i in range(1, 4))]
    assert played(rows, Srtf(), FREE).states.preempted[0] == 3
    done = played(rows, Srtf(), replace(FREE, most_preemptions=1))
    assert done.states.preempted[0] == 1 and ends(done)[0] == 1100


def test_restarts_follow_the_model_and_the_size() -> None:
    found = pauses_ns(["a2c", "a2c", "vgg16", None, "vgg16"], np.array([1, 8, 3, 1, 64]))
    assert (found // 10**9).tolist() == [38, 46, 8, 30, 10]


def test_a_queue_that_outlives_the_clock_is_told() -> None:
    run = (LONGEST_NS - 1) // 10**9
    with pytest.raises(UsageError, match="beyond 73 years"):
        played([(0, run, 8)] * 5, Srtf(), FREE)


def test_unknown_changes_are_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'steady'"):
        change_rules("steadi")
