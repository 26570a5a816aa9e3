"""Flows that meet on links, at domain limits and over relays, computed by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from simpy import Environment

from ingest.core.units import to_ns
from tests.support.plays import hold, of_type, plan_over, play, script, totals
from tests.support.worlds import toy_setup
from twin.core.domain import Pair
from twin.costs.migration import move_bytes
from twin.estimation.estimator import Estimator
from twin.network.bulk_transfers import Transfers
from twin.network.flows import Network
from twin.network.link_state import Links
from twin.scenario.prepare import PreparedScenario

GBYTE = 10**9
Steps = Mapping[Pair, Sequence[tuple[float, float]]]


def _network(setup: PreparedScenario) -> Network:
    return Network(Links(Environment(), setup.wan), setup.cluster)


def _finish_s(network: Network, *transfers: Transfers) -> list[float]:
    """When each of them is done."""
    done = [network.env.process(transfer.run()) for transfer in transfers]
    times = []
    for process in done:
        process.callbacks.append(lambda _: times.append(network.env.now / 1e9))
    network.env.run(until=network.env.all_of(done))
    return sorted(times)


def _limited(**limits: dict[str, float]) -> PreparedScenario:
    """Three domains at 2 Gb/s and 50 ms with limits on some, such as d0={"egress_bps": 2e9}."""
    setup = toy_setup()
    cluster = setup.scenario.cluster.model_dump()
    cluster["domains"] = [domain | limits.get(domain["name"], {}) for domain in cluster["domains"]]
    return toy_setup(cluster=cluster)


def test_two_transfers_share_one_link_evenly_and_the_longer_gets_it_alone_later() -> None:
    # 10 and 5 GB at 2 Gb/s: both at 1 Gb/s until 40 s, then the 5 GB that are left at 2 Gb/s for 20 s.
    network = _network(toy_setup())
    first, second = (Transfers(network, {(0, 1): n * GBYTE}) for n in (10, 5))
    assert _finish_s(network, first, second) == [40.05, 60.05]


def test_a_domain_that_sends_on_two_links_shares_its_egress() -> None:
    # Each link could carry 2 Gb/s, the domain sends 2 Gb/s in all.
    network = _network(_limited(d0={"egress_bps": 2e9}))
    assert _finish_s(network, Transfers(network, {(0, 1): 5 * GBYTE, (0, 2): 5 * GBYTE})) == [40.05]


def test_ingress_limits_what_arrives_from_all_sides() -> None:
    # 1 Gb/s each at first; when the smaller one is through, at 20 s, the other one goes on at 2 Gb/s.
    network = _network(_limited(d1={"ingress_bps": 2e9}))
    assert _finish_s(network, Transfers(network, {(0, 1): 5 * GBYTE, (2, 1): 5 * GBYTE // 2})) == [30.05]


def test_a_relay_takes_the_narrowest_link_and_the_sum_of_latencies() -> None:
    setup = toy_setup(steps={(0, 2): [(1e-9, 4e9)], (2, 1): [(1e-9, 1e9)]})
    network = _network(setup)
    network.env.run(until=2)
    relayed = Transfers(network, {(0, 1): GBYTE}, {(0, 1): ((0, 2), (2, 1))})
    assert _finish_s(network, relayed) == [pytest.approx(8 + 0.1, abs=1e-8)]
    assert relayed.sent_bytes() == {(0, 2): GBYTE, (2, 1): GBYTE}


def test_a_dropped_transfer_frees_the_link_and_knows_what_it_sent() -> None:
    network = _network(toy_setup())
    kept, dropped = (Transfers(network, {(0, 1): 10 * GBYTE}) for _ in range(2))
    processes = [network.env.process(transfer.run()) for transfer in (kept, dropped)]
    network.env.run(until=to_ns(8))
    dropped.drop()
    network.env.run(until=network.env.all_of(processes))
    assert network.env.now == to_ns(8 + (80 - 8) / 2 + 0.05)
    assert dropped.sent_bytes() == {(0, 1): GBYTE}


# -- plans with routes


def test_a_plan_over_a_relay_is_timed_billed_and_moved_over_both_links() -> None:
    bps = toy_setup().wan.at(0).bandwidth_bps.copy()
    bps[0, 1] = bps[1, 0] = 2e8
    setup = toy_setup(seconds=600, bps=bps, control={"period_s": 50})
    direct = plan_over(setup, (0, 1), (17, 17))
    relayed = replace(direct, routes=((0, 2, 1), (1, 2, 0)))
    estimator = Estimator(setup.cluster, setup.job)
    links = setup.wan.at(0)
    assert estimator.problems(relayed) == ()
    assert estimator.iter_ns(relayed, links) < estimator.iter_ns(direct, links) / 3
    sent = estimator.wan_bytes(relayed)
    assert sent[0, 2] == sent[2, 1] == sent[1, 2] == sent[2, 0] == estimator.wan_bytes(direct)[0, 1]
    for engine in ("kernel", "des"):
        facts = play(setup, hold(relayed), engine=engine)
        durations = [ns for f in of_type(facts, "iteration_done") for _, ns in f.payload["durations"]]
        assert set(durations) == {estimator.iter_ns(relayed, links)}
        one = estimator.iteration(relayed, links)
        done = totals(facts)["iterations"]
        assert sum(f.payload["egress_usd"] for f in of_type(facts, "iteration_done")) == pytest.approx(
            done * one.usd
        )


def test_what_moves_takes_the_relay_of_the_new_plan_and_pays_twice() -> None:
    bps = toy_setup().wan.at(0).bandwidth_bps.copy()
    bps[2, 1] = 5e8
    setup = toy_setup(seconds=900, bps=bps, control={"period_s": 50})
    wide = plan_over(setup, (0, 1, 2), (12, 12, 10))
    narrow = plan_over(setup, (0, 1), (17, 17))
    narrow = replace(narrow, routes=((2, 0, 1),))
    size = {pair: round(move_bytes(setup.job, wide, narrow, 3)[pair]) for pair in ((1, 0), (2, 1))}
    move = of_type(play(setup, script(wide, narrow)), "plan_applied")[1].payload
    moved = {(i, j): n for i, j, n in move["moved_bytes"]}
    assert moved == {(1, 0): size[1, 0], (2, 0): size[2, 1], (0, 1): size[2, 1]}
    assert move["egress_usd"] == pytest.approx(0.02 * sum(moved.values()) / 1e9)
    expected = Estimator(setup.cluster, setup.job).move(wide, narrow, setup.wan.at(0)).seconds
    assert move["pause_ns"] / 1e9 == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("route", [(0, 1), (0, 2, 0), (0, 1, 1)])
def test_a_route_names_each_domain_once_and_relays(route: tuple[int, ...]) -> None:
    plan = plan_over(toy_setup(), (0, 1), (17, 17))
    with pytest.raises(ValueError, match="relay"):
        replace(plan, routes=(route,))


def test_a_route_over_an_unknown_domain_is_a_problem_of_the_plan() -> None:
    setup = toy_setup()
    plan = plan_over(setup, (0, 1), (17, 17))
    odd = replace(plan, routes=((0, 7, 1),))
    assert "route" in Estimator(setup.cluster, setup.job).problems(odd)[0]
