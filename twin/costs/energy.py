"""Power and energy of GPUs that compute or wait in a collective, and the clock that limits leave them; the
power usage effectiveness (PUE) of the site multiplies both.

A chip at the share x of its clock draws the share x v(x)^2 of what it draws above idle at full clock, since
power goes with frequency and the square of voltage: v falls in a straight line from 1 to a floor, at which it
stays below the clock of the knee. A power limit leaves the highest clock whose power it allows. Products and
fused attention slow down with the clock, passes over memory and links do not.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ingest.core.errors import UsageError
from twin.core.domain import GpuType

BUSY_FRACTION = 0.95
"""Share of the idle-to-peak span that a computing GPU draws: eight H100 in steady data-parallel training
drew 689 W of 700 W on average (telemetry-h100-dcgm-10hz, t3)."""
WAIT_FRACTION = 0.22
"""The same for a GPU that waits in a collective. Over the runs of that set power is 120 W + 660 W x SM
activity within 5 % (b1, t13, t3); a waiting NCCL kernel holds some 20 of 132 SMs, hence 220 W."""


class Voltage(NamedTuple):
    """Share of the clock below which the voltage stays at its floor, and that floor over full voltage."""

    knee: float
    floor: float


CHIP = Voltage(0.79, 0.83)
"""Modules whose limit lets the chip reach its clock: 1,152 instructions of GPT-3 and Bloom on A100 SXM at 800
to 1,380 MHz (profiles-perseus/stage_profile), power within 2 %."""
BOARD = Voltage(0.87, 0.96)
"""Cards whose limit holds the chip below its clock, so that full clock here is the one that they keep:
1,280 of them on an A40 at 700 to 1,440 MHz, where it draws its 300 W; power within 3 %. On an A100 PCIe,
which set nothing here, `docs/measured/fidelity.md` judges it."""
CARDS = ("A100-PCIE", "A40", "A10-", "L4", "T4", "RTX", "TITAN")
"""Cards, by the beginning of their names; all other GPUs are modules."""
LOWEST_CLOCK = 0.15
"""Share of the clock under which no GPU computes: 210 of 1,410 MHz on an A100."""


def busy_w(gpu: GpuType) -> float:
    """Watts while computing."""
    return min(_busy_w(gpu, gpu.clock_cap), gpu.power_cap_w)


def wait_w(gpu: GpuType) -> float:
    """Watts while waiting for a message."""
    above_idle = WAIT_FRACTION * power_share(gpu, gpu.clock_cap) * (gpu.peak_w - gpu.idle_w)
    return min(gpu.idle_w + above_idle, gpu.power_cap_w)


def energy_j(gpu: GpuType, gpus: int, busy_s: float, wall_s: float, pue: float = 1.0) -> float:
    """Joules of `gpus` GPUs over `wall_s` seconds, of which each computes `busy_s`, at a site of `pue`."""
    return gpus * pue * (busy_w(gpu) * busy_s + wait_w(gpu) * (wall_s - busy_s))


def power_share(gpu: GpuType, clock: float) -> float:
    """Share of the power above idle that `gpu` draws at a share of its clock."""
    if clock >= 1.0:
        return 1.0
    knee, floor = _voltage(gpu)
    return float(clock * max(floor, 1 - (1 - floor) * (1 - clock) / (1 - knee)) ** 2)


@lru_cache(maxsize=256)
def clock(gpu: GpuType) -> float:
    """Share of its clock at which `gpu` computes under its limits."""
    if _busy_w(gpu, gpu.clock_cap) <= gpu.power_cap_w:
        return gpu.clock_cap
    low, high = LOWEST_CLOCK, gpu.clock_cap
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if _busy_w(gpu, middle) <= gpu.power_cap_w else (low, middle)
    return low


def limited(gpu: GpuType, power_cap_w: float | None, clock_cap: float | None) -> GpuType:
    """`gpu` under a limit of its power in watts, and of its clock as a share of the clock of its peak.

    Raises:
        UsageError: it cannot compute under them.
    """
    if clock_cap is not None and not LOWEST_CLOCK <= clock_cap <= 1:
        raise UsageError(f"clock_cap {clock_cap:g}: give a share of the clock, {LOWEST_CLOCK:g} to 1")
    least_w = _busy_w(gpu, LOWEST_CLOCK)
    if power_cap_w is not None and power_cap_w < least_w:
        raise UsageError(
            f"power_cap_w {power_cap_w:g}: a GPU of model {gpu.name} draws {gpu.idle_w:g} W idle and "
            f"{least_w:.0f} W while it computes at its lowest clock; give more"
        )
    return replace(
        gpu,
        power_cap_w=gpu.power_cap_w if power_cap_w is None else power_cap_w,
        clock_cap=gpu.clock_cap if clock_cap is None else clock_cap,
    )


def _busy_w(gpu: GpuType, share: float) -> float:
    """Watts while computing at a share of the clock."""
    return gpu.idle_w + BUSY_FRACTION * power_share(gpu, share) * (gpu.peak_w - gpu.idle_w)


def _voltage(gpu: GpuType) -> Voltage:
    return BOARD if f"{gpu.name}-".startswith(CARDS) else CHIP
