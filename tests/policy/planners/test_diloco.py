"""DiLoCo's choice of replicas and H against enumeration; ZeRO's stages and flat layouts by hand."""

from dataclasses import replace
from itertools import product

import pytest

from ingest.core.errors import InfeasibleError
from policy.kit.replica_plans import replica_plan
from policy.planners.diloco import INNER_STEPS, DiLoCo
from tests.support.cases import cluster, model
from tests.support.views import context, flat, view
from twin.core.job import JobSpec
from twin.core.model_presets import preset
from twin.core.plan import Sync
from twin.estimation.estimator import Estimator


def test_the_choice_is_the_least_time_per_token_of_all_replicas_and_h() -> None:
    estimator = Estimator(cluster(2, [4, 4]), JobSpec(model(8), 16, (1, 2), zero=1))
    for bps in (1e8, 1e9, 1e11):
        links = flat(2, bps)
        policy = DiLoCo()
        policy.reset(context(estimator))
        plan = policy.plans(view(estimator, links))[0]
        best = float("inf")
        for domains, dp, micro_batch, h in product(([0], [0, 1]), (1, 2, 4), (1, 2), INNER_STEPS):
            for inner in estimator.local_choices(0, dp):
                one = replica_plan(estimator, domains, dp, [inner] * len(domains), micro_batch, Sync(h))
                if one is not None and not estimator.problems(one):
                    best = min(best, estimator.iter_ns(one, links) / estimator.tokens(one))
        assert estimator.iter_ns(plan, links) / estimator.tokens(plan) == pytest.approx(best, rel=1e-12)


def test_slow_links_want_rarer_exchanges() -> None:
    estimator = Estimator(cluster(2, [4, 4]), JobSpec(preset("llama2-7b"), 32, (1, 2, 4), zero=1))
    steps = []
    for bps in (1e11, 1e9, 1e8):
        policy = DiLoCo()
        policy.reset(context(estimator))
        plan = policy.plans(view(estimator, flat(2, bps)))[0]
        assert plan.sync is not None
        steps.append(plan.sync.inner_steps)
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]


def test_h_is_kept_when_links_change_and_a_lost_domain_is_left() -> None:
    estimator = Estimator(cluster(2, [4, 4]), JobSpec(preset("llama2-7b"), 32, (1, 2, 4), zero=1))
    policy = DiLoCo()
    policy.reset(context(estimator))
    plan = policy.decide(view(estimator, flat(2, 1e9))).plan
    assert plan is not None
    assert plan.replicas == 2
    assert policy.decide(view(estimator, flat(2, 1e8), plan=plan, trigger="change")).plan is None
    left = policy.decide(view(estimator, flat(2), plan=plan, trigger="failure", free_gpus=(4, 0))).plan
    assert left is not None
    assert left.sync is None
    assert left.order == (0,)


def test_a_model_that_fits_in_no_domain_is_refused() -> None:
    estimator = Estimator(cluster(4, [4] * 4), JobSpec(preset("llama2-70b"), 32, (1,), zero=1))
    policy = DiLoCo()
    policy.reset(context(estimator))
    with pytest.raises(InfeasibleError, match="whole replica"):
        policy.decide(view(estimator, flat(4)))


def test_replicas_divide_batch_and_gpus() -> None:
    estimator = Estimator(cluster(3, [4, 4, 2]), JobSpec(model(8), 16, (1,)))
    assert replica_plan(estimator, [0, 1, 2], 1, [(1, 1)] * 3, 1, Sync(9)) is None  # 16 over 3
    assert replica_plan(estimator, [0, 2], 4, [(1, 1)] * 2, 1, Sync(9)) is None  # 4 of 2 GPUs
    alone = replica_plan(estimator, [0], 4, [(1, 1)], 1, Sync(9))
    assert alone is not None
    assert alone.sync is None
    assert alone == replace(estimator.make([0], [10], 4, [(1, 1)], 1))
