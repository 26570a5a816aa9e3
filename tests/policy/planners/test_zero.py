"""ZeRO's stage by hand, its domains by the referee, and the naive flat Megatron."""

from dataclasses import replace

import pytest

from ingest.core.errors import InfeasibleError
from policy.planners.megatron_flat import MegatronFlat, map_to_domains
from policy.planners.zero import Zero, domain_sets
from tests.support.cases import cluster, model
from tests.support.views import context, flat, view
from twin.core.domain import LinkState
from twin.core.job import JobSpec
from twin.core.model_presets import preset
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator


def planned(policy: Zero | MegatronFlat, estimator: Estimator, links: LinkState) -> Plan:
    policy.reset(context(estimator))
    plan = policy.decide(view(estimator, links)).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    ("blocks", "stage"),
    # 0.2 B a block and 0.26 B outside, at 18, 6 + 12/4, 2 + 16/4, 18/4 bytes on 4 GPUs of 80 GiB: stage 0 to
    # 21 blocks, stage 1 to 43, stage 2 to 66, stage 3 further; activations and logits take the rest.
    [(8, 0), (24, 1), (32, 1), (50, 2), (72, 3)],
)
def test_the_lowest_stage_that_fits_is_taken(blocks: int, stage: int) -> None:
    estimator = Estimator(cluster(1, [4]), JobSpec(model(blocks), 32, (1,)))
    plan = planned(Zero(), estimator, flat(1))
    assert (plan.zero, plan.dp, plan.shares[0].tp, plan.shares[0].pp) == (stage, 4, 1, 1)
    bytes_each = {0: 18.0, 1: 6 + 12 / 4, 2: 2 + 16 / 4, 3: 18 / 4}
    memory = estimator.cluster.domains[0].gpu.memory_bytes
    assert bytes_each[stage] * estimator.job.model.parameters < memory
    if stage:
        assert bytes_each[stage - 1] * estimator.job.model.parameters > 0.85 * memory


def test_domains_join_only_over_fast_links() -> None:
    estimator = Estimator(cluster(2, [4, 4]), JobSpec(model(8), 32, (1, 2, 4)))
    assert planned(Zero(), estimator, flat(2, 1e8)).replicas == 1
    fast = planned(Zero(), estimator, flat(2, 1e13, 1e-6))
    assert fast.replicas == 2
    assert fast.sync is not None
    assert (fast.sync.inner_steps, estimator.tokens(fast)) == (1, estimator.tokens_per_iteration)
    assert domain_sets([0, 1, 2], (4, 8, 6)) == [[0], [1], [2], [1, 2], [0, 1, 2]]


def test_stage_3_waits_for_its_gathers() -> None:
    """By hand: over 8 ranks in 2 nodes a micro-batch gathers 2 bytes a parameter before it can go on."""
    job = JobSpec(model(8), 8, (1,))
    estimator = Estimator(cluster(1, [8]), job)
    one = estimator.make([0], [10], 8, [(1, 1)], 1)
    plain, sharded = (estimator.stage_costs(replace(one, zero=z)) for z in (1, 3))
    x = 2.0 * job.model.parameters
    intra, inter = 3 * 3e-6 + 3 / 4 * x * 8 / 2.4e12, 8e-6 + 1 / 2 * x / 4 * 8 / 2e11
    assert sharded.forward_s[0, 0] == pytest.approx(max(plain.forward_s[0, 0], intra + inter))
    assert sharded.backward_s[0, 0] >= plain.backward_s[0, 0]


def test_flat_ranks_that_end_with_domains_make_a_pipeline() -> None:
    estimator = Estimator(cluster(2, [4, 4], 2), JobSpec(model(8), 32, (1,), zero=1))
    flat_plan = Estimator(cluster(1, [8], 2), estimator.job).make([0], [10], 2, [(2, 2)], 1)
    plan = map_to_domains(estimator, flat_plan, [0, 1], (4, 4))
    assert plan is not None
    assert [(s.domain, s.layers, s.pp) for s in plan.shares] == [(0, 5, 1), (1, 5, 1)]
    crossing = Estimator(cluster(1, [12], 2), estimator.job).make([0], [10], 2, [(2, 3)], 1)
    assert map_to_domains(estimator, crossing, [0, 1], (6, 6)) is None  # the second stage spans both domains


def test_a_flat_data_parallel_group_becomes_replicas_and_pays_for_it() -> None:
    estimator = Estimator(cluster(2, [4, 4]), JobSpec(model(8), 32, (1, 2), zero=1))
    plan = planned(MegatronFlat(), estimator, flat(2, 2e9))
    assert plan.replicas == 2
    assert plan.sync is not None
    assert plan.sync.inner_steps == 1
    alone = estimator.iter_ns(plan.replica(0), flat(2))
    assert estimator.iter_ns(plan, flat(2, 2e9)) > 3 * alone


def test_what_a_plan_cannot_say_is_refused() -> None:
    estimator = Estimator(cluster(4, [16] * 4, 8), JobSpec(preset("llama2-70b"), 192, (1, 2), zero=1))
    with pytest.raises(InfeasibleError, match="no plan over these domains can say"):
        planned(MegatronFlat(), estimator, flat(4))
