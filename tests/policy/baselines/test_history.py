"""`history` keeps the plan of the past, turns its knobs, and leaves it only where it cannot go on."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from policy.baselines.history import History
from policy.core.protocol import Context
from tests.support.pasts import past
from tests.support.plays import of_type, play
from tests.support.worlds import toy_setup
from twin.core.facts import Trigger
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.scenario.prepare import PreparedScenario


def started(setup: PreparedScenario, *bps: float) -> History:
    policy = History()
    known = past(*bps) if bps else None
    rng = generator(0, "policy")
    policy.reset(Context(setup.estimator(), 60.0, 11.35, (1.0, 0.0, 0.0), rng, known))
    return policy


def plans(setup: PreparedScenario, policy: History) -> list[Plan]:
    """The plans that were decided, in order. (Over a dead link no layer arrives: a move may not end.)"""
    used: list[Plan] = []

    def answer(trigger: Trigger) -> Plan | None:
        assert trigger.view is not None
        plan = policy.decide(trigger.view).plan
        used.extend([] if plan is None else [plan])
        return plan

    assert of_type(play(setup, answer), "plan_applied")
    return used


def test_it_starts_with_the_plan_of_the_past_whatever_the_links_are_now() -> None:
    slow = toy_setup(2, bps=2e8, seconds=300.0)
    assert len(plans(slow, started(slow, 5e10))[0].shares) == 2
    assert len(plans(slow, started(slow, 1e7))[0].shares) == 1
    fast = replace(slow, wan=toy_setup(2, bps=5e10, seconds=300.0).wan)
    assert len(plans(fast, started(fast, 1e7))[0].shares) == 1


def test_it_moves_only_where_its_plan_cannot_go_on() -> None:
    worse = {(0, 1): [(100.0, 1e9)], (1, 0): [(100.0, 1e9)]}
    dead = {(0, 1): [(100.0, 0.0)], (1, 0): [(100.0, 0.0)]}
    # A dead link is waited for, ten minutes.
    for steps, seconds, domains in ((worse, 600.0, [2]), (dead, 600.0, [2]), (dead, 1800.0, [2, 1])):
        setup = toy_setup(2, bps=5e10, latency_s=0.001, seconds=seconds, steps=steps)
        used = plans(setup, started(setup, 5e10))
        placed = [used[0], *(b for a, b in pairwise(used) if a.shares != b.shares)]
        assert [len(plan.shares) for plan in placed] == domains


def test_without_a_past_it_takes_the_best_plan_for_the_present_links() -> None:
    setup = toy_setup(2, bps=1e7, seconds=120.0)
    (plan, *_) = plans(setup, started(setup))
    assert len(plan.shares) == 1 and np.isfinite(setup.wan.end_ns)


def test_all_moments_of_the_past_count_alike() -> None:
    setup = toy_setup(2)
    assert [len(plan.shares) for plan in plans(setup, started(setup, *[5e10] * 70, *[1e7] * 30))][:1] == [2]
