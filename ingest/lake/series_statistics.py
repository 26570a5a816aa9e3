"""Statistics of a series of measurements: marginal distribution and correlation in time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEVELS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
"""Probabilities of the quantiles that are kept."""
GAP = 5.0
"""A step longer than this many median steps is a gap; what lies between gaps is a block."""
_E = float(np.exp(-1))


@dataclass(frozen=True, slots=True)
class Marginal:
    """Distribution of the values, time ignored. `quantiles` belong to `LEVELS`."""

    samples: int
    mean: float
    sd: float
    quantiles: tuple[float, ...]

    @property
    def cv(self) -> float:
        """Coefficient of variation, sd / mean; 0 for a mean of 0."""
        return self.sd / self.mean if self.mean else 0.0


@dataclass(frozen=True, slots=True)
class Dynamics:
    """Correlation of the values in time.

    `slow_share` of the variance lies between blocks rather than inside them (0 where there is one block);
    `fast_tau_s` is the correlation time inside blocks.
    """

    interval_s: float  # median step
    blocks: int
    block_samples: int  # median
    block_spacing_s: float  # median from start to start; 0 with one block
    slow_share: float
    fast_tau_s: float


def marginal(values: Array) -> Marginal:
    """Returns mean, standard deviation and quantiles of `values` (n,), n >= 1."""
    quantiles = tuple(float(q) for q in np.quantile(values, LEVELS))
    return Marginal(len(values), float(values.mean()), float(values.std()), quantiles)


def dynamics(times_s: Array, values: Array) -> Dynamics:
    """Returns block structure and correlation of a series; `times_s` (n,) ascends, n >= 2."""
    parts = blocks(times_s)
    starts = np.array([times_s[part[0]] for part in parts])
    whole = [values[part] for part in parts if len(part) > 1]
    return Dynamics(
        interval_s=float(np.median(np.diff(times_s))),
        blocks=len(parts),
        block_samples=int(np.median([len(part) for part in parts])),
        block_spacing_s=float(np.median(np.diff(starts))) if len(parts) > 1 else 0.0,
        slow_share=_between(whole),
        fast_tau_s=autocorrelation_time_s(times_s, values, inside=True),
    )


def blocks(times_s: Array) -> list[NDArray[np.int64]]:
    """Returns index ranges of the stretches without a gap."""
    steps = np.diff(times_s)
    if len(steps) == 0:
        return [np.arange(len(times_s))]
    return np.split(np.arange(len(times_s)), np.flatnonzero(steps > GAP * np.median(steps)) + 1)


def autocorrelation_time_s(times_s: Array, values: Array, *, inside: bool = False) -> float:
    """Returns the lag at which the autocorrelation falls below 1/e, interpolated; 0 for a constant series.

    Pairs of samples are taken inside blocks only. `inside` removes each block's own mean first. Where the
    first lag is already below 1/e, an exponential through it is assumed (0 if it is not positive). At most
    half of the longest block is looked at: a series that is still correlated there gets that lag.
    """
    if len(values) < 4 or values.std() == 0:
        return 0.0
    parts = blocks(times_s)
    centred = [values[p] - (values[p].mean() if inside else values.mean()) for p in parts]
    interval = float(np.median(np.diff(times_s)))
    variance = float(np.mean(np.concatenate(centred) ** 2))
    before = 1.0
    longest = max(len(part) for part in parts) // 2
    if variance == 0 or longest < 1:
        return 0.0
    for lag in range(1, longest + 1):
        products = [c[:-lag] * c[lag:] for c in centred if len(c) > lag]
        now = float(np.mean(np.concatenate(products))) / variance
        if now < _E:
            if lag == 1:
                return interval / -float(np.log(now)) if now > 0 else 0.0
            return interval * (lag - 1 + (before - _E) / (before - now))
        before = now
    return interval * longest


def _between(parts: Sequence[Array]) -> float:
    """Share of the variance between blocks: intraclass correlation by analysis of variance, in [0, 1]."""
    if len(parts) < 2:
        return 0.0
    means = np.array([part.mean() for part in parts])
    inside = float(np.mean([part.var(ddof=1) for part in parts]))
    size = float(np.mean([len(part) for part in parts]))
    between = max(0.0, float(means.var(ddof=1)) - inside / size)
    total = between + inside
    return between / total if total else 0.0
