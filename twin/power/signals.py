"""Carbon intensity and electricity price over time, on the time axis of a queue, in integers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InputError, UsageError
from ingest.core.units import NS_PER_S
from twin.power.step_series import Int, StepSeries

MICRO = 10**6
PJ_PER_KWH = 36 * 10**17
MOST = 9e9
"""Intensities (g/kWh) and prices (USD/MWh) lie below it."""


@dataclass(frozen=True, slots=True)
class SignalKind:
    """Rate at which a kilowatt-hour causes something: name, unit of the rate, and the
    picojoules x micro-rate that make a gram or a dollar."""

    name: str
    rate_unit: str
    pj_per_unit: int

    def amount(self, exact: int) -> float:
        """Returns an exact amount, in picojoules x micro-rate, as grams or dollars."""
        return exact / self.pj_per_unit


CARBON = SignalKind("carbon intensity", "g/kWh", PJ_PER_KWH * MICRO)
PRICE = SignalKind("electricity price", "USD/MWh", 1000 * PJ_PER_KWH * MICRO)


@dataclass(frozen=True, eq=False)
class Signal:
    """A rate of one kind over time: its name, and micro-units (1e-6 of the rate) as a step function.

    ends: why it is not known beyond `series.end_ns`; None if it holds for ever.
    """

    kind: SignalKind
    name: str
    series: StepSeries
    ends: str | None = None

    def check_covers(self, end_ns: int) -> None:
        """Checks that the rate is known up to then.

        Raises:
            UsageError: it is not.
        """
        if self.ends is not None and end_ns > self.series.end_ns:
            raise UsageError(
                f"{self.kind.name} of {self.name} is known for {self.series.end_ns / NS_PER_S / 3600:,.0f} h "
                f"of the queue's {end_ns / NS_PER_S / 3600:,.0f} h: {self.ends}; begin elsewhere "
                "(--begin), or take a shorter log"
            )

    def caused(self, power: StepSeries) -> int:
        """Returns what power in milliwatts causes over its time, exact, in picojoules x micro-rate."""
        self.check_covers(power.end_ns)
        return power.times(self.series)


def constant(kind: SignalKind, rate: float) -> Signal:
    """Returns a rate that never changes.

    Raises:
        UsageError: it is no number, or a negative intensity.
    """
    if not abs(rate) < MOST or (kind is CARBON and rate < 0):
        raise UsageError(f"{kind.name} {rate:g} {kind.rate_unit}: give a number that can be")
    series = StepSeries(np.zeros(1, np.int64), np.array([round(rate * MICRO)]), 2**62)
    return Signal(kind, f"{rate:g} {kind.rate_unit}", series)


def of_samples(
    kind: SignalKind,
    name: str,
    time_ns: Int,
    rates: Sequence[float] | NDArray[np.float64],
    begin_ns: int | None,
) -> Signal:
    """Returns the signal of samples, each of which holds to the next, from `begin_ns` (of 1970) on, which
    becomes 0; None: from the first sample on. What was before is kept with times below 0. The usual step is
    the median; where two samples lie further apart than it, the signal ends.

    Raises:
        InputError: fewer than two samples, two of one time, or one that cannot be.
        UsageError: nothing is known at `begin_ns`.
    """
    values = np.asarray(rates, np.float64)
    if len(time_ns) < 2:
        raise InputError(f"{kind.name} of {name}: {len(time_ns)} samples; it needs at least 2")
    steps = np.diff(time_ns)
    if (steps <= 0).any():
        at = int(np.flatnonzero(steps <= 0)[0])
        raise InputError(
            f"{kind.name} of {name} has two values at {shown(int(time_ns[at]))}; keep one of them"
        )
    if not (np.abs(values) < MOST).all() or (kind is CARBON and (values < 0).any()):
        raise InputError(f"{kind.name} of {name} has a value that cannot be; take it out")
    step_ns = int(np.sort(steps)[(len(steps) - 1) // 2])  # the lower median: one that occurs
    begin_ns = int(time_ns[0]) if begin_ns is None else begin_ns
    first = int(np.searchsorted(time_ns, begin_ns, side="right")) - 1
    gaps = np.flatnonzero(steps > step_ns)
    if first < 0 or begin_ns >= int(time_ns[first]) + step_ns:
        raise UsageError(
            f"{kind.name} of {name} is not known at {shown(begin_ns)}; it goes from {shown(int(time_ns[0]))} "
            f"to {shown(int(time_ns[-1]) + step_ns)}{_gap_said(time_ns, gaps, step_ns)}: "
            "choose another --begin"
        )
    behind = gaps[gaps >= first]
    last = int(behind[0]) if len(behind) else len(time_ns) - 1
    end_ns = int(time_ns[last]) + step_ns
    ends = f"it ends at {shown(end_ns)}"
    if len(behind):
        ends = f"it has no value from {shown(end_ns)} to {shown(int(time_ns[last + 1]))}"
    before = gaps[gaps < first]
    kept = slice(int(before[-1]) + 1 if len(before) else 0, last + 1)
    micro = np.rint(values[kept] * MICRO).astype(np.int64)
    series = StepSeries(time_ns[kept] - begin_ns, micro, end_ns - begin_ns)
    return Signal(kind, name, series, ends)


def shown(time_ns: int) -> str:
    """Returns an instant of 1970 as people write it, to the minute."""
    return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _gap_said(time_ns: Int, gaps: NDArray[np.intp], step_ns: int) -> str:
    if not len(gaps):
        return ""
    at = int(gaps[0])
    return f", the first gap from {shown(int(time_ns[at]) + step_ns)} to {shown(int(time_ns[at + 1]))}"
