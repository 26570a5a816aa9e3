"""Power and energy of GPUs that compute or wait in a collective; the power usage effectiveness (PUE) of the
site multiplies both."""

from twin.core.domain import GpuType

BUSY_FRACTION = 0.95
"""Share of the idle-to-peak span that a computing GPU draws: eight H100 in steady data-parallel training
drew 689 W of 700 W on average (telemetry-h100-dcgm-10hz, t3)."""
WAIT_FRACTION = 0.22
"""The same for a GPU that waits in a collective. Over the runs of that set power is 120 W + 660 W x SM
activity within 5 % (b1, t13, t3); a waiting NCCL kernel holds some 20 of 132 SMs, hence 220 W."""


def busy_w(gpu: GpuType) -> float:
    """Watts while computing."""
    return gpu.idle_w + BUSY_FRACTION * (gpu.peak_w - gpu.idle_w)


def wait_w(gpu: GpuType) -> float:
    """Watts while waiting for a message."""
    return gpu.idle_w + WAIT_FRACTION * (gpu.peak_w - gpu.idle_w)


def energy_j(gpu: GpuType, gpus: int, busy_s: float, wall_s: float, pue: float = 1.0) -> float:
    """Joules of `gpus` GPUs over `wall_s` seconds, of which each computes `busy_s`, at a site of `pue`."""
    return gpus * pue * (busy_w(gpu) * busy_s + wait_w(gpu) * (wall_s - busy_s))
