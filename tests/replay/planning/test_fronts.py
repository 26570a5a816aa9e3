"""The front of time, utilisation and cost: what none beats stays, near copies go."""

from dataclasses import replace

import pytest

from policy.control.long_run import PastPlan
from replay.planning import fronts
from replay.planning.candidates import EQUAL, SINGLE, planned
from replay.planning.figures import PlanFigures, figures
from replay.planning.record import Record
from tests.support.worlds import toy_setup
from twin.core.plan import Plan
from twin.estimation.link_state_times import States


def record() -> Record:
    setup = toy_setup(2, bps=4e9, weights={"efficiency": 1.0})
    states = States.of([setup.wan.at(0)])
    return Record(setup.scenario, setup.estimator(), states, None, "toy", "all", 0.0, "")


def found(made: Record, name: str) -> PlanFigures:
    plan = planned(made, [name])[name]
    assert isinstance(plan, Plan)
    one = figures(made, plan, name)
    assert one is not None
    return one


def test_a_plan_that_another_beats_in_everything_is_no_part_of_the_front() -> None:
    first = found(record(), EQUAL)
    slower = replace(
        first, mean_tokens_per_s=first.mean_tokens_per_s * 0.9
    )  # so that a token costs more, too
    cheaper = replace(slower, egress_usd_per_day=0.0, gpu_usd_per_day=1.0)
    busier = replace(slower, utilisation=first.utilisation + 0.1)
    assert fronts.of_figures([first, slower, cheaper, busier]) == [first, cheaper, busier]


def test_cost_is_egress_and_rental_of_the_plans_own_gpus_per_token() -> None:
    one = found(record(), SINGLE)
    assert one.egress_usd_per_day == 0
    seconds = 1e6 / one.mean_tokens_per_s
    assert one.usd_per_million_tokens == pytest.approx(4 * 5.0 * seconds / 3600)
    assert one.utilisation == pytest.approx(one.estimate.utilisation)


def test_of_tried_plans_near_copies_and_beaten_ones_are_left_out() -> None:
    made = record()
    two, one = found(made, EQUAL).plan, found(made, SINGLE).plan
    copy = replace(two, micro_batch=2, micro_batches=two.micro_batches * two.micro_batch // 2)
    trial = [PastPlan(two, 0.2), PastPlan(copy, 0.199), PastPlan(one, 0.15)]
    assert fronts.of_trial(made, trial) == [two, one]


def test_plans_that_are_searched_under_weights_run() -> None:
    made = record()
    plans = fronts.weighted_candidates(made)
    assert {len(plan.order) for plan in plans} == {1, 2}
    assert all(not made.estimator.problems(plan) for plan in plans)
