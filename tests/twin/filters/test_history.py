from dataclasses import replace

import numpy as np
import pytest

from ingest.core.units import NS_PER_S
from tests.support.worlds import toy_wan
from twin.core.domain import LinkState
from twin.filters import history as filter_history
from twin.filters.link_filter import LinkFilter
from twin.filters.past_telemetry import TelemetryModel
from twin.traces.wan_trace import WanTrace

S = NS_PER_S
HORIZONS = (0.0, 60.0, 600.0)
TELEMETRY = TelemetryModel(30, HORIZONS, noise=0.03)


def jumpy(seed: int, seconds: int = 60_000) -> WanTrace:
    """Links that stand still and jump now and then, by steps with heavy tails."""
    rng = np.random.default_rng(seed)
    steps = {}
    for i in range(3):
        for j in range(3):
            if i != j:
                times = np.cumsum(rng.integers(60, 900, seconds // 300))
                levels = 2e9 * np.exp(0.1 * np.clip(rng.standard_t(2, len(times)), -9, 9))
                pairs = zip(times.tolist(), levels.tolist(), strict=True)
                steps[i, j] = [(t, float(bps)) for t, bps in pairs if t < seconds]
    return toy_wan(3, seconds=seconds, steps=steps)


def share_inside(filter_: LinkFilter, wan: WanTrace) -> np.ndarray:
    """(H, 2) share of truths inside the 80 % and 95 % interval."""
    rng = np.random.default_rng(9)
    inside: list[list[np.ndarray]] = [[] for _ in HORIZONS]
    off = ~np.eye(3, dtype=bool)
    for now in range(0, wan.end_ns - 700 * S, 30 * S):
        noise = np.exp(TELEMETRY.noise * rng.standard_normal((3, 3)))
        filter_.observe(now, LinkState(wan.at(now).bandwidth_bps * noise, wan.at(now).latency_s))
        forecast = filter_.forecast(now)
        for h, horizon in enumerate(HORIZONS):
            truth = wan.at(now + round(max(horizon, 30) * S)).bandwidth_bps
            error = np.abs(np.log(truth[off] / forecast.bandwidth_bps[h][off]))
            reach = forecast.sd_log[h][off][:, None] * forecast.widths[h]
            inside[h].append(error[:, None] <= reach)
    return np.array([np.concatenate(found).mean(axis=0) for found in inside])


def test_intervals_hold_their_share_of_truths_that_training_did_not_see() -> None:
    whole = jumpy(0, 200_000)
    cut_ns = round(0.6 * whole.end_ns)
    parameters = filter_history.fit(whole.window(0, cut_ns), TELEMETRY)
    filter_ = filter_history.warm(parameters, whole, cut_ns, TELEMETRY)
    assert filter_ is not None
    found = share_inside(filter_, whole.window(cut_ns, whole.end_ns))
    assert found[:, 0] == pytest.approx([0.8] * 3, abs=0.06)
    assert found[:, 1] == pytest.approx([0.95] * 3, abs=0.03)


def test_a_warm_filter_has_observed_the_past_and_its_clock_is_at_zero() -> None:
    whole = jumpy(1, 6000)
    parameters = filter_history.fit(whole.window(0, 3000 * S), TELEMETRY)
    assert filter_history.warm(parameters, whole, 0, TELEMETRY) is None
    filter_ = filter_history.warm(parameters, whole, 3000 * S, TELEMETRY)
    assert filter_ is not None
    before = filter_.forecast(0)
    filter_.observe(0, whole.at(3000 * S))
    after = filter_.forecast(0)
    assert before.bandwidth_bps[0] == pytest.approx(whole.at(2999 * S).bandwidth_bps, rel=0.2)
    assert not np.array_equal(before.bandwidth_bps[0], after.bandwidth_bps[0])


def test_no_median_is_above_the_capacity_of_its_link() -> None:
    wan = toy_wan(2, bps=2e9, seconds=6000)
    capacity = np.full((2, 2), 2e9)
    known = WanTrace(wan.names, wan.series, 0, wan.end_ns, 0, wan.digest, "", capacity)
    filter_ = filter_history.warm(filter_history.fit(known, TELEMETRY), known, 3000 * S, TELEMETRY)
    assert filter_ is not None
    for k in range(5):
        filter_.observe(k * 30 * S, LinkState(np.full((2, 2), 2.2e9), np.full((2, 2), 0.01)))
        forecast = filter_.forecast(k * 30 * S)
        assert forecast.bandwidth_bps[:, 0, 1].max() <= 2e9 * (1 + 1e-12)
        assert filter_.present_bps(k * 30 * S)[0, 1] == forecast.bandwidth_bps[0, 0, 1]


def test_a_sample_above_the_capacity_raises_it() -> None:
    wan = toy_wan(2, bps=2e9, seconds=6000)
    parameters = replace(filter_history.fit(wan, TELEMETRY), capacity_bps=np.full(2, 2e9))
    filter_ = LinkFilter(parameters, 2, HORIZONS, noise=TELEMETRY.noise)
    for k in range(20):
        filter_.observe(k * 30 * S, LinkState(np.full((2, 2), 4e9), np.full((2, 2), 0.01)))
    assert filter_.present_bps(600 * S)[0, 1] == pytest.approx(4e9, rel=0.15)


def test_a_link_alive_only_at_the_end_of_training_leaves_gaussian_intervals() -> None:
    wan = toy_wan(2, seconds=3000, steps={(0, 1): [(1, 0), (2500, 1e9)]}).window(2 * S, 3000 * S)
    parameters = filter_history.fit(wan, TELEMETRY)
    assert parameters.intervals == ()
    widths = LinkFilter(parameters, 2, HORIZONS).forecast(0).widths
    assert widths == pytest.approx(np.array([[1.2816, 1.96]] * 3), rel=1e-3)


def test_innovations_are_relative_to_those_of_training() -> None:
    whole = jumpy(2)
    cut_ns = round(0.6 * whole.end_ns)
    filter_ = filter_history.warm(
        filter_history.fit(whole.window(0, cut_ns), TELEMETRY), whole, cut_ns, TELEMETRY
    )
    assert filter_ is not None
    off = ~np.eye(3, dtype=bool)
    seen = []
    for now in range(0, 10_000 * S, 30 * S):
        filter_.observe(now, whole.at(cut_ns + now))
        seen.append(filter_.nis[off].mean())
    assert 0.4 < np.mean(seen) < 1.6


def test_the_shortest_past_holds_what_dynamics_and_the_farthest_forecasts_need() -> None:
    # A third of it calibrates: 600 s until the first truth is known, and 12 samples of 30 s.
    assert filter_history.least_ns(toy_wan(3), TELEMETRY) == 3 * (600 + 12 * 30) * S
    late = toy_wan(3, bps=np.where(np.eye(3), 0, 0), seconds=9000, steps={
        (i, j): [(5000.0 + i, 1e9)] for i in range(3) for j in range(3) if i != j
    })  # fmt: skip
    assert filter_history.least_ns(late, TELEMETRY) == (5002 + 30) * S, (
        "the last link to come alive, and a look at it"
    )
