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

import numpy as np
from numpy.typing import NDArray

from twin.bank import GATE
from twin.ou import Array
from twin.view import GAUSSIAN

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
_MISSES = 1 - np.array(LEVELS)
_STEP = RATE / np.sqrt(_MISSES * (1 - _MISSES))


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
        self._trained = np.log(np.array([[one.d80, one.d95] for one in trained]))
        self._log = self._trained.copy()
        self._links = links

    @property
    def factor(self) -> NDArray[np.float64]:
        """(H, 2): 80 % and 95 %, over the width of training."""
        factor: Array = np.exp(self._log - self._trained)
        return factor

    def judge(self, horizon: int, standardised: Array) -> None:
        """Take standardised errors (n,) of forecasts of one horizon, as far as they have become known."""
        missed = np.abs(standardised)[:, None] > np.exp(self._log[horizon])
        moved = self._log[horizon] + _STEP / self._links * (missed - _MISSES).sum(axis=0)
        low, high = self._trained[horizon] - np.log(FACTOR), self._trained[horizon] + np.log(FACTOR)
        self._log[horizon] = np.clip(moved, low, high)
