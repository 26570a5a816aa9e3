import numpy as np
import pytest

from twin.costs.collectives import (
    Path,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    hierarchical_all_gather_s,
    hierarchical_all_reduces_s,
    levels_of,
    tree_all_reduce_s,
)

FAST = Path(800e9, 2e-6)  # 100 GB/s
SLOW = Path(80e9, 10e-6)  # 10 GB/s


def test_ring_by_hand() -> None:
    # 4 ranks, 1 GB: 3 hops of 250 MB twice
    assert all_gather_s(1e9, 4, FAST) == pytest.approx(3 * 2e-6 + 0.75 * 0.01, rel=1e-12)
    assert all_reduce_s(1e9, 4, FAST) == pytest.approx(6 * 2e-6 + 1.5 * 0.01, rel=1e-12)


def test_one_rank_has_nothing_to_do() -> None:
    assert all_reduce_s(1e9, 1, FAST) == 0
    assert tree_all_reduce_s(1e9, 1, FAST) == 0
    assert hierarchical_all_gather_s(1e9, [(1, FAST), (1, SLOW)]) == 0
    assert hierarchical_all_reduces_s(1e9, [(1, FAST), (1, SLOW)]) == (0, 0)


def test_hierarchical_is_inside_plus_a_share_across() -> None:
    inside = 7 * 2e-6 + 7 / 8 * 0.01
    across = 3 * 10e-6 + 3 / 4 * 0.0125  # 125 MB a rank at 10 GB/s
    assert hierarchical_all_gather_s(1e9, [(8, FAST), (4, SLOW)]) == pytest.approx(inside + across, rel=1e-12)


def test_hierarchical_is_a_ring_when_one_level_is_trivial() -> None:
    assert hierarchical_all_gather_s(1e9, [(8, FAST), (1, SLOW)]) == all_gather_s(1e9, 8, FAST)
    assert hierarchical_all_gather_s(1e9, [(1, FAST), (8, SLOW)]) == all_gather_s(1e9, 8, SLOW)


def test_many_sizes_at_once() -> None:
    sizes = np.array([1e6, 1e9])
    assert all_reduce_s(sizes, 4, FAST).tolist() == [all_reduce_s(size, 4, FAST) for size in (1e6, 1e9)]


def test_bandwidth_term_has_no_log_factor() -> None:
    free = Path(800e9, 0.0)
    assert all_reduce_s(1e9, 1024, free) < 2 * 1e9 / free.bytes_s


def test_tree_by_hand() -> None:
    # 6 ranks: three levels down and up, the data twice over each link
    assert tree_all_reduce_s(1e9, 6, FAST) == pytest.approx(6 * 2e-6 + 2 * 0.01, rel=1e-12)


def test_a_tree_wins_where_latency_counts_and_a_ring_where_bytes_do() -> None:
    nodes = [(8, FAST), (64, SLOW)]
    small, large = hierarchical_all_reduces_s(1e5, nodes), hierarchical_all_reduces_s(1e10, nodes)
    assert small[1] < small[0] and large[0] < large[1]
    # between two nodes both take one hop each way, and the ring sends half as much
    ring, tree = hierarchical_all_reduces_s(1e9, [(8, FAST), (2, SLOW)])
    assert tree - ring == pytest.approx(1e9 / 8 / SLOW.bytes_s)


def test_inside_a_node_there_is_only_the_ring() -> None:
    assert hierarchical_all_reduces_s(1e3, [(8, FAST), (1, SLOW)]) == (all_reduce_s(1e3, 8, FAST),) * 2


def test_three_levels_reduce_node_by_node_and_domain_by_domain() -> None:
    far = Path(1e9, 50e-3)
    ring, tree = hierarchical_all_reduces_s(1e9, [(8, FAST), (4, SLOW), (3, far)])
    inside = all_reduce_s(1e9, 8, FAST) + all_reduce_s(1e9 / 8, 4, SLOW)
    assert ring == pytest.approx(inside + all_reduce_s(1e9 / 32, 3, far), rel=1e-12)
    assert tree == pytest.approx(inside + tree_all_reduce_s(1e9 / 32, 3, far), rel=1e-12)


def test_a_group_over_nodes_sends_over_the_adapter_of_every_gpu() -> None:
    # 16 ranks on nodes of 8, 1 GB: 7/8 inside at 100 GB/s, 125 MB a GPU between nodes at 10 GB/s, twice
    levels = levels_of(16, 8, FAST, SLOW)
    inside, across = 7 * 2e-6 + 7 / 8 * 0.01, 10e-6 + 0.0125 / 2
    assert hierarchical_all_reduces_s(1e9, levels)[0] == pytest.approx(2 * (inside + across), rel=1e-12)
    assert all_reduce_s(1e9, 16, SLOW) > 5 * 2 * (inside + across)  # one ring over one adapter


@pytest.mark.parametrize(("ranks", "local", "nodes"), [(1, 1, 1), (8, 8, 1), (32, 8, 4), (12, 4, 3)])
def test_groups_fill_nodes_in_equal_parts(ranks: int, local: int, nodes: int) -> None:
    assert [n for n, _ in levels_of(ranks, 8, FAST, SLOW)] == [local, nodes]


def test_an_all_to_all_by_hand() -> None:
    # inside a node 7 peers get an eighth each; over two nodes 8 of 16 lie in the other one
    assert all_to_all_s(1e9, ((8, FAST), (1, SLOW))) == pytest.approx(7 * 2e-6 + 7 / 8 * 0.01, rel=1e-12)
    assert all_to_all_s(1e9, ((8, FAST), (2, SLOW))) == pytest.approx(8 * 10e-6 + 0.1 / 2, rel=1e-12)
    near = all_to_all_s(1e9, ((8, FAST), (2, Path(8e15, 0.0))))  # what stays in the node takes longer
    assert near == pytest.approx(7 * 2e-6 + 7 / 16 * 0.01, rel=1e-12)
    assert all_to_all_s(1e9, ((1, FAST), (1, SLOW))) == 0
