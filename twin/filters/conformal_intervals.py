"""Calibrated intervals: split conformal on the training share, then adapted online.

Measured rates have heavier tails and a narrower middle than a Gaussian of the same variance, so that 1.28
deviations hold more than 80 % of them and 1.96 deviations less than 95 %. The empirical quantiles of the
standardised errors (error over its stated deviation) on the last part of training put that right. Conditions
change after training (a week of holidays is followed by a week of work), so the quantiles go on moving with
every forecast whose truth has become known (adaptive conformal inference, Gibbs and Candes 2021):

    log d += RATE / L * sum over the links compared of (missed - (1 - level)) / sqrt(level (1 - level))

which in the long run keeps the share of misses at 1 - level whatever the links do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from twin.core.view import GAUSSIAN
from twin.filters.kalman_bank import GATE
from twin.filters.ou_process import Array

LEVELS = (0.80, 0.95)
RATE = 0.1
"""Learning rate of the tracking, chosen on the last 15 % of the training parts of the sets in
`docs/measured/forecast.md`."""
OPEN = 5
"""Forecasts of one horizon that wait for their truth at a time, evenly spaced: more would count the same
change of a link several times."""
FACTOR = 4.0
"""Largest factor between a tracked width and that of training: after a day without any change the intervals
must still allow for one."""
_LEAST = 40
"""Errors needed to estimate the 95 % quantile; with fewer the Gaussian one is used."""
_NARROWEST = 0.05
"""Least half width, in deviations, after a training share without any error."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Half widths of the central 80 % and 95 % interval in stated deviations.

    `spread` is the real deviation over the stated one, errors limited to the gate of the filters.
    """

    d80: float = float(GAUSSIAN[0, 0])
    d95: float = float(GAUSSIAN[0, 1])
    spread: float = 1.0

    @classmethod
    def of(cls, standardised: Array) -> "Intervals":
        """Intervals from standardised errors (n,) of training; Gaussian when there are too few."""
        if len(standardised) < _LEAST:
            return cls()
        d80, d95 = np.maximum(np.quantile(np.abs(standardised), LEVELS), _NARROWEST)
        spread = np.sqrt(np.mean(np.minimum(standardised**2, GATE**2)))
        return cls(float(d80), float(d95), max(float(spread), _NARROWEST))


class IntervalTracker:
    """Widths of the intervals of H horizons over `links` links, adapted to the errors since training."""

    def __init__(self, trained: Sequence[Intervals], links: int):
        self._trained = [(log(one.d80), log(one.d95)) for one in trained]
        self._log_factor = [[0.0, 0.0] for _ in trained]
        self._links = links

    @property
    def factor(self) -> NDArray[np.float64]:
        """(H, 2) widths of the 80 % and 95 % intervals over those of training."""
        factor: Array = np.exp(self._log_factor)
        return factor

    def update(self, horizon: int, standardised: Array) -> None:
        """Adapt the widths of one horizon to standardised errors (n,) that have become known."""
        size, log_factor = np.abs(standardised), self._log_factor[horizon]
        for n, (trained, level) in enumerate(zip(self._trained[horizon], LEVELS, strict=True)):
            missed = np.count_nonzero(size > exp(trained + log_factor[n])) - (1 - level) * len(size)
            step = RATE / sqrt(level * (1 - level)) * missed / self._links
            log_factor[n] = min(max(log_factor[n] + step, -log(FACTOR)), log(FACTOR))
