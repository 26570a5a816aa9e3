"""How fast power changes: the largest ramp within a window, and the swing of synchronous iterations.

A ramp within w is the largest P(t) - P(s) with s <= t and t - s <= w; on a step function it is found exactly,
at the steps. Grids ask for limits over seconds to a quarter of an hour.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ingest.core.errors import InputError
from ingest.core.units import NS_PER_S
from twin.power.step_series import Int, StepSeries

WINDOWS_S = (1, 30, 300, 900)
"""Windows of the ramps that are reported."""
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ramps:
    """Largest rise and fall within `window_s`, watts."""

    window_s: float
    rise_w: float
    fall_w: float


def ramps(power: StepSeries, windows_s: tuple[float, ...] = WINDOWS_S) -> tuple[Ramps, ...]:
    """Returns the largest rise and fall of power in milliwatts within each window."""
    fallen = power.mapped(-power.value)
    return tuple(
        Ramps(one, largest_rise(power, round(one * NS_PER_S)) / 1e3,
              largest_rise(fallen, round(one * NS_PER_S)) / 1e3)
        for one in windows_s
    )  # fmt: skip


def largest_rise(power: StepSeries, window_ns: int) -> int:
    """Returns the largest rise within a window, in the unit of the series, from one pass over its steps.

    A level counts at t if it was there after t - w at the latest: the lowest of them is kept at the head of a
    queue of rising levels.
    """
    levels: deque[tuple[int, int]] = deque()  # level and when it ended
    found = 0
    for at, until, level in zip(
        power.at_ns.tolist(), (power.at_ns + power.durations_ns).tolist(), power.value.tolist(), strict=True
    ):
        while levels and levels[0][1] <= at - window_ns:
            levels.popleft()
        if levels:
            found = max(found, level - levels[0][0])
        while levels and levels[-1][0] >= level:
            levels.pop()
        levels.append((level, until))
    return found


@dataclass(frozen=True, slots=True)
class IterationSwing:
    """Swing of power in synchronous iterations, from samples.

    period_s: of the iterations; None where the samples show no period. swing_w: the median over the periods
    of highest less lowest sample. mean_w: mean power. rate_hz: samples a second.
    """

    period_s: float | None
    swing_w: float
    mean_w: float
    rate_hz: float


LEAST_SAMPLES = 32
PERIODIC = 0.3
"""Autocorrelation from which on a delay counts as a period."""


def iteration_swing(time_s: ArrayLike, power_w: ArrayLike) -> IterationSwing:
    """Returns period and swing of power samples at a nearly constant rate, such as 10 Hz telemetry of a GPU.

    The period is the delay of the first peak of the autocorrelation above `PERIODIC`, after it fell below
    zero; iterations shorter than two samples are not seen. Without a period a window of 2 s counts as one.

    Raises:
        InputError: fewer than 32 samples.
    """
    time, power = np.asarray(time_s, np.float64), np.asarray(power_w, np.float64)
    if len(time) < LEAST_SAMPLES:
        raise InputError(f"{len(time)} samples of power; a swing needs at least {LEAST_SAMPLES}")
    step_s = float(np.median(np.diff(time)))
    grid = np.arange(time[0], time[-1], step_s)
    even = np.interp(grid, time, power)
    lag = _period(even - even.mean())
    window = lag if lag is not None else max(2, round(2.0 / step_s))
    whole = even[: len(even) // window * window].reshape(-1, window)
    swing_w = float(np.median(whole.max(axis=1) - whole.min(axis=1)))
    return IterationSwing(None if lag is None else lag * step_s, swing_w, float(even.mean()), 1 / step_s)


def _period(centred: Float) -> int | None:
    """Returns the delay, in samples, of the autocorrelation's first peak behind its first fall below 0."""
    spectrum = np.abs(np.fft.rfft(centred, 2 * len(centred))) ** 2
    likeness = np.fft.irfft(spectrum)[: len(centred) // 2]
    if likeness[0] <= 0:
        return None
    likeness = likeness / likeness[0]
    below = np.flatnonzero(likeness < 0)
    if not len(below):
        return None
    for lag in range(max(int(below[0]), 2), len(likeness) - 1):
        here = likeness[lag]
        if here >= PERIODIC and here >= likeness[lag - 1] and here >= likeness[lag + 1]:
            return lag
    return None


def steps_of_samples(time_ns: Int, power_mw: Int) -> StepSeries:
    """Returns samples as steps, each of which holds to the next one; the last one ends the series."""
    return StepSeries(time_ns[:-1], power_mw[:-1], int(time_ns[-1]))
