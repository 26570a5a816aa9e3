"""Blocks of experts over expert-parallel ranks, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from twin.core.domain import Domain
from twin.core.experts import Experts
from twin.core.gpu_models import fabric, preset
from twin.core.model_presets import preset as model
from twin.core.plan import Recompute
from twin.core.switches import TensorMode
from twin.core.transformer import Transformer
from twin.costs import expert_mlp, memory
from twin.costs.gpu_rates import HOST, built_in_rates
from twin.costs.layer_compute import layer_times

MIXTRAL = model("mixtral-8x7b")  # hidden 4,096; 8 experts of 14,336, 2 a token; 4,096 tokens
H, F, S = 4096, 14336, 4096
NVLINK, NIC = 3.6e12 / 8, 400e9 / 8


def site(gpu: str = "H100") -> Domain:
    kind = fabric(gpu)
    return Domain("d", preset(gpu), 64, 8, kind.intra_node_bps, kind.inter_node_bps, 3e-6, 8e-6, 0.0)


def routed(
    tp: int, ep: int, *, sequence_parallel: bool = True, imbalance: float = 1.0
) -> tuple[float, float]:
    mode = TensorMode(sequence_parallel, expert_parallel=ep, expert_imbalance=imbalance)
    return expert_mlp.routed_s(MIXTRAL, site(), built_in_rates(preset("H100")), tp, float(S), mode)


def computed(tp: int, ep: int, own: float, copies: float) -> tuple[float, float]:
    """Seconds on the GPU: router, two grouped products, routing and activation, gradients."""
    gpu = preset("H100")
    rate = 0.70 * gpu.peak_flops
    router = 10e-6 + 2 * own * H * 8 / rate
    weights = 8 * 3 * H * F / tp / ep
    grouped = 2 * 10e-6 + max(2 * copies * 3 * H * F / tp / rate, 2 * weights / gpu.memory_bandwidth_bytes_s)
    routing = (14 * own / S + (8 if ep < 8 else 0)) * copies * H
    passes = [
        7 * 4e-6 + (routing + copies * each * F / tp + more) / gpu.memory_bandwidth_bytes_s
        for each, more in ((12, 0), (17, 8 * weights))
    ]
    return router + grouped + passes[0], 2 * (router + grouped) + passes[1]


def test_a_group_inside_a_node_by_hand() -> None:
    """Four ranks of two GPUs: each sends 3/4 of its 2,048 x 2 copies over NVLink, there and back, and the
    two GPUs gather all copies before the experts and scatter the results."""
    message = S * H * 2 * 2
    exchange = 3 * 3e-6 + 3 / 4 * (message / 2) / NVLINK
    gather = 3e-6 + 1 / 2 * message / NVLINK
    sent = 2 * exchange + 2 * gather
    expected = computed(2, 4, S / 2, 2 * S)
    assert routed(2, 4) == pytest.approx((expected[0] + sent, expected[1] + sent), rel=1e-12)


def test_a_group_over_nodes_sends_over_its_adapters() -> None:
    """16 ranks of one GPU in two nodes: 8/16 of the copies leave the node, beside 7/16 inside it."""
    sixteen = replace(MIXTRAL, experts=Experts(16, 2, F))
    mode = TensorMode(True, expert_parallel=16)
    found = expert_mlp.routed_s(sixteen, site(), built_in_rates(preset("H100")), 1, float(S), mode)
    alone = expert_mlp.routed_s(
        sixteen, replace(site(), inter_node_bps=1e30, intra_node_bps=1e30, inter_node_latency_s=0.0,
                         intra_node_latency_s=0.0),
        built_in_rates(preset("H100")), 1, float(S), mode,
    )  # fmt: skip
    message = S * H * 2 * 2
    far = 8 * 8e-6 + 8 / 16 * message / NIC
    assert far > 7 * 3e-6 + 7 / 16 * message / NVLINK
    assert [a - b for a, b in zip(found, alone, strict=True)] == pytest.approx([2 * far] * 2, rel=1e-9)


def test_without_sequence_parallelism_every_gpu_sends_all_tokens() -> None:
    message = S * H * 2
    exchange = 3 * 3e-6 + 3 / 4 * 2 * message / NVLINK
    ring = 2 * (3e-6 + 1 / 2 * message / NVLINK)
    sent = 2 * exchange + ring
    expected = computed(2, 4, S, 2 * S)
    found = routed(2, 4, sequence_parallel=False)
    assert found == pytest.approx((expected[0] + sent, expected[1] + sent), rel=1e-12)


def test_alone_nothing_is_sent_and_the_busiest_rank_sets_the_pace() -> None:
    assert routed(1, 1) == pytest.approx(computed(1, 1, S, 2 * S), rel=1e-12)
    assert routed(1, 1, imbalance=1.5) == pytest.approx(computed(1, 1, S, 3 * S), rel=1e-12)


def test_few_tokens_take_as_long_as_the_weights_to_be_read() -> None:
    gpu, rates = preset("H100"), built_in_rates(preset("H100"))
    few = expert_mlp.routed_s(MIXTRAL, site(), rates, 1, 16.0, TensorMode())
    assert few[0] > 2 * 8 * 3 * H * F / gpu.memory_bandwidth_bytes_s


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_layers_with_experts_stand_beside_layers_without(recompute: Recompute) -> None:
    mixed = replace(MIXTRAL, blocks=4, experts=Experts(8, 2, F, every=2))
    dense = replace(MIXTRAL, blocks=4, experts=None)
    found = layer_times(mixed, site(), 2, 1, recompute, mode=TensorMode(True, expert_parallel=4))
    plain = layer_times(dense, site(), 2, 1, recompute, mode=TensorMode(True))
    assert np.array_equal(found.forward_s[[0, 2, 4, 5]], plain.forward_s[[0, 2, 4, 5]])
    assert np.array_equal(found.backward_s[[0, 2, 4, 5]], plain.backward_s[[0, 2, 4, 5]])
    assert found.forward_s[1] == found.forward_s[3] > plain.forward_s[1]
    assert found.backward_s[1] == found.backward_s[3] > plain.backward_s[1]


def test_the_host_issues_the_all_to_alls() -> None:
    tiny = Transformer("t", 2, 256, 4, 4, 256, True, 128, 1000, experts=Experts(4, 2, 64))
    found = layer_times(tiny, site(), 1, 1, "none", mode=TensorMode(expert_parallel=4))
    assert found.forward_s[1] == HOST.forward_s + 2 * HOST.collective_s


def test_stored_activations_by_hand() -> None:
    """Of each of 2 copies a token: the input on both GPUs, four tensors of the experts' width halved, the
    output halved."""
    stored = 2 * 2 * S * (H + 4 * F / 2 + H / 2)
    assert expert_mlp.activation_bytes(MIXTRAL, 2, True) == stored
    attention = 2 * S * H * 4 / 2 + 2 * S * (2 * H + 2 * 1024) / 2
    assert memory.block_activation_bytes(MIXTRAL, 2, "none", True, mixed=True) == attention + stored
    assert memory.block_activation_bytes(MIXTRAL, 2, "full", True, mixed=True) == 2 * S * H / 2
