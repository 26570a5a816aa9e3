from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.core.errors import InfeasibleError
from twin.core.domain import Cluster, Domain, LinkState
from twin.core.gpu_models import fabric, preset
from twin.core.job import JobSpec
from twin.core.model_presets import preset as model
from twin.core.plan import Plan, Schedule, Share
from twin.costs.stage_costs import StageCosts
from twin.estimation.estimator import DEAD, Estimator

K = 3


def make_cluster(gpus: int = 8, memory_gpu: str = "A100-80") -> Cluster:
    kind = fabric("A100-80")
    domains = tuple(
        Domain(
            f"d{k}", preset(memory_gpu), gpus, 4, kind.intra_node_bps, kind.inter_node_bps, 3e-6, 8e-6, 2.0
        )
        for k in range(K)
    )
    return Cluster(domains, tuple(tuple(0.0 if i == j else 0.05 for j in range(K)) for i in range(K)))


def make_links(bps: float = 5e9, latency_s: float = 0.02) -> LinkState:
    bandwidth, latency = np.full((K, K), bps), np.full((K, K), latency_s)
    np.fill_diagonal(bandwidth, np.inf)
    np.fill_diagonal(latency, 0.0)
    return LinkState(bandwidth, latency)


@pytest.fixture(scope="module")
def estimator() -> Estimator:
    return Estimator(make_cluster(), JobSpec(model("llama2-7b"), 32, (1, 2)))


def three(estimator: Estimator, counts: tuple[int, ...] = (11, 12, 11), **how: object) -> Plan:
    return estimator.make((0, 1, 2), counts, 1, ((4, 2), (4, 1), (2, 2)), 1, **how)  # type: ignore[arg-type]


def test_parts_of_an_iteration_add_up(estimator: Estimator) -> None:
    result = estimator.iteration(three(estimator), make_links())
    stages = np.repeat(result.compute_s, (2, 1, 2)).mean()  # share means weigh by their stages
    assert result.iter_s == pytest.approx(stages + result.bubble_s + result.exposed_comm_s, rel=1e-9)
    assert result.iter_ns == estimator.iter_ns(three(estimator), make_links())
    assert result.iter_s == result.iter_ns / 1e9
    assert min(result.bubble_s, result.exposed_comm_s) > 0


def test_utilisation_is_compute_over_time(estimator: Estimator) -> None:
    result = estimator.iteration(three(estimator), make_links())
    for domain, busy_s in enumerate(result.compute_s):
        assert result.utilisation_by_domain[domain] == busy_s / result.iter_s
    assert result.utilisation == pytest.approx(
        np.mean(list(result.utilisation_by_domain.values())), rel=1e-12
    )


def test_traffic_money_and_energy(estimator: Estimator) -> None:
    plan = three(estimator)
    result = estimator.iteration(plan, make_links())
    message = 1 * 4096 * 4096 * 2  # mbs s h bf16
    expected = np.zeros((K, K))
    for i, j in ((0, 1), (1, 2)):
        expected[i, j] = expected[j, i] = message * 32
    assert np.array_equal(result.wan_bytes, expected)
    assert result.usd == pytest.approx(expected.sum() / 1e9 * 0.05, rel=1e-12)
    assert result.gpu_usd == pytest.approx(16 * 2.0 * result.iter_s / 3600, rel=1e-12)
    idle = 16 * preset("A100-80").idle_w * result.iter_s
    assert idle < result.energy_j < 16 * preset("A100-80").peak_w * result.iter_s


def test_data_parallel_pipelines_share_the_link(estimator: Estimator) -> None:
    one = estimator.make((0, 1), (17, 17), 1, ((4, 1), (4, 1)), 1)
    two = estimator.make((0, 1), (17, 17), 2, ((4, 1), (4, 1)), 1)
    assert np.array_equal(
        estimator.wan_bytes(one), estimator.wan_bytes(two)
    )  # half the messages, twice the size
    slow = make_links(1e8)  # the link is all that matters: it carries the same bytes
    assert estimator.iter_ns(two, slow) == pytest.approx(estimator.iter_ns(one, slow), rel=0.1)


def test_a_dead_link_matters_only_where_it_is_used(estimator: Estimator) -> None:
    links = make_links()
    links.bandwidth_bps[2, 1] = 0.0
    dead = estimator.iteration(three(estimator), links)
    assert (dead.iter_ns, dead.iter_s, dead.utilisation, dead.binding) == (DEAD, np.inf, 0.0, "a dead link")
    assert estimator.iter_ns(three(estimator), links) == DEAD
    other = estimator.make((1, 0), (17, 17), 1, ((4, 1), (4, 1)), 1)
    assert estimator.iter_ns(other, links) == estimator.iter_ns(other, make_links()) < DEAD


def test_slowdown_stretches_the_domain(estimator: Estimator) -> None:
    alone = estimator.make((1,), (34,), 1, ((4, 1),), 1)
    normal = estimator.iteration(alone, make_links())
    slow = estimator.iteration(alone, make_links(), np.array([9.0, 2.0, 9.0]))
    assert slow.iter_s == pytest.approx(2 * normal.iter_s, rel=0.01)  # the update is not stretched


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_batch_of_cuts_equals_single_plans_exactly(estimator: Estimator, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(K)))[: data.draw(st.integers(1, K))]
    dp = data.draw(st.sampled_from((1, 2)))
    inner = [data.draw(st.sampled_from(estimator.local_choices(k, dp))) for k in order]
    depth = [pp for _, pp in inner]
    spare = estimator.n_layers - sum(depth)
    rows = []
    for _ in range(5):
        owners = data.draw(st.lists(st.integers(0, len(order) - 1), min_size=spare, max_size=spare))
        extra = np.bincount(owners, minlength=len(order))
        rows.append(np.concatenate([[0], np.cumsum(extra + depth)]))
    slowdown = np.array([1.0, 1.5, 1.2])
    links = make_links(data.draw(st.sampled_from((1e8, 5e9))))
    times = estimator.iter_ns_cuts(order, np.array(rows), dp, inner, 1, links, slowdown)
    fits = estimator.fits_cuts(order, np.array(rows), dp, inner, 1)
    for cuts, ns, fit in zip(rows, times, fits, strict=True):
        plan = estimator.make(order, np.diff(cuts).tolist(), dp, inner, 1)
        assert fit == (not estimator.problems(plan))
        assert ns == (estimator.iter_ns(plan, links, slowdown) if fit else DEAD)


def test_memory_is_explained() -> None:
    tight = Estimator(make_cluster(memory_gpu="A100-40"), JobSpec(model("llama2-70b"), 8, (1,)))
    plan = tight.make((0, 1), (41, 41), 1, ((4, 2), (4, 2)), 1)
    problems = tight.problems(plan)
    assert len(problems) == 4
    assert problems[0].startswith("d0: stage 0 needs ") and problems[0].endswith(" GiB of 40.0 GiB")
    cuts = np.array([[0, 41, 82]])
    assert tight.iter_ns_cuts((0, 1), cuts, 1, ((4, 2), (4, 2)), 1, make_links())[0] == DEAD
    assert not tight.fits_cuts((0, 1), cuts, 1, ((4, 2), (4, 2)), 1)[0]


def test_every_kind_of_illegal_plan_is_explained(estimator: Estimator) -> None:
    good = three(estimator)
    assert estimator.problems(good) == ()
    assert "needs 8 GPUs of 7" in estimator.problems(good, (7, 8, 8))[0]
    split = Plan((Share(0, 34, 4, 1, (0, 1, 2, 4)),), 1, 1, 32)
    assert "inside a node of 4" in estimator.problems(split)[0]
    assert "GPU 11 of 8" in estimator.problems(Plan((Share(0, 34, 1, 1, (11,)),), 1, 1, 32))[0]
    assert "global batch" in estimator.problems(Plan((Share(0, 34, 1, 1, (0,)),), 1, 1, 31))[0]
    assert "not one of" in estimator.problems(Plan((Share(0, 34, 1, 1, (0,)),), 1, 4, 8))[0]
    assert "places 33 layers" in estimator.problems(Plan((Share(0, 33, 1, 1, (0,)),), 1, 1, 32))[0]
    assert "no such domain" in estimator.problems(Plan((Share(7, 34, 1, 1, (0,)),), 1, 1, 32))[0]


def test_plans_that_cannot_be_made_say_why(estimator: Estimator) -> None:
    with pytest.raises(InfeasibleError, match="not a multiple"):
        estimator.make((0,), (34,), 3, ((1, 1),), 1)
    with pytest.raises(InfeasibleError, match="needs 16 GPUs of 8"):
        estimator.make((0,), (34,), 4, ((4, 1),), 1)
    dead = estimator.iter_ns_cuts((0,), np.array([[0, 34]]), 3, ((1, 1),), 1, make_links())
    assert dead[0] == DEAD


def test_extra_warm_up_buys_time_against_latency_with_memory() -> None:
    job = JobSpec(model("llama2-7b"), 32, (1,), p2p="overlapped")
    estimator = Estimator(make_cluster(), job)
    links = make_links(50e9, 0.3)
    plain, deep = (estimator.iteration(three(estimator, extra_warmup=extra), links) for extra in (0, 3))
    assert deep.iter_s < 0.8 * plain.iter_s
    assert deep.peak_mem_bytes[0] > plain.peak_mem_bytes[0]
    assert deep.peak_mem_bytes[-1] == plain.peak_mem_bytes[-1]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "crosspipe", "interleaved"])
@pytest.mark.parametrize("name", ["llama2-7b", "gpt3-175b"])
def test_a_deeper_plan_costs_what_it_costs_from_scratch(schedule: Schedule, name: str) -> None:
    chunks = 2 if schedule == "interleaved" else 1
    job = JobSpec(model(name), 40, (1, 2), schedule=schedule, chunks=chunks)
    estimator = Estimator(make_cluster(), job)
    counts = (estimator.n_layers - 22, 12, 10)
    routed = replace(three(estimator, counts), routes=((0, 2, 1),))
    for extra in (0, 1, 5, 40):
        plan = replace(routed, extra_warmup=extra)
        known, scratch = estimator.stage_costs(plan), estimator._costs(plan, np.array([plan.cuts]))
        for field in fields(StageCosts):
            one, other = getattr(known, field.name), getattr(scratch, field.name)
            if isinstance(other, np.ndarray):
                np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=field.name)
            else:
                assert one == other


def test_moving_costs_the_restart_and_the_slowest_link(estimator: Estimator) -> None:
    old, new = three(estimator), three(estimator, (10, 13, 11))
    move = estimator.move(old, new, make_links())
    block = estimator.job.model.block_parameters * 14
    assert move.bytes[0, 1] == block
    assert move.seconds == pytest.approx(11.35 + 0.02 + block * 8 / 5e9, rel=1e-9)
    assert estimator.move(None, new, make_links()).seconds == 0
    assert estimator.move(old, old, make_links()).seconds == 0


def test_local_choices_are_legal(estimator: Estimator) -> None:
    for dp in (1, 2, 4):
        for tp, pp in estimator.local_choices(0, dp):
            plan = estimator.make((0,), (34,), dp, ((tp, pp),), 1)
            assert not [problem for problem in estimator.problems(plan) if "GiB" not in problem]
    assert (4, 2) in estimator.local_choices(0, 1)


def test_the_binding_cycle_is_named(estimator: Estimator) -> None:
    slow = estimator.iteration(three(estimator), make_links(1e8))
    assert "d0" in slow.binding or "d1" in slow.binding
    fast = estimator.iteration(three(estimator, (5, 24, 5)), make_links(1e12, 0.0))
    assert fast.binding == "stage 2 (d1)"
