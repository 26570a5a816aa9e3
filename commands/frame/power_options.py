"""Options of `twin queue` about power, and what their words mean."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ingest.core.errors import UsageError
from ingest.core.units import to_ns

if TYPE_CHECKING:  # a command loads only what it needs
    from twin.power.node_sleep import NodeSleep
    from twin.power.powered_queue import PowerChoices

_WATTS = {"w": 1.0, "kw": 1e3, "mw": 1e6}
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_NUMBER = r"(\d+(?:\.\d+)?)\s*"
USUAL_GPU = "A100-80"
"""Model whose power a processor has if nothing else is said."""

_OPTIONS = (
    click.option("--gpu", metavar="MODEL", help=f"GPU whose power a processor has [{USUAL_GPU}]."),
    click.option("--idle-power", type=float, metavar="W", help="Not of --gpu: watts of an idle processor."),
    click.option("--busy-power", type=float, metavar="W", help="Not of --gpu: watts of a busy processor."),
    click.option("--pue", type=float, metavar="X", help="Power at the meter over that of the computers [1]."),
    click.option("--supplies", type=click.Choice(["titanium"]), help="Losses of power supplies."),
    click.option("--power-cap", metavar="POWER", help="Start jobs only below it, as 250kW, at the meter."),
    click.option("--ramp-limit", metavar="POWER/TIME", help="Largest rise within a time, as 50kW/5min."),
    click.option(
        "--carbon", metavar="ZONE", help="Carbon intensity: a zone of the lake, DATASET/ZONE, or g/kWh."
    ),
    click.option(
        "--price", metavar="ZONE", help="Electricity price: a zone of the lake, DATASET/ZONE, or USD/MWh."
    ),
    click.option("--begin", metavar="TIME", help="When the log begins in the signals [their first hour]."),
    click.option(
        "--defer", type=click.Choice(["carbon", "price"]), help="Jobs wait for the hours that cause least."
    ),
    click.option("--max-delay", type=float, default=12.0, metavar="H", help="Longest wait for them [12]."),
    click.option(
        "--signal-forecast", type=click.Choice(["yesterday", "actual"]), default="yesterday",
        help="What is known of hours to come: those of the last day, or themselves [yesterday].",
    ),
    click.option(
        "--sleep-after", metavar="TIME", help="With --nodes: a node without jobs sleeps after it, as 10min."
    ),
    click.option("--sleep-power", type=float, metavar="W", help="Watts of a GPU of a node that sleeps [0]."),
    click.option("--wake-time", metavar="TIME", help="Jobs wait so long for nodes that sleep, as 2min [0s]."),
    click.option("--wake-power", type=float, metavar="W", help="Watts of a GPU as its node wakes [idle]."),
    click.option("--ledger", type=click.Choice(["user", "group"]), help="Accounts of energy, carbon, money."),
)  # fmt: skip
ASKS = (
    "gpu",
    "idle_power",
    "busy_power",
    "pue",
    "supplies",
    "power_cap",
    "ramp_limit",
    "carbon",
    "price",
    "defer",
    "sleep_after",
    "sleep_power",
    "wake_time",
    "wake_power",
    "ledger",
)
"""Options each of which asks for power."""


def power_options(command: Any) -> Any:
    """Adds the options to a command, which takes them as keywords."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class PowerWords:
    """The options as they were said."""

    gpu: str | None
    idle_power: float | None
    busy_power: float | None
    pue: float | None
    supplies: str | None
    power_cap: str | None
    ramp_limit: str | None
    carbon: str | None
    price: str | None
    begin: str | None
    defer: Literal["carbon", "price"] | None
    max_delay: float
    signal_forecast: Literal["yesterday", "actual"]
    sleep_after: str | None
    sleep_power: float | None
    wake_time: str | None
    wake_power: float | None
    ledger: Literal["user", "group"] | None

    @property
    def asked(self) -> bool:
        """True if any option asks for power."""
        return any(getattr(self, name) is not None for name in ASKS)

    @property
    def of_one_gpu(self) -> bool:
        """True if an option says what power a processor has."""
        words = (self.gpu, self.idle_power, self.busy_power, self.supplies)
        return any(one is not None for one in words)

    @property
    def sleep(self) -> "NodeSleep | None":
        """Times after which nodes sleep and wake, and what they draw then; None: they never do.

        Raises:
            UsageError: words that mean nothing, or not together.
        """
        from twin.nodes.sleeping import SleepRule
        from twin.power.node_sleep import NodeSleep
        from twin.power.site_power import MW_PER_W

        if self.sleep_after is None:
            if any(one is not None for one in (self.sleep_power, self.wake_time, self.wake_power)):
                raise UsageError(
                    "--sleep-power, --wake-time and --wake-power are of nodes that sleep: add --sleep-after"
                )
            return None
        if self.wake_power is not None and self.wake_time is None:
            raise UsageError("--wake-power is drawn for the time of --wake-time: add it")
        wakes_s = 0.0 if self.wake_time is None else seconds(self.wake_time, "--wake-time")
        rule = SleepRule(to_ns(seconds(self.sleep_after, "--sleep-after")), to_ns(wakes_s))
        wake_mw = None if self.wake_power is None else round(self.wake_power * MW_PER_W)
        return NodeSleep(rule, round((self.sleep_power or 0.0) * MW_PER_W), wake_mw)

    def choices(self, store: Path) -> "PowerChoices":
        """Returns what they mean.

        Raises:
            UsageError: words that mean nothing, or not together. NotFoundError: the lake lacks a zone.
        """
        from twin.power.conversion import NOTHING_LOST, ConversionChain, Overhead
        from twin.power.lake_signals import signal
        from twin.power.powered_queue import PowerChoices
        from twin.power.signals import CARBON, PRICE
        from twin.power.site_power import PowerModel

        chain = NOTHING_LOST if self.pue is None else ConversionChain((Overhead("PUE", self.pue),))
        begin = _instant(self.begin)
        if begin is not None and self.carbon is None and self.price is None:
            raise UsageError("--begin: no signal has a time; add --carbon or --price")
        rise_w, window_s = (None, 0.0) if self.ramp_limit is None else ramp(self.ramp_limit)
        if not 0 <= self.max_delay <= 24 * 30:
            raise UsageError(f"--max-delay {self.max_delay:g}: give hours from 0 to 720")
        return PowerChoices(
            PowerModel.of_watts(*self._watts(), chain),
            None if self.power_cap is None else watts(self.power_cap, "--power-cap"),
            rise_w, window_s,
            None if self.carbon is None else signal(store, CARBON, self.carbon, begin),
            None if self.price is None else signal(store, PRICE, self.price, begin),
            self.defer, round(self.max_delay * 3600e9), self.signal_forecast,
        )  # fmt: skip

    def _watts(self) -> tuple[str, float, float]:
        """Returns the name of the model, and watts of an idle and a busy processor."""
        from twin.core.gpu_models import preset
        from twin.costs.energy import busy_w

        if self.idle_power is not None and self.busy_power is not None:
            if self.gpu is not None:
                raise UsageError("--gpu goes without --idle-power and --busy-power: take one of them")
            return "as said", self.idle_power, self.busy_power
        if self.idle_power is not None or self.busy_power is not None:
            raise UsageError("--idle-power and --busy-power go together: add the other one")
        gpu = preset(self.gpu or USUAL_GPU)
        return gpu.name, gpu.idle_w, busy_w(gpu)


def watts(said: str, option: str) -> float:
    """Returns watts of words such as 250kW or 1.5 MW; a number alone could be watts or kilowatts.

    Raises:
        UsageError: they mean none.
    """
    found = re.fullmatch(_NUMBER + r"([a-z]{0,2})", said.strip().lower())
    if found and not found[2]:
        number = found[1]
        raise UsageError(f"{option} {said!r}: no unit; write {number}W for watts or {number}kW for kilowatts")
    if not found or found[2] not in _WATTS:
        raise UsageError(f"{option} {said!r}: give a power, as 250kW (W, kW or MW)")
    return float(found[1]) * _WATTS[found[2]]


def seconds(said: str, option: str) -> float:
    """Returns seconds of words such as 10min, 90 s or 1h.

    Raises:
        UsageError: they mean none.
    """
    found = re.fullmatch(_NUMBER + r"(s|min|h)", said.strip().lower())
    if not found:
        raise UsageError(f"{option} {said!r}: give a time, as 10min (s, min or h)")
    return float(found[1]) * _SECONDS[found[2]]


def ramp(said: str) -> tuple[float, float]:
    """Returns watts and seconds of words such as 50kW/5min.

    Raises:
        UsageError: they mean none.
    """
    power, _, time = said.partition("/")
    found = re.fullmatch(r"(\d*(?:\.\d+)?)\s*(s|min|h)", time.strip().lower())
    if not found:
        raise UsageError(f"--ramp-limit {said!r}: give a power and a time, as 50kW/5min (s, min or h)")
    return watts(power, "--ramp-limit"), float(found[1] or 1) * _SECONDS[found[2]]


def _instant(said: str | None) -> datetime | None:
    if said is None:
        return None
    try:
        return datetime.fromisoformat(said.strip())
    except ValueError as error:
        raise UsageError(f"--begin {said!r}: give a time, as 2024-03-01 or 2024-03-01T12:00") from error
