"""Times of the pieces of a layer on one GPU: products, and passes over memory.

A product takes `start + FLOPs / (efficiency * peak)`: the curve in tokens per micro-batch and h/tp that the
profiles show, since the start weighs more the smaller the product. Everything else is bytes over memory
bandwidth; each pass is counted in bytes that the GPU could have moved at its data-sheet bandwidth in the same
time, so a slow kernel counts more passes than it makes.
"""

from dataclasses import dataclass

from twin.core.domain import GpuType
from twin.core.transformer import Dtype, Transformer
from twin.costs.gpu_rates import Rates, matmul_flops_s

KERNEL_S = 4e-6
"""One kernel in the stream that does little."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Bytes of data-sheet bandwidth that the memory-bound work of a block costs, forward and backward.

    `hidden` per token and hidden element around the products, `rotary` likewise between them, `ffn` per token
    and MLP element on this GPU, `matrix` per byte of stored s x s scores. From profiles-aceso-v100/ops and
    profiles-sailor/aceso_op_profiles_fp16 (A100-40, GH200), mbs 8: a LayerNorm costs 8 and 26 bytes a hidden
    element, bias-dropout-add 20 and 10, GELU 5 and 9.5 bytes an element, softmax 2 and 2.8 matrices, dropout
    with its mask 3.3 and 2.8, the two batched products 2.1 and 4.2.
    """

    hidden: tuple[float, float]
    ffn: tuple[float, float]
    matrix: tuple[float, float]
    rotary: tuple[float, float] = (0.0, 0.0)


CLASSIC = Passes(hidden=(2 * 8 + 2 * 20, 2 * 26 + 2 * 10 + 15), ffn=(5.0, 9.5), matrix=(7.4, 9.8))
"""LayerNorm, dropout, GELU; 15 backward for the two additions of gradients at the residual branches."""
GATED = Passes(hidden=(2 * 11 + 2 * 7, 2 * 26 + 15), ffn=(12.0, 17.0), matrix=(4.1, 7.0), rotary=(10.0, 10.0))
"""RMSNorm 11, residual addition 7, rotary embedding 10, gated SiLU 12 (profiles-vidur/compute); backward in
proportion to the classic block's."""
GRADIENT_BYTES = 8.0
"""Per parameter and micro-batch: the accumulated gradient is read and written in fp32."""


def matmul_s(gpu: GpuType, rates: Rates, flops: float, count: int, dtype: Dtype) -> float:
    """Seconds of `count` products of `flops` in all."""
    return count * rates.start_s + flops / matmul_flops_s(gpu, rates, dtype)


def element_size(model: Transformer) -> float:
    """Size of an activation element over the 2 bytes that `Passes` and `EMBEDDING_PASSES` count: in fp32
    every pass moves twice as many bytes."""
    return 2.0 if model.dtype == "fp32" else 1.0


def memory_s(gpu: GpuType, size_bytes: float, kernels: int) -> float:
    """Seconds of `kernels` that move so many bytes through the GPU's memory."""
    return kernels * KERNEL_S + size_bytes / gpu.memory_bandwidth_bytes_s
