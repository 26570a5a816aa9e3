"""Searches and planners choose the degree of expert parallelism among those that a job allows."""

from dataclasses import replace

import numpy as np
import pytest

from policy.bound.best_fixed_plan import enumerable
from policy.kit.planner_base import best_degree
from policy.planners.megatron import Megatron
from policy.search.plan_search import best_plans
from tests.support.cases import cluster, model
from tests.support.views import context, flat, view
from twin.core.experts import Experts
from twin.core.job import JobSpec
from twin.estimation.estimator import Estimator

MIXTURE = replace(model(6), experts=Experts(8, 2, 2752))


def made(ep: tuple[int, ...], *, memory_bytes: int | None = None) -> Estimator:
    """One domain of 8 GPUs in nodes of 4."""
    there = cluster(1, [8])
    if memory_bytes is not None:
        (domain,) = there.domains
        smaller = replace(domain, gpu=replace(domain.gpu, memory_bytes=memory_bytes))
        there = replace(there, domains=(smaller,))
    return Estimator(there, JobSpec(MIXTURE, 32, (1, 2), zero=0, ep=ep))


def fastest_ns(estimator: Estimator) -> tuple[int, int]:
    """Degree and time of the best plan that the search finds."""
    plan, ns = best_plans(estimator, flat(1), free_gpus=(8,))[0]
    assert not estimator.problems(plan)
    assert ns == estimator.iter_ns(plan, flat(1))
    return plan.ep, ns


def test_the_search_is_as_fast_as_the_best_single_degree() -> None:
    single = {ep: fastest_ns(made((ep,)))[1] for ep in (4, 8)}
    degree, ns = fastest_ns(made((4, 8)))
    assert ns == min(single.values()) and single[degree] == ns
    assert len(set(single.values())) > 1


def test_the_largest_degree_is_not_always_the_choice() -> None:
    """Over nodes tokens travel over adapters: here experts are better shared inside a node, as far as memory
    allows."""
    both = made((4, 8))
    plan = both.make((0,), (both.n_layers,), 8, ((1, 1),), 1)
    assert plan.ep == 8
    chosen = best_degree(both, view(both, flat(1)), plan)
    assert chosen == replace(plan, ep=4)
    peaks = [both.peak_mem_bytes(one)[0] for one in (plan, chosen)]
    assert peaks[0] < peaks[1]
    tight = made((4, 8), memory_bytes=sum(peaks) // 2)
    assert best_degree(tight, view(tight, flat(1)), plan) == plan
    assert best_degree(made((8,)), view(both, flat(1)), plan) == plan


def test_a_published_planner_takes_the_better_degree() -> None:
    both = made((4, 8))
    policy = Megatron()
    policy.reset(context(both))
    chosen = policy.decide(view(both, flat(1))).plan
    assert chosen is not None and not both.problems(chosen)
    others = [replace(chosen, ep=ep) for ep in both.job.degrees(chosen.dp)]
    legal = [both.iter_ns(one, flat(1)) for one in others if not both.problems(one)]
    assert both.iter_ns(chosen, flat(1)) == min(legal)


def test_a_plan_of_a_degree_that_the_job_does_not_allow_is_refused() -> None:
    both = made((4, 8))
    plan = both.make((0,), (both.n_layers,), 8, ((1, 1),), 1, ep=4)
    assert plan.ep == 4 and not both.problems(plan)
    assert both.problems(replace(plan, ep=2))[0] == "ep is 2, that of the job with dp 8 is 8 or 4"


@pytest.mark.parametrize("ep", [(1,), (4, 4)])
def test_one_degree_is_enumerated_several_are_not(ep: tuple[int, ...]) -> None:
    assert enumerable(made(ep)) and not enumerable(made((*ep, 2)))


def test_cuts_in_bulk_know_the_degree() -> None:
    both, links = made((4, 8)), flat(1)
    cuts = np.array([[0, both.n_layers]])
    for ep in (4, 8):
        plan = both.make((0,), (both.n_layers,), 8, ((1, 1),), 1, ep=ep)
        (found,) = both.iter_ns_cuts((0,), cuts, 8, ((1, 1),), 1, links, ep=ep)
        assert found == both.iter_ns(plan, links)
