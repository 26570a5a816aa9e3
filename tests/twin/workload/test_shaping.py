"""Logs made thinner, busier, and with other arrivals."""

import numpy as np
import pytest

from ingest.core.errors import UsageError
from twin.queue.jobs import UNKNOWN, QueueJobs
from twin.workload.shaping import drawn, shaped, weibull_shape

S, HOUR, DAY = 10**9, 3_600, 86_400


def regular(count: int = 2_000, gap_s: int = 100) -> QueueJobs:
    submit = np.arange(count) * gap_s
    return QueueJobs.of_seconds(submit, [50] * count, [1] * count, deadline=submit + 500)


def test_a_window_holds_its_beginning_and_not_its_end() -> None:
    made = shaped(regular(10), begin_ns=200 * S, end_ns=500 * S)
    assert made.jobs.number.tolist() == [3, 4, 5] and made.places.tolist() == [2, 3, 4]
    assert made.notes == () and not made.synthetic


def test_load_divides_gaps_and_moves_deadlines_along() -> None:
    made = shaped(regular(4), begin_ns=100 * S, load=2.0)
    assert (made.jobs.submit_ns // S).tolist() == [100, 150, 200]
    assert (made.jobs.deadline_ns // S).tolist() == [600, 650, 700]
    assert "load 2" in made.notes[0] and not made.synthetic


def test_a_job_without_a_deadline_keeps_none() -> None:
    made = shaped(QueueJobs.of_seconds([0, 10], [1, 1], [1, 1]), load=2.0)
    assert made.jobs.deadline_ns.tolist() == [UNKNOWN, UNKNOWN]


def test_thinning_keeps_the_share_and_follows_the_seed() -> None:
    one, same, other = (shaped(regular(), thin=0.3, seed=seed).jobs for seed in (1, 1, 2))
    assert np.array_equal(one.number, same.number) and not np.array_equal(one.number, other.number)
    assert len(one) == pytest.approx(600, abs=100)  # five standard deviations


@pytest.mark.parametrize(("arrivals", "cv"), [("poisson", 1.0), ("weibull", 2.0)])
def test_drawn_gaps_have_the_mean_and_the_scatter_of_their_process(arrivals: str, cv: float) -> None:
    gaps = np.random.default_rng(0).gamma(1 / cv**2, cv**2 * 100, 20_000)  # of coefficient of variation cv
    submit = np.concatenate(([0], np.cumsum(np.rint(gaps * S).astype(np.int64)))) + 7 * S
    found = np.diff(drawn(submit, arrivals, None, 3)) / S
    assert found.mean() == pytest.approx(gaps.mean(), rel=0.1)
    assert found.std() / found.mean() == pytest.approx(cv, rel=0.12)


def test_the_shape_of_gaps_alike_is_1_and_of_exponential_ones_too() -> None:
    assert weibull_shape(np.array([0.0, 0.0])) == 1.0
    assert weibull_shape(np.array([0.0, 2.0])) == pytest.approx(1.0, abs=0.01)  # coefficient of variation 1
    assert weibull_shape(np.array([5.0, 5.0])) == 20.0  # no scatter: the largest shape tried


def test_hours_without_jobs_stay_without_and_busy_ones_stay_busy() -> None:
    days, random = 200, np.random.default_rng(5)
    by_day = np.concatenate([day * DAY + 9 * HOUR + random.uniform(0, HOUR, 30) for day in range(days)])
    by_noon = np.concatenate([day * DAY + 12 * HOUR + random.uniform(0, HOUR, 10) for day in range(days)])
    submit = np.sort(np.rint(np.concatenate((by_day, by_noon)) * S).astype(np.int64))
    made = shaped(
        QueueJobs.of_seconds(submit / S, [1] * len(submit), [1] * len(submit)), arrivals="hours-of-day"
    )
    hours = np.bincount(made.jobs.submit_ns // (HOUR * S) % 24, minlength=24)
    assert hours[[9, 12]].sum() == len(submit)
    assert hours[9] / len(submit) == pytest.approx(0.75, abs=0.03)
    assert made.synthetic and "SYNTHETIC" in made.notes[0]


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"begin_ns": 10**18}, "no job is left"),
        ({"arrivals": "bursts"}, "known are trace, poisson"),
        ({"end_ns": 200 * S, "arrivals": "poisson"}, "no rate of arrival"),
        ({"load": 1e-13}, "beyond 73 years"),
    ],
)
def test_what_cannot_be_made(choices: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        shaped(regular(10), **choices)
