"""Pushed samples in rounds: at most one of a link, in order, the mean of what lies close together."""

import numpy as np
import pytest

from ingest.core.units import NS_PER_S
from twin.world.sample_rounds import rounds

GAP = 30 * NS_PER_S


def test_samples_of_different_slots_come_in_their_order() -> None:
    samples = [[0, 1, 40 * NS_PER_S, 2e9, 0.02], [0, 1, 1, 1e9, 0.01], [1, 0, 5, 3e9, 0.0]]
    (first_ns, first), (second_ns, second) = rounds(samples, 2, GAP)
    assert (first_ns, second_ns) == (5, 40 * NS_PER_S)
    assert first.bandwidth_bps[0, 1] == 1e9 and first.bandwidth_bps[1, 0] == 3e9
    assert first.latency_s[1, 0] == 0  # not measured
    assert second.bandwidth_bps[0, 1] == 2e9 and np.isnan(second.bandwidth_bps[1, 0])


def test_samples_of_one_slot_become_their_geometric_mean() -> None:
    samples = [[0, 1, 1, 1e9, 0.01], [0, 1, 2, 4e9, 0.0], [0, 1, 3, 2e9, 0.04]]
    ((ns, state),) = rounds(samples, 2, GAP)
    assert ns == 3
    assert state.bandwidth_bps[0, 1] == pytest.approx(2e9)
    assert state.latency_s[0, 1] == pytest.approx(0.02)


def test_a_link_that_was_dead_last_is_dead_and_one_that_came_back_is_as_it_is_since() -> None:
    died = [[0, 1, 1, 1e9, 0.01], [0, 1, 2, 0.0, 0.0]]
    ((_, state),) = rounds(died, 2, GAP)
    assert state.bandwidth_bps[0, 1] == 0
    ((_, state),) = rounds([*died, [0, 1, 3, 3e9, 0.01]], 2, GAP)
    assert state.bandwidth_bps[0, 1] == pytest.approx(3e9)


def test_nanoseconds_are_not_rounded_and_nothing_gives_nothing() -> None:
    late = 2**60 + 1
    assert [ns for ns, _ in rounds([[0, 1, late, 1e9, 0.01]], 2, GAP)] == [late]
    assert list(rounds([], 2, GAP)) == []
