"""Weights of the two models of a link at each horizon, from the errors of earlier forecasts of that horizon.

From one sample to the next the level model forecasts best wherever a measurement is held for a while, though
the link returns to its mean within the hour; so the errors of the next sample say nothing of distant ones.
Forecasts of every horizon are kept here until their truth is known, under both models. What then counts is

    odds_h = OWN x evidence_h of the link + the mean evidence_h of all links

in units of twice the log-likelihood ratio (`twin.filters.multiple_model`), evidence forgotten by `MEMORY` a
horizon: the errors of one link at a distant horizon are few, those of all links together are many. On the
later part of the training shares of octo-175b and planet-405b (runs of WANify) that takes 8 to 17 % off the
error at the longest horizon; on that of quad-70b it adds 9 % at 1,800 s and no more than 2 % before. `OWN`
trades that against how soon a link that has halved for good is forecast to stay so.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from ingest.core.units import to_ns
from twin.filters.conformal_intervals import OPEN
from twin.filters.kalman_bank import GATE, Index
from twin.filters.multiple_model import MEMORY
from twin.filters.ou_process import Array

OWN = 0.5
"""Weight of a link's own evidence beside that of all links."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelForecasts:
    """Forecasts of a noisy sample at n horizons.

    Stated mean and deviation (n, L); means and variances of either model (n, 2, L).
    """

    mean: Array
    sd: Array
    means: Array
    variances: Array


@dataclass(slots=True, eq=False)
class _Pending:
    """Row `row` of forecasts, to be compared with the first sample at or after `due_ns`; `weight` is the time
    since the last forecast of this horizon, in horizons."""

    due_ns: int
    weight: float
    row: int
    forecasts: ModelForecasts


class HorizonMixture:
    """Evidence between the models of L links at H horizons, and the forecasts that are not due yet."""

    def __init__(self, horizons_s: Array, links: int):
        self._ahead_ns = np.array([to_ns(horizon_s) for horizon_s in horizons_s.tolist()])
        self._evidence = np.zeros((len(horizons_s), links))
        self._compared = np.zeros(len(horizons_s), np.bool_)
        self._pending: tuple[deque[_Pending], ...] = tuple(deque() for _ in horizons_s)
        self._last_ns = np.full(len(horizons_s), np.iinfo(np.int64).min // 2)

    def odds(self, present: Array) -> Array:
        """(H, L) evidence against the reverting model.

        That of the newest samples, `present` (L,), is used for the present, and for a horizon of which no
        forecast has come due yet.
        """
        ahead = OWN * self._evidence + self._evidence.mean(axis=1, keepdims=True)
        known = (self._compared & (self._ahead_ns > 0))[:, None]
        odds: Array = np.where(known, ahead, present)
        return odds

    def compare(self, now_ns: int, alive: Index, seen: Array) -> list[tuple[int, Array]]:
        """Compares the forecasts that came due with `seen` (n,) of the links `alive` (n,).

        Returns: horizon index and errors (n,) in stated deviations, of each forecast that came due.
        """
        found = []
        for h, waiting in enumerate(self._pending):
            while waiting and waiting[0].due_ns <= now_ns:
                pending = waiting.popleft()
                self._add_evidence(h, pending, alive, seen)
                mean, sd = pending.forecasts.mean[pending.row], pending.forecasts.sd[pending.row]
                found.append((h, (seen - mean[alive]) / sd[alive]))
        return found

    def due(self, now_ns: int) -> Index:
        """(n,) indices of the horizons of which another forecast may be kept."""
        return np.flatnonzero(now_ns >= self._last_ns + self._ahead_ns // OPEN)

    def keep(self, now_ns: int, due: Index, forecasts: ModelForecasts) -> None:
        """Keeps forecasts of the horizons `due` (n,), one a row, until their truth is known."""
        for row, h in enumerate(due.tolist()):
            ahead_ns = int(self._ahead_ns[h])
            weight = min(1.0, (now_ns - int(self._last_ns[h])) / max(1, ahead_ns))
            self._pending[h].append(_Pending(now_ns + ahead_ns, weight, row, forecasts))
        self._last_ns[due] = now_ns

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0."""
        for waiting in self._pending:
            for pending in waiting:
                pending.due_ns -= now_ns
        self._last_ns -= now_ns

    def _add_evidence(self, h: int, pending: _Pending, alive: Index, seen: Array) -> None:
        forecasts, row = pending.forecasts, pending.row
        variances = forecasts.variances[row][:, alive]
        squares = (seen - forecasts.means[row][:, alive]) ** 2 / variances
        reverting, level = np.minimum(squares, GATE**2) + np.log(variances)
        self._evidence[h] *= MEMORY**pending.weight
        self._evidence[h, alive] += pending.weight * (reverting - level)
        self._compared[h] = True
