"""What the networks read of the past, by hand."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ingest.core.units import NS_PER_S
from policy.hippo.tables.features import Features
from policy.hippo.tables.history_features import FURTHEST, HistoryFeatures
from policy.hippo.tables.planning_tables import PlanningTables
from tests.support.worlds import toy_setup
from twin.core.link_history import LinkHistory
from twin.estimation.estimator import Estimator

HOUR = np.array([5])
DIRECT, RELAYED = np.array([False]), np.array([True])


@pytest.fixture(scope="module")
def estimator() -> Estimator:
    return toy_setup(3).estimator()


def past(series: np.ndarray, step_s: float = 60.0) -> LinkHistory:
    """A history whose link 0 -> 1 has this series (S,), all others 2 Gb/s."""
    bandwidth = np.full((len(series), 3, 3), 2e9)
    bandwidth[:, range(3), range(3)] = np.inf
    bandwidth[:, 0, 1] = series
    return LinkHistory(step_s, bandwidth, np.zeros_like(bandwidth), 20 * 86_400 * NS_PER_S)


def test_mean_spread_and_outages_of_a_link(estimator: Estimator) -> None:
    features = HistoryFeatures(estimator, past(np.array([1e9, 4e9, 0.0, 0.0])))
    ratio, spread, outages, hour = features.columns(np.full((1, 3, 3), 2e9), HOUR, DIRECT)
    # Mean time per bit while alive: 0.625 ns, 1.6 Gb/s.
    assert ratio[0, 0, 1] == pytest.approx(np.log(0.8)) and ratio[0, 1, 0] == 0.0
    assert spread[0, 0, 1] == pytest.approx(np.log(2)) and spread[0, 1, 0] == 0.0
    assert outages[0, 0, 1] == 0.5 and outages[0, 1, 0] == 0.0
    assert not hour.any()  # less than a week


def test_over_relays_a_dead_link_has_a_long_run(estimator: Estimator) -> None:
    features = HistoryFeatures(estimator, past(np.zeros(4)))
    now = np.full((1, 3, 3), 1e9)
    assert features.columns(now, HOUR, DIRECT)[0][0, 0, 1] == -FURTHEST
    assert abs(features.columns(now, HOUR, RELAYED)[0][0, 0, 1]) < 0.1  # half of 2 Gb/s


def test_the_hour_of_the_day_where_a_week_is_known(estimator: Estimator) -> None:
    hours = np.arange(7 * 24) % 24
    features = HistoryFeatures(estimator, past(np.where(hours == 5, 4e9, 1e9), 3600.0))
    mean = (4 + 23) / 24
    now = np.full((2, 3, 3), 2e9)
    ratio = features.columns(now, np.array([5, 6]), np.array([False, False]))[3][:, 0, 1]
    assert ratio == pytest.approx(np.log([4 / mean, 1 / mean]))


def test_without_a_past_all_columns_are_0(estimator: Estimator) -> None:
    columns = HistoryFeatures(estimator, None).columns(np.full((2, 3, 3), 2e9), HOUR, DIRECT)
    assert len(columns) == 4 and not np.any(columns)


def test_features_know_the_hour(estimator: Estimator) -> None:
    problem, history = PlanningTables(estimator), past(np.full(3, 1e9))
    features = Features(problem, 11.0, 60.0, history)
    noon = Features(problem, 11.0, 60.0, replace(history, origin_epoch_ns=12 * 3600 * NS_PER_S))
    times = [0, 3599 * NS_PER_S, 3600 * NS_PER_S]
    assert [features.hour(now) for now in times] == [0, 0, 1]
    assert all(noon.hour(now) == features.hour(now) + 12 for now in times)
    assert all(one <= other for one, other in pairwise(features.hour(now) for now in times))
