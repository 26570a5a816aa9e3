"""Seconds that a layer computes: each block as the few matrix products and memory-bound passes it consists
of.

A product of m x k by k x n on one GPU takes `start + 2 m n k / (efficiency * peak)`: the curve in tokens
per micro-batch (m) and h/tp (n or k) that the profiles show. Everything else in a block (norms, dropout,
residuals, activation function, softmax) is bytes over memory bandwidth. Backward is two products for each
forward one.

The constants come from operator profiles, not from whole iterations; see `Efficiency`.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from twin.collectives import Path, all_reduce_s
from twin.domain import Domain, GpuType
from twin.plan import Recompute
from twin.transformer import Transformer


@dataclass(frozen=True, slots=True)
class Efficiency:
    """How far real kernels stay below the data sheet.

    Sources: forward products of Llama-2-7B on A100 and H100 against tokens and tp (profiles-vidur/compute,
    2,088 rows), fp16 operators forward and backward on V100 and GH200 (profiles-aceso-v100/ops,
    profiles-sailor/aceso_op_profiles_fp16).
    """

    matmul: float = 0.73  # share of the tensor peak that a long product reaches
    matmul_start_s: float = 10e-6  # fill and drain of one product
    flash: float = 0.5  # share of the peak in fused attention
    memory: float = 0.6  # share of memory bandwidth in element-wise passes
    kernel_s: float = 4e-6  # one more kernel in the stream
    host_s: float = 0.45e-3  # the host cannot issue a block's forward faster than this


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Forward and backward seconds of each of the N layers (N,), tensor-parallel collectives and recompute
    included."""

    forward_s: NDArray[np.float64]
    backward_s: NDArray[np.float64]


class ComputeModel(Protocol):
    """Where layer times come from: this module's model, or an interpolation of measured layer profiles."""

    def __call__(
        self, model: Transformer, domain: Domain, tp: int, micro_batch: int, recompute: Recompute
    ) -> LayerTimes:
        """Seconds per layer for one micro-batch on `tp` GPUs of `domain`."""
        ...


def products(model: Transformer, tp: int) -> tuple[tuple[int, int], ...]:
    """(n, k) of the products of a block over all tokens: projections in and out, MLP up and down."""
    h, kv, f = model.hidden, model.kv_hidden, model.ffn
    up = 2 * f if model.gated else f
    return (((h + 2 * kv) // tp, h), (h, h // tp), (up // tp, h), (h, f // tp))


def _matmul_s(gpu: GpuType, eff: Efficiency, flops: float, count: int = 1) -> float:
    return count * eff.matmul_start_s + flops / (eff.matmul * gpu.peak_flops)


def _memory_s(gpu: GpuType, eff: Efficiency, size_bytes: float, kernels: int) -> float:
    return kernels * eff.kernel_s + size_bytes / (eff.memory * gpu.memory_bandwidth_bytes_s)


def _attention_s(model: Transformer, gpu: GpuType, eff: Efficiency, tp: int, mbs: int) -> tuple[float, float]:
    """Forward and backward seconds of the attention core.

    Written out: two batched products and the passes over s x s matrices (softmax; dropout with its mask).
    Fused: causal, so half the products, and 2.5 times as many in backward (Dao 2023).
    """
    flops = 4.0 * mbs * model.seq**2 * model.hidden / tp
    if model.attention == "flash":
        seconds = flops / 2 / (eff.flash * gpu.peak_flops) + eff.matmul_start_s
        return seconds, 2.5 * seconds
    matrix = 2.0 * mbs * model.heads * model.seq**2 / tp
    passes = 4.5 if model.bias else 2.0  # softmax reads and writes; dropout reads, writes and keeps a mask
    forward = _matmul_s(gpu, eff, flops, 2) + _memory_s(gpu, eff, (passes + 2) * matrix, 2)
    backward = _matmul_s(gpu, eff, 2 * flops, 4) + _memory_s(gpu, eff, (passes + 5) * matrix, 3)
    return forward, backward


def _block_s(model: Transformer, gpu: GpuType, eff: Efficiency, tp: int, mbs: int) -> tuple[float, float]:
    tokens = mbs * model.seq
    flops = sum(2.0 * tokens * n * k for n, k in products(model, tp))
    element = float(model.bytes_per_element)
    h, f = model.hidden, model.ffn / tp
    dropout = 0.5 if model.bias else 0.0  # one-byte masks
    passes = tokens * element * ((2 * 2 + 2 * (3 + dropout)) * h + (3 if model.gated else 2) * f)
    attention_forward, attention_backward = _attention_s(model, gpu, eff, tp, mbs)
    forward = _matmul_s(gpu, eff, flops, 4) + _memory_s(gpu, eff, passes, 8) + attention_forward
    backward = _matmul_s(gpu, eff, 2 * flops, 8) + _memory_s(gpu, eff, 1.5 * passes, 10) + attention_backward
    return max(forward, eff.host_s), max(backward, eff.host_s)


def _head_s(model: Transformer, gpu: GpuType, eff: Efficiency, tp: int, mbs: int) -> tuple[float, float]:
    tokens = mbs * model.seq
    flops = 2.0 * tokens * model.hidden * model.vocab / tp
    logits = 4.0 * tokens * model.vocab / tp  # fp32 in the loss
    forward = _matmul_s(gpu, eff, flops) + _memory_s(gpu, eff, 4 * logits, 6)
    return forward, _matmul_s(gpu, eff, 2 * flops, 2) + _memory_s(gpu, eff, 2 * logits, 3)


def _embedding_s(model: Transformer, gpu: GpuType, eff: Efficiency, mbs: int) -> tuple[float, float]:
    passes = mbs * model.seq * model.hidden * float(model.bytes_per_element)
    return _memory_s(gpu, eff, 5 * passes, 4), _memory_s(gpu, eff, 4 * passes, 3)


EFFICIENCY = Efficiency()


@lru_cache(maxsize=4096)
def layer_times(
    model: Transformer, domain: Domain, tp: int, micro_batch: int, recompute: Recompute
) -> LayerTimes:
    """Seconds of every layer for one micro-batch of `micro_batch` sequences on `tp` GPUs of `domain`.

    A block all-reduces its output twice forward and twice backward over the tensor group (Megatron-LM), and
    forward again where it is recomputed. Full recompute adds the whole forward to the backward, selective
    the attention core.
    """
    gpu, eff = domain.gpu, EFFICIENCY
    message = float(micro_batch * model.seq * model.hidden * model.bytes_per_element)
    path = Path(domain.intra_node_bps, domain.intra_node_latency_s)
    reduce_s = 2 * all_reduce_s(message, tp, path)
    block_forward, block_backward = _block_s(model, gpu, eff, tp, micro_batch)
    block_forward += reduce_s
    block_backward += reduce_s
    if recompute == "full":
        block_backward += block_forward
    elif recompute == "selective":
        block_backward += _attention_s(model, gpu, eff, tp, micro_batch)[0]
    embedding = _embedding_s(model, gpu, eff, micro_batch)
    head = _head_s(model, gpu, eff, tp, micro_batch)
    n = model.blocks
    return LayerTimes(
        np.array([embedding[0], *[block_forward] * n, head[0]]),
        np.array([embedding[1], *[block_backward] * n, head[1]]),
    )
