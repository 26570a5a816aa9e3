import numpy as np
import pytest

from twin.core.view import Forecast
from twin.filters.conformal_intervals import FACTOR, Intervals, IntervalTracker


def test_tracking_keeps_the_stated_share_after_the_errors_have_doubled() -> None:
    rng, tracker = np.random.default_rng(0), IntervalTracker([Intervals()], links=12)
    inside = np.zeros(2)
    for k in range(2000):
        errors = 2 * rng.standard_t(4, 12)
        if k >= 500:
            reach = np.array([Intervals().d80, Intervals().d95]) * tracker.factor[0]
            inside += (np.abs(errors)[:, None] <= reach).mean(axis=0) / 1500
        tracker.update(0, errors)
    assert inside == pytest.approx([0.80, 0.95], abs=0.01)


def test_without_surprise_the_widths_of_training_stay() -> None:
    rng, tracker = np.random.default_rng(1), IntervalTracker([Intervals(), Intervals()], links=50)
    for _ in range(1000):
        tracker.update(1, rng.standard_normal(50))
    assert tracker.factor[0].tolist() == [1.0, 1.0]  # of a horizon that was never compared
    assert tracker.factor[1] == pytest.approx([1.0, 1.0], abs=0.15)


def test_tracking_stays_within_its_bounds() -> None:
    calm, wild = IntervalTracker([Intervals()], 3), IntervalTracker([Intervals()], 3)
    for _ in range(2000):
        calm.update(0, np.zeros(3))
        wild.update(0, np.full(3, 1e6))
    assert calm.factor[0] == pytest.approx([1 / FACTOR] * 2)
    assert wild.factor[0] == pytest.approx([FACTOR] * 2)


def test_the_spread_is_the_real_deviation_over_the_stated_one_outliers_bounded() -> None:
    rng = np.random.default_rng(2)
    assert Intervals.of(3 * rng.standard_normal(4000)).spread == pytest.approx(2.6, abs=0.2)  # gated at 4
    assert Intervals.of(0.5 * rng.standard_normal(4000)).spread == pytest.approx(0.5, abs=0.03)
    assert Intervals.of(np.zeros(100)).spread > 0


def test_quantiles_of_a_forecast_follow_its_widths() -> None:
    one = np.array([[[np.inf, 1e9], [1e9, np.inf]]])
    spread = np.array([[[0.0, 0.1], [0.1, 0.0]]])
    gaussian = Forecast(np.zeros(1), one, spread, np.zeros((2, 2)))
    for share, deviations in ((0.5, 0.0), (0.1, -1.2816), (0.975, 1.96), (0.16, -0.9945), (0.999, 3.09)):
        assert gaussian.quantile(share)[0, 0, 1] == pytest.approx(1e9 * np.exp(0.1 * deviations), rel=1e-4)
    peaked = Forecast(np.zeros(1), one, spread, np.zeros((2, 2)), np.array([[0.5, 3.0]]))
    assert peaked.quantile(0.1)[0, 0, 1] == pytest.approx(1e9 * np.exp(-0.05))
    assert peaked.quantile(0.025)[0, 0, 1] == pytest.approx(1e9 * np.exp(-0.3))
    assert peaked.quantile(0.9)[0, 0, 1] == pytest.approx(1e9 * np.exp(0.05))
    assert np.isinf(peaked.quantile(0.1)[0, 0, 0])


def test_one_step_by_hand() -> None:
    tracker = IntervalTracker([Intervals(1.0, 2.0)], links=4)
    tracker.update(0, np.array([0.5, -1.5, 3.0, 0.0]))  # half of them beyond 1, a quarter beyond 2
    assert np.log(tracker.factor[0]) == pytest.approx(
        [0.1 * (2 - 0.2 * 4) / 4 / 0.4, 0.1 * (1 - 0.05 * 4) / 4 / np.sqrt(0.95 * 0.05)]
    )
