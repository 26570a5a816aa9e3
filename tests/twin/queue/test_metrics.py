import numpy as np
import pytest

from twin.queue import metrics
from twin.queue.jobs import QueueJobs
from twin.queue.simulation import QueueSchedule

S = 10**9


def schedule(**users: list[int]) -> QueueSchedule:
    """Three jobs on 4 processors: waits 0, 10 and 40 s, runs 10, 20 and 5 s."""
    jobs = QueueJobs.of_seconds([0, 0, 0], [10, 20, 5], [4, 2, 4], **users)
    return QueueSchedule(jobs, 4, np.array([0, 10, 40]) * S, np.array([False, False, True]))


def test_figures_by_hand() -> None:
    found = metrics.figures(schedule(user=[1, 1, 2]))
    slowdowns = [1.0, 30 / 20, 45 / 10]
    assert found.jobs == 3
    assert found.avg_wait_s == pytest.approx(50 / 3) and found.max_wait_s == 40
    assert found.p95_wait_s == pytest.approx(10 + 0.9 * 30)
    assert found.avg_jct_s == pytest.approx((10 + 30 + 45) / 3)
    assert found.p95_jct_s == pytest.approx(30 + 0.9 * 15)
    assert found.avg_bounded_slowdown == pytest.approx(sum(slowdowns) / 3)
    assert found.p95_bounded_slowdown == pytest.approx(1.5 + 0.9 * 3)
    assert found.avg_bounded_slowdown_60s == 1.0 == found.p95_bounded_slowdown_60s
    assert found.makespan_s == 45
    assert found.utilisation == pytest.approx((40 + 40 + 20) / (4 * 45))
    assert found.jain_users == pytest.approx((1.25 + 4.5) ** 2 / (2 * (1.25**2 + 4.5**2)))
    assert found.backfilled == pytest.approx(1 / 3)


def test_finish_time_fairness_by_hand() -> None:
    # Three jobs until 10, two until 30, one until 45: N is 3, 70 / 30, 85 / 45; shares of 4 processors.
    rho = [10 / (10 * 3), 30 / (20 * (2 * 70 / 30) / 4), 45 / (5 * 85 / 45)]
    found = metrics.figures(schedule())
    assert found.worst_finish_time_fairness == pytest.approx(rho[2]) and found.unfair_jobs == 2 / 3
    one, done = metrics.finish_time_fairness, schedule()
    values = one(done.jobs.submit_ns, done.end_ns, done.jobs.run_ns, done.jobs.processors, 4)
    assert values.tolist() == pytest.approx(rho)


def test_a_job_alone_is_treated_fairly_and_one_of_no_length_is_no_matter() -> None:
    jobs = QueueJobs.of_seconds([0, 20], [10, 0], [1, 4])
    done = QueueSchedule(jobs, 4, jobs.submit_ns, np.zeros(2, np.bool_))
    found = metrics.figures(done)
    assert (found.worst_finish_time_fairness, found.unfair_jobs) == (1.0, 0.0)


def test_deadlines_met_by_hand() -> None:
    assert metrics.figures(schedule(deadline=[10, 29, -1])).deadlines_met == 0.5
    assert metrics.figures(schedule()).deadlines_met is None


def test_without_users_there_is_no_fairness_among_them() -> None:
    assert metrics.figures(schedule()).jain_users is None


def test_published_statistics_by_hand() -> None:
    found = metrics.flow_statistics(schedule())
    assert found["avg_flow_s"] == pytest.approx(85 / 3) and found["max_flow_s"] == 45
    assert found["rms_flow_s"] == pytest.approx(((100 + 900 + 2025) / 3) ** 0.5)
    assert found["avg_slowdown"] == pytest.approx((1 + 1.5 + 9) / 3) and found["max_slowdown"] == 9
    assert found["rms_slowdown"] == pytest.approx(((1 + 2.25 + 81) / 3) ** 0.5)
    assert found["max_bounded_slowdown"] == 4.5


def test_utilisation_to_the_last_start_can_exceed_the_true_one() -> None:
    assert metrics.utilisation_to_last_start(schedule()) == pytest.approx(100 / (4 * 40))


def test_jain_is_one_where_all_are_alike_and_one_nth_where_one_has_all() -> None:
    assert metrics.jain(np.array([3.0, 3.0, 3.0])) == pytest.approx(1)
    assert metrics.jain(np.array([0.0, 0.0, 5.0, 0.0])) == pytest.approx(1 / 4)


def test_jobs_in_the_system_by_hand() -> None:
    # Three until 10, two until 30, one until 45.
    assert metrics.mean_jobs_in_system(schedule()) == pytest.approx((30 + 40 + 15) / 45)
