"""Moving bytes over links whose bandwidth steps."""

from collections.abc import Mapping, Sequence

import numpy as np
from simpy import Environment

from ingest.core.units import to_ns
from tests.support.worlds import toy_setup, toy_wan
from twin.network.bulk_transfers import Transfers, directed
from twin.network.flows import Network
from twin.network.link_state import Links

Steps = Mapping[tuple[int, int], Sequence[tuple[float, float]]]
GBYTE = 10**9


def _seconds(sizes: dict[tuple[int, int], int], steps: Steps | None = None, until_s: float = 600.0) -> float:
    env = Environment()
    links = Links(env, toy_wan(bps=2e9, latency_s=0.05, seconds=600, steps=steps))
    done = env.process(Transfers(Network(links, toy_setup().cluster), sizes).run())
    env.run(until=done)
    return env.now / 1e9


def test_a_constant_link_takes_bytes_over_bandwidth_and_one_latency() -> None:
    assert _seconds({(0, 1): 10 * GBYTE}) == 40 + 0.05


def test_a_rate_change_on_the_way_is_integrated() -> None:
    # 15 s at 2 Gb/s carry 30 of 80 Gb; 5 s at 1 Gb/s carry 5; the other 45 Gb take 4.5 s at 10 Gb/s.
    steps = {(0, 1): [(15.0, 1e9), (20.0, 1e10)]}
    assert _seconds({(0, 1): 10 * GBYTE}, steps) == 20 + 4.5 + 0.05


def test_a_dead_link_is_waited_for() -> None:
    steps = {(0, 1): [(10.0, 0.0), (110.0, 2e9)]}
    assert _seconds({(0, 1): 10 * GBYTE}, steps) == 40 + 100 + 0.05


def test_a_link_dead_from_the_start_is_waited_for() -> None:
    steps = {(0, 1): [(0.000000001, 0.0), (7.0, 8e9)]}
    nearly = _seconds({(0, 1): GBYTE}, steps)
    assert nearly == 7 + 1 + 0.05


def test_links_work_side_by_side_and_the_slowest_counts() -> None:
    assert _seconds({(0, 1): 10 * GBYTE, (1, 0): 5 * GBYTE, (2, 1): GBYTE}) == 40 + 0.05


def test_a_change_of_another_link_does_not_matter() -> None:
    assert _seconds({(0, 1): 10 * GBYTE}, {(1, 0): [(3.0, 1e6)], (0, 2): [(4.0, 0.0)]}) == 40 + 0.05


def test_what_was_sent_so_far_is_known_at_any_time() -> None:
    env = Environment()
    links = Links(env, toy_wan(bps=2e9, steps={(0, 1): [(8.0, 1e9)]}))
    transfers = Transfers(Network(links, toy_setup().cluster), {(0, 1): 10 * GBYTE, (1, 2): GBYTE})
    env.process(transfers.run())
    env.run(until=to_ns(10.0))
    assert transfers.sent_bytes() == {(0, 1): (16 + 2) * GBYTE // 8, (1, 2): GBYTE}


def test_directed_leaves_out_the_inside_of_domains() -> None:
    assert directed(np.array([[5.0, 2.0], [0.0, 7.0]])) == {(0, 1): 2}
