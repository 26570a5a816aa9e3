"""The walk-forward validation of `docs/measured/forecast.md`, and what the forecasters learn under it."""

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.twin.walk_forward import (
    BURN_IN,
    FORECASTERS,
    Kalman,
    fit_pooled,
    intervals,
    tracked,
    walk_forward,
)
from twin.filters import gru
from twin.filters.conformal_intervals import Intervals
from twin.filters.forecasters import Forecaster, Persistence
from twin.filters.ou_process import fit

QUICK = ("kalman", "mixture", "ewma", "persistence")


@pytest.fixture(autouse=True)
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gru, "STEPS", 50)


def ou(n: int, tau: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng, a = np.random.default_rng(seed), np.exp(-1 / tau)
    x = rng.standard_normal(n)
    for k in range(1, n):
        x[k] = a * x[k - 1] + np.sqrt(1 - a * a) * x[k]
    return np.arange(n) * 30.0, 20 + 0.3 * x + 0.15 * rng.standard_normal(n)


def panel(n: int, links: int = 3) -> tuple[list[np.ndarray], list[np.ndarray]]:
    times, values = zip(*(ou(n, 10, seed) for seed in range(links)), strict=True)
    return list(times), list(values)


def rmse(make: Callable[[], Forecaster], n: int, ahead: int = 4) -> float:
    times, values = panel(n)
    errors = walk_forward(make(), times, values, [2 * n // 3] * 3, [ahead])
    return float(np.sqrt(np.nanmean(errors.error[0][~errors.training[0]] ** 2)))


def test_the_filter_beats_the_others_on_the_process_it_models() -> None:
    kalman, mixture, ewma, persistence = (rmse(FORECASTERS[name], 3000) for name in QUICK)
    assert kalman < mixture < ewma < persistence


def test_the_network_learns_more_than_persistence_and_the_same_each_time() -> None:
    got = rmse(FORECASTERS["gru"], 300)
    assert rmse(FORECASTERS["kalman"], 300) * 0.95 < got < rmse(FORECASTERS["persistence"], 300) * 0.95
    assert rmse(FORECASTERS["gru"], 300) == got


@pytest.mark.parametrize("name", FORECASTERS)
def test_no_forecast_depends_on_what_comes_after_it(name: str) -> None:
    times, values = panel(120, 2)
    other = [np.concatenate([v[:100], v[100:] + 5.0]) for v in values]
    one, two = (walk_forward(FORECASTERS[name](), times, v, [80, 80], [1, 3]) for v in (values, other))
    assert np.array_equal(one.error[0, :100], two.error[0, :100], equal_nan=True)
    assert np.array_equal(one.sd[:, :101], two.sd[:, :101], equal_nan=True)
    assert not np.array_equal(one.error[0, 100:], two.error[0, 100:], equal_nan=True)


def test_a_walk_forecasts_each_sample_once_for_every_horizon() -> None:
    times, values = [np.arange(30.0), np.arange(20.0)], [np.arange(30.0), np.arange(20.0)]
    errors = walk_forward(Persistence(), times, values, [15, 10], [1, 4])
    assert np.array_equal(errors.error[0, BURN_IN:, 0], np.full(30 - BURN_IN, 1.0))
    assert np.array_equal(errors.error[1, BURN_IN:17, 1], np.full(17 - BURN_IN, 4.0))
    assert np.isnan(errors.error[1, 17:, 1]).all() and np.isnan(errors.error[:, :BURN_IN]).all()
    assert len(errors.standardised(0)) == 15 + 10
    assert errors.training[1, :, 0].sum() == 12  # sample 15 is the target of the forecast before sample 12


def test_intervals_of_training_cover_what_follows_though_the_errors_are_not_gaussian() -> None:
    rng = np.random.default_rng(5)
    times = [np.arange(1500) * 30.0] * 8
    values = [20 + 0.1 * rng.standard_t(3, 1500) for _ in range(8)]
    past = [t[:1000] for t in times], [v[:1000] for v in values]
    found = np.abs(walk_forward(Kalman(), times, values, [1000] * 8, [1]).standardised(0))
    (calibrated,) = intervals(Kalman, *past, [1])
    assert np.mean(found <= calibrated.d80) == pytest.approx(0.80, abs=0.04)
    assert np.mean(found <= calibrated.d95) == pytest.approx(0.95, abs=0.02)
    assert np.mean(found <= Intervals().d80) > 0.85  # what a Gaussian would have said


def test_tracked_intervals_follow_conditions_that_changed_after_training_and_never_look_ahead() -> None:
    rng = np.random.default_rng(6)
    times = [np.arange(1500) * 30.0 + link for link in range(8)]
    values = [20 + 0.1 * rng.standard_normal(1500) * np.where(np.arange(1500) < 1000, 1, 2) for _ in range(8)]
    past = [t[:1000] for t in times], [v[:1000] for v in values]
    trained = intervals(Kalman, *past, [1, 4])
    found = walk_forward(Kalman(), times, values, [1000] * 8, [1, 4])
    for h, ahead in enumerate((1, 4)):
        z = np.abs(found.standardised(h))[:, None]
        widths = tracked(found, h, trained[h], ahead)
        assert np.mean(z <= (trained[h].d80, trained[h].d95), axis=0)[0] < 0.6
        assert np.mean(z <= widths, axis=0) == pytest.approx([0.80, 0.95], abs=0.03)
        changed = [np.concatenate([v[:1300], v[1300:] + 5]) for v in values]
        other = tracked(walk_forward(Kalman(), times, changed, [1000] * 8, [1, 4]), h, trained[h], ahead)
        known = found.made_s[found.held(h)] < 1300 * 30
        assert np.array_equal(widths[known], other[known])


def test_the_mixture_follows_a_level_that_left_its_mean_and_states_when_its_models_differ() -> None:
    rng = np.random.default_rng(3)
    times = np.arange(500) * 30.0
    z = 20 + 0.05 * rng.standard_normal(500) - np.where(times > 12000, 0.15, 0.0)  # within the gate
    walks = {
        name: walk_forward(FORECASTERS[name](), [times], [z], [350], [1, 5]) for name in ("kalman", "mixture")
    }
    late = slice(430, 490)
    kalman, mixture = (np.nanmean(w.error[1, late] ** 2) for w in walks.values())
    assert mixture < kalman
    assert (walks["mixture"].sd[:, late] > 0.9 * 0.05).all()


def test_pooling_draws_dynamics_towards_the_median_and_leaves_the_mean() -> None:
    times, rng = [np.arange(100) * 30.0] * 3, np.random.default_rng(0)
    values = [20 + np.cumsum(0.1 * 2**k * rng.standard_normal(100)) for k in range(3)]
    own = fit(times, values)
    none, mild, strong = (fit_pooled(times, values, pool) for pool in (0.0, 30.0, 1e9))
    assert np.array_equal(own.mu, mild.mu)
    assert none.theta_per_s == pytest.approx(own.theta_per_s) and none.r == pytest.approx(own.r)
    assert np.ptp(np.log(own.theta_per_s)) > np.ptp(np.log(mild.theta_per_s)) > 0
    assert 1 / strong.theta_per_s == pytest.approx(np.full(3, np.median(1 / own.theta_per_s)), rel=1e-6)
    assert np.log(mild.theta_per_s[0]) == pytest.approx(
        np.log(own.theta_per_s[0]) * 100 / 130 + np.log(np.median(own.theta_per_s)) * 30 / 130
    )
