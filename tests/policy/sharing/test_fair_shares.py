"""Shares of time on GPUs of several models, found by hand."""

import numpy as np
import pytest

from policy.sharing.fair_shares import fair_shares


def test_the_least_throughput_is_that_of_equal_shares_where_nobody_gains() -> None:
    # Equal shares give 2.5 and 1.25. With x of its time on the slow one, the rest on the fast one, the first
    # has (4 - 3 x) / 2.5 and the second (1 + 0.5 x) / 1.25: equal at 4 - 3 x = 2 + x, so x is 0.5, and here
    # nobody gains.
    found = fair_shares(np.array([[4.0, 1.0], [1.5, 1.0]]), np.array([1, 1]), np.array([1, 1]))
    least = (found * np.array([[4.0, 1.0], [1.5, 1.0]])).sum(axis=1) / np.array([2.5, 1.25])
    assert found.sum(axis=1) == pytest.approx([1, 1])
    assert least == pytest.approx([1, 1])
    assert found[0, 0] == pytest.approx(0.5)


def test_heterogeneity_lifts_both_above_an_equal_share() -> None:
    # The second is as fast on both: it stays on the slow one at 1, and the first has all of the fast one.
    found = fair_shares(np.array([[4.0, 1.0], [1.0, 1.0]]), np.array([1, 1]), np.array([1, 1]))
    assert found == pytest.approx(np.eye(2))


def test_a_larger_job_gets_less_time_on_alike_gpus() -> None:
    # 2 x = 1 y with 2 x + y = 2: x = 0.5 for the job of two GPUs, y = 1.
    found = fair_shares(np.ones((2, 1)), np.array([2, 1]), np.array([2]))
    assert found[:, 0] == pytest.approx([0.5, 1.0], abs=1e-6)


def test_a_job_that_fits_nowhere_does_not_count() -> None:
    found = fair_shares(np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([4, 1]), np.array([2, 2]))
    assert found == pytest.approx(np.array([[0, 0], [1, 0]]))


def test_no_share_exceeds_the_gpus_or_the_time() -> None:
    random = np.random.default_rng(3)
    speed, scale, gpus = random.uniform(0.1, 5, (12, 3)), random.integers(1, 5, 12), np.array([4, 4, 8])
    found = fair_shares(speed, scale, gpus)
    assert (found >= 0).all() and (found.sum(axis=1) < 1 + 1e-9).all()
    assert (scale @ found <= gpus + 1e-9).all()
    worth = scale * (found * speed).sum(axis=1) / (speed @ (gpus / gpus.sum()))
    equal = 16 / scale.sum()  # all jobs on all models for the same time is one of the shares to choose from
    assert worth.min() >= scale.min() * min(1, equal) - 1e-9
