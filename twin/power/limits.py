"""Limits of a site's power that its scheduler keeps: a cap, and the largest rise within a window."""

from dataclasses import dataclass

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from twin.power.conversion import ConversionChain
from twin.power.site_power import MW_PER_W, PowerModel
from twin.power.step_series import Int
from twin.queue.jobs import QueueJobs


@dataclass(frozen=True, slots=True)
class PowerLimits:
    """Power that jobs together may add, and by how much it may rise within `window_ns`; milliwatts of
    computers beyond the idle power; None where there is no limit."""

    cap_mw: int | None = None
    rise_mw: int | None = None
    window_ns: int = 0

    def check(self, jobs: QueueJobs, job_mw: Int) -> None:
        """Checks that every job can run at all.

        Raises:
            UsageError: one adds more than a limit leaves.
        """
        for limit_mw, what in (
            (self.cap_mw, "the power cap leaves"),
            (self.rise_mw, "the ramp limit lets in"),
        ):
            if limit_mw is not None and len(jobs) and (most := int(job_mw.max())) > limit_mw:
                at = int(job_mw.argmax())
                raise UsageError(
                    f"job {int(jobs.number[at])} with {int(jobs.processors[at]):,} processors adds "
                    f"{most / MW_PER_W / 1e3:,.1f} kW, {what} {limit_mw / MW_PER_W / 1e3:,.1f} kW: "
                    "give a higher limit, or take the job out"
                )


def limits_at_meter(
    model: PowerModel, processors: int, cap_w: float | None, rise_w: float | None, window_s: float
) -> PowerLimits:
    """Returns limits of what jobs add, for a cap and a ramp limit (`rise_w` within `window_s`) at the meter.

    The cap is kept to the milliwatt. The ramp limit is translated by the steepest place of the conversion,
    so that it is kept wherever the site works.

    Raises:
        UsageError: the cap is below the idle power, or a limit is not positive.
    """
    idle_mw = model.idle_site_mw(processors)
    cap_mw = rise_mw = None
    if cap_w is not None:
        idle_w = int(model.chain.metered_mw(np.array([idle_mw]))[0]) / MW_PER_W
        if not idle_w <= cap_w < 1e12:
            raise UsageError(
                f"power cap {cap_w / 1e3:,.1f} kW: the idle site draws {idle_w / 1e3:,.1f} kW; give more"
            )
        cap_mw = model.chain.computers_mw(round(cap_w * MW_PER_W)) - idle_mw
    if rise_w is not None:
        if not 0 < rise_w < 1e12 or not 0 < window_s < 1e7:
            raise UsageError(f"ramp limit {rise_w:g} W within {window_s:g} s: both must be above 0")
        full_mw = idle_mw + processors * model.job_mw
        rise_mw = _rise_behind(model.chain, idle_mw, full_mw, round(rise_w * MW_PER_W))
    return PowerLimits(cap_mw, rise_mw, round(window_s * NS_PER_S))


def _rise_behind(chain: ConversionChain, low_mw: int, high_mw: int, rise_mw: int) -> int:
    """Returns the largest rise of the computers that is no more than `rise_mw` at the meter, from any power;
    each stage rounds, so a milliwatt of each is kept back."""
    from_mw = np.linspace(low_mw, high_mw, 2001).astype(np.int64)
    metered, slack = chain.metered_mw(from_mw), 2 * len(chain.stages)
    low, high = 0, rise_mw
    while low < high:
        middle = (low + high + 1) // 2
        if int((chain.metered_mw(from_mw + middle) - metered).max()) + slack <= rise_mw:
            low = middle
        else:
            high = middle - 1
    return low
