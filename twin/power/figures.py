"""Figures of a schedule's power: energy, peak, ramps, carbon and money, exact before they are rounded."""

from dataclasses import asdict, dataclass
from typing import Any

from ingest.core.units import NS_PER_S
from twin.power.powered_queue import PowerChoices, PoweredSchedule
from twin.power.signals import CARBON, PRICE
from twin.power.step_series import PJ_PER_J
from twin.power.swing import Ramps, ramps


@dataclass(frozen=True, slots=True)
class PowerFigures:
    """Power at the meter of a site from the first submission to the last end.

    carbon_kg, cost_usd: None where no signal is given. deferred: share of jobs that were held back.
    avg_delay_s: of all jobs. exact: energy in picojoules, carbon and cost in picojoules x micro-rate.
    """

    energy_kwh: float
    mean_kw: float
    peak_kw: float
    ramps: tuple[Ramps, ...]
    carbon_kg: float | None
    cost_usd: float | None
    deferred: float
    avg_delay_s: float
    exact: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name; exact integers as text, for they exceed 64 bits."""
        return {**asdict(self), "exact": {name: str(value) for name, value in self.exact.items()}}


def power_figures(done: PoweredSchedule, choices: PowerChoices) -> PowerFigures:
    """Returns the figures of a schedule of at least one job.

    Raises:
        UsageError: a signal does not reach to its end.
    """
    meter = done.power.meter
    exact = {"energy_pj": meter.integral}
    carbon_kg = cost_usd = None
    if choices.carbon is not None:
        exact["carbon_pj_ug_per_kwh"] = caused = choices.carbon.caused(meter)
        carbon_kg = CARBON.amount(caused) / 1000
    if choices.price is not None:
        exact["cost_pj_uusd_per_mwh"] = caused = choices.price.caused(meter)
        cost_usd = PRICE.amount(caused)
    delay_ns = done.released_ns - done.schedule.jobs.submit_ns
    energy_j = meter.integral / PJ_PER_J
    span_s = (meter.end_ns - meter.begin_ns) / NS_PER_S
    return PowerFigures(
        energy_kwh=energy_j / 3.6e6,
        mean_kw=energy_j / span_s / 1e3 if span_s else 0.0,
        peak_kw=int(meter.value.max()) / 1e6,
        ramps=ramps(meter),
        carbon_kg=carbon_kg,
        cost_usd=cost_usd,
        deferred=float((delay_ns > 0).mean()),
        avg_delay_s=float(delay_ns.mean()) / NS_PER_S,
        exact=exact,
    )
