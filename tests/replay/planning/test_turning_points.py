"""Bandwidths at which another plan is best: there both take the same time, and only nearby plans change."""

import numpy as np
import pytest

from replay.planning.candidates import EQUAL, SINGLE, planned
from replay.planning.figures import PlanFigures, figures
from replay.planning.record import Record
from replay.planning.turning_points import turning_points
from tests.support.worlds import toy_setup
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.estimation.link_state_times import States


def record(bps: float) -> Record:
    setup = toy_setup(2, bps=bps, weights={"efficiency": 1.0})
    states = States.of([setup.wan.at(0)])
    return Record(setup.scenario, setup.estimator(), states, None, "toy", "all", 0.0, "")


def of_planner(made: Record, name: str) -> PlanFigures:
    plan = planned(made, [name])[name]
    assert isinstance(plan, Plan)
    found = figures(made, plan, name)
    assert found is not None
    return found


def seconds(made: Record, plan: Plan, bps: float) -> float:
    links = LinkState(np.where(np.eye(2) > 0, np.inf, bps), made.states.latency_s[0])
    return made.estimator.iteration(plan, links).iter_s


@pytest.mark.parametrize(("now_bps", "best", "other"), [(4e9, EQUAL, SINGLE), (0.4e9, SINGLE, EQUAL)])
def test_at_a_turning_point_both_plans_take_the_same_time(now_bps: float, best: str, other: str) -> None:
    made = record(now_bps)
    first, second = of_planner(made, best), of_planner(made, other)
    assert first.mean_tokens_per_s > second.mean_tokens_per_s
    (turn,) = turning_points(made, first, {other: second})
    assert (turn.link, turn.above, turn.winner) == ((0, 1), best == SINGLE, other)
    assert turn.now_bps == pytest.approx(now_bps) and (turn.at_bps > now_bps) == turn.above
    level = [seconds(made, one.plan, turn.at_bps) for one in (first, second)]
    assert level[0] == pytest.approx(level[1], rel=1e-3)
    end_bps = now_bps * (16 if turn.above else 1 / 16)
    ahead = seconds(made, first.plan, end_bps) / seconds(made, second.plan, end_bps) - 1
    assert turn.gain == pytest.approx(ahead, rel=1e-6)


def test_a_rival_that_is_never_ahead_by_a_percent_changes_nothing() -> None:
    made = record(4e9)
    first = of_planner(made, EQUAL)
    assert turning_points(made, first, {"itself": first}) == []
