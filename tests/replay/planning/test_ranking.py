"""Narrowing keeps orders of domains apart, from either end."""

from policy.control.long_run import PastPlan
from policy.core.reference_plan import equal_cuts
from replay.planning.ranking import best_of_orders
from tests.support.worlds import toy_setup


def test_the_best_of_each_order_are_kept_whichever_end_it_begins_at() -> None:
    setup = toy_setup(3)
    estimator, gpus = setup.estimator(), [4, 4, 4]
    orders = [(0, 1), (1, 0), (2, 1, 0), (0, 1), (0, 1, 2), (0, 2, 1)]
    plans = [PastPlan(equal_cuts(estimator, order, gpus), 9.0 - n) for n, order in enumerate(orders)]
    assert best_of_orders(plans, 1) == [plans[0], plans[2], plans[5]]
    assert best_of_orders(plans, 2) == [plans[0], plans[1], plans[2], plans[4], plans[5]]
