import numpy as np
import pytest

from twin.collectives import Path, all_gather_s, all_reduce_s, hierarchical_all_gather_s

FAST = Path(800e9, 2e-6)  # 100 GB/s
SLOW = Path(80e9, 10e-6)  # 10 GB/s


def test_ring_by_hand() -> None:
    # 4 ranks, 1 GB: 3 hops of 250 MB twice
    assert all_gather_s(1e9, 4, FAST) == pytest.approx(3 * 2e-6 + 0.75 * 0.01, rel=1e-12)
    assert all_reduce_s(1e9, 4, FAST) == pytest.approx(6 * 2e-6 + 1.5 * 0.01, rel=1e-12)


def test_one_rank_has_nothing_to_do() -> None:
    assert all_reduce_s(1e9, 1, FAST) == 0
    assert hierarchical_all_gather_s(1e9, 1, 1, FAST, SLOW) == 0


def test_hierarchical_is_inside_plus_a_share_across() -> None:
    inside = 7 * 2e-6 + 7 / 8 * 0.01
    across = 3 * 10e-6 + 3 / 4 * 0.0125  # 125 MB a rank at 10 GB/s
    assert hierarchical_all_gather_s(1e9, 8, 4, FAST, SLOW) == pytest.approx(inside + across, rel=1e-12)


def test_hierarchical_is_a_ring_when_one_level_is_trivial() -> None:
    assert hierarchical_all_gather_s(1e9, 8, 1, FAST, SLOW) == all_gather_s(1e9, 8, FAST)
    assert hierarchical_all_gather_s(1e9, 1, 8, FAST, SLOW) == all_gather_s(1e9, 8, SLOW)


def test_many_sizes_at_once() -> None:
    sizes = np.array([1e6, 1e9])
    assert all_reduce_s(sizes, 4, FAST).tolist() == [all_reduce_s(size, 4, FAST) for size in (1e6, 1e9)]


def test_bandwidth_term_has_no_log_factor() -> None:
    free = Path(800e9, 0.0)
    assert all_reduce_s(1e9, 1024, free) < 2 * 1e9 / free.bytes_s
