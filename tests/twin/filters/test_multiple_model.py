import numpy as np
import pytest

from ingest.core.units import NS_PER_S
from twin.filters.kalman_bank import FilterBank
from twin.filters.multiple_model import MultipleModelFilter
from twin.filters.ou_process import FOREVER_S, OuParameters, fit_level

S = NS_PER_S
ONE = np.array([0])
HOUR_S = np.array([3600.0])


def reverting(links: int = 1) -> OuParameters:
    return OuParameters.of(np.full(links, 20.0), tau_s=300, sd=0.2, r=1e-4)


def both_models() -> MultipleModelFilter:
    return MultipleModelFilter(reverting(), reverting().without_reversion)


def test_unseen_links_are_where_training_left_them() -> None:
    mean, var = both_models().forecast(0, np.array([0.0, 1e6]))
    assert mean.tolist() == [[20.0], [20.0]]
    assert var == pytest.approx(np.full((2, 1), 0.04 + 1e-4))


def test_a_link_that_returns_is_forecast_to_return_and_one_that_stays_to_stay() -> None:
    rng, a = np.random.default_rng(0), np.exp(-30 / 300)
    coming, staying, x = both_models(), both_models(), 0.0
    for k in range(200):
        x = a * x + 0.2 * np.sqrt(1 - a * a) * rng.standard_normal()
        coming.observe(k * 30 * S, ONE, np.array([20 + x]))
        staying.observe(k * 30 * S, ONE, np.array([21 + 0.02 * rng.standard_normal()]))
    assert coming.forecast(5970 * S, HOUR_S)[0][0, 0] == pytest.approx(20.0, abs=0.15)
    assert staying.forecast(5970 * S, HOUR_S)[0][0, 0] == pytest.approx(21.0, abs=0.1)


def test_the_difference_of_the_models_is_part_of_the_variance() -> None:
    both = both_models()
    for k in range(3):
        both.observe(k * 30 * S, ONE, np.array([21.0]))
    mean, var = both.forecast(60 * S, HOUR_S)
    apart = FilterBank(reverting()).forecast(60 * S, HOUR_S)[1][0, 0]
    assert 20.0 < mean[0, 0] < 21.0
    assert var[0, 0] > apart


def test_nis_is_the_innovation_over_its_stated_variance_and_bounded_by_the_gate() -> None:
    both = both_models()
    both.observe(0, ONE, np.array([20.0]))
    mean, var = both.forecast(30 * S, np.zeros(1))
    _, nis = both.observe(30 * S, ONE, np.array([20.1]))
    assert nis[0] == pytest.approx((20.1 - mean[0, 0]) ** 2 / var[0, 0])
    _, nis = both.observe(60 * S, ONE, np.array([10.0]))
    assert nis[0] == 16.0


def test_links_are_kept_apart_and_missing_ones_grow_uncertain() -> None:
    both = MultipleModelFilter(reverting(2), reverting(2).without_reversion)
    both.observe(0, np.array([0, 1]), np.array([20.0, 20.5]))
    both.observe(600 * S, np.array([1]), np.array([20.5]))
    mean, var = both.forecast(600 * S, np.zeros(1))
    assert mean[0, 1] == pytest.approx(20.5, abs=0.05)
    assert var[0, 0] > 2 * var[0, 1]
    assert both.time_ns.tolist() == [0, 600 * S]


def test_rebasing_moves_the_clock_only() -> None:
    one, other = both_models(), both_models()
    for bank in (one, other):
        bank.observe(90 * S, ONE, np.array([20.3]))
    other.rebase(100 * S)
    assert [x.tolist() for x in one.forecast(160 * S, HOUR_S)] == [
        x.tolist() for x in other.forecast(60 * S, HOUR_S)
    ]


@pytest.mark.parametrize(("sigma", "r"), [(0.01, 1e-3), (0.003, 1e-2), (0.005, 1e-4)])
def test_fit_level_recovers_what_made_the_samples(sigma: float, r: float) -> None:
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.uniform(10, 60, 3000))
    level = 20 + np.cumsum(sigma * np.sqrt(np.diff(times, prepend=times[0])) * rng.standard_normal(3000))
    got = fit_level([times], [level + np.sqrt(r) * rng.standard_normal(3000)])
    assert got.sigma[0] == pytest.approx(sigma, rel=0.3)
    assert got.r[0] == pytest.approx(r, rel=0.3)
    assert 1 / got.theta_per_s[0] == pytest.approx(FOREVER_S)


def test_short_series_take_the_level_dynamics_of_the_others() -> None:
    times = np.linspace(0, 2970, 100)
    z = np.cumsum(0.1 * np.random.default_rng(0).standard_normal(100))
    got = fit_level([times, times[:3]], [z, np.array([10.0, 11.0, 12.0])])
    assert got.mu[1] == 10.0
    assert (got.sigma[1], got.r[1]) == (got.sigma[0], got.r[0])
    still = fit_level([times], [np.full(100, 20.0)])
    assert 0 < still.r[0] < 1e-5
