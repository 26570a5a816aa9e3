"""`joint`: room for jobs that wait, GPUs given up where others gain more, `mpc` where there is no other."""

from dataclasses import replace

import numpy as np

from policy.baselines.joint import Joint, Sharing
from policy.baselines.mpc import Mpc
from policy.core.protocol import Context
from tests.support.views import context, flat, view
from tests.support.worlds import toy_setup
from twin.core.plan import Plan
from twin.core.view import OtherJob, View
from twin.estimation.estimator import Estimator

ESTIMATOR = Estimator(toy_setup(3).cluster, toy_setup(3).job, restart_s=1.0)
FAST = flat(3, 1e11, 1e-4)
"""Links so fast that a job alone takes every domain."""


def several() -> Context:
    return replace(context(ESTIMATOR), estimator_of=lambda name: ESTIMATOR)


def joint(price: float = 0.0) -> Joint:
    policy = Joint(sharing=Sharing(price))
    policy.reset(several())
    return policy


def seen(*others: OtherJob, plan: Plan | None = None) -> View:
    return replace(view(ESTIMATOR, FAST, plan=plan), job="own", others=others)


def domains(plan: Plan | None) -> int:
    assert plan is not None
    return len(plan.order)


def test_without_a_job_list_it_is_mpc() -> None:
    alone, mpc = view(ESTIMATOR, FAST), Mpc()
    mpc.reset(context(ESTIMATOR))
    assert joint(price=1.0).decide(alone) == mpc.decide(alone)


def test_a_job_alone_takes_every_domain_and_leaves_room_for_those_that_wait() -> None:
    alone = domains(joint().decide(seen()).plan)
    two = domains(joint().decide(seen(OtherJob("b", None), OtherJob("c", None))).plan)
    assert (alone, two) == (3, 1)


def test_a_domain_more_has_to_bring_its_price() -> None:
    assert domains(joint(price=0.5).decide(seen()).plan) == 1


def test_a_running_job_gives_domains_up_where_those_that_wait_gain_more() -> None:
    plan = joint().decide(seen()).plan
    assert plan is not None and domains(plan) == 3
    assert joint().decide(seen(plan=plan)).plan in (None, plan)
    moved = joint().decide(seen(OtherJob("b", None), OtherJob("c", None), plan=plan)).plan
    assert moved is not None and domains(moved) < 3
    slow = replace(several(), restart_s=3600.0)
    policy = Joint(sharing=Sharing(0.0))
    policy.reset(slow)
    held = policy.decide(seen(OtherJob("b", None), plan=plan)).plan
    assert held is None or set(held.order) == set(plan.order)


def test_links_that_others_use_are_planned_at_the_rest() -> None:
    plan = ESTIMATOR.make((0, 1), (17, 17), 1, ((2, 1), (2, 1)), 1)
    alone, shared = (joint().decide(replace(seen(*others), forecast=_slow())) for others in ((), _busy(plan)))
    assert alone.predicted_iter_s is not None and shared.predicted_iter_s is not None
    assert shared.predicted_iter_s >= alone.predicted_iter_s


def _slow():  # type: ignore[no-untyped-def]
    return view(ESTIMATOR, flat(3, 2e9)).forecast


def _busy(plan: Plan) -> tuple[OtherJob, ...]:
    return (OtherJob("b", plan),)


def test_equal_views_make_equal_decisions() -> None:
    asked = seen(OtherJob("b", None))
    assert joint().decide(asked) == joint().decide(asked)
    assert np.isfinite(joint().decide(asked).predicted_iter_s or 0.0)
