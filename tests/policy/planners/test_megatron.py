from dataclasses import replace

import pytest

from ingest.core.errors import InfeasibleError
from policy.kit.even_stages import even_stage_plan, stage_layers
from policy.planners.megatron import Megatron, levels
from tests.support.cases import cluster, model
from tests.support.views import context, flat, view
from twin.core.job import JobSpec
from twin.core.model_presets import preset
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator


def planned(estimator: Estimator) -> Plan:
    policy = Megatron()
    policy.reset(context(estimator))
    decision = policy.decide(view(estimator, flat(estimator.cluster.size)))
    assert decision.plan is not None
    return decision.plan


def test_stages_are_even_with_the_remainder_last_and_the_ends_outside() -> None:
    assert stage_layers(82, 4) == (21, 20, 20, 21)
    assert stage_layers(34, 3) == (11, 11, 12)
    assert stage_layers(10, 1) == (10,)
    assert stage_layers(4, 3) is None


def test_175b_on_1536_gpus_is_the_published_tp8() -> None:
    """Narayanan et al. 2021, table 1: 175 B on 1,536 GPUs trained with tp 8, pp 16."""
    estimator = Estimator(
        cluster(2, [768, 768], 8), JobSpec(preset("gpt3-175b"), 1536, (1,), zero=1, recompute="full")
    )
    sizes = list(levels(estimator, [0, 1], [768, 768]))
    assert (48, (8, 8), (2, 2)) in sizes  # 4 stages of 8 x 48: tp before depth
    dp, tps, stages = next(size for size in sizes if sum(size[2]) == 16)
    assert (dp, tps, stages) == (12, (8, 8), (8, 8))
    tensor_widths = [tps[0] for _, tps, stages in sizes if sum(stages) == 2]
    assert tensor_widths == [1, 2, 4, 8]  # width grows while one stage a domain is enough


def test_7b_needs_no_tensor_parallelism_and_takes_every_gpu() -> None:
    """By hand: 2 domains of 4, zero 1: half of 6.7 B at 6 + 12/4 bytes is 30 GB of 80, so tp 1, pp 1, dp 4;
    the largest of micro-batches 1 and 2 with m = 32/(4 b) >= 2 stages is 2."""
    plan = planned(Estimator(cluster(2, [4, 4]), JobSpec(preset("llama2-7b"), 32, (1, 2), zero=1)))
    assert [(s.domain, s.layers, s.tp, s.pp) for s in plan.shares] == [(0, 17, 1, 1), (1, 17, 1, 1)]
    assert (plan.dp, plan.micro_batch, plan.micro_batches) == (4, 2, 4)


def test_a_domain_with_twice_the_gpus_gets_twice_the_stages() -> None:
    plan = planned(Estimator(cluster(2, [8, 4]), JobSpec(model(9), 32, (1, 2), zero=1)))
    assert [(s.domain, s.pp) for s in plan.shares] == [(0, 2), (1, 1)]
    assert [s.layers for s in plan.shares] == [7, 4]


def test_what_fits_nowhere_says_what_was_closest() -> None:
    estimator = Estimator(cluster(2, [2, 2]), JobSpec(preset("llama2-70b"), 32, (1,)))
    with pytest.raises(InfeasibleError, match=r"llama2-70b on 4 GPUs.*closest needs \d+\.\d GiB"):
        planned(estimator)


def test_holds_until_gpus_are_lost_and_then_plans_for_what_is_left() -> None:
    estimator = Estimator(cluster(2, [4, 4]), JobSpec(model(8), 32, (1, 2), zero=1))
    policy, links = Megatron(), flat(2)
    policy.reset(context(estimator))
    plan = policy.decide(view(estimator, links)).plan
    assert policy.decide(view(estimator, links, plan=plan, trigger="period")).plan is None
    lost = policy.decide(view(estimator, links, plan=plan, trigger="failure", free_gpus=(4, 2))).plan
    assert lost is not None
    assert not estimator.problems(lost, (4, 2))
    gone = policy.decide(view(estimator, links, plan=plan, trigger="failure", free_gpus=(0, 0)))
    assert gone.plan is None
    assert "no other plan" in gone.reason


def test_deal_leaves_out_domains_without_stages() -> None:
    estimator = Estimator(cluster(3, [4, 4, 4]), JobSpec(model(8), 8, (1,)))
    plan = even_stage_plan(estimator, [2, 0, 1], [1, 0, 2], 1, [4, 4, 2], 1)
    assert plan is not None
    assert [(s.domain, s.layers, s.tp, s.pp) for s in plan.shares] == [(2, 3, 4, 1), (1, 7, 2, 2)]
    assert even_stage_plan(estimator, [0], [1], 3, [4], 1) is None  # 3 does not divide the batch
    assert replace(plan, routes=()) == plan
