"""Pricing: hand-computed potentials, and against every plan of small spaces one by one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from policy.bound import pricing
from policy.bound.best_fixed_plan import every_shape
from policy.bound.best_path import best_path
from policy.bound.bound import clairvoyant
from policy.bound.pricing import SLACK, Cells, failing, most_by, price, space_of
from policy.bound.pruning import cuts_of, plans_of
from policy.bound.time_grid import Grid, TransferTimes, grid
from policy.control.best_relay_times import best_relay_ns
from policy.control.knobs import free_variants
from policy.search.plan_search import build
from tests.support.bound_worlds import RESTART_S, restless, tiny
from tests.support.worlds import toy_wan
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import per_second

Float = NDArray[np.float64]


def test_a_potential_by_hand() -> None:
    """Two cells of restart. The first plan is good for four cells of a second, the second one afterwards:
    leaving after three costs a cell of the first and a cell of the second."""
    rate = np.array([[4.0, 4, 4, 4, 0, 0, 0, 0], [0.0, 0, 0, 0, 3, 3, 3, 3]])
    most = most_by(rate, np.ones(8), 2)
    assert most.tolist() == [0, 4, 8, 12, 16, 16, 16, 19, 22]
    assert most_by(rate, np.ones(8), 0)[-1] == 16 + 12
    assert most_by(rate[:1], np.full(8, 0.5), 2)[-1] == 8


def test_what_fails_does_more_somewhere() -> None:
    known = np.array([[2.0, 2, 2, 2, 2, 2]])
    most = most_by(known, np.ones(6), 1)
    each = np.array([[2.0, 2.0], [3.0, 0.0], [0.0, 2.9], [0.0, 3.1], [1.9, 2.0]])
    # In the second half from cell 3 on: 2 x 2 by its start less a restart, then 3 cells; 2 x 6 is known.
    part = np.array([0, 0, 0, 1, 1, 1])
    assert failing(each, part, np.ones(6), 1, most).tolist() == [False, True, True, True, False]
    assert failing(np.array([[0.0, 2.6]]), part, np.ones(6), 1, most).tolist() == [False]


@given(st.data())
def test_what_holds_cannot_add_to_any_sequence(data: st.DataObject) -> None:
    plans, cells = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 6))
    pause = data.draw(st.integers(0, 3))
    draw = st.lists(st.integers(0, 9), min_size=cells, max_size=cells)
    rate = np.array([data.draw(draw) for _ in range(plans)], dtype=np.float64)
    lengths = np.array(data.draw(st.lists(st.integers(1, 3), min_size=cells, max_size=cells)), np.float64)
    known = np.arange(plans) < data.draw(st.integers(1, plans))
    most = most_by(rate[known], lengths, pause)
    fails = failing(rate, np.arange(cells), lengths, pause, most)
    assert not fails[known].any()
    assert most_by(rate[~fails], lengths, pause).tolist() == most.tolist()
    # Why the space is priced until nothing fails: then no plan of it adds anything.
    for _ in range(plans):
        known = known | failing(rate, np.arange(cells), lengths, pause, most)
        most = most_by(rate[known], lengths, pause)
    assert most_by(rate, lengths, pause).tolist() == most.tolist()


def test_a_plan_may_fail_only_once_another_is_known() -> None:
    """By hand: the third plan has done 1 by edge 2, so that the second, which begins at 3, comes to 2."""
    rate = np.array([[0.0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 1, 0, 0, 0]])
    lengths = np.ones(5)
    most = most_by(rate[:1], lengths, 1)
    assert failing(rate, np.arange(5), lengths, 1, most).tolist() == [False, False, True]
    most = most_by(rate[[0, 2]], lengths, 1)
    assert failing(rate, np.arange(5), lengths, 1, most).tolist() == [False, True, False]
    assert most_by(rate, lengths, 1)[-1] == 2


def every_rate(estimator: Estimator, made: Grid) -> tuple[list[Plan], Float]:
    """All plans of the space that fit, and their rates (S, P) as the bound has them, every depth included."""
    plans, rates = [], []
    for shape in every_shape(estimator):
        for row in cuts_of(shape, estimator.n_layers).tolist():
            plan = build(estimator, shape, row)
            if estimator.problems(plan):
                continue
            rate = np.zeros(made.slots)
            for one in (plan, *free_variants(estimator, plan)):
                rate = np.maximum(rate, made.rate(estimator, one))
                if len(one.shares) > 1:
                    turned = best_relay_ns(estimator, one, made.states)
                    rate = rate if turned is None else np.maximum(rate, per_second(turned)[made.state])
            plans.append(plan)
            rates.append(rate)
    return plans, np.stack(rates, axis=1)


@pytest.mark.parametrize("seed", range(6))
def test_no_sequence_of_the_space_is_above_the_ceiling(seed: int) -> None:
    estimator = tiny(3, blocks=4, batch=8)
    made = grid(restless(3, np.random.default_rng(seed), 300.0), [], RESTART_S)
    plans, rate = every_rate(estimator, made)
    worst = rate[:, np.argmin(made.lengths_s @ rate)]
    found = price(estimator, made, RESTART_S, worst[None], every_shape(estimator))
    assert found.ceiling is not None and set(found.plans) <= set(plans)

    def no_transfers(count: int) -> TransferTimes:
        start = np.zeros(count**2 + 1, np.int64)
        return TransferTimes(np.zeros(made.slots, np.int64), start, np.zeros(0, np.int64), np.zeros((1, 0)))

    free, _ = best_path(made.edges_s, rate, no_transfers(len(plans)), restart_s=RESTART_S, floor=0.0)
    assert free <= found.ceiling * (1 + 1e-9) and found.ceiling < 1.2 * free
    # Over the plans that were found alone one gets as far, but for what relaxes the ceiling.
    chosen = [plans.index(plan) for plan in found.plans]
    some = no_transfers(len(chosen))
    few, _ = best_path(made.edges_s, rate[:, chosen], some, restart_s=RESTART_S, floor=0.0)
    assert few >= free * (1 - 2 * SLACK)


def test_what_is_known_of_the_best_needs_no_more() -> None:
    """Constant links: the best plan alone is as good as all, and nothing is found."""
    estimator = tiny(2, blocks=4, batch=8)
    made = grid(toy_wan(2, seconds=300.0, bps=5e9, latency_s=0.01), [], RESTART_S)
    _, rate = every_rate(estimator, made)
    best = rate[:, np.argmax(made.lengths_s @ rate)]
    found = price(estimator, made, RESTART_S, best[None], every_shape(estimator))
    assert found.plans == ()
    assert found.ceiling == pytest.approx((1 + SLACK) * float(made.lengths_s @ best))


def test_spaces_that_are_too_large_or_cannot_be_enumerated_are_left_alone() -> None:
    estimator = tiny(2)
    plans = sum(plans_of(shape, estimator.n_layers) for shape in every_shape(estimator))
    assert space_of(estimator, plans) == every_shape(estimator) and space_of(estimator, plans - 1) == []
    assert space_of(tiny(6), 10**9) == []


def test_what_is_given_up_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    made, estimator = grid(toy_wan(2, seconds=100.0), [], RESTART_S), tiny(2)
    nothing, shapes = np.zeros((1, made.slots)), every_shape(estimator)
    assert price(estimator, made, RESTART_S, nothing, shapes).ceiling is not None
    monkeypatch.setattr(pricing, "MOST_KNOWN", 1)
    assert price(estimator, made, RESTART_S, nothing, shapes).ceiling is None


def test_cells_have_the_best_of_all_that_they_touch() -> None:
    wan = restless(2, np.random.default_rng(0), 100.0, changes=40)
    made = grid(wan, [], RESTART_S)
    cells = Cells.of(made, RESTART_S)
    assert cells.pause == 2 and cells.edges_s[0] == 0 and cells.edges_s[-1] == made.edges_s[-1]
    rate = np.random.default_rng(1).uniform(0.0, 1.0, (3, made.slots))
    best = cells.best(rate)
    for c, (start, end) in enumerate(zip(cells.edges_s[:-1], cells.edges_s[1:], strict=True)):
        touched = (made.edges_s[:-1] < end - 1e-9) & (made.edges_s[1:] > start + 1e-9)
        assert (best[:, c] >= rate[:, touched].max(axis=1)).all()
    part = cells.parts(4)
    states = cells.states(made, part)
    for g in range(4):
        inside = made.state[cells.first[part == g].min() : cells.last[part == g].max() + 1]
        assert np.array_equal(states.bandwidth_bps[g], made.states.bandwidth_bps[inside].max(axis=0))
        assert np.array_equal(states.latency_s[g], made.states.latency_s[inside].min(axis=0))


@pytest.mark.parametrize("restart_s", [0.0, 1e-4, 11.35, 1e6])
def test_a_restart_is_never_longer_in_cells(restart_s: float) -> None:
    made = grid(toy_wan(2, seconds=500.0), [], restart_s)
    cells = Cells.of(made, restart_s)
    assert len(cells.first) <= pricing.MOST_CELLS + 1
    assert cells.pause * float(np.max(cells.lengths_s)) <= restart_s * (1 + 1e-9)


def test_the_bound_is_priced_where_the_space_is_small() -> None:
    estimator = tiny(3, blocks=16, batch=8)
    steps = {(0, 1): [(100.0, 5e8)], (1, 2): [(200.0, 5e8)]}
    wan = toy_wan(3, seconds=300.0, bps=2e11, latency_s=1e-3, steps=steps)
    priced = clairvoyant(estimator, wan, [], restart_s=RESTART_S)
    without = clairvoyant(estimator, wan, [], restart_s=RESTART_S, priced=0)
    assert not priced.exact and without.ceiling_tokens is None and priced.ceiling_tokens is not None
    assert without.tokens * (1 - 1e-12) <= priced.tokens <= priced.ceiling_tokens < priced.capacity_tokens
    rolled = replace(next(plan for _, plan in without.timeline if len(plan.shares) > 1), schedule="gpipe")
    used = clairvoyant(estimator, wan, [], restart_s=RESTART_S, used_plans=[rolled])
    assert (
        used.ceiling_tokens is not None and priced.tokens * (1 - 1e-12) <= used.tokens <= used.ceiling_tokens
    )
    whole = clairvoyant(tiny(), toy_wan(2, seconds=100.0), [], restart_s=RESTART_S)
    assert whole.exact and whole.ceiling_tokens == whole.tokens
