from dataclasses import replace

import numpy as np
import pytest
from simpy import Environment

from tests.support.worlds import toy_wan
from twin.core.domain import Cluster, Domain, LinkState
from twin.core.experts import Experts
from twin.core.gpu_models import preset as gpu
from twin.core.job import JobSpec
from twin.core.model_presets import preset
from twin.core.plan import Plan, Share
from twin.costs import migration
from twin.network.bulk_transfers import Transfers, directed
from twin.network.flows import Network
from twin.network.link_state import Links

JOB = JobSpec(preset("llama2-7b"), 8, (1,))
LAYERS = len(JOB.model.layers())
BLOCK = JOB.model.block_parameters


def cluster() -> Cluster:
    domain = Domain("d", gpu("A100-80"), 8, 4, 800e9, 80e9, 0.0, 0.0, 2.0)
    return Cluster((domain,) * 3, ((0.0,) * 3,) * 3)


def links(bps: float = 1e9, latency_s: float = 0.1) -> LinkState:
    return LinkState(np.full((3, 3), bps), np.full((3, 3), latency_s))


def plan(*shares: tuple[int, int, int, int], dp: int = 1, micro_batch: int = 1) -> Plan:
    made = tuple(Share(d, n, tp, pp, tuple(range(dp * tp * pp))) for d, n, tp, pp in shares)
    return Plan(made, dp, micro_batch, 8 // dp // micro_batch)


def test_nothing_moves_at_the_start_or_when_nothing_changes() -> None:
    new = plan((0, LAYERS, 4, 1))
    assert not migration.move_bytes(JOB, None, new, 3).any()
    assert not migration.move_bytes(JOB, new, new, 3).any()
    assert not migration.needs_restart(None, new) and not migration.needs_restart(new, new)


def test_moved_layers_travel_over_their_own_link() -> None:
    old = plan((0, 20, 4, 1), (1, 14, 4, 1))
    new = plan((0, 17, 4, 1), (1, 17, 4, 1))
    moved = migration.move_bytes(JOB, old, new, 3)
    expected = np.zeros((3, 3))
    expected[0, 1] = 3 * BLOCK * 14
    assert np.array_equal(moved, expected)
    seconds = migration.move_s(cluster(), moved, new, links())
    assert seconds == pytest.approx(0.1 + 3 * BLOCK * 14 * 8 / 1e9, rel=1e-12)


def test_links_work_in_parallel_and_the_slowest_decides() -> None:
    old = plan((0, 20, 4, 1), (1, 14, 4, 1))
    new = plan((2, 20, 4, 1), (1, 14, 4, 1))
    both = plan((2, 20, 4, 1), (0, 14, 4, 1))
    one = migration.move_s(cluster(), migration.move_bytes(JOB, old, new, 3), new, links())
    two = migration.move_s(cluster(), migration.move_bytes(JOB, old, both, 3), both, links())
    assert one == two


def in_the_world(made: Cluster, moved: np.ndarray, new: Plan) -> float:
    """Seconds of the same bytes over a world's constant links of 5 Gb/s and 80 ms."""
    env = Environment()
    network = Network(Links(env, toy_wan(bps=5e9, latency_s=0.08, seconds=600)), made)
    sizes = directed(moved)
    routes = {pair: new.route(*pair) for pair in sizes}
    env.run(until=env.process(Transfers(network, sizes, routes).run()))
    return float(env.now / 1e9)


def limited(**limits: float) -> Cluster:
    made = cluster()
    return replace(made, domains=(replace(made.domains[0], **limits), *made.domains[1:]))


def test_what_a_domain_may_send_is_shared_by_all_that_it_sends() -> None:
    # 20 GB to each of two domains: 40 GB at 5 Gb/s take 64 s
    moved, new = np.zeros((3, 3)), plan((1, LAYERS, 4, 1))
    moved[0, 1] = moved[0, 2] = 20e9
    made = limited(egress_bps=5e9)
    assert migration.move_s(made, moved, new, links(5e9, 0.08)) == pytest.approx(64.08, rel=1e-12)
    assert in_the_world(made, moved, new) == pytest.approx(64.08, rel=1e-9)
    assert migration.move_s(cluster(), moved, new, links(5e9, 0.08)) == pytest.approx(32.08, rel=1e-12)


def test_what_a_domain_may_receive_is_shared_and_an_idle_limit_is_none() -> None:
    moved, new = np.zeros((3, 3)), plan((0, LAYERS, 4, 1))
    moved[1, 0], moved[2, 0] = 30e9, 10e9
    made = limited(ingress_bps=4e9, egress_bps=1e6)
    assert migration.move_s(made, moved, new, links(5e9, 0.08)) == pytest.approx(80.08, rel=1e-12)
    assert in_the_world(made, moved, new) == pytest.approx(80.08, rel=1e-9)


def test_a_relay_shares_the_links_that_it_passes() -> None:
    # 20 GB from 0 to 2 by way of 1 and 10 GB from 0 to 1: 30 GB over the first link
    moved, new = np.zeros((3, 3)), replace(plan((2, LAYERS, 4, 1)), routes=((0, 1, 2),))
    moved[0, 2], moved[0, 1] = 20e9, 10e9
    expected = 30e9 * 8 / 5e9 + 0.16  # the relayed bytes are the last to arrive
    assert in_the_world(cluster(), moved, new) == pytest.approx(expected, rel=1e-9)
    found = migration.move_s(cluster(), moved, new, links(5e9, 0.08))
    assert expected - 0.08 == pytest.approx(found, rel=1e-12)  # the least latency is charged


def test_a_dead_link_never_ends() -> None:
    old, new = plan((0, LAYERS, 4, 1)), plan((1, LAYERS, 4, 1))
    assert migration.move_s(cluster(), migration.move_bytes(JOB, old, new, 3), new, links(0.0)) == float(
        "inf"
    )


def test_resharding_stays_on_the_diagonal_and_uses_the_fabric() -> None:
    old, new = plan((0, LAYERS, 4, 1)), plan((0, LAYERS, 2, 1))
    moved = migration.move_bytes(JOB, old, new, 3)
    total = sum(layer.parameters for layer in JOB.model.layers()) * 14
    assert moved[0, 0] == total and moved.sum() == total
    assert migration.move_s(cluster(), moved, new, links()) == pytest.approx(
        total * 8 / (2 * 800e9), rel=1e-12
    )
    wide = plan((0, LAYERS, 4, 2))  # two nodes: the slower network between them
    assert migration.move_s(cluster(), moved, wide, links()) == pytest.approx(
        total * 8 / (8 * 80e9), rel=1e-12
    )


def test_experts_move_to_each_of_their_copies_and_alone_where_only_ep_changes() -> None:
    """Two blocks of 4 experts on dp 4: with ep 2 there are two copies of each expert."""
    made = replace(preset("mixtral-8x7b"), blocks=2, experts=Experts(4, 2, 14336))
    job = JobSpec(made, 8, (1,), ep=(2, 4))
    routed, whole = 2 * 4 * 3 * 4096 * 14336, sum(layer.parameters for layer in made.layers())
    old = replace(plan((0, 4, 1, 1), dp=4), ep=4)
    moved = migration.move_bytes(job, old, replace(old, ep=2), 3)
    assert moved[0, 0] == moved.sum() == 14 * routed * 2
    assert migration.needs_restart(old, replace(old, ep=2))
    wider = replace(plan((0, 4, 2, 1), dp=4), ep=2)
    moved = migration.move_bytes(job, old, wider, 3)
    assert moved[0, 0] == moved.sum() == 14 * ((whole - routed) * 4 + routed * 2)
    away = replace(plan((1, 4, 1, 1), dp=4), ep=4)
    assert migration.move_bytes(job, old, away, 3)[0, 1] == 14 * whole


def test_only_what_changes_place_is_resharded() -> None:
    old = plan((0, 20, 4, 2), (1, 14, 4, 1))
    deeper = plan((0, 20, 4, 2), (1, 14, 4, 2))
    moved = migration.move_bytes(JOB, old, deeper, 3)
    assert moved[0, 0] == 0 and moved[1, 1] > 0


def test_schedule_and_warm_up_turn_without_a_restart_but_the_micro_batch_does_not() -> None:
    old = plan((0, LAYERS, 4, 1))
    assert not migration.needs_restart(old, replace(old, schedule="gpipe", p2p="overlapped"))
    bigger = plan((0, LAYERS, 4, 1), micro_batch=2)
    assert migration.needs_restart(old, bigger)
    assert not migration.move_bytes(JOB, old, bigger, 3).any()
