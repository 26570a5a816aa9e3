"""What a stage of a mixture holds and reduces, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ingest.core.errors import InfeasibleError
from replay.store.decision_codec import plan_from_json
from twin.core.domain import Cluster, Domain
from twin.core.experts import Experts
from twin.core.gpu_models import preset as gpu
from twin.core.job import JobSpec
from twin.core.plan import Plan, to_json
from twin.core.switches import Switches
from twin.core.transformer import Transformer
from twin.costs.memory import WORKSPACE_BYTES
from twin.costs.optimiser import on_gpu_s
from twin.costs.stage_holdings import Holdings
from twin.estimation.estimator import Estimator

H, F, S, V, E = 1024, 2048, 512, 32000, 8
MIXTURE = Transformer("m", 4, H, 8, 8, F, True, S, V, experts=Experts(E, 2, F, every=2))
ATTENTION = 4 * H * H + 2 * H
DENSE = 2 * V * H + H + 4 * ATTENTION + 2 * 3 * H * F + 2 * E * H  # two dense MLPs, two routers
ROUTED = 2 * E * 3 * H * F
RATE_IN, RATE_OUT = 2.4e12 / 8, 2e11 / 8


def estimator(zero: int = 0, ep: int = 4, **job: object) -> Estimator:
    site = Domain("d", gpu("A100-80"), 16, 8, 2.4e12, 2e11, 0.0, 0.0, 5.0)
    spec = JobSpec(MIXTURE, 16, (1,), zero=zero, recompute="none", ep=(ep,), **job)  # type: ignore[arg-type]
    return Estimator(Cluster((site,), ((0.0,),)), spec)


def plan(made: Estimator, dp: int = 16, tp: int = 1) -> Plan:
    return made.make([0], [6], dp, [(tp, 1)], 1)


def test_groups_of_parameters() -> None:
    held = [(np.array([0]), np.array([6]))]
    whole, experts = Holdings(estimator().job).groups(held, 2, 4)
    assert (whole.parameters[0], whole.ep) == (DENSE / 2, 1)
    assert (experts.parameters[0], experts.ep) == (ROUTED / 8, 4)
    dense = Holdings(replace(estimator().job, model=replace(MIXTURE, experts=None), ep=(1,)))
    assert len(dense.groups(held, 2, 1)) == 1


@pytest.mark.parametrize(
    ("zero", "whole", "experts"),
    [
        (0, 18, 18),
        (1, 6 + 12 / 16, 6 + 12 / 4),
        (2, 2 + 16 / 16, 2 + 16 / 4),
        (3, 18 / 16, 18 / 4),
    ],
)
def test_states_of_experts_are_sharded_over_their_own_ranks(zero: int, whole: float, experts: float) -> None:
    """dp 16, ep 4: a GPU holds a quarter of the experts, and four ranks hold the same."""
    made = estimator(zero)
    states = DENSE * whole + ROUTED / 4 * experts
    block = S * H * 2 * 2 * 2 + 2 * S * 4 * H  # norms and inputs of products; queries, keys, values, output
    mlp, routed = 2 * S * F * 4, 2 * 2 * S * (H + 4 * F + H)
    stored = 4 * block + 2 * mlp + 2 * routed
    head = 2 * 2 * S * H + 5 * S * V + (4 * (V * H + H) if zero >= 3 else 0)
    mixed = 4 * (ATTENTION + E * H + ROUTED / 2 / 4) if zero >= 3 else 0
    peak = states + stored + max(head, mixed) + WORKSPACE_BYTES
    assert made.peak_mem_bytes(plan(made))[0] == pytest.approx(peak, abs=2)


def test_experts_are_reduced_over_their_own_ranks() -> None:
    """dp 16 in two nodes, ep 4: two of the four ranks with the same experts lie in one node."""
    costs = estimator().stage_costs(plan(estimator()))
    whole = 2 * (7 / 8 * 4 * DENSE / RATE_IN + min(1 / 2, 1) * 4 * DENSE / 8 / RATE_OUT)
    experts = 2 * (1 / 2 * ROUTED / RATE_IN + 1 / 2 * ROUTED / 2 / RATE_OUT)
    assert costs.sync_s[0, 0] == pytest.approx(whole + experts, rel=1e-12)
    one = estimator(ep=8)  # the two ranks with the same experts lie in two nodes
    experts = 2 * 1 / 2 * 4 * ROUTED / 8 / RATE_OUT
    assert one.stage_costs(plan(one)).sync_s[0, 0] == pytest.approx(whole + experts, rel=1e-12)


def test_experts_of_one_copy_are_not_reduced() -> None:
    alone = estimator(ep=8)
    made = plan(alone, dp=8, tp=2)
    whole = 2 * (3 / 4 * 4 * DENSE / 2 / RATE_IN + 1 / 2 * 4 * DENSE / 2 / 4 / RATE_OUT)
    assert alone.stage_costs(made).sync_s[0, 0] == pytest.approx(whole, rel=1e-12)


def test_the_distributed_optimiser_hides_both_beside_the_last_backward() -> None:
    hidden = estimator(1)
    open_ = estimator(1, switches=Switches(overlap_reduction=False))
    shown = open_.stage_costs(plan(open_)).sync_s[0, 0]
    reduce = 7 / 8 * 4 * DENSE / RATE_IN + 1 / 2 * 4 * DENSE / 8 / RATE_OUT
    reduce += 1 / 2 * ROUTED / RATE_IN + 1 / 2 * ROUTED / 2 / RATE_OUT
    assert shown == pytest.approx(reduce * 1.5, rel=1e-12)  # gradients of 4 bytes, weights of 2
    costs = hidden.stage_costs(plan(hidden))
    left = max(reduce - costs.backward_s[0, 0], reduce / 8)
    left += max(reduce / 2 - costs.forward_s[0, 0], reduce / 16)
    assert costs.sync_s[0, 0] == pytest.approx(left, rel=1e-12)


def test_every_rank_updates_its_own() -> None:
    for zero, held in ((0, DENSE + ROUTED / 4), (1, (DENSE + ROUTED) / 16)):
        made = estimator(zero)
        assert made.stage_costs(plan(made)).update_s[0, 0] == pytest.approx(on_gpu_s(gpu("A100-80"), held))


def test_a_plan_says_its_degree_and_is_read_back() -> None:
    made = estimator()
    found = plan(made)
    assert found.ep == 4 and "dp16 ep4" in str(found) and not made.problems(found)
    assert plan_from_json(to_json(found)) == found
    assert "ep" not in to_json(replace(found, ep=1))
    assert made.problems(replace(found, ep=8))[0] == "ep is 8, that of the job with dp 16 is 4"
    with pytest.raises(ValueError, match="ep 3 does not divide dp 16"):
        replace(found, ep=3)
    with pytest.raises(InfeasibleError, match="ep 4 does not divide 6 ranks"):
        plan(made, dp=6)
