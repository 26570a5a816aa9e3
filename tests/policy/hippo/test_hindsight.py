"""Policies that know the future follow what they are given."""

from dataclasses import replace

from benchmarks.hippo.hindsight import KEPT, PATH, knowing
from benchmarks.played import played
from ingest.core.units import NS_PER_S
from policy.bound.bound import clairvoyant
from policy.control.knobs import default_knobs
from tests.support.restless_world import narrow_plan, restless, wide_plan


def test_a_path_of_two_legs_is_followed_and_a_plan_kept() -> None:
    setup = restless()
    estimator, wide, narrow = setup.estimator(), wide_plan(setup), narrow_plan(setup)
    bound = clairvoyant(estimator, setup.wan, [0], restart_s=setup.scenario.moving.restart_s)
    legs = ((0, wide), (300 * NS_PER_S, narrow))
    policies = knowing(replace(bound, timeline=legs, kept_plan=narrow))
    found = {who: played(setup, policy) for who, policy in policies.items()}
    placed = {
        who: list(dict.fromkeys(default_knobs(estimator.job, plan) for plan in one.plans))
        for who, one in found.items()
    }
    assert placed[PATH] == [default_knobs(estimator.job, plan) for plan in (wide, narrow)]
    assert placed[KEPT] == [default_knobs(estimator.job, narrow)]
    assert all(0 < one.iterations * estimator.tokens_per_iteration <= bound.tokens for one in found.values())
