"""Intervals that hold what they promise: split conformal on the training share, then tracked.

Measured rates have heavier tails and a narrower middle than a Gaussian of the same variance, so that 1.28
deviations hold more than 80 % of them and 1.96 deviations less than 95 %. The empirical quantiles of the
standardised errors (error over its stated deviation) on the last part of training put that right. Conditions
change after training (a week of holidays is followed by a week of work), so the quantiles go on moving with
every forecast whose truth has become known (adaptive conformal inference, Gibbs and Candes 2021):

    log d += RATE / L * sum over the links judged of (missed - (1 - level)) / sqrt(level (1 - level))

which in the long run keeps the share of misses at 1 - level whatever the links do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from twin.filters.kalman_bank import GATE
from twin.filters.ou_process import Array
from twin.core.view import GAUSSIAN

LEVELS = (0.80, 0.95)
RATE = 0.1
"""Of the tracking, chosen on the last 15 % of the training parts of the sets in `docs/forecast.md`."""
OPEN = 5
"""Forecasts of one horizon that wait for their truth at a time, evenly spaced: more would judge the same
change of a link over and over."""
FACTOR = 4.0
"""Tracking leaves no width further than this from that of training: a link that stands still for a day must
not make its next change unthinkable."""
_LEAST = 40
"""Fewer errors than this do not say where the 95 % quantile is: the Gaussian one holds."""
_NARROWEST = 0.05
"""Deviations; a training share without any error still leaves some doubt."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Half widths of the central 80 % and 95 % interval in stated deviations, and the real deviation over the
    stated one (errors beyond the gate of the filters counted as being on it)."""

    d80: float = float(GAUSSIAN[0, 0])
    d95: float = float(GAUSSIAN[0, 1])
    spread: float = 1.0

    @classmethod
    def of(cls, standardised: Array) -> "Intervals":
        """From standardised errors (n,) of training; Gaussian when there are too few."""
        if len(standardised) < _LEAST:
            return cls()
        d80, d95 = np.maximum(np.quantile(np.abs(standardised), LEVELS), _NARROWEST)
        spread = np.sqrt(np.mean(np.minimum(standardised**2, GATE**2)))
        return cls(float(d80), float(d95), max(float(spread), _NARROWEST))


class Tracker:
    """How far the widths of H horizons over `links` links have moved from those of training."""

    def __init__(self, trained: Sequence[Intervals], links: int):
        self._trained = [(log(one.d80), log(one.d95)) for one in trained]
        self._moved = [[0.0, 0.0] for _ in trained]
        self._links = links

    @property
    def factor(self) -> NDArray[np.float64]:
        """(H, 2): 80 % and 95 %, over the width of training."""
        factor: Array = np.exp(self._moved)
        return factor

    def judge(self, horizon: int, standardised: Array) -> None:
        """Take standardised errors (n,) of forecasts of one horizon, as far as they have become known."""
        size, moved = np.abs(standardised), self._moved[horizon]
        for n, (trained, level) in enumerate(zip(self._trained[horizon], LEVELS, strict=True)):
            missed = np.count_nonzero(size > exp(trained + moved[n])) - (1 - level) * len(size)
            step = RATE / sqrt(level * (1 - level)) * missed / self._links
            moved[n] = min(max(moved[n] + step, -log(FACTOR)), log(FACTOR))
