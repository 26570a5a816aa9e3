"""Attention over ranks that split the sequences, by hand."""

from dataclasses import replace

import pytest

from twin.core.domain import Domain
from twin.core.gpu_models import fabric, preset
from twin.core.model_presets import preset as model
from twin.core.switches import TensorMode
from twin.costs import context_exchange
from twin.costs.layer_compute import layer_times

LLAMA = model("llama3-8b")  # 32 heads of 128, 8 of them for keys and values, 8,192 tokens


def site(per_node: int = 8) -> Domain:
    kind = fabric("H100")
    return Domain(
        "d", preset("H100"), 64, per_node, kind.intra_node_bps, kind.inter_node_bps, 3e-6, 8e-6, 0.0
    )


def test_a_rank_holds_its_keys_and_values() -> None:
    # K and V of 2 bytes, 8,192 / 4 tokens, 8 heads of 128 over tp
    assert context_exchange.block_bytes(LLAMA, 1, 3, 4) == 2 * 2 * 3 * 2048 * 1024
    assert context_exchange.block_bytes(LLAMA, 4, 1, 4) == 2 * 2 * 2048 * 256
    assert context_exchange.block_bytes(LLAMA, 16, 1, 4) == 2 * 2 * 2048 * 128  # a head is not split


def test_the_levels_leave_room_for_the_tensor_groups() -> None:
    counts = [
        tuple(ranks for ranks, _ in context_exchange.context_levels(site(), tp, cp))
        for tp, cp in ((1, 4), (2, 4), (4, 4), (8, 4), (2, 16))
    ]
    assert counts == [(4, 1), (4, 1), (2, 2), (1, 4), (4, 4)]


def test_a_ring_by_hand() -> None:
    levels = context_exchange.context_levels(site(), 2, 4)
    hop = 3e-6 + 9e6 / (3.6e12 / 8)  # 23 us
    home = hop
    # what is hidden: four pieces forward and backward, and the last hop of the gradients
    assert context_exchange.ring_s((1e-3, 2e-3), 9e6, levels) == pytest.approx((4e-3, 8e-3 + home), rel=1e-12)
    # what is not: the first piece is there already; one block travels in the first and the last backward
    # step, keys, values and their gradients in the two between
    both = 3e-6 + 18e6 / (3.6e12 / 8)
    found = context_exchange.ring_s((1e-6, 2e-6), 9e6, levels)
    assert found == pytest.approx((1e-6 + 3 * hop, 2 * hop + 2 * both + home), rel=1e-12)
    over_nodes = context_exchange.context_levels(site(), 4, 4)
    slow = 8e-6 + 9e6 / (400e9 / 8)
    assert context_exchange.ring_s((0.0, 0.0), 9e6, over_nodes)[0] == pytest.approx(3 * slow, rel=1e-12)


def test_an_all_gather_by_hand() -> None:
    levels = context_exchange.context_levels(site(), 4, 4)  # two ranks in each of two nodes
    # 36 MB in all, between two ranks inside and then 18 MB between the nodes
    gathered = 3e-6 + 36e6 / 2 / (3.6e12 / 8) + 8e-6 + 18e6 / 2 / (400e9 / 8)
    found = context_exchange.all_gather_s((1e-3, 2e-3), 9e6, levels)
    assert found == pytest.approx((1e-3 + gathered, 2e-3 + 2 * gathered), rel=1e-12)


def test_held_and_issued() -> None:
    block = context_exchange.block_bytes(LLAMA, 1, 1, 4)
    assert [context_exchange.held_bytes(LLAMA, 1, 4, way) for way in ("ring", "all-gather")] == [
        2 * block,
        3 * block,
    ]
    assert context_exchange.held_bytes(LLAMA, 1, 1, "ring") == 0
    assert context_exchange.collectives("ring", 4) == (3, 7)
    assert context_exchange.collectives("all-gather", 4) == (1, 2)
    assert context_exchange.collectives("ring", 1) == (0, 0)


@pytest.mark.parametrize("exchange", ["ring", "all-gather"])
def test_a_block_of_a_group_is_one_of_shorter_sequences_with_the_whole_core(exchange: str) -> None:
    """All work but the core is that of 1/4 of the tokens; the core is 1/4 of the whole, not 1/16."""
    free = replace(site(), intra_node_bps=1e30, intra_node_latency_s=0.0)
    gpu = free.gpu
    split = layer_times(LLAMA, free, 1, 4, "none", mode=TensorMode(False, False, 4, exchange))  # type: ignore[arg-type]
    short = layer_times(replace(LLAMA, seq=2048), free, 1, 4, "none")
    core = 2.0 * 4 * 8192**2 * 4096 / gpu.peak_flops  # causal products of four sequences
    starts = 4 if exchange == "ring" else 1
    more = core / 4 - core / 16, 2.5 * (core / 4 - core / 16)
    assert split.forward_s[1] - short.forward_s[1] == pytest.approx(
        more[0] / 0.50 + (starts - 1) * 10e-6, rel=1e-9
    )
    assert split.backward_s[1] - short.backward_s[1] == pytest.approx(
        more[1] / 0.34 + (starts - 1) * 10e-6, rel=1e-9
    )
    assert split.forward_s[[0, -1]].tolist() == pytest.approx(short.forward_s[[0, -1]].tolist(), rel=1e-12)
