"""Points by hand, in plain Python; tests/twin/queue/test_node_kernel.py holds the compiled scores to it."""

from math import exp

import pytest

from policy.placement.registry import placement
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands
from twin.placement.plain import PlainNodes, drawn

CLUSTER = NodeCluster.of_nodes([4, 4, 2], ["A100", "A100", "T4"], [8000, 8000, 8000], [100, 100, 100])
DEMANDS = Demands.of_jobs(CLUSTER, [1, 2, 1, 0], [500, 1000, 1000, 0], [1000, 2000, 1000, 1000], [1, 2, 1, 1])
SHARE, PAIR, WHOLE, NONE = DEMANDS.class_of.tolist()


def nodes(name: str) -> PlainNodes:
    made = PlainNodes(CLUSTER, DEMANDS, placement(name))
    made.mix = DEMANDS.counted()
    return made


def test_best_and_worst_fit_count_what_stays_free() -> None:
    # Node 0 keeps 7 of 8 cores and 3.5 of 4 GPUs, node 2 the cores and 1.5 of 4 GPUs (of the largest node).
    assert nodes("best-fit").score(SHARE, 0, 1) == int((1 - (7 / 8 + 3.5 / 4) / 2) * 100)
    assert nodes("worst-fit").score(SHARE, 2, 1) == int((7 / 8 + 1.5 / 4) / 2 * 100)


def test_the_dot_product_is_of_asked_and_free() -> None:
    dot = 8 / 8 * (2 / 8) + 4 / 4 * (2 / 4)
    assert nodes("dot-product").score(PAIR, 0, 2) == int(100 * (1 - dot / 2))
    assert nodes("tetris").score(PAIR, 0, 2) == int(100 * dot / 2)


def test_clustering_likes_its_own_size_then_idle_nodes() -> None:
    made = nodes("clustering")
    assert made.score(SHARE, 0, 1) == 25
    made.move(SHARE, (0, 0), -1)
    full = 25 * 500 // 4000
    assert [made.score(kind, 0, 1) for kind in (SHARE, WHOLE)] == [full + 75, full]
    made.move(WHOLE, (0, 1), -1)
    assert made.score(SHARE, 0, 1) == 25 * 1500 // 4000 + 50
    assert made.score(NONE, 0, 0) == 0


def test_packing_likes_shared_gpus_then_nodes_in_use() -> None:
    made = nodes("packing")
    assert (made.score(SHARE, 0, 1), made.score(SHARE, 2, 1)) == (33 - 4, 33 - 2)
    made.move(SHARE, (0, 3), -1)
    assert made.score(SHARE, 0, 1) == 100 - 5  # half a GPU is free on the one in use
    assert made.score(PAIR, 0, 2) == 50 - 2
    assert made.gpus_on(SHARE, 0, 1, 0) == [3]


def test_fragmentation_is_what_tasks_cannot_use() -> None:
    made = nodes("fgd")
    # Tasks: a share, a pair, a whole GPU, no GPU, one job each. Left are 500 and 1000 of two GPUs: nothing is
    # lost to the share, all to the pair (it does not fit), 500 to the whole GPU, all to the job without GPUs.
    assert made.fragments([500, 1000], 8000, 0) == 0 + 1500 + 500 + 1500
    assert made.fragments([500, 1000], 500, 0) == 4 * 1500  # no core is left for anybody
    assert made.fragments([0, 0], 8000, 0) == 0
    before, after = made.fragments([1000] * 4, 8000, 0), made.fragments([500, 1000, 1000, 1000], 7000, 0)
    assert made.score(SHARE, 0, 1) == int(100 / (1 + exp(-(before - after) / 4 / 1000)))


def test_gangs_take_whole_nodes_of_one_model_and_the_rest_on_one_more() -> None:
    demands = Demands.of_jobs(CLUSTER, [6, 2])
    made = PlainNodes(CLUSTER, demands, placement("best-fit"))
    assert made.pieces(int(demands.class_of[0])) == [
        (0, None, [4, 2]), (1, None, [2, 2, 2, 0]),
    ]  # fmt: skip
    assert made.put(int(demands.class_of[0]), 0) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    spread = PlainNodes(CLUSTER, demands, placement("spread"))
    assert spread.put(int(demands.class_of[1]), 0) == [(0, 0), (1, 0)]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_draws_lie_below_their_count_and_repeat(count: int) -> None:
    found = [drawn(3, ticket, 0, count) for ticket in range(200)]
    assert set(found) == set(range(count))
    assert found == [drawn(3, ticket, 0, count) for ticket in range(200)]
