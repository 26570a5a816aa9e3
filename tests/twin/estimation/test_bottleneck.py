"""The limiting resource: what it is called, and that its removal saves most, by the estimator itself."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support.worlds import toy_setup
from twin.core.domain import LinkState
from twin.core.plan import Sync
from twin.estimation.bottleneck import Bottleneck, bottleneck, used_links
from twin.estimation.estimator import DEAD, Estimator
from twin.pipeline import freed, kernel
from twin.pipeline.pipeline import Pipeline


def estimator_of(size: int = 3, **job: object) -> Estimator:
    setup = toy_setup(size)
    return Estimator(setup.cluster, replace(setup.job, **job))  # type: ignore[arg-type]


def links_of(size: int, bps: float, latency_s: float = 0.02) -> LinkState:
    bandwidth, latency = np.full((size, size), bps), np.full((size, size), latency_s)
    np.fill_diagonal(bandwidth, np.inf)
    np.fill_diagonal(latency, 0.0)
    return LinkState(bandwidth, latency)


def over(estimator: Estimator, links: LinkState, order: tuple[int, ...] = (0, 1)) -> Bottleneck:
    counts = {1: (34,), 2: (17, 17), 3: (11, 12, 11)}[len(order)]
    plan = estimator.make(order, counts, 1, ((2, 2),) * len(order), 1)
    return bottleneck(estimator, plan, links)


def test_a_narrow_link_is_named_with_what_an_iteration_gains_without_it() -> None:
    """The fault that was reported: 87 % of the time was exposed communication, and a stage was named."""
    estimator, links = estimator_of(), links_of(3, 2e8)
    plan = estimator.make((0, 1), (17, 17), 1, ((2, 2), (2, 2)), 1)
    whole = estimator.iteration(plan, links)
    assert whole.exposed_comm_s > 0.8 * whole.iter_s and "link" not in whole.binding
    found = bottleneck(estimator, plan, links)
    free = links_of(3, 2e8)
    free.bandwidth_bps[[0, 1], [1, 0]], free.latency_s[[0, 1], [1, 0]] = np.inf, 0.0
    assert (found.limiting.kind, found.limiting.name) == ("link", "link d0 <-> d1")
    assert found.limiting.saved == 1 - estimator.iter_ns(plan, free) / estimator.iter_ns(plan, links)
    assert found.text == f"link d0 <-> d1 (-{100 * found.limiting.saved:.1f} %)"
    assert found.limiting.saved > 0.8


def test_one_of_several_links_and_a_relay_are_named() -> None:
    estimator, links = estimator_of(), links_of(3, 1e11, 0.0)
    links.bandwidth_bps[1, 2] = links.bandwidth_bps[2, 1] = 1e8
    assert over(estimator, links, (0, 1, 2)).text.startswith(("link d1 <-> d2 (", "all 2 links ("))
    assert "link d1 <-> d2" in over(estimator, links, (0, 1, 2)).text
    plan = estimator.make((1, 2), (17, 17), 1, ((2, 2), (2, 2)), 1)
    relayed = replace(plan, routes=((1, 0, 2), (2, 0, 1)))
    assert used_links(estimator, plan) == [(1, 2)] and used_links(estimator, relayed) == [(0, 1), (0, 2)]
    assert all("d1 <-> d2" not in one.name for one in bottleneck(estimator, relayed, links).resources)


def test_a_slow_stage_is_named_with_its_site() -> None:
    estimator = estimator_of()
    plan = estimator.make((0, 1, 2), (5, 24, 5), 1, ((4, 1), (4, 1), (4, 1)), 1)
    found = bottleneck(estimator, plan, links_of(3, 1e13, 0.0))
    assert found.limiting.kind == "stages"
    assert "compute of all 3 stages" in found.text and "most compute of stage 1 in d1" in found.text


def test_the_uplink_of_a_site_is_named_where_the_scenario_limits_it() -> None:
    estimator = estimator_of()
    cluster = estimator.cluster
    narrow = replace(cluster, domains=(replace(cluster.domains[0], egress_bps=1e8), *cluster.domains[1:]))
    found = over(Estimator(narrow, estimator.job), links_of(3, 1e11))
    assert found.limiting.name == "uplink of d0"


def test_a_dead_link_is_named() -> None:
    links = links_of(3, 1e10)
    links.bandwidth_bps[1, 0] = 0.0
    assert over(estimator_of(), links).text == "dead link d0 <-> d1 (-100.0 %)"


def test_memory_is_named_only_where_it_forbids_a_faster_plan() -> None:
    roomy = estimator_of()
    first = roomy.cluster.domains[0]
    small = replace(first, gpu=replace(first.gpu, memory_bytes=14 * 2**30))
    full = Estimator(replace(roomy.cluster, domains=(small, *roomy.cluster.domains[1:])), roomy.job)

    def memory(estimator: Estimator) -> float:
        found = over(estimator, links_of(3, 1e10), (0,))
        return next(one.saved for one in found.resources if one.kind == "memory")

    assert memory(roomy) == 0.0 < memory(full)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_without_the_bubble_equal_stages_take_m_periods(schedule: str) -> None:
    """Four stages of 1 and 2 without messages, m = 6: (6 + 3) 3 = 27, and 18 when nothing fills or drains."""
    zero = [0] * 3
    timing = Pipeline.single(
        [1] * 4, [2] * 4, zero, zero, zero, zero, [0] * 4, micro_batches=6, schedule=schedule,  # type: ignore[arg-type]
        p2p="overlapped",
    )  # fmt: skip
    assert int(kernel.iteration_ns(timing)[0]) == 27
    assert freed.without_bubble(timing) == 18
    assert freed.without_compute(timing)[-1] == 0
    # of equal stages one less leaves three: (6 + 2) 3
    assert freed.without_compute(timing)[:-1].tolist() == [24] * 4


@pytest.mark.parametrize("seed", range(12))
def test_the_limiting_resource_is_the_one_whose_removal_saves_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    estimator = estimator_of(3, p2p=("blocking", "overlapped", "rendezvous")[seed % 3])
    links = links_of(3, 1.0)
    links.bandwidth_bps[:] = 10 ** rng.uniform(8, 12, (3, 3))
    order = tuple(rng.permutation(3)[: rng.integers(2, 4)].tolist())
    counts = {2: (17, 17), 3: (11, 12, 11)}[len(order)]
    plan = estimator.make(order, counts, int(rng.integers(1, 3)), ((2, 1),) * len(order), 1)
    if seed % 4 == 3:
        plan = replace(
            plan, shares=tuple(replace(one, layers=34) for one in plan.shares), sync=Sync(5), micro_batches=8
        )
    found = bottleneck(estimator, plan, links)
    whole = estimator.iter_ns(plan, links)
    assert found.limiting.saved == max(one.saved for one in found.resources)
    assert all(0 <= one.saved <= 1 for one in found.resources) and whole != DEAD
    for one in found.resources:  # again, from outside
        if one.kind == "link":
            i, j = (int(word[1:]) for word in one.name.removeprefix("link ").split(" <-> "))
            free = LinkState(links.bandwidth_bps.copy(), links.latency_s.copy())
            free.bandwidth_bps[[i, j], [j, i]], free.latency_s[[i, j], [j, i]] = np.inf, 0.0
            assert one.saved == max(0.0, 1 - estimator.iter_ns(plan, free) / whole)
