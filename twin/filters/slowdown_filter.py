"""How much slower than nominal each domain computes, from the step times that a job measures itself.

One scalar filter a domain (`twin.bank`) on the log of computing time over what the cost model says for the
plan in force: it reverts to nominal, so that a domain that is not used for a while gets another chance.
"""

import numpy as np
from numpy.typing import NDArray

from twin.filters.kalman_bank import FilterBank
from twin.filters.ou_process import Array, OuParameters

TAU_S, SD = 1800.0, 0.3
"""Of slowdowns that nobody has measured yet: an assumption. What is measured soon outweighs it."""
_LEAST_SCATTER = 0.01
"""Deviation of the log of a step time where no measured scatter is known."""
NOTICED = 0.05
"""The estimate that policies see moves in steps no smaller: planners search afresh whenever it moves."""

NIS_MEMORY = 0.05
"""Weight of the newest batch of iterations in the running mean."""


class Slowness:
    """Estimates for K domains; `scatter` is the deviation of the log of a step time (`twin.jitter`)."""

    def __init__(self, domains: int, scatter: float = 0.0):
        self._scatter = max(scatter, _LEAST_SCATTER)
        self._bank = FilterBank(OuParameters.of(np.zeros(domains), tau_s=TAU_S, sd=SD, r=self._scatter**2))
        self._told = np.ones(domains)
        self.nis = np.ones(domains)  # running mean of the squared innovations over their stated variance

    def observe(self, now_ns: int, ratio: NDArray[np.float64]) -> None:
        """Take the mean computing time over the nominal one (K,) of the iterations since the last call, NaN
        where a domain computed nothing."""
        index = np.flatnonzero(np.isfinite(ratio))
        self._bank.observe(now_ns, index, np.log(ratio[index]))
        surprise = self._bank.innovation[index] ** 2 / self._bank.total[index]
        self.nis[index] += NIS_MEMORY * (surprise - self.nis[index])

    def factor(self, now_ns: int) -> NDArray[np.float64]:
        """(K,) computing time over nominal, as far as it is known; 1 = nominal."""
        seen = self._estimate(now_ns)
        moved = (np.abs(seen / self._told - 1) > NOTICED) | (seen == 1)
        self._told = np.where(moved, seen, self._told)
        told: Array = self._told.copy()
        return told

    def moved(self, now_ns: int, threshold: float) -> list[int]:
        """Domains whose estimate differs from what was told last by more than `threshold`, relatively."""
        off = np.abs(self._estimate(now_ns) / self._told - 1)
        return [int(k) for k in np.flatnonzero(off > threshold)]

    def _estimate(self, now_ns: int) -> Array:
        seen = np.exp(self._bank.forecast(now_ns, np.zeros(1))[0][0])
        return np.where(np.abs(seen - 1) <= NOTICED, 1.0, seen)
