"""Plans are timed on shared links as the world shares them."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from policy.control.relayed_times import time_ns, times_ns
from tests.support.cases import fastest, random_case
from tests.support.plays import durations, hold, plan_over, play
from tests.support.worlds import toy_setup
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, iteration_ns


@pytest.mark.parametrize(
    "routes", [(), ((0, 2, 1),), ((1, 2, 0), (0, 2, 1)), ((0, 2, 1), (1, 2, 0), (1, 0, 2), (2, 0, 1))]
)
def test_times_are_those_of_the_world(routes: tuple[tuple[int, ...], ...]) -> None:
    """Messages that meet on a link: what the world's flows get is what plans are timed with."""
    setup = toy_setup(3, bps=2e9, latency_s=0.02, seconds=600.0)
    estimator = Estimator(setup.cluster, setup.job)
    plan = replace(plan_over(setup, (0, 1, 2), (12, 11, 11)), routes=routes)
    state = setup.wan.at(0)
    expected = times_ns(estimator, plan, States(state.bandwidth_bps[None], state.latency_s[None]))
    seen = durations(play(setup, hold(plan)))
    assert len(seen) > 5
    assert max(seen) == pytest.approx(expected[0], rel=1e-6)
    if len(routes) > 1:
        assert expected[0] > estimator.iter_ns(plan, state)  # which knows no sharing


@pytest.mark.parametrize("seed", range(4))
def test_times_with_a_tied_embedding_are_those_of_the_world(seed: int) -> None:
    """Its gradient, many times a message, goes between the ends and meets messages on relays."""
    rng = np.random.default_rng(seed)
    setup = toy_setup(3, bps=2e9, latency_s=0.02, seconds=900.0, model="gpt2-1.5b")
    estimator = Estimator(setup.cluster, setup.job)
    pairs = [(i, j) for i, j in permutations(range(3), 2) if rng.random() < 0.6]
    routes = tuple((i, 3 - i - j, j) for i, j in pairs)
    plan = replace(plan_over(setup, (0, 1, 2), (17, 17, 16), tp=1), routes=routes)
    seen = durations(play(setup, hold(plan)))
    assert max(seen) == pytest.approx(time_ns(estimator, plan, setup.wan.at(0)), rel=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_without_routes_times_are_the_estimator_s(seed: int) -> None:
    estimator, state = random_case(seed, size=3)
    states = States(state.bandwidth_bps[None], state.latency_s[None])
    plan = fastest(estimator, state, 2)
    assert times_ns(estimator, plan, states).tolist() == iteration_ns(estimator, plan, states).tolist()
