from dataclasses import replace
from math import inf

import numpy as np
import pytest

from policy.search.plan_search import best_plans
from tests.support.cases import links, random_case
from twin.core.domain import Cluster, LinkState
from twin.core.plan import Schedule
from twin.estimation.estimator import DEAD, Estimator
from twin.estimation.link_state_times import (
    States,
    crossings,
    fastest_ns,
    iteration_ns,
    per_second,
    route_bps,
)


@pytest.mark.parametrize("seed", range(8))
def test_equals_the_estimator_state_by_state(seed: int) -> None:
    estimator, state = random_case(seed, size=3)
    rng = np.random.default_rng(seed)
    free = [domain.gpus for domain in estimator.cluster.domains]
    states = [links(3, rng) for _ in range(5)]
    dead = states[0].bandwidth_bps.copy()
    dead[rng.integers(3), rng.integers(3)] = 0.0
    states += [replace(states[0], bandwidth_bps=dead), states[1]]
    slowdown = rng.uniform(1.0, 2.0, 3)
    for plan, _ in best_plans(estimator, state, free_gpus=free, top=12):
        expected = [estimator.iter_ns(plan, s, slowdown) for s in states]
        assert iteration_ns(estimator, plan, States.of(states), slowdown).tolist() == expected


@pytest.mark.parametrize("schedule", ["gpipe", "crosspipe"])
def test_equals_the_estimator_under_other_schedules(schedule: Schedule) -> None:
    estimator, _ = random_case(4, size=3)
    rng = np.random.default_rng(4)
    states = [links(3, rng) for _ in range(6)]
    plan = estimator.make((2, 0, 1), (1, 2, estimator.n_layers - 3), 1, ((1, 1),) * 3, 1)
    other = replace(plan, schedule=schedule)
    expected = [estimator.iter_ns(other, s) for s in states]
    assert iteration_ns(estimator, other, States.of(states)).tolist() == expected


@pytest.mark.parametrize("deep", [(1, 2, 1), (1, 1)])
def test_the_way_back_of_interleaved_stages_counts(deep: tuple[int, ...]) -> None:
    estimator, _ = random_case(4, size=3)
    chunked = Estimator(estimator.cluster, replace(estimator.job, schedule="interleaved", chunks=2))
    order, layers = (2, 0, 1)[-len(deep) :], [chunked.n_layers * pp // sum(deep) for pp in deep]
    plan = chunked.make(order, layers, 1, [(1, pp) for pp in deep], 1)
    assert plan.chunks == 2
    rng = np.random.default_rng(4)
    states = [links(3, rng) for _ in range(6)]
    for pair in ((order[-1], order[0]), (order[0], order[-1])):
        slow = states[0].bandwidth_bps.copy()
        slow[pair] = 1e7
        dead = slow.copy()
        dead[pair] = 0.0
        states += [replace(states[0], bandwidth_bps=slow), replace(states[0], bandwidth_bps=dead)]
    expected = [chunked.iter_ns(plan, s) for s in states]
    assert DEAD in expected and len(set(expected)) > 4
    assert iteration_ns(chunked, plan, States.of(states)).tolist() == expected


def test_routes_and_limits_of_domains_count() -> None:
    estimator, state = random_case(0, size=3)
    domains = estimator.cluster.domains
    limited = (replace(domains[0], egress_bps=5e8), *domains[1:])
    narrow = Estimator(Cluster(limited, estimator.cluster.usd_per_gb), estimator.job)
    plan = narrow.make((0, 1), (3, estimator.n_layers - 3), 1, ((1, 1), (1, 1)), 1)
    relayed = replace(plan, routes=((0, 2, 1),))
    states = States.of([state])
    for one in (plan, relayed):
        assert iteration_ns(narrow, one, states).tolist() == [narrow.iter_ns(one, state)]
    assert route_bps(narrow.cluster, states, ((0, 1),))[0] <= 5e8
    assert route_bps(narrow.cluster, states, ((1, 2), (2, 0)))[0] == min(
        state.bandwidth_bps[1, 2], state.bandwidth_bps[2, 0]
    )


def test_a_dead_link_has_no_rate_and_a_single_domain_needs_none() -> None:
    estimator, state = random_case(1, size=2)
    dark = LinkState(np.where(np.eye(2) > 0, inf, 0.0), state.latency_s)
    states = States.of([state, dark])
    over = estimator.make((0, 1), (3, estimator.n_layers - 3), 1, ((1, 1), (1, 1)), 1)
    alone = estimator.make((0,), (estimator.n_layers,), 1, ((1, 1),), 1)
    assert iteration_ns(estimator, over, states)[1] == DEAD
    assert crossings(estimator, over, states).alive.tolist() == [True, False]
    assert per_second(iteration_ns(estimator, over, states))[1] == 0.0
    assert len(set(iteration_ns(estimator, alone, states).tolist())) == 1


@pytest.mark.parametrize("seed", range(6))
def test_many_cuts_have_the_best_of_the_depths_that_fit(seed: int) -> None:
    estimator, _ = random_case(seed, size=3)
    rng = np.random.default_rng(seed)
    states = [links(3, rng) for _ in range(4)]
    dead = states[0].bandwidth_bps.copy()
    dead[0, 1] = 0.0
    states.append(replace(states[0], bandwidth_bps=dead))
    layers, depths = estimator.n_layers, (0, 1, 3)
    cuts = np.array([[0, a, b, layers] for a in range(1, layers - 1) for b in range(a + 1, layers)])
    chosen = cuts[rng.choice(len(cuts), min(12, len(cuts)), replace=False)]
    plan = estimator.make((0, 1, 2), (1, 1, layers - 2), 1, ((1, 1),) * 3, 1)
    found = fastest_ns(estimator, plan, chosen, States.of(states), depths)
    for row, times in zip(chosen.tolist(), found.tolist(), strict=True):
        made = estimator.make((0, 1, 2), np.diff(row), 1, ((1, 1),) * 3, 1)
        every = [replace(made, extra_warmup=depth) for depth in depths]
        fitting = [one for one in every if not estimator.problems(one)]
        assert times == [min((estimator.iter_ns(one, s) for one in fitting), default=DEAD) for s in states]
    assert DEAD in found and (found != DEAD).any()
