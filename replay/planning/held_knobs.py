"""Rates of a plan over the record as a run has them: its knobs are turned by links that it has seen before.

A policy turns relays and warm-up depth at its decisions, for the links that telemetry told it by then, and
they hold until the next one. Turned with the links of every moment itself, the mean rate is higher than that
of a replay: by 0.3 % on quad-70b, 2 % on octo-175b, 12 % on planet-405b. So in each sampled moment the choice
is that for the links at the last decision, and a decision reaches the pipeline late: telemetry takes its
delay and half its period, and the iteration under way, half of one in the mean, ends first.
"""

import numpy as np
from numpy.typing import NDArray

from policy.control.best_relay_times import best_relays, relayed_ns
from policy.control.knobs import default_knobs, free_variants
from policy.control.plan_rates import PlanRates
from replay.planning.record import Record
from twin.core.plan import Plan
from twin.estimation.link_state_times import States, per_second
from twin.pipeline.kernel import DEAD

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def held_rates(record: Record, plan: Plan, count: int) -> tuple[Plan, Float]:
    """Returns a plan at the warm-up depth that is best on average, and its iterations per second in at most
    `count` states of the record (T,), the knobs those for the links of the last decision."""
    estimator, states = record.estimator, record.sampled(count)
    plan = default_knobs(estimator.job, plan)
    if plan.sync is not None or len(plan.shares) < 2:
        return plan, PlanRates(estimator, record.relayed)(plan, states)
    seen = record.before(count, _late_s(record, plan))
    variants = [plan, *free_variants(estimator, plan)]
    timed = [_timed(record, one, seen, states) for one in variants]
    best = max(range(len(variants)), key=lambda n: float(_chosen(*timed[n]).mean()))
    expected, reached = (np.concatenate(both) for both in zip(*timed, strict=True))
    return variants[best], _chosen(expected, reached)


def _late_s(record: Record, plan: Plan) -> float:
    """Returns seconds from a change of the links until a decision about it reaches the pipeline."""
    telemetry = record.scenario.telemetry
    rate = float(np.median(PlanRates(record.estimator, relayed=False)(plan, record.sampled(32))))
    iteration_s = 1.0 / rate if rate > 0 else 0.0
    return telemetry.delay_s + telemetry.period_s / 2 + iteration_s / 2


def _timed(record: Record, plan: Plan, seen: States, states: States) -> tuple[Int, Int]:
    """Returns the iteration times (3, T) of a plan over direct links and over both choices of relays that are
    best for the links `seen`: under those, and under the links `states` of the moment."""
    relays = best_relays(record.estimator, plan, seen)
    via = np.concatenate([np.full_like(relays[:1], -1), relays])
    expected, reached = (relayed_ns(record.estimator, plan, links, via) for links in (seen, states))
    if not record.relayed:  # relayed egress is paid twice: only where a direct link is dead
        expected[1:, expected[0] < DEAD] = DEAD
    return expected, reached


def _chosen(expected: Int, reached: Int) -> Float:
    """Returns the rates (T,) reached with what was expected to be fastest."""
    return per_second(reached[expected.argmin(axis=0), np.arange(expected.shape[1])])
