"""Long-run figures of links against sums done by hand."""

import numpy as np
import pytest

from twin.core.link_history import HOURS, LinkHistory

HOUR_NS = 3600 * 10**9


def history(*bps: float, step_s: float = 1800.0, origin_epoch_ns: int = 0) -> LinkHistory:
    """Two domains; link 0>1 as given, the other one at 1 bit/s."""
    bandwidth = np.full((len(bps), 2, 2), np.inf)
    bandwidth[:, 0, 1], bandwidth[:, 1, 0] = bps, 1.0
    return LinkHistory(step_s, bandwidth, np.full_like(bandwidth, 0.01), origin_epoch_ns)


def test_figures_of_a_link_by_hand() -> None:
    known = history(4.0, 0.0, 0.0, 4.0, 0.0, 16.0)  # three hours, two outages of 1 h and half an hour
    assert (len(known), known.length_s) == (6, 3 * 3600.0)
    assert known.mean_bps[0, 1] == 4.0 and known.mean_bps[1, 0] == 1.0
    assert known.sd_log[0, 1] == pytest.approx(np.std(np.log([4.0, 4.0, 16.0]))) and known.sd_log[0, 0] == 0.0
    assert known.outage_share[0, 1] == 0.5 and known.outage_share[1, 0] == 0.0
    assert known.outages_per_hour[0, 1] == pytest.approx(2 / 3)
    assert known.outage_s[0, 1] == pytest.approx(2700.0) and known.outage_s[1, 0] == 0.0
    assert [known.quantile(share)[0, 1] for share in (0.0, 0.5, 1.0)] == [0.0, 4.0, 16.0]
    assert known.links(5).bandwidth_bps[0, 1] == 16.0 and known.mean_latency_s[0, 1] == pytest.approx(0.01)


def test_samples_are_spread_evenly_and_the_last_is_among_them() -> None:
    known = history(*range(1, 101))
    assert known.evenly(4).tolist() == [0, 33, 66, 99]
    assert known.evenly(1).tolist() == [99] and len(known.evenly(1000)) == 100


def test_late_samples_stand_for_equal_weights_of_a_past_that_fades() -> None:
    known = history(*range(1, 97))
    # Half-life a fifth: 32/62 of the weight lie in the last fifth, 16/62 in the one before, ... 2/62.
    counts = np.histogram(known.lately(62, 0.2) / 96, bins=np.linspace(0, 1, 6))[0]
    assert counts.tolist() == pytest.approx([2, 4, 8, 16, 32], abs=1)
    chosen = known.lately(62, 0.2)
    assert (np.diff(chosen) >= 0).all() and chosen[-1] == 95
    assert np.ptp(np.diff(known.lately(24, 100.0))) <= 1  # without fading they are spread evenly
    assert len(known.lately(1000, 0.2)) == 96 and history(1.0).lately(5, 0.125).tolist() == [0]


def test_a_profile_by_hour_needs_a_week() -> None:
    assert history(*[1.0] * (7 * 48 - 1)).hourly_bps is None
    # the run begins at 06:00 UTC; every sample of the hour from 5 to 6 is 9, the others are 1
    day = [1.0] * 46 + [9.0] * 2
    known = history(*day * 7, origin_epoch_ns=6 * HOUR_NS)
    profile = known.hourly_bps
    assert profile is not None and profile.shape == (HOURS, 2, 2)
    assert profile[:, 0, 1].tolist() == [9.0 if hour == 5 else 1.0 for hour in range(HOURS)]


def test_samples_of_an_hour_are_spread_evenly_over_the_days() -> None:
    known = history(*range(1, 8 * 48 + 1), origin_epoch_ns=6 * HOUR_NS)  # sixteen samples of each hour
    chosen = known.evenly_by_hour(4)
    assert chosen is not None and chosen.shape == (HOURS, 4)
    assert all(known.hours_of_day[chosen[hour]].tolist() == [hour] * 4 for hour in range(HOURS))
    assert chosen[6].tolist() == [0, 2 * 48 + 1, 5 * 48, 7 * 48 + 1]
    whole = known.evenly_by_hour(1000)
    assert whole is not None and whole.shape == (HOURS, 16)
    assert history(*[1.0] * (7 * 48 - 1)).evenly_by_hour(4) is None


def test_steps_over_an_hour_leave_hours_out() -> None:
    known = history(*[1.0] * 12 * 30, step_s=7200.0)
    assert known.by_hour is None and known.hourly_bps is None and known.evenly_by_hour(1) is None


def test_the_hour_of_a_time_of_the_run() -> None:
    known = history(1.0, origin_epoch_ns=22 * HOUR_NS + HOUR_NS // 2)
    assert [known.hour(ns) for ns in (0, HOUR_NS // 2 - 1, HOUR_NS // 2, 2 * HOUR_NS)] == [22, 22, 23, 0]
