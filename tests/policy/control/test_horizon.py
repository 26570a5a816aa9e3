from dataclasses import replace
from math import inf
from statistics import NormalDist

import numpy as np
import pytest

from policy.control.horizon import (
    SCENARIOS,
    Outages,
    PlanComparison,
    egress_usd,
    make_horizon,
    pause_s,
    per_iteration,
)
from policy.core.objective import Objective, PlanOutcome
from policy.search.plan_search import best_plans
from tests.support.cases import random_case
from twin.core.plan import Plan
from twin.core.view import Forecast
from twin.estimation.estimator import Estimator, Migration

NONE = Outages(np.zeros((2, 2)), np.zeros((2, 2)))


def forecast(
    bandwidth: list[float], sd: float = 0.0, horizons: tuple[float, ...] = (0.0, 60.0, 600.0)
) -> Forecast:
    """Two domains whose links have `bandwidth[h]` at horizon h."""
    rows = np.array([[[inf, b], [b, inf]] for b in bandwidth])
    spread = np.full_like(rows, sd) * (1 - np.eye(2))
    return Forecast(np.array(horizons), rows, spread, np.array([[0.0, 0.02], [0.02, 0.0]]))


def test_slices_meet_midway_and_the_last_holds() -> None:
    made = make_horizon(forecast([1e9, 2e9, 3e9]), 3600.0, NONE)
    assert made.edges_s.tolist() == [0.0, 30.0, 330.0, 3600.0]
    assert [links.bandwidth_bps[0, 1] for links in made.median] == [1e9, 2e9, 3e9]
    assert made.length_s == 3600.0


def test_horizons_beyond_the_end_are_left_out() -> None:
    assert make_horizon(forecast([1e9, 2e9, 3e9]), 60.0, NONE).edges_s.tolist() == [0.0, 60.0]


def test_scenarios_hold_every_eighth_of_each_link() -> None:
    made = make_horizon(forecast([1e9, 1e9, 1e9], sd=0.3), 600.0, NONE)
    rates = made.sliced(made.states.bandwidth_bps[None, :, 0, 1])[0]
    middles = [NormalDist().inv_cdf((n + 0.5) / SCENARIOS) for n in range(SCENARIOS)]
    for slice_ in np.log(rates / 1e9) / 0.3:
        assert sorted(slice_) == pytest.approx(middles)
    back = made.sliced(made.states.bandwidth_bps[None, :, 1, 0])[0]
    assert not np.array_equal(rates, back)  # each link has doubts of its own
    assert made.states.bandwidth_bps[0, 0, 0] == inf


def test_scenarios_have_the_calibrated_shape_of_errors() -> None:
    # A link that hardly moves and rarely falls far: narrow in the middle, wide at the ends.
    peaked = replace(forecast([1e9] * 3, sd=0.3), widths=np.array([[0.2, 2.0]]))
    made = make_horizon(peaked, 600.0, NONE)
    rates = made.sliced(made.states.bandwidth_bps[None, :, 0, 1])[0]
    reach = np.sort(np.log(rates / 1e9) / 0.3, axis=1)
    d80, d95, d94 = (NormalDist().inv_cdf(share) for share in (0.9, 0.975, 15 / 16))
    assert reach[:, -1] == pytest.approx(0.2 + 1.8 * (d94 - d80) / (d95 - d80))
    assert np.abs(reach[:, 1:-1]).max() < 0.2
    assert reach == pytest.approx(-reach[:, ::-1])


def test_what_grows_with_the_horizon_lasts_and_what_is_there_now_passes() -> None:
    doubt = np.array([0.0, 0.3, 0.4])[:, None, None] * (1 - np.eye(2))
    lasting = make_horizon(replace(forecast([1e9] * 3), sd_log=doubt), 3600.0, NONE)
    log = np.log(lasting.sliced(lasting.states.bandwidth_bps[None, :, 0, 1])[0] / 1e9)
    assert log[0] == pytest.approx(0.0)
    assert log[2] == pytest.approx(log[1] * 4 / 3)
    passing = make_horizon(forecast([1e9, 1e9, 1e9], sd=0.3), 600.0, NONE)
    rates = passing.sliced(passing.states.bandwidth_bps[None, :, 0, 1])[0]
    assert not np.array_equal(rates[0], rates[1])


def test_a_glimpse_is_the_median_and_how_scenarios_end() -> None:
    made = make_horizon(forecast([1e9, 2e9, 3e9], sd=0.3), 3600.0, NONE)
    assert made.summary.bandwidth_bps[:3, 0, 1].tolist() == [1e9, 2e9, 3e9]
    assert np.array_equal(made.summary.bandwidth_bps[3:], made.states.bandwidth_bps[-SCENARIOS:])


def test_a_dead_link_comes_back_where_it_is_expected() -> None:
    back = np.array([[0.0, 500.0], [0.0, 0.0]])
    made = make_horizon(forecast([0.0, 0.0, 0.0]), 3600.0, Outages(back, np.full((2, 2), 4e9)))
    assert 500.0 in made.edges_s
    alive = [float(links.bandwidth_bps[0, 1]) for links in made.median]
    assert alive == [4e9 if start >= 500.0 else 0.0 for start in made.edges_s[:-1]]
    assert all(links.bandwidth_bps[1, 0] == 0.0 for links in made.median)


def case() -> tuple[Estimator, list[Plan]]:
    estimator, state = random_case(2, size=2)
    free = [domain.gpus for domain in estimator.cluster.domains]
    plans = [plan for plan, _ in best_plans(estimator, state, free_gpus=free, top=40)]
    return estimator, plans


def test_holding_under_constant_links_brings_what_the_estimator_says() -> None:
    estimator, plans = case()
    made = make_horizon(forecast([2e9, 2e9, 2e9]), 1000.0, NONE)
    for plan in plans[:5]:
        (held,) = PlanComparison(estimator, made, plan, 11.35, None).kept_outcomes([plan])
        now = estimator.iteration(plan, made.median[0])
        assert held.iter_s == pytest.approx(now.iter_s)
        assert held.utilisation == pytest.approx(now.utilisation)
        assert held.usd == pytest.approx(now.usd)


def test_uncertain_links_bring_less() -> None:
    estimator, plans = case()
    spanning = [plan for plan in plans if len(plan.shares) > 1]
    sure, vague = (
        PlanComparison(
            estimator, make_horizon(forecast([2e9] * 3, sd), 1000.0, NONE), None, 11.35, None
        ).kept_outcomes(spanning)
        for sd in (0.0, 0.8)
    )
    assert spanning and all(a.iter_s < b.iter_s for a, b in zip(sure, vague, strict=True))


def test_cautious_links_are_below_the_median_where_they_are_uncertain() -> None:
    sure, vague = (make_horizon(forecast([1e9, 2e9, 3e9], sd), 3600.0, NONE) for sd in (0.0, 0.8))
    assert sure.pessimistic.bandwidth_bps[0, 1] == pytest.approx(3e9)
    below = np.exp(0.8 * NormalDist().inv_cdf(2.5 / SCENARIOS))
    assert vague.pessimistic.bandwidth_bps[0, 1] == pytest.approx(3e9 * below, rel=0.2)
    assert vague.pessimistic.bandwidth_bps[0, 1] < 3e9


def test_a_move_costs_its_pause_and_its_bytes() -> None:
    estimator, plans = case()
    made = make_horizon(forecast([2e9, 2e9, 2e9]), 1000.0, NONE)
    old = plans[0]
    new = next(plan for plan in plans if estimator.move(old, plan, made.median[0]).bytes[0, 1] > 0)
    move = estimator.move(old, new, made.median[0])
    (held,) = PlanComparison(estimator, made, new, 20.0, None).kept_outcomes([new])
    (moved,) = PlanComparison(estimator, made, old, 20.0, None).kept_outcomes([new])
    pause = move.seconds - estimator.restart_s + 20.0
    assert moved.iter_s == pytest.approx(held.iter_s * 1000.0 / (1000.0 - pause))
    iterations = 1000.0 / moved.iter_s
    assert (moved.usd - held.usd) * iterations == pytest.approx(egress_usd(estimator, move.bytes))


def test_a_move_longer_than_the_horizon_brings_nothing() -> None:
    estimator, plans = case()
    made = make_horizon(forecast([2e9, 2e9, 2e9]), 10.0, NONE)
    other = next(plan for plan in plans if plan.shares != plans[0].shares)
    (moved,) = PlanComparison(estimator, made, plans[0], 11.35, None).kept_outcomes([other])
    assert moved.iter_s == inf
    dead = make_horizon(forecast([0.0, 0.0, 0.0]), 1000.0, NONE)
    over = next(plan for plan in plans if len(plan.shares) == 2)
    (stalled,) = PlanComparison(estimator, dead, plans[0], 11.35, None).kept_outcomes([over])
    assert stalled.iter_s == inf


def test_free_knobs_pause_nothing() -> None:
    estimator, _ = case()
    assert pause_s(estimator, Migration(np.zeros((2, 2)), 0.0), 11.35) == 0.0


def test_prices_count_between_domains_only() -> None:
    estimator, plans = case()
    moved = np.array([[7e9, 1e9], [2e9, 9e9]])
    assert egress_usd(estimator, moved) == pytest.approx(0.02 * 3)
    assert per_iteration(estimator, plans[0], None) == per_iteration(estimator, plans[0], np.ones(2))


def test_pure_speed_orders_by_time_alone() -> None:
    objective = Objective((1.0, 0.0, 0.0), PlanOutcome(10.0, 0.5, 2.0))
    assert objective.value(PlanOutcome(8.0, 0.1, 9.0)) == pytest.approx(0.2)
    assert objective.value(PlanOutcome(8.0, 0.1, 9.0)) > objective.value(PlanOutcome(8.1, 0.9, 0.0))
    assert objective.value(PlanOutcome(inf, 0.9, 0.0)) == -inf


def test_each_weight_counts_in_units_of_the_base() -> None:
    base = PlanOutcome(10.0, 0.5, 2.0)
    assert Objective((0.0, 1.0, 0.0), base).value(PlanOutcome(99.0, 0.7, 5.0)) == pytest.approx(0.7)
    assert Objective((0.0, 0.0, 1.0), base).value(PlanOutcome(99.0, 0.7, 5.0)) == pytest.approx(-2.5)
    free = Objective((0.0, 0.0, 1.0), PlanOutcome(10.0, 0.5, 0.0))
    assert free.value(PlanOutcome(10.0, 0.5, 3.0)) == pytest.approx(-3.0)
