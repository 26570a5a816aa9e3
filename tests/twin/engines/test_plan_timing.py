"""Durations kept up to date link by link, against the estimator asked afresh."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from simpy import Environment

from ingest.core.units import to_ns
from tests.support.plays import plan_over
from tests.support.worlds import toy_setup
from twin.core.domain import Pair
from twin.core.plan import Plan
from twin.engines.plan_timing import PlanTiming
from twin.estimation.estimator import DEAD, Estimator
from twin.network.flows import Network
from twin.network.link_state import Links
from twin.scenario.prepare import PreparedScenario
from twin.traces.wan_trace import LinkSeries, trace


def _shaky(seconds: int = 300, seed: int = 7) -> PreparedScenario:
    """Bandwidth and latency of every link change together; now and then a link is dead or all but dead."""
    rng, setup = np.random.default_rng(seed), toy_setup(seconds=seconds)
    series = {}
    for pair in setup.wan.series:
        times = np.unique(np.append(0, rng.integers(1, to_ns(seconds), 40)))
        rates = rng.choice([2e9, 5e8, 7.3e9, 1.0, 0.0], len(times), p=[0.4, 0.25, 0.25, 0.05, 0.05])
        series[pair] = LinkSeries(times, rates, rng.uniform(0.001, 0.2, len(times)))
    return replace(setup, wan=trace(setup.wan.names, series, setup.wan.end_ns))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0), (1,)])
def test_kept_up_to_date_it_equals_the_estimator_at_any_time(order: tuple[int, ...]) -> None:
    setup = _shaky()
    counts = {3: (12, 12, 10), 2: (17, 17), 1: (34,)}[len(order)]
    plan: Plan = plan_over(setup, order, counts, dp=1, tp=4)
    estimator, env = Estimator(setup.cluster, setup.job), Environment()
    links = Links(env, setup.wan)
    slowdown = np.array([1.0, 1.3, 1.0])
    network = Network(links, setup.cluster)
    timing = PlanTiming(network, estimator, plan, slowdown)
    links.watch(setup.wan.series)
    states = set()

    def check(changed: Sequence[Pair]) -> None:
        for pair in timing.crossings_over(set(changed)):
            timing.update(pair, network.alone_bps(timing.routes[pair]))
        fresh = estimator.iter_ns(plan, setup.wan.at(env.now), slowdown)
        assert (timing.iteration_ns() or DEAD) == fresh
        assert timing.stalled == (fresh == DEAD)
        states.add(fresh)

    links.watchers.append(check)
    env.run(until=setup.wan.end_ns)
    assert len(states) == 1 if len(order) == 1 else len(states) > 50 and DEAD in states


def test_the_links_of_the_world_follow_the_trace() -> None:
    setup, env = _shaky(), Environment()
    links = Links(env, setup.wan)
    for second in range(1, 300, 7):
        env.run(until=to_ns(second))
        truth = setup.wan.at(to_ns(second) - 1)
        assert np.array_equal(links.state.bandwidth_bps, truth.bandwidth_bps)
        assert np.array_equal(links.state.latency_s, truth.latency_s)
