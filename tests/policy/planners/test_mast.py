from dataclasses import replace

import pytest

from ingest.core.errors import InfeasibleError
from policy.planners.mast import Mast
from policy.planners.megatron import megatron_plan
from tests.support.cases import cluster, model
from tests.support.views import context, flat, view
from twin.core.job import JobSpec
from twin.core.model_presets import preset
from twin.estimation.estimator import Estimator


def test_the_auction_is_won_by_the_fastest_domain_and_ties_by_the_tightest() -> None:
    estimator = Estimator(cluster(3, [2, 4, 6]), JobSpec(model(8), 32, (1, 2), zero=1))
    policy, links = Mast(), flat(3)
    policy.reset(context(estimator))
    decision = policy.decide(view(estimator, links))
    assert decision.plan is not None
    offers = {k: megatron_plan(estimator, [k], (2, 4, 6)) for k in range(3)}
    times = {k: estimator.iter_ns(plan, links) for k, plan in offers.items()}
    least = min(times.values())
    assert decision.plan.order == (min(k for k in times if times[k] == least),)
    assert times[1] == times[2] == least  # 6 GPUs hold dp 4 only: the batch is 32
    assert decision.plan.order == (1,)
    assert [c.plan for c in decision.candidates] == [offers[1], offers[2], offers[0]]


def test_a_slow_domain_loses() -> None:
    estimator = Estimator(cluster(2, [4, 4]), JobSpec(model(8), 32, (1, 2), zero=1))
    policy, seen = Mast(), view(estimator, flat(2))
    policy.reset(context(estimator))
    seen.slowdown[0] = 1.5
    decision = policy.decide(replace(seen))
    assert decision.plan is not None
    assert decision.plan.order == (1,)


def test_a_job_that_no_domain_holds_is_not_split() -> None:
    estimator = Estimator(cluster(4, [4] * 4), JobSpec(preset("llama2-70b"), 32, (1,), zero=1))
    policy = Mast()
    policy.reset(context(estimator))
    with pytest.raises(InfeasibleError, match="MAST keeps a job in one domain"):
        policy.decide(view(estimator, flat(4)))
