import numpy as np
import pytest

from ingest.core.units import NS_PER_S
from twin.filters.bandwidth_filter import BandwidthFilter
from twin.filters.horizon_mixture import OWN, HorizonMixture, ModelForecasts
from twin.filters.link_filter import LinkParameters
from twin.filters.multiple_model import MEMORY
from twin.filters.ou_process import Array, OuParameters

S = NS_PER_S
HORIZONS_S = np.array([0.0, 600.0])
BOTH = np.array([0, 1])
PRESENT = np.array([3.0, -4.0])


def stated(reverting: float, level: float, var: float = 1.0) -> ModelForecasts:
    """Forecasts of both links at one horizon by either model."""
    means = np.array([[[reverting] * 2, [level] * 2]])
    middle = np.full((1, 2), (reverting + level) / 2)
    return ModelForecasts(middle, np.full((1, 2), 2.0), means, np.full((1, 2, 2), var))


def test_until_a_forecast_came_due_recent_samples_are_all_the_evidence() -> None:
    assert HorizonMixture(HORIZONS_S, 2).odds(PRESENT).tolist() == [PRESENT.tolist()] * 2


def test_odds_of_a_horizon_come_from_the_forecasts_of_that_horizon() -> None:
    mixture = HorizonMixture(HORIZONS_S, 2)
    mixture.keep(0, np.array([1]), stated(reverting=20.0, level=22.0))
    assert mixture.compare(599 * S, BOTH, np.array([20.0, 20.0])) == []
    # Link 0 came back to 20 (losses 0 and 4), link 1 to half way (losses 1 and 1); a first forecast counts 1.
    ((h, errors),) = mixture.compare(600 * S, BOTH, np.array([20.0, 21.0]))
    assert h == 1 and errors.tolist() == [-0.5, 0.0]
    own, mean = np.array([-4.0, 0.0]), -2.0
    assert mixture.odds(PRESENT).tolist() == [PRESENT.tolist(), (OWN * own + mean).tolist()]


def test_evidence_is_forgotten_by_the_horizon_and_overlapping_forecasts_count_in_part() -> None:
    mixture, one = HorizonMixture(HORIZONS_S, 1), np.array([0])
    alone = ModelForecasts(np.zeros((1, 1)), np.ones((1, 1)), np.array([[[0.0], [2.0]]]), np.ones((1, 2, 1)))
    for at_s in (0, 120):  # a fifth of the horizon apart
        mixture.keep(at_s * S, np.array([1]), alone)
    for at_s in (600, 720):
        mixture.compare(at_s * S, one, np.zeros(1))
    evidence = -4.0 * MEMORY**0.2 - 4.0 * 0.2
    assert mixture.odds(np.zeros(1))[1, 0] == pytest.approx((1 + OWN) * evidence)


def test_five_forecasts_of_a_horizon_wait_at_a_time() -> None:
    mixture = HorizonMixture(HORIZONS_S, 2)
    asked = []
    for at_s in range(0, 601, 60):
        due = mixture.due(at_s * S)
        mixture.keep(at_s * S, due, ModelForecasts(*(np.zeros((len(due), 2)),) * 4))
        asked.append(due.tolist())
    assert asked == [[0, 1], [0]] * 5 + [[0, 1]]


def test_links_without_a_sample_are_not_compared() -> None:
    mixture = HorizonMixture(HORIZONS_S, 2)
    mixture.keep(0, np.array([1]), stated(reverting=20.0, level=22.0))
    mixture.compare(600 * S, np.array([1]), np.array([20.0]))
    assert mixture.odds(PRESENT)[1].tolist() == [-2.0, OWN * -4.0 - 2.0]


def test_rebasing_moves_the_clock_only() -> None:
    one, other = HorizonMixture(HORIZONS_S, 2), HorizonMixture(HORIZONS_S, 2)
    for mixture in (one, other):
        mixture.keep(60 * S, np.array([1]), stated(20.0, 21.0))
    other.rebase(100 * S)
    assert one.due(179 * S).tolist() == other.due(79 * S).tolist() == [0]
    assert one.due(180 * S).tolist() == other.due(80 * S).tolist() == [0, 1]
    (there,), (here,) = (f.compare(now * S, BOTH, np.ones(2)) for f, now in ((one, 660), (other, 560)))
    assert there[1].tolist() == here[1].tolist()


def held(rates: Array, times: int) -> Array:
    """Each measurement in force for `times` samples."""
    return np.repeat(rates, times)


def test_a_rate_that_is_held_and_then_returns_is_forecast_to_return() -> None:
    """Samples a minute apart of rates that hold ten minutes and are independent otherwise: the next sample is
    the last one, the hour after it is the mean. A link that moves for good is forecast to stay in the end."""
    rng = np.random.default_rng(1)
    dynamics = OuParameters.of(np.full(8, 20.0), tau_s=600, sd=0.4, r=1e-4)
    model, _ = LinkParameters(dynamics, dynamics).models(noise=0.0)
    filter_ = BandwidthFilter(model, 8, np.array([0.0, 3600.0]), noise=0.0)
    rates = np.stack([held(20 + 0.4 * rng.standard_normal(60), 10) for _ in range(8)])
    rates[0, 300:] -= 2
    every = np.arange(8)
    for k in range(rates.shape[1]):
        filter_.observe(k * 60 * S, every, rates[:, k])
    now_ns = (rates.shape[1] - 1) * 60 * S
    (present, later), _ = filter_.forecast(now_ns)
    assert present == pytest.approx(rates[:, -1], abs=0.05)
    assert np.abs(later[1:] - 20).max() < 0.1 < np.abs(rates[1:, -1] - 20).max()
    assert later[0] < 19
