"""Power and energy of GPUs: idle, busy in compute, waiting in a collective; site overhead by PUE."""

from twin.domain import GpuType

BUSY_FRACTION = 0.86
"""Share of the idle-to-peak span that a computing GPU draws: 629 W of 75-700 W on average while eight H100
trained data-parallel at 97 % duty (telemetry-h100-dcgm-10hz, t3)."""
WAIT_FRACTION = 0.2
"""The same for a GPU that spins in a receive: a kernel is resident, the tensor cores rest. From t13 of the
same set: 418 W at a bubble near 40 % of the time."""


def busy_w(gpu: GpuType) -> float:
    """Watts while computing."""
    return gpu.idle_w + BUSY_FRACTION * (gpu.peak_w - gpu.idle_w)


def wait_w(gpu: GpuType) -> float:
    """Watts while waiting for a message."""
    return gpu.idle_w + WAIT_FRACTION * (gpu.peak_w - gpu.idle_w)


def energy_j(gpu: GpuType, gpus: int, busy_s: float, wall_s: float, pue: float = 1.0) -> float:
    """Joules of `gpus` GPUs over `wall_s` seconds, of which each computes `busy_s`."""
    return gpus * pue * (busy_w(gpu) * busy_s + wait_w(gpu) * (wall_s - busy_s))
