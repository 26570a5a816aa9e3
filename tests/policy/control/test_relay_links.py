from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from policy.control.horizon import Outages, make_horizon
from policy.control.relay_links import MAX_RELAYS, MessageLinks, RelayPaths, choose_relays, forwarding_bps
from tests.support.cases import cluster, links
from tests.support.views import flat
from twin.core.domain import Cluster
from twin.core.view import Forecast
from twin.estimation.link_state_times import States

BITS = 1e8


def drawn(size: int, seed: int, count: int = 4) -> States:
    """Random links, one of them dead."""
    rng = np.random.default_rng(seed)
    states = States.of([links(size, rng) for _ in range(count)])
    states.bandwidth_bps[:, 0, 1] = 0.0
    return states


def limited(size: int) -> Cluster:
    """A cluster whose first domain passes on little."""
    made = cluster(size, [4] * size)
    first = replace(made.domains[0], egress_bps=1e9, ingress_bps=5e8)
    return replace(made, domains=(first, *made.domains[1:]))


def arrival(states: States, t: int, route: list[int], through: np.ndarray, share: float) -> float:
    """Seconds until a message has arrived over a route with one relay at most, by hand."""
    legs = list(pairwise(route))
    width = min(states.bandwidth_bps[t, i, j] for i, j in legs)
    if len(route) == 3:
        width = share * min(width, through[route[1]])
    late = sum(states.latency_s[t, i, j] for i, j in legs)
    return float("inf") if width == 0 else BITS / width + late


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_takes_the_best_of_the_link_and_every_relay(size: int, share: float) -> None:
    states, made = drawn(size, size), limited(size)
    through = forwarding_bps(made)
    found, via = RelayPaths(made, BITS, share).best_routes(states)
    for t in range(len(states)):
        for i in range(size):
            for j in set(range(size)) - {i}:
                routes = [[i, j], *([i, k, j] for k in range(size) if k not in (i, j))]
                best = min(arrival(states, t, route, through, share) for route in routes)
                got = BITS / found.bandwidth_bps[t, i, j] if found.bandwidth_bps[t, i, j] else float("inf")
                assert got + found.latency_s[t, i, j] == pytest.approx(best)
                taken = [i, j] if via[t, i, j] < 0 else [i, int(via[t, i, j]), j]
                assert arrival(states, t, taken, through, share) == pytest.approx(best)


def test_leaves_what_was_given_alone() -> None:
    states = drawn(4, 1)
    before = states.bandwidth_bps.copy(), states.latency_s.copy()
    RelayPaths(cluster(4, [4] * 4), BITS, 1.0).best_routes(states)
    assert np.array_equal(states.bandwidth_bps, before[0]) and np.array_equal(states.latency_s, before[1])


def test_of_many_domains_the_best_relays_are_considered() -> None:
    """Twelve domains, one of which all others reach well: it is the relay in every scenario."""
    size, hub = 12, 7
    slow = flat(size, 1e8)
    slow.bandwidth_bps[hub], slow.bandwidth_bps[:, hub] = 1e10, 1e10
    shape = (2, size, size)
    forecast = Forecast(
        np.array([0.0, 600.0]),
        np.broadcast_to(slow.bandwidth_bps, shape),
        np.full(shape, 0.05),
        slow.latency_s,
    )
    none = np.zeros((size, size))
    direct = make_horizon(forecast, 1200.0, Outages(none, none))
    found = RelayPaths(cluster(size, [4] * size), BITS).horizon(direct)
    apart = ~np.eye(size, dtype=bool)
    apart[hub] = apart[:, hub] = False
    assert size > MAX_RELAYS + 2
    assert (found.states.bandwidth_bps[:, apart] > 1e9).all()
    assert np.array_equal(found.edges_s, direct.edges_s)
    assert found.median[0].bandwidth_bps[0, hub] == direct.median[0].bandwidth_bps[0, hub]


def test_a_relay_is_as_uncertain_as_its_narrowest_link() -> None:
    bandwidth = flat(3, 1e10).bandwidth_bps
    bandwidth[0, 1], bandwidth[0, 2] = 1e7, 5e9
    sd = np.array([[0.0, 0.5, 0.2], [0.1, 0.0, 0.1], [0.1, 0.3, 0.0]])
    forecast = Forecast(np.array([0.0]), bandwidth[None], sd[None], flat(3).latency_s)
    found = RelayPaths(cluster(3, [4] * 3), BITS, 1.0).forecast(forecast)
    assert found.bandwidth_bps[0, 0, 1] == 5e9 and found.latency_s[0, 1] == pytest.approx(0.06)
    assert found.sd_log[0, 0, 1] == 0.2
    assert found.sd_log[0, 2, 1] == 0.3  # that of its own link


def test_a_shared_link_is_half_a_link() -> None:
    """0 to 1 is slow; 2 is the widest relay, but the plan sends from 0 to 2 already; 3 is nearly as wide."""
    state = flat(4, 1e10)
    state.bandwidth_bps[0, 1], state.bandwidth_bps[0, 3] = 1e8, 8e9
    args = state.bandwidth_bps[None], state.latency_s[None], np.full(4, np.inf), BITS
    source, target = np.array([0, 0]), np.array([1, 2])
    for shared, expected in ((False, [2, -1]), (True, [3, -1])):
        via = np.full(2, -1)
        choose_relays(MessageLinks(*args), source, target, shared, 0.0, via)
        assert via.tolist() == expected


def test_a_route_in_use_is_kept_until_another_is_clearly_better() -> None:
    state = flat(4, 1e10)
    state.bandwidth_bps[0, 1], state.bandwidth_bps[0, 3] = 1e8, 9.9e9
    for gain, expected in ((0.05, 3), (0.0, 2)):
        via = np.array([3])
        state_of = state.bandwidth_bps[None], state.latency_s[None], np.full(4, np.inf), 1e11
        choose_relays(MessageLinks(*state_of), np.array([0]), np.array([1]), False, gain, via)
        assert via.tolist() == [expected]
