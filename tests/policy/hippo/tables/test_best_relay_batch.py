"""Many plans over the best relays take as long as each of them alone."""

from dataclasses import replace

import numpy as np
import pytest

from policy.control.best_relay_times import best_relay_ns
from policy.hippo.tables.batch_timing import Timer
from policy.hippo.tables.planning_tables import PlanningTables
from tests.support.hippo_tables import MODELS, walk
from tests.support.worlds import toy_setup
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, iteration_ns

PLANS, STATES, SIZE = 24, 5, 4


@pytest.mark.parametrize("kind", ["7b", "gpt2"])  # gpt2: both ends exchange gradients
@pytest.mark.parametrize("limited", [False, True])
def test_times_are_those_of_each_plan_alone(kind: str, limited: bool) -> None:
    made = toy_setup(SIZE, **MODELS[kind])
    limits = ({"egress_bps": 2e9}, {"ingress_bps": 1e9}, {}, {}) if limited else ({},) * SIZE
    domains = tuple(replace(d, **at) for d, at in zip(made.cluster.domains, limits, strict=True))
    estimator = Estimator(replace(made.cluster, domains=domains), made.job)
    problem, rng = PlanningTables(estimator), np.random.default_rng(3)
    codes = walk(problem, rng, PLANS)
    bandwidth = np.exp(rng.uniform(np.log(5e7), np.log(5e9), (PLANS, STATES, SIZE, SIZE)))
    bandwidth[rng.random(bandwidth.shape) < 0.03] = 0.0
    latency = rng.uniform(0.001, 0.2, bandwidth.shape)
    timer = Timer(problem)
    rows = timer.rows(codes, np.ones(SIZE))
    found_ns, found_bps = timer.best_relay_ns(rows, bandwidth, latency)
    direct_ns = timer.iter_ns(rows, bandwidth, latency)
    relayed = 0
    for p in range(PLANS):
        plan, states = problem.plan(codes, p), States(bandwidth[p], latency[p])
        expected = iteration_ns(estimator, plan, states)
        best = None if len(plan.shares) < 2 else best_relay_ns(estimator, plan, states)
        if best is not None:
            relayed += int((best < expected).sum())
            expected = np.minimum(expected, best)
        assert found_ns[p] == pytest.approx(expected, rel=1e-9)
    assert relayed > PLANS * STATES / 4
    unchanged = found_ns == direct_ns
    assert (found_bps[unchanged] == bandwidth[unchanged]).all()
    assert (found_bps != bandwidth).any(axis=(2, 3))[~unchanged].all()


def test_nothing_changes_where_links_are_best() -> None:
    made = toy_setup(3)
    problem, rng = PlanningTables(Estimator(made.cluster, made.job)), np.random.default_rng(0)
    timer, codes = Timer(problem), walk(problem, rng, 10)
    rows = timer.rows(codes, np.ones(3))
    links = np.full((10, 2, 3, 3), 5e9), np.full((10, 2, 3, 3), 0.03)
    found_ns, found_bps = timer.best_relay_ns(rows, *links)
    assert (found_ns == timer.iter_ns(rows, *links)).all() and (found_bps == links[0]).all()
