"""Seconds of the optimiser after the last reduction: a fused Adam on the GPU, or on the host.

On the host (ZeRO-Offload: Ren et al., ATC 2021) the fp32 weights and moments lie in its memory: gradients of
two bytes go down beside the backward, Adam runs at the bandwidth of the host's memory, which the GPUs of a
node share, and weights of two bytes come back over PCIe.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from twin.core.domain import GpuType

Size = TypeVar("Size", float, NDArray[np.float64])

ADAM_BYTES = 30.0
"""Memory traffic of a fused Adam per parameter: read gradient, master, two moments (16), write three and
the weight (14)."""
MEMORY_EFFICIENCY = 0.75
HOST_BYTES_S = 409.6e9 / 8
"""Memory bandwidth of the host for each GPU: two EPYC with 8 channels of DDR4-3200 for 8 GPUs (DGX A100)."""
PCIE_3, PCIE_4, PCIE_5 = 15.75e9, 31.5e9, 63e9
"""Bytes per second and direction of 16 lanes."""
PCIE_BYTES_S = {
    "V100": PCIE_3,
    "T4": PCIE_3,
    "TITAN": PCIE_3,
    "RTX-2080": PCIE_3,
    "RTX-3090": PCIE_4,
} | dict.fromkeys(("A", "L4"), PCIE_4)
"""By the beginning of the GPU's name; all others have PCIe 5.0 or more."""
WEIGHT_BYTES = 2.0


def on_gpu_s(gpu: GpuType, parameters: Size) -> Size:
    """Seconds of Adam over `parameters` in the GPU's memory."""
    return parameters * ADAM_BYTES / (gpu.memory_bandwidth_bytes_s * MEMORY_EFFICIENCY)


def on_host_s(gpu: GpuType, parameters: Size) -> Size:
    """Seconds of Adam over `parameters` in the host's memory, and of their way back."""
    lane = next((rate for name, rate in PCIE_BYTES_S.items() if gpu.name.startswith(name)), PCIE_5)
    each = ADAM_BYTES / (HOST_BYTES_S * MEMORY_EFFICIENCY) + WEIGHT_BYTES / lane
    return parameters * each
