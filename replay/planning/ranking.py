"""Plans by their mean rate over the record, narrowed step by step: every step looks closer at fewer plans."""

from collections.abc import Sequence

from policy.control.long_run import LongRunRates, PastPlan
from replay.planning.record import Record
from twin.core.plan import Plan

STEPS = ((6, 32, False), (8, 10, True), (32, 6, True))
"""(states, plans kept, whether warm-up depths are turned) of each step."""


def narrowed(record: Record, plans: Sequence[Plan]) -> list[PastPlan]:
    """Returns the best plans by falling mean rate over the record, knobs turned in every state."""
    found = [PastPlan(plan, 0.0) for plan in plans]
    for states, kept, turned in STEPS:
        rates = LongRunRates(record.estimator, record.sampled(states), relayed=record.relayed)
        judged = [
            rates.turned(one.plan) if turned else PastPlan(one.plan, rates.rate(one.plan)) for one in found
        ]
        found = sorted((one for one in judged if one.rate > 0), key=lambda one: -one.rate)[:kept]
    return found
