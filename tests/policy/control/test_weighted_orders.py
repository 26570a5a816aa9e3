"""Orders that are good by the weighted objective."""

import numpy as np
import pytest

from policy.control.long_run import PastPlans
from policy.control.weighted_orders import add_weighted, boundary_usd, weighted_orders
from policy.core.objective import Objective, PlanOutcome
from policy.search.plan_search import TimedPlans
from tests.support.pasts import past
from tests.support.views import flat
from tests.support.worlds import toy_setup
from twin.estimation.estimator import Estimator

WEIGHTS = ((1.0, 0.0, 0.0), (0.25, 0.75, 0.0), (0.25, 0.0, 0.75))


def pool(estimator: Estimator, bps: float, k: int) -> TimedPlans:
    links = flat(k, bps)
    return TimedPlans(estimator, links, (4,) * k, np.ones(k))


def orders(estimator: Estimator, bps: float, weights: tuple[float, float, float]) -> list[tuple[int, ...]]:
    k, base = estimator.cluster.size, PlanOutcome(10.0, 0.5, 1.0)
    timed = pool(estimator, bps, k)
    return weighted_orders(estimator, timed.scorer, timed.tables, range(k), Objective(weights, base))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_every_order_of_a_small_cluster_is_found_once(weights: tuple[float, float, float]) -> None:
    found = orders(toy_setup(3).estimator(), 5e10, weights)
    assert len(found) == len(set(found)) and {1, 2} <= {len(order) for order in found}
    assert {(0,), (1,), (2,)} <= set(found)
    assert all(order[::-1] in found and len(set(order)) == len(order) for order in found)


def test_a_boundary_costs_its_activations_both_ways() -> None:
    estimator = toy_setup(2).estimator()
    job, prices = estimator.job, estimator.cluster.usd_per_gb
    sent_gb = job.global_batch * job.model.seq * job.model.hidden * job.model.bytes_per_element / 1e9
    assert boundary_usd(estimator)[0, 1] == pytest.approx(sent_gb * (prices[0][1] + prices[1][0]))


def test_the_fastest_plan_of_each_order_is_timed() -> None:
    estimator = toy_setup(3).estimator()
    timed = pool(estimator, 5e10, 3)
    add_weighted(timed, range(3), Objective((0.25, 0.0, 0.75), PlanOutcome(10.0, 0.5, 1.0)))
    rows = timed.fastest(1, of_each_order=True)
    found = {tuple(rows.domain[n, : rows.count[n]].tolist()) for n in range(len(rows))}
    assert {(0,), (1,), (2,), (0, 1), (1, 0)} <= found


def test_the_past_is_ranked_by_the_objective() -> None:
    estimator = toy_setup(2).estimator()
    fast, cheap = (
        PastPlans(estimator, past(5e10), weights).legal((4, 4), 1)[0]
        for weights in ((1.0, 0.0, 0.0), (0.25, 0.0, 0.75))
    )
    assert len(fast.shares) == 2 and len(cheap.shares) == 1
