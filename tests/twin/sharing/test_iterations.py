"""Iterations on one link, found by hand and in Crux's example 1."""

import math

import pytest

from twin.sharing.iterations import LinkFlow, Pattern, link_rates, played

LONG, SHORT = Pattern(2, 2, 2), Pattern(1, 1, 1)
"""Jobs 1 and 2 of example 1 (Cao et al., SIGCOMM 2024, section 4.2), seconds."""


def on_one_link(ranks: tuple[int, int]) -> list[float]:
    flows = [LinkFlow(one, (0,), rank) for one, rank in zip((LONG, SHORT), ranks, strict=True)]
    return played(flows, [1.0], [0.0, 0.0])


def test_the_utilisations_of_the_papers_example_come_out() -> None:
    for ranks, published in (((0, 1), 37.5), ((1, 0), 41.7)):
        mean = on_one_link(ranks)
        busy = (LONG.floor / mean[0] + SHORT.floor / mean[1]) / 2
        assert round(100 * busy, 1) == published


@pytest.mark.parametrize(("behind_s", "mean_s"), [(0, 3), (0.5, 2.5), (1, 2), (1.5, 2.5)])
def test_two_alike_slow_each_other_while_both_send(behind_s: float, mean_s: float) -> None:
    flows = [LinkFlow(SHORT, (0,))] * 2
    assert played(flows, [1.0], [0.0, behind_s]) == pytest.approx([mean_s, mean_s])


def test_who_is_left_nothing_starves() -> None:
    always = Pattern(0, 1, 1)
    assert played([LinkFlow(always, (0,)), LinkFlow(SHORT, (0,), 1)], [1.0], [0.0, 0.0]) == [1, math.inf]


def test_rates_are_max_min_fair_within_a_rank() -> None:
    flows = [LinkFlow(SHORT, (0, 1)), LinkFlow(SHORT, (0,)), LinkFlow(SHORT, (1,)), LinkFlow(SHORT, (1,), 1)]
    # Link 1 is divided among two, link 0 gives its rest to flow 1; flow 3 has nothing left.
    assert link_rates(flows, [0, 1, 2, 3], [1.2, 1.0]) == pytest.approx([0.5, 0.7, 0.5, 0])
    assert link_rates(flows, [2, 3], [1.0, 1.5]) == pytest.approx([0, 0, 1, 0.5])
