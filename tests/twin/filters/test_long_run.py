"""The history that policies see: what telemetry would have sampled before a run, and nothing after."""

import numpy as np

from ingest.core.units import NS_PER_S
from tests.support.restless_world import restless, with_other_future
from twin.filters import long_run
from twin.filters.past_telemetry import MAX_SAMPLES, TelemetryModel

TELEMETRY = TelemetryModel(period_s=10.0)


def test_samples_are_the_links_in_force_at_regular_steps_up_to_the_start() -> None:
    wan = restless(seconds=900).wan
    start_ns = 600 * NS_PER_S
    found = long_run.before(wan, start_ns, TELEMETRY)
    assert found is not None and (found.step_s, len(found), found.length_s) == (10.0, 60, 600.0)
    assert found.origin_epoch_ns == wan.origin_epoch_ns + start_ns
    for index in (0, 17, 59):
        true = wan.at(index * 10 * NS_PER_S)
        off = ~np.eye(len(wan.names), dtype=np.bool_)
        assert np.array_equal(found.links(index).bandwidth_bps[off], true.bandwidth_bps[off])
        assert np.array_equal(found.links(index).latency_s[off], np.maximum(true.latency_s[off], 1e-6))


def test_the_future_changes_nothing_of_it() -> None:
    setup = restless(seconds=900)
    other = with_other_future(setup, 600 * NS_PER_S)
    late = [s.wan.at(700 * NS_PER_S).bandwidth_bps for s in (setup, other)]
    assert not np.array_equal(*late)
    one, two = (long_run.before(s.wan, 600 * NS_PER_S, TELEMETRY) for s in (setup, other))
    assert one is not None and two is not None
    assert np.array_equal(one.bandwidth_bps, two.bandwidth_bps)
    assert np.array_equal(one.latency_s, two.latency_s)


def test_without_a_past_there_is_none_and_a_long_one_is_sampled_at_longer_steps() -> None:
    wan = restless(seconds=900).wan
    assert long_run.before(wan, 0, TELEMETRY) is None
    found = long_run.before(wan, 900 * NS_PER_S, TelemetryModel(period_s=0.1))
    assert found is not None and len(found) <= MAX_SAMPLES and found.length_s <= 900.0
    assert found.step_s == 0.5
