"""Jobs that wait for better hours: by hand, against trying every second, and blind to the future."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from policy.queue.registry import recipe
from tests.support.queues import POOL, queues
from twin.power.deferral import DAY_NS, HOUR_NS, Deferral, SignalForecast, held_back, releases
from twin.power.signals import CARBON, Signal, constant
from twin.power.step_series import StepSeries
from twin.queue.jobs import QueueJobs
from twin.queue.simulation import simulate

S = 10**9


def signal(steps_s: list[int], rates: list[int], end_s: int = 10**7) -> Signal:
    return Signal(CARBON, "test", StepSeries(np.array(steps_s) * S, np.array(rates), end_s * S))


def seconds(jobs: QueueJobs, deferral: Deferral) -> list[int]:
    return (releases(jobs, deferral) // S).tolist()


def test_a_job_waits_for_the_best_time_within_its_delay() -> None:
    low = signal([-100_000, 0, 100, 150], [9, 9, 1, 9])
    jobs = QueueJobs.of_seconds([0, 0, 0], [50, 80, 10], [1, 1, 1])
    assert seconds(jobs, Deferral(low, 1000 * S, "actual")) == [100, 70, 100]
    assert seconds(jobs, Deferral(low, 60 * S, "actual")) == [60, 60, 0]
    assert seconds(jobs, Deferral(low, 0, "actual")) == [0, 0, 0]


@given(
    jobs=queues(most=5), rates=st.lists(st.integers(0, 5), min_size=6, max_size=6),
    longest=st.integers(0, 60), every=st.integers(3, 30),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_no_second_is_better(jobs: QueueJobs, rates: list[int], longest: int, every: int) -> None:
    known = signal([-every, *(at * every for at in range(5))], rates)
    found = releases(jobs, Deferral(known, longest * S, "actual"))
    for submit, lasts, at in zip(jobs.submit_ns, jobs.estimate_ns, found, strict=True):
        tries = submit + np.arange(longest + 1) * S
        caused = known.series.between(tries, tries + lasts).tolist()
        assert submit <= at <= submit + longest * S
        assert known.series.between(np.array([at]), np.array([at + lasts]))[0] <= min(caused)


def test_without_foreknowledge_the_last_day_counts() -> None:
    day, hour = DAY_NS // S, HOUR_NS // S
    # Yesterday the third hour was clean; today it is not, and the fifth is.
    steps = [-day, -day + 2 * hour, -day + 3 * hour, 0, 4 * hour, 5 * hour]
    changing = signal(steps, [9, 1, 9, 9, 1, 9])
    jobs = QueueJobs.of_seconds([0], [3600], [1])
    assert seconds(jobs, Deferral(changing, DAY_NS, "yesterday")) == [2 * hour]
    assert seconds(jobs, Deferral(changing, DAY_NS, "actual")) == [4 * hour]


@given(jobs=queues(most=5), rates=st.lists(st.integers(0, 5), min_size=4, max_size=4))
@settings(max_examples=20, deadline=None)
def test_yesterday_does_not_look_ahead(jobs: QueueJobs, rates: list[int]) -> None:
    day = DAY_NS // S
    steps = [-2 * day, -day, -day // 2, -day // 4, 0]
    same = signal(steps, [*rates, 3])
    other = signal([*steps, 100, 200], [*rates, 3, 0, 9])
    first = jobs.submit_ns == 0
    one, two = (releases(jobs, Deferral(known, DAY_NS, "yesterday")) for known in (same, other))
    assert one[first].tolist() == two[first].tolist()


@given(jobs=queues(most=8), forecast=st.sampled_from(("yesterday", "actual")))
@settings(max_examples=20, deadline=None)
def test_a_constant_signal_gives_the_same_schedule(jobs: QueueJobs, forecast: SignalForecast) -> None:
    released = releases(jobs, Deferral(constant(CARBON, 123.456), 30 * DAY_NS, forecast))
    assert released.tolist() == jobs.submit_ns.tolist()
    seen, order = held_back(jobs, released)
    easy = recipe("easy")
    assert simulate(seen, POOL, easy).start_ns.tolist() == simulate(jobs, POOL, easy).start_ns[order].tolist()


def test_the_queue_sees_jobs_when_they_are_let_go() -> None:
    jobs = QueueJobs.of_seconds([0, 1, 2], [5, 5, 5], [1, 2, 3])
    seen, order = held_back(jobs, np.array([9, 1, 9]) * S)
    assert (seen.submit_ns // S).tolist() == [1, 9, 9] and order.tolist() == [1, 0, 2]
    with pytest.raises(UsageError, match="give 0 or more"):
        Deferral(constant(CARBON, 1), -1, "actual")
