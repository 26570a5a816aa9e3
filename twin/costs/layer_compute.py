"""Compute seconds of a layer: matrix products and passes over memory of a block, its collectives.

Both are those of `twin.costs.kernel_times`. Where a GPU would be done sooner than the host can issue the
work, the host sets the time.

Every constant has its profile beside it; those of a GPU model stand in `twin.costs.gpu_rates`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from twin.core.domain import Domain, GpuType
from twin.core.plan import Recompute
from twin.core.switches import PLAIN, TensorMode
from twin.core.transformer import Dtype, Transformer
from twin.costs import context_exchange, energy, expert_mlp
from twin.costs.collectives import (
    Level,
    Path,
    hierarchical_all_gather_s,
    hierarchical_all_reduces_s,
    levels_of,
)
from twin.costs.context_exchange import Ways
from twin.costs.gpu_rates import Rates, built_in_rates, matmul_flops_s
from twin.costs.kernel_times import (
    CLASSIC,
    GATED,
    GRADIENT_BYTES,
    element_size,
    matmul_s,
    memory_s,
)

LOGIT_PASSES = (10.0, 2.0)
"""Bytes over fp32 logits in the loss, forward and backward (gpt-post-process in the same files: 8-12 and
0-3)."""
EMBEDDING_PASSES = (20.0, 24.0)
"""Bytes over 2-byte activations (encoder-embedding: 18-26 forward; backward 20-30, and 6 over the whole
table)."""
EMBEDDING_TABLE_PASSES = 6.0
ADDED_BYTES = 6.0
"""Per element that an adapter adds to, in half precision: both are read, the sum is written."""


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Forward and backward seconds of each of the N layers (N,), tensor-parallel collectives and recompute
    included."""

    forward_s: NDArray[np.float64]
    backward_s: NDArray[np.float64]


class ComputeModel(Protocol):
    """Source of layer times: this module's model, or a calibration with measured blocks."""

    def __call__(
        self, model: Transformer, domain: Domain, tp: int, micro_batch: int, recompute: Recompute,
        *, mode: TensorMode = PLAIN,
    ) -> LayerTimes:  # fmt: skip
        """Seconds per layer for one micro-batch on `tp` GPUs of `domain`."""
        ...


def _core_s(
    model: Transformer, gpu: GpuType, rates: Rates, tp: int, micro_batch: int, parts: int
) -> tuple[float, float]:
    """Forward and backward seconds of one of `parts` equal parts of the attention core.

    Materialised: two batched products and the passes over s x s matrices. Fused: causal, so half the
    products, and 2.5 times as many in backward (Dao 2023).
    """
    flops = micro_batch * model.core_flops / tp / parts
    if model.attention == "flash":
        once = flops / 2 / (gpu.peak_flops * energy.clock(gpu))
        return rates.start_s + once / rates.flash[0], rates.start_s + 2.5 * once / rates.flash[1]
    matrix = 2.0 * element_size(model) * micro_batch * model.heads * model.seq**2 / tp / parts
    over = (CLASSIC if model.bias else GATED).matrix
    dtype: Dtype = "fp32" if model.dtype == "fp32" else "bf16"  # scores are not computed in fp8
    forward = matmul_s(gpu, rates, flops, 2, dtype) + memory_s(gpu, over[0] * matrix, 2)
    return forward, matmul_s(gpu, rates, 2 * flops, 4, dtype) + memory_s(gpu, over[1] * matrix, 3)


def _attention_s(
    model: Transformer, domain: Domain, rates: Rates, tp: int, micro_batch: int, mode: TensorMode
) -> tuple[float, float]:
    """Forward and backward seconds of the attention core, with what a context group sends for it."""
    gpu, ranks = domain.gpu, mode.context_parallel
    if ranks == 1:
        return _core_s(model, gpu, rates, tp, micro_batch, 1)
    levels = context_exchange.context_levels(domain, tp, ranks)
    size_bytes = context_exchange.block_bytes(model, tp, micro_batch, ranks)
    if mode.context_exchange == "ring":
        piece = _core_s(model, gpu, rates, tp, micro_batch, ranks * ranks)
        return context_exchange.ring_s(piece, size_bytes, levels)
    core = _core_s(model, gpu, rates, tp, micro_batch, ranks)
    return context_exchange.all_gather_s(core, size_bytes, levels)


def _weights(model: Transformer, tp: int, ffn: int) -> float:
    """Elements on one GPU of the matrices of a block with an MLP of width `ffn`."""
    return (model.attention_weights + model.mlp_matrices * model.hidden * ffn) / tp


def _beside_s(seconds: float, products: float, tp: int) -> float:
    """Seconds of collectives that remain when they run in `tp` pieces beside `products` seconds of products:
    what is longer than these, at least one piece."""
    return max(seconds - products, seconds / tp)


def _block_s(
    model: Transformer, gpu: GpuType, rates: Rates, tp: int, tokens: float, mode: TensorMode, ffn: int
) -> Ways:
    """Forward and backward seconds on the GPU of one block with an MLP of width `ffn` (0: none), attention
    core and collectives left out."""
    h, products = model.hidden, model.attention_products + (2 if ffn else 0)
    weights = _weights(model, tp, ffn)
    norms, inside = CLASSIC if model.bias else GATED, (GATED if model.gated else CLASSIC).ffn
    parts = tp if mode.sequence_parallel else 1
    around = [per_h / parts + rotary for per_h, rotary in zip(norms.hidden, norms.rotary, strict=True)]
    moved = tokens * element_size(model)
    sizes = [moved * (per_h * h + per_f * ffn / tp) for per_h, per_f in zip(around, inside, strict=True)]
    forward = matmul_s(gpu, rates, 2.0 * tokens * weights, products, model.dtype) + memory_s(gpu, sizes[0], 8)
    if model.adapters is not None:  # no weight gradients but those of the adapters
        beside = _adapters_s(model, gpu, rates, tp, tokens)
        backward = matmul_s(gpu, rates, 2.0 * tokens * weights, products, model.dtype)
        return forward + beside[0], backward + memory_s(gpu, sizes[1], 12) + beside[1]
    backward = matmul_s(gpu, rates, 4.0 * tokens * weights, 2 * products, model.dtype)
    return forward, backward + memory_s(gpu, sizes[1] + GRADIENT_BYTES * weights, 12)


def _adapters_s(model: Transformer, gpu: GpuType, rates: Rates, tp: int, tokens: float) -> Ways:
    """Forward and backward seconds of the adapters of one block: two thin products each, whose result is
    added to that of the matrix beside them; backward twice as many. Tensor groups divide both."""
    weights, count = model.adapter_parameters / tp, len(model.adapter_widths)
    each = tokens * ADDED_BYTES * element_size(model) / tp
    added = [each * sum(widths) for widths in zip(*model.adapter_widths, strict=True)]
    flops = 2.0 * tokens * weights
    forward = matmul_s(gpu, rates, flops, 2 * count, model.dtype) + memory_s(gpu, added[1], count)
    backward = matmul_s(gpu, rates, 2 * flops, 4 * count, model.dtype)
    return forward, backward + memory_s(gpu, added[0] + GRADIENT_BYTES * weights, count)


def _head_s(model: Transformer, gpu: GpuType, rates: Rates, tp: int, tokens: float) -> tuple[float, float]:
    flops = 2.0 * tokens * model.hidden * model.vocab / tp
    logits = 4.0 * tokens * model.vocab / tp
    dtype: Dtype = "fp32" if model.dtype == "fp32" else "bf16"  # the head stays in half precision
    forward = matmul_s(gpu, rates, flops, 1, dtype) + memory_s(gpu, LOGIT_PASSES[0] * logits, 8)
    ways = 2 if model.adapters is None else 1  # a frozen head has no weight gradient
    backward = matmul_s(gpu, rates, ways * flops, ways, dtype)
    return forward, backward + memory_s(gpu, LOGIT_PASSES[1] * logits, 4)


def _embedding_s(model: Transformer, gpu: GpuType, tp: int, tokens: float) -> tuple[float, float]:
    activations = 2.0 * element_size(model) * tokens * model.hidden
    table = 2.0 * model.vocab * model.hidden / tp
    forward = memory_s(gpu, EMBEDDING_PASSES[0] * activations, 5)
    if model.adapters is not None:
        return forward, 0.0  # a frozen table has no gradient
    return forward, memory_s(gpu, EMBEDDING_PASSES[1] * activations + EMBEDDING_TABLE_PASSES * table, 5)


def tensor_levels(domain: Domain, tp: int) -> tuple[Level, Level]:
    """Levels of a tensor group of `tp` GPUs of `domain`."""
    intra = Path(domain.intra_node_bps, domain.intra_node_latency_s)
    inter = Path(domain.inter_node_bps, domain.inter_node_latency_s)
    return levels_of(tp, domain.gpus_per_node, intra, inter)


def _group_s(message: float, levels: Sequence[Level], mode: TensorMode) -> float:
    """Seconds in which a tensor group sums `message` bytes, and every GPU has the sum where it needs it."""
    if mode.sequence_parallel:
        return 2 * hierarchical_all_gather_s(message, levels)
    return min(hierarchical_all_reduces_s(message, levels))


@lru_cache(maxsize=4096)
def layer_times(
    model: Transformer,
    domain: Domain,
    tp: int,
    micro_batch: int,
    recompute: Recompute,
    rates: Rates | None = None,
    mode: TensorMode = PLAIN,
) -> LayerTimes:
    """Seconds of every layer for one micro-batch of `micro_batch` sequences on `tp` GPUs of `domain`.

    A block all-reduces its output twice forward and twice backward over the tensor group (Megatron-LM), and
    forward again where it is recomputed. A group that spans nodes reduces node by node: every GPU sends its
    own part over its own adapter. With sequence parallelism a reduce-scatter and an all-gather take the place
    of each all-reduce; the further all-gather of its backward runs beside a weight gradient. Overlapped,
    collectives run in pieces beside the products.

    A context group of c ranks leaves each 1/c of the tokens (`twin.costs.context_exchange`). Blocks with
    experts: `twin.costs.expert_mlp`.

    Full recompute adds the whole forward to the backward, selective the attention core.
    """
    gpu = domain.gpu
    tokens = micro_batch * model.seq / mode.context_parallel
    rates = rates or built_in_rates(gpu)
    core = _attention_s(model, domain, rates, tp, micro_batch, mode)
    embedding = _embedding_s(model, gpu, tp, tokens)
    head = _head_s(model, gpu, rates, tp, tokens)
    blocks = {
        mixed: _recomputed(
            _whole_block_s(model, domain, rates, tp, tokens, core, mode, mixed), core, recompute
        )
        for mixed in {layer.routed > 0 for layer in model.layers()[1:-1]}
    }
    ways = [embedding, *(blocks[layer.routed > 0] for layer in model.layers()[1:-1]), head]
    return LayerTimes(np.array([way[0] for way in ways]), np.array([way[1] for way in ways]))


def _recomputed(block: Ways, core: Ways, recompute: Recompute) -> Ways:
    """`block` with what is computed again in its backward."""
    return block[0], block[1] + {"none": 0.0, "selective": core[0], "full": block[0]}[recompute]


def _whole_block_s(
    model: Transformer, domain: Domain, rates: Rates, tp: int, tokens: float, core: Ways, mode: TensorMode,
    mixed: bool,
) -> Ways:  # fmt: skip
    """Forward and backward seconds of one block, `mixed`: of experts, with its collectives and the host's
    floor."""
    gpu, levels = domain.gpu, tensor_levels(domain, tp)
    ffn = model.experts.shared if mixed and model.experts is not None else model.ffn
    block = _block_s(model, gpu, rates, tp, tokens, mode, ffn)
    message = float(tokens * model.hidden * model.bytes_per_element)
    reduce_s = (2 if ffn else 1) * _group_s(message, levels, mode)
    ways = [reduce_s, reduce_s]
    if mode.overlapped and tp > 1:
        once = 2.0 * tokens * _weights(model, tp, ffn) / matmul_flops_s(gpu, rates, model.dtype)
        ways = [
            _beside_s(reduce_s, products, tp) for products in (once, once if model.adapters else 2 * once)
        ]
    sent = context_exchange.collectives(mode.context_exchange, mode.context_parallel)
    issue_s = [(count + (2 if tp > 1 else 0)) * rates.host.collective_s for count in sent]
    routed = (0.0, 0.0)
    if mixed:
        routed = expert_mlp.routed_s(model, domain, rates, tp, tokens, mode)
        issue_s = [each + expert_mlp.collectives(mode) * rates.host.collective_s for each in issue_s]
    return (
        max(block[0] + core[0] + ways[0] + routed[0], rates.host.forward_s + issue_s[0]),
        max(block[1] + core[1] + ways[1] + routed[1], rates.host.backward_s + issue_s[1]),
    )
