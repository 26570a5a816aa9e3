"""`static`, `single`, `greedy` and `mpc`, each by what defines it."""

from dataclasses import replace

import numpy as np
import pytest

from ingest.core.errors import InfeasibleError
from ingest.core.units import NS_PER_S
from policy.baselines.greedy import Greedy
from policy.baselines.mpc import Mpc, Tuning
from policy.baselines.single import Single
from policy.baselines.static import Static
from policy.core.protocol import Context, Decision, Policy
from policy.core.reference_plan import equal_cuts, megatron_sizes
from policy.search.plan_search import best_plans
from tests.support.cases import cluster
from tests.support.pasts import past
from tests.support.three_sites import dead, estimator, view
from tests.support.worlds import toy_setup
from twin.core.domain import Cluster
from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.costs.migration import needs_restart
from twin.estimation.estimator import Estimator

SPEED = (1.0, 0.0, 0.0)


def started(policy: Policy, made: Estimator, weights: tuple[float, float, float] = SPEED) -> Policy:
    policy.reset(Context(made, 60.0, 11.35, weights, np.random.default_rng(0)))
    return policy


# -- static


def test_static_cuts_evenly_in_index_order() -> None:
    made = estimator()  # 10 layers over 3 domains
    plan = started(Static(), made).decide(view(made)).plan
    assert plan is not None
    assert plan.order == (0, 1, 2)
    assert [share.layers for share in plan.shares] == [4, 3, 3]
    assert len({(share.tp, share.pp) for share in plan.shares}) == 1


def test_static_takes_the_smallest_tensor_width_that_fits() -> None:
    sizes = list(megatron_sizes(estimator(gpus=8), (0, 1), (8, 8, 8)))
    assert next((dp, inner[0]) for dp, inner, _ in sizes) == (8, (1, 1))
    assert [tp for _, ((tp, _), *_), _ in sizes] == sorted(tp for _, ((tp, _), *_), _ in sizes)
    larger = toy_setup(2, model="llama2-13b").job.model
    big = Estimator(cluster(2, [8, 8], 8), JobSpec(larger, 16, (1,), zero=0))
    plan = equal_cuts(big, (0, 1), (8, 8))
    assert plan.shares[0].tp > 1  # 6.5 G parameters x 18 bytes are too many for one GPU


def test_static_holds_through_everything_that_leaves_its_plan_legal() -> None:
    made, policy = estimator(), started(Static(), estimator())
    plan = policy.decide(view(made)).plan
    for bps in (1e8, 1e11):
        assert policy.decide(view(made, bps, plan=plan)).plan is None


def test_static_replans_by_the_same_rule_when_a_domain_is_gone() -> None:
    made = estimator()
    policy = started(Static(), made)
    plan = policy.decide(view(made)).plan
    replanned = policy.decide(view(made, plan=plan, free=(4, 0, 4), trigger="failure")).plan
    assert replanned is not None and replanned.order == (0, 2)
    assert [share.layers for share in replanned.shares] == [5, 5]
    assert policy.decide(view(made, plan=replanned, free=(4, 4, 4), trigger="repair")).plan is None


def test_static_goes_round_a_dead_link_where_the_rule_can() -> None:
    made = estimator()
    policy = started(Static(), made)
    plan = policy.decide(view(made)).plan
    replanned = policy.decide(dead(view(made, plan=plan, trigger="failure"), (0, 1), (1, 0))).plan
    assert replanned is not None and replanned.order == (0, 2)


def test_static_says_how_much_memory_is_missing() -> None:
    setup = toy_setup(2, model="llama3-405b")
    made = Estimator(setup.cluster, setup.job)
    with pytest.raises(InfeasibleError, match=r"llama3-405b over 2 domains .* GiB"):
        started(Static(), made).decide(view(made))


# -- single


def test_single_takes_the_fastest_domain_and_stays() -> None:
    base = estimator()
    domains = list(base.cluster.domains)
    domains[1] = replace(domains[1], gpus=8)
    made = Estimator(Cluster(tuple(domains), base.cluster.usd_per_gb), base.job)
    policy = started(Single(), made)
    plan = policy.decide(view(made)).plan
    assert plan is not None and plan.order == (1,)
    assert policy.decide(view(made, 1e11, plan=plan)).plan is None
    moved = policy.decide(view(made, plan=plan, free=(4, 0, 4), trigger="failure")).plan
    assert moved is not None and moved.order in ((0,), (2,))


def test_single_says_what_the_closest_domain_lacks() -> None:
    setup = toy_setup(2, model="llama3-70b")
    made = Estimator(setup.cluster, setup.job)
    with pytest.raises(InfeasibleError, match=r"llama3-70b fits in no single domain: d0 .* needs .* GiB"):
        started(Single(), made).decide(view(made))


# -- greedy


def test_greedy_is_the_best_plan_now_whatever_it_costs() -> None:
    made = estimator()
    policy = started(Greedy(), made)
    fast, slow = view(made, 1e11), view(made, 1e8)
    first = policy.decide(fast).plan
    assert first is not None and len(first.shares) == 3
    second = policy.decide(replace(slow, plan=first)).plan
    assert second is not None and len(second.shares) == 1
    back = policy.decide(replace(fast, plan=second)).plan
    assert back == first
    assert policy.decide(replace(fast, plan=first)).plan is None


# -- mpc


def test_mpc_starts_with_the_best_plan_of_constant_links() -> None:
    made = estimator()
    seen = view(made, 5e9)
    decision = started(Mpc(), made).decide(seen)
    best, ns = best_plans(made, seen.forecast.links(), free_gpus=(4, 4, 4), top=1)[0]
    assert decision.plan == best
    assert decision.predicted_iter_s == pytest.approx(ns / NS_PER_S)


def test_mpc_starts_with_what_was_best_over_the_past() -> None:
    made = estimator(2)
    run = Context(made, 60.0, 11.35, SPEED, np.random.default_rng(0), past(*[1e7] * 9, 1e11))
    policy = Mpc()
    policy.reset(run)
    decision = policy.decide(view(made, 1e11))
    assert decision.plan is not None and len(decision.plan.shares) == 1
    assert decision.reason.startswith("worth most over the past")


def stays(decision: Decision, plan: Plan | None) -> bool:
    """Whether every layer stays where it is; free knobs may be turned."""
    return decision.plan is None or not needs_restart(plan, decision.plan)


def test_mpc_does_not_follow_a_dip_that_the_forecast_takes_back() -> None:
    made = estimator()
    policy = started(Mpc(), made)
    plan = policy.decide(view(made, 1e11)).plan
    assert plan is not None and len(plan.shares) > 1
    dip = view(made, (1e8, 9.9e10, 1e11), plan=plan, now_s=60.0)
    assert stays(policy.decide(dip), plan)
    assert started(Greedy(), made).decide(dip).plan is not None


def test_mpc_moves_when_the_change_is_there_to_stay() -> None:
    made = estimator()
    policy = started(Mpc(), made)
    plan = policy.decide(view(made, 1e11)).plan
    early = policy.decide(view(made, 1e8, plan=plan, now_s=60.0))
    assert stays(early, plan) and "would not have paid" in early.reason
    decision = policy.decide(view(made, 1e8, plan=plan, now_s=3600.0))
    assert decision.plan is not None and len(decision.plan.shares) == 1
    assert decision.extra["gain"] > decision.extra["margin"]


def test_mpc_weighs_the_price_of_moving_against_the_horizon() -> None:
    made = estimator()
    plan = started(Mpc(), made).decide(view(made, 1e11)).plan
    worse = view(made, 1e9, plan=plan)
    for tuning, moves in ((Tuning(30.0, 0.0), False), (Tuning(36000.0, 0.0), True)):
        policy = started(Mpc(tuning), made)
        policy.decide(worse)
        assert stays(policy.decide(replace(worse, now_ns=3600 * NS_PER_S)), plan) != moves


def test_mpc_keeps_within_its_margin() -> None:
    made = estimator()
    plan = started(Mpc(), made).decide(view(made, 1e11)).plan
    worse = view(made, 1e9, plan=plan, now_s=60.0)
    assert stays(started(Mpc(Tuning(36000.0, 1e9)), made).decide(worse), plan)


def test_mpc_waits_for_a_link_that_has_just_died() -> None:
    made = estimator(2)
    policy = started(Mpc(Tuning(3600.0, 0.01, outage_s=10.0)), made)
    plan = policy.decide(view(made, 1e11)).plan
    assert plan is not None and len(plan.shares) == 2
    cut = dead(view(made, 1e11, plan=plan, trigger="failure"), plan.order)
    assert policy.decide(replace(cut, now_ns=60 * NS_PER_S)).plan is None
    late = policy.decide(replace(cut, now_ns=3000 * NS_PER_S)).plan
    assert late is not None and late.order == plan.order[:1]


def test_mpc_goes_around_a_dead_link() -> None:
    made = estimator()
    policy = started(Mpc(), made)
    plan = policy.decide(view(made, 1e11)).plan
    assert plan is not None and len(plan.shares) == 3
    a, b, c = plan.order
    cut = dead(view(made, 1e11, plan=plan, trigger="failure"), (a, b), (b, a))
    turned = policy.decide(replace(cut, now_ns=60 * NS_PER_S))
    assert turned.plan is not None and stays(turned, plan)
    assert set(turned.plan.routes) == {(a, c, b), (b, c, a)}


def test_mpc_follows_the_weights() -> None:
    made = estimator()
    seen = view(made, 1e11)
    fast = started(Mpc(), made, SPEED).decide(seen).plan
    cheap = started(Mpc(), made, (0.0, 0.0, 1.0)).decide(seen).plan
    assert fast is not None and len(fast.shares) > 1
    assert cheap is not None and len(cheap.shares) == 1
