"""Plans by their mean rate over the record, narrowed step by step: every step looks closer at fewer plans.

Every step keeps several orders of domains: plans that differ by a layer are one answer to whoever asks.
"""

from collections import Counter
from collections.abc import Sequence

from policy.control.long_run import LongRunRates, PastPlan
from replay.planning.record import Record
from twin.core.plan import Plan

TRIAL = 6
"""States over which every candidate is tried."""
STEPS = ((32, 4, 8), (10, 2, 32))
"""Of each later step: plans taken, of each order of domains, states; warm-up depths are turned."""
MOST = 6
"""Plans that are left, one of each order."""


def tried(record: Record, plans: Sequence[Plan]) -> list[PastPlan]:
    """Returns the plans that ever run by falling mean rate over a few states of the record, at the depth they
    have."""
    rates = LongRunRates(record.estimator, record.sampled(TRIAL), relayed=record.relayed)
    return _sorted([PastPlan(plan, rates.rate(plan)) for plan in plans])


def narrowed(record: Record, trial: Sequence[PastPlan]) -> list[PastPlan]:
    """Returns the best of the `tried` plans of each order of domains by falling mean rate over the record,
    knobs turned in every state."""
    found = list(trial)
    for most, of_each, states in STEPS:
        rates = LongRunRates(record.estimator, record.sampled(states), relayed=record.relayed)
        found = _sorted([rates.turned(one.plan) for one in best_of_orders(found, of_each)[:most]])
    return best_of_orders(found, 1)[:MOST]


def best_of_orders(found: Sequence[PastPlan], most: int) -> list[PastPlan]:
    """Returns of plans by falling rate the first so many of each order of domains, whichever end it begins
    at."""
    seen = Counter[tuple[int, ...]]()
    kept = []
    for one in found:
        order = direction(one.plan)
        seen[order] += 1
        if seen[order] <= most:
            kept.append(one)
    return kept


def direction(plan: Plan) -> tuple[int, ...]:
    """Returns the domains of a plan in order, from the end that makes equal pipelines equal."""
    return min(plan.order, plan.order[::-1])


def _sorted(found: Sequence[PastPlan]) -> list[PastPlan]:
    return sorted((one for one in found if one.rate > 0), key=lambda one: -one.rate)
