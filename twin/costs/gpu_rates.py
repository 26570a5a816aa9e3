"""Rates of a GPU model: shares of its peaks that products and fused attention reach, and times of the host.

Every constant has its profile beside it; none comes from whole iterations but the host's three, see `Host`.
"""

from dataclasses import dataclass

from twin.core.domain import GpuType
from twin.core.transformer import Dtype
from twin.costs import energy

MATMUL_EFFICIENCY = {"V100": 0.74, "A100": 0.75, "H100": 0.70, "H200": 0.70, "GH200": 0.70, "MI300X": 0.54}
"""Share of the tensor peak that long products reach. V100: 0.65 forward, 0.80 backward
(profiles-aceso-v100/ops, 80 files). A100: 0.70-0.76 (profiles-vidur/compute, Llama-2-7B), 0.74-0.83
(profiles-sailor/aceso_op_profiles_fp16). H100 class: 0.70-0.85 on H100 (vidur), 0.55-0.65 on GH200
(sailor). MI300X: 708 of 1,307 TFLOP/s in bf16 ("Measuring Max-Achievable FLOPs, part 2", AMD ROCm blogs,
2025)."""
OTHER_MATMUL_EFFICIENCY = 0.70
MATMUL_START_S = 10e-6
"""Start of a product: 7-12 us at 128-1,024 tokens and tp 8 on A100 and H100
(profiles-vidur/compute)."""
FP8_EFFICIENCY = 0.63
"""The same for products in fp8, against twice the half-precision peak: 0.60-0.68 on an H200 from 2,048
tokens and 6,144 columns (traces/operators-nvidia-h200)."""
HAS_FP8 = ("H100", "H200", "GH200", "GB200", "B200", "L4", "L40S", "MI300X")
FLASH_EFFICIENCY = {"H100": (0.50, 0.34), "H200": (0.50, 0.34), "GH200": (0.50, 0.34)}
"""Share of the peak in fused attention, forward and backward. H100 class: 0.36-0.63 and 0.27-0.49 at head
size 128 (traces/operators-nvidia-h200), half of that at 64."""
OTHER_FLASH_EFFICIENCY = (0.5, 0.5)
"""Dao 2023: 50-73 % on A100."""


@dataclass(frozen=True, slots=True)
class Host:
    """Time in which the host issues the kernels of one block, a lower bound of its time; and of one
    collective.

    Fitted to every tenth row of validation/vtrain_ground_truth_single.csv (144 of 1,440), the only numbers
    here that come from whole iterations. Profiled blocks too small for their GPU take 1.2-2.1 ms each way
    on other hosts (profiles-sailor/layer_times, OPT-350M at micro-batch 1), 50-120 us an operator
    (aceso_op_profiles_fp16).
    """

    forward_s: float = 1.1e-3
    backward_s: float = 1.0e-3
    collective_s: float = 0.05e-3


HOST = Host()


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of one GPU model: shares of its tensor peak in long products and in fused attention (forward,
    backward), of twice the peak in fp8, seconds of start of a product, and the host's times."""

    matmul: float
    flash: tuple[float, float]
    fp8: float = FP8_EFFICIENCY
    start_s: float = MATMUL_START_S
    host: Host = HOST


def built_in_rates(gpu: GpuType) -> Rates:
    """Constants of this module for `gpu`; `twin calibrate` fits others."""
    return Rates(matmul_efficiency(gpu), FLASH_EFFICIENCY.get(_family(gpu), OTHER_FLASH_EFFICIENCY))


def matmul_efficiency(gpu: GpuType) -> float:
    """Share of the tensor peak that long products reach on `gpu`."""
    return MATMUL_EFFICIENCY.get(_family(gpu), OTHER_MATMUL_EFFICIENCY)


def _family(gpu: GpuType) -> str:
    return gpu.name.removesuffix("-PCIE-80").split("-")[0]


def matmul_flops_s(gpu: GpuType, rates: Rates, dtype: Dtype) -> float:
    """FLOP/s of long products: fp8 where the GPU has it, fp32 by its data sheet, else half precision; at the
    clock that its limits leave it."""
    if dtype == "fp8" and gpu.name in HAS_FP8:
        return rates.fp8 * 2 * gpu.peak_flops * energy.clock(gpu)
    return rates.matmul * (gpu.fp32_flops if dtype == "fp32" else gpu.peak_flops) * energy.clock(gpu)
