"""GPU models: dense peaks, memory, memory bandwidth and power, from the makers' data sheets.

Peaks are dense (no sparsity) bf16/fp16 tensor rates with fp32 accumulation. The three GeForce/Titan entries
follow the whitepapers' "FP16 tensor, FP32 accumulate" rows: GeForce cards run that at half rate. Products in
fp32 run as TF32, half the bf16 rate; before Ampere on no tensor core (V100 15.7, Turing whitepaper: TITAN RTX
16.3, RTX 2080 10.1 TFLOP/s).
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches

from ingest.core.errors import UsageError
from ingest.core.terminal import shown
from ingest.core.units import GIB, MIB
from twin.core.domain import GpuType

TERA = 1e12
GIGA = 1e9


def _gpu(
    name: str,
    teraflops: float,
    fp32: float,
    memory_bytes: int,
    gigabytes_s: float,
    idle_w: float,
    peak_w: float,
) -> GpuType:
    return GpuType(name, teraflops * TERA, fp32 * TERA, memory_bytes, gigabytes_s * GIGA, idle_w, peak_w)


# Data sheets: V100 (2018), A100 (2021), A40 (2021), H100 (2022), H200 (2024), GH200 (2023), GB200 NVL72
# (2024, per GPU), whitepapers Turing TU102 and Ampere GA102. Idle power: DCGM of an H100 with a context
# loaded 70-120 W (telemetry-h100-dcgm-10hz), A100 about 55 W (Acme Kalos, first decile); others in
# proportion to the board. T4 (2019), L4 (2023), L40S (2023), A10 (2021), HGX B200 (2024, per GPU); MI300X:
# AMD's data sheet (2023), its fp32 that of TF32 matrices.
PRESETS: dict[str, GpuType] = {
    gpu.name: gpu
    for gpu in (
        _gpu("V100-16", 125.0, 15.7, 16 * GIB, 900, 40, 300),
        _gpu("V100-32", 125.0, 15.7, 32 * GIB, 900, 40, 300),
        _gpu("A100-40", 312.0, 156.0, 40 * GIB, 1555, 55, 400),
        _gpu("A100-80", 312.0, 156.0, 80 * GIB, 2039, 55, 400),
        _gpu("A100-PCIE-80", 312.0, 156.0, 80 * GIB, 1935, 50, 300),
        _gpu("T4", 65.0, 8.1, 16 * GIB, 320, 10, 70),
        _gpu("L4", 121.0, 60.0, 24 * GIB, 300, 12, 72),
        _gpu("L40S", 362.0, 183.0, 48 * GIB, 864, 35, 350),
        _gpu("A10", 125.0, 62.5, 24 * GIB, 600, 20, 150),
        _gpu("A40", 149.7, 74.8, 48 * GIB, 696, 30, 300),
        _gpu("H100", 989.4, 494.7, 81_559 * MIB, 3350, 75, 700),
        _gpu("H200", 989.4, 494.7, 141 * 10**9, 4800, 75, 700),
        _gpu("GH200", 989.4, 494.7, 96 * 10**9, 4000, 75, 700),
        _gpu("GB200", 2500.0, 1250.0, 186 * 10**9, 8000, 140, 1200),
        _gpu("B200", 2250.0, 1125.0, 180 * 10**9, 8000, 120, 1000),
        _gpu("MI300X", 1307.4, 653.7, 192 * GIB, 5300, 120, 750),
        _gpu("RTX-2080", 40.3, 10.1, 8 * GIB, 448, 15, 215),
        _gpu("RTX-3090", 71.0, 35.6, 24 * GIB, 936, 20, 350),
        _gpu("TITAN-RTX", 130.5, 16.3, 24 * GIB, 672, 15, 280),
    )
}


@dataclass(frozen=True, slots=True)
class Interconnect:
    """The usual links of a GPU inside a site, per GPU and direction, in bits per second and seconds.

    `gpus_per_node` counts the GPUs of one NVLink (or PCIe) domain: 8 in a DGX, 72 in a GB200 NVL72 rack.
    """

    gpus_per_node: int
    intra_node_bps: float
    inter_node_bps: float
    intra_node_latency_s: float = 3e-6
    inter_node_latency_s: float = 8e-6


# NVLink totals halved to one direction (V100 300 GB/s, A100 600, H100/H200/GH200 900, GB200 1800); NICs of
# the DGX of each generation: 4 x 100 Gb/s, 8 x 200 Gb/s, 8 x 400 Gb/s. PCIe 4.0 x16 for cards without
# NVLink, PCIe 3.0 for a T4. MI300X: seven Infinity Fabric links of 64 GB/s and direction.
FABRICS: dict[str, Interconnect] = {
    "V100-16": Interconnect(8, 1.2e12, 50e9),
    "V100-32": Interconnect(8, 1.2e12, 50e9),
    "A100-40": Interconnect(8, 2.4e12, 200e9),
    "A100-80": Interconnect(8, 2.4e12, 200e9),
    "A100-PCIE-80": Interconnect(8, 0.25e12, 100e9),
    "T4": Interconnect(4, 0.125e12, 25e9),
    "L4": Interconnect(8, 0.25e12, 100e9),
    "L40S": Interconnect(8, 0.25e12, 100e9),
    "A10": Interconnect(4, 0.25e12, 100e9),
    "A40": Interconnect(8, 0.25e12, 100e9),
    "H100": Interconnect(8, 3.6e12, 400e9),
    "H200": Interconnect(8, 3.6e12, 400e9),
    "GH200": Interconnect(4, 3.6e12, 200e9),
    "GB200": Interconnect(72, 7.2e12, 400e9),
    "B200": Interconnect(8, 7.2e12, 400e9),
    "MI300X": Interconnect(8, 3.584e12, 400e9),
    "RTX-2080": Interconnect(8, 0.125e12, 25e9),
    "RTX-3090": Interconnect(8, 0.25e12, 25e9),
    "TITAN-RTX": Interconnect(8, 0.125e12, 25e9),
}

# On-demand list prices of 2024 for one GPU, cheapest region of the United States. Amazon EC2: p3.16xlarge
# (V100-16) and p3dn.24xlarge (V100-32) over 8, p4d.24xlarge (A100-40) over 8, g4dn.xlarge (T4), g6.xlarge
# (L4), p5.48xlarge (H100) over 8; Google Cloud: a2-ultragpu-1g (A100-80).
USD_PER_HOUR = {
    "V100-16": 3.06,
    "V100-32": 3.90,
    "A100-40": 4.10,
    "A100-80": 5.07,
    "T4": 0.53,
    "L4": 0.80,
    "H100": 12.29,
}
"""Rental of one GPU by model, where a large cloud lists it."""

ALIASES = {
    "V100": "V100-32",
    "A100": "A100-80",
    "A100-PCIE": "A100-PCIE-80",
    "A100-80-PCIE": "A100-PCIE-80",
    "A40-48": "A40",
    "A10-24": "A10",
    "L4-24": "L4",
    "L40S-48": "L40S",
    "T4-16": "T4",
    "B200-180": "B200",
    "AMD-INSTINCT-MI300X": "MI300X",
    "AMD-MI300X": "MI300X",
    "MI300X-192": "MI300X",
    "H100-80": "H100",
    "H200-141": "H200",
    "GH-96": "GH200",
    "GH200-96": "GH200",
    "TITAN": "TITAN-RTX",
    "RTX-3090-24": "RTX-3090",
}


LONGEST_NAME = 64
_DECORATION = re.compile(r"-(SXM\d?|HBM\d[A-Z]?|NVL|DGX|HGX)(?=-|$)")
"""Parts of a maker's name that the models do not distinguish."""


def canonical(name: str) -> str:
    """Canonical name of a GPU model; accepts any case, blanks or underscores, common aliases, and makers'
    names such as "NVIDIA A100-SXM4-40GB".

    Raises:
        UsageError: unknown model; the message names the nearest, all known, and how to define another.
    """
    key = re.sub(r"[\s_-]+", "-", name.strip().upper()).removeprefix("NVIDIA-")
    key = "T4" if key == "TESLA-T4" else key  # what `nvidia-smi -L` calls it; other Teslas come in two sizes
    if key not in PRESETS:
        key = _DECORATION.sub("", key)
        key = re.sub(r"-(\d+)GB?$", r"-\1", key)
    key = ALIASES.get(key, key)
    if key not in PRESETS:
        near = get_close_matches(key[:LONGEST_NAME], [*PRESETS, *ALIASES], n=6, cutoff=0.4)
        nearest = ", ".join(dict.fromkeys(ALIASES.get(one, one) for one in near))
        raise UsageError(
            f"GPU model {shown(name)} is not known; " + (f"nearest: {nearest}; " if nearest else "")
            + f"known: {', '.join(PRESETS)}; a scenario defines others under `cluster.gpu_models`"
        )  # fmt: skip
    return key


def preset(name: str) -> GpuType:
    """GPU model of that name (see `canonical`)."""
    return PRESETS[canonical(name)]


def fabric(name: str) -> Interconnect:
    """Usual node and network of the GPU model of that name."""
    return FABRICS[canonical(name)]
