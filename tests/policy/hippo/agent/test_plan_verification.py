"""The fast horizon is `policy.control.horizon`, and refinement only offers legal plans."""

import numpy as np
import pytest

from policy.control.horizon import Outages, PlanComparison, make_horizon
from policy.control.plan_rates import PlanRates
from policy.core.objective import Objective, PlanOutcome
from policy.hippo.agent.local_search import legal, neighbours
from policy.hippo.agent.plan_verification import PlanEvaluator
from policy.hippo.agent.shortlist import distinct
from policy.hippo.tables.batch_timing import Timer
from policy.hippo.tables.planning_tables import PlanningTables, concatenate
from tests.support.hippo_tables import setup, walk
from twin.core.view import Forecast
from twin.estimation.estimator import Estimator

OBJECTIVE = Objective((0.6, 0.2, 0.2), PlanOutcome(20.0, 0.3, 1.0))


def forecast(rng: np.random.Generator, k: int) -> Forecast:
    return Forecast(
        np.array([0.0, 60.0, 600.0]),
        rng.uniform(5e8, 5e9, (3, k, k)),
        rng.uniform(0.05, 0.3, (3, k, k)),
        rng.uniform(0.01, 0.1, (k, k)),
    )


@pytest.mark.parametrize("relayed", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_expected_outcomes_are_those_of_the_planner(first: bool, relayed: bool) -> None:
    made = setup("7b")
    estimator = Estimator(made.cluster, made.job)
    problem, rng = PlanningTables(estimator), np.random.default_rng(2)
    codes = walk(problem, rng, 20)
    back = np.zeros((3, 3))
    back[0, 1] = 300.0
    horizon = make_horizon(forecast(rng, 3), 1800.0, Outages(back, np.full((3, 3), 2e9)))
    running = None if first else codes.take([3])
    slowdown = np.array([1.0, 1.2, 1.0])
    ours = PlanEvaluator(Timer(problem), horizon, horizon, relayed, slowdown, running, estimator.restart_s)
    plans = [problem.plan(codes, p) for p in range(20)]
    rates = PlanRates(estimator, relayed)
    theirs = PlanComparison(
        estimator, horizon, None if first else plans[3], estimator.restart_s, slowdown, rates
    )
    pairs = [(ours.kept(codes), theirs.kept_outcomes(plans))]
    pairs += zip(ours.compare(codes, OBJECTIVE), theirs.outcomes(plans, OBJECTIVE), strict=True)
    for got, truth in pairs:
        for one, other in zip(got, truth, strict=True):
            assert one.iter_s == pytest.approx(other.iter_s, rel=1e-8)
            assert one.utilisation == pytest.approx(other.utilisation, rel=1e-8)
            assert one.usd == pytest.approx(other.usd, rel=1e-8)


@pytest.mark.parametrize(("kind", "gpus"), [("7b", 4), ("70b", 16)])
def test_every_neighbour_is_legal_and_new(kind: str, gpus: int) -> None:
    made = setup(kind, gpus)
    estimator = Estimator(made.cluster, made.job)
    problem = PlanningTables(estimator)
    codes = walk(problem, np.random.default_rng(3), 4)
    assert legal(problem, codes).all()
    near = neighbours(problem, codes)
    kept = distinct(near)
    assert len({near.key(row) for row in range(len(near))}) == len(kept) > 20
    assert {near.key(row) for row in kept.tolist()} == {near.key(row) for row in range(len(near))}
    for row in range(0, len(near), 3):
        assert estimator.problems(problem.plan(near, row)) == ()
    broken = concatenate([codes, codes])
    broken.layers[:, 0] += 1
    assert not legal(problem, broken).any()
