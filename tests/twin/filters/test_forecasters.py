import numpy as np
import pytest

from twin.filters.conformal_intervals import Intervals
from twin.filters.forecasters import Ewma, Persistence


@pytest.mark.parametrize("make", [Ewma, Persistence])
def test_forecasters_follow_a_constant(make: type[Ewma]) -> None:
    model = make()
    model.train([np.arange(50) * 30.0] * 2, [np.full(50, 21.0), np.full(50, 3.0)])
    for k in range(50):
        model.observe(np.array([0, 1]), np.full(2, k * 30.0), np.array([21.0, 3.0]))
    mean, var = model.predict(np.array([[30.0, 60.0], [300.0, 600.0]]))
    assert mean == pytest.approx(np.array([[21.0, 3.0]] * 2), abs=2e-3)
    assert mean.shape == var.shape == (2, 2)
    assert (var > 0).all()


def test_too_few_errors_leave_the_gaussian_interval() -> None:
    assert Intervals.of(np.zeros(39)) == Intervals()
    assert (Intervals().d80, Intervals().d95) == pytest.approx((1.2815516, 1.9599640))
    assert Intervals.of(np.linspace(-1, 1, 2001)).d80 == pytest.approx(0.8, abs=1e-3)


def test_ewma_picks_a_small_weight_for_noise_and_one_for_a_walk() -> None:
    rng = np.random.default_rng(0)
    times = np.arange(2000.0)
    noise, walking = rng.standard_normal(2000), np.cumsum(rng.standard_normal(2000))
    model = Ewma()
    model.train([times, times], [noise, walking])
    model.observe(np.array([0, 1]), np.zeros(2), np.zeros(2))
    model.observe(np.array([0, 1]), np.ones(2), np.full(2, 100.0))
    mean = model.predict(np.ones((1, 2)))[0][0]
    assert mean[0] < 10
    assert mean[1] > 90


def test_persistence_repeats_the_last_value_and_its_variance_is_that_of_a_random_walk() -> None:
    model = Persistence()
    model.train([np.arange(3.0)], [np.array([1.0, 3.0, 1.0])])
    model.observe(np.array([0]), np.array([3.0]), np.array([7.0]))
    mean, var = model.predict(np.array([[0.0], [1.0], [10.0]]))
    assert mean.tolist() == [[7.0]] * 3
    assert var.tolist() == [[4.0], [4.0], [40.0]]


def test_a_short_series_takes_the_dynamics_of_the_others() -> None:
    rng = np.random.default_rng(1)
    model = Ewma()
    model.train([np.arange(50.0), np.zeros(1)], [rng.standard_normal(50), np.array([5.0])])
    mean, var = model.predict(np.ones((1, 2)))
    assert mean[0, 1] == 5.0
    assert var[0, 1] == var[0, 0]
