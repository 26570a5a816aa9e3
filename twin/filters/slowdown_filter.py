"""Filters the compute slowdown of each domain, from the step times that a job measures.

One scalar filter a domain (`twin.filters.kalman_bank`) on the log of computing time over the estimate of the
cost model for the plan in force. It reverts to nominal, so that a domain that was slow is tried anew after a
while.
"""

import numpy as np
from numpy.typing import NDArray

from twin.filters.kalman_bank import FilterBank
from twin.filters.ou_process import Array, OuParameters

TAU_S, SD = 1800.0, 0.3
"""Assumed dynamics of slowdowns; measurements soon outweigh them."""
_LEAST_SCATTER = 0.01
"""Deviation of the log of a step time where no measured scatter is known."""
LEAST_CHANGE = 0.05
"""Smallest relative change of the estimate that policies see: planners search afresh at every change."""

NIS_MEMORY = 0.05
"""Weight of the newest batch of iterations in the running mean."""


class SlowdownFilter:
    """Slowdown of K domains; `scatter` is the deviation of the log of a step time."""

    def __init__(self, domains: int, scatter: float = 0.0):
        self._scatter = max(scatter, _LEAST_SCATTER)
        self._bank = FilterBank(OuParameters.of(np.zeros(domains), tau_s=TAU_S, sd=SD, r=self._scatter**2))
        self._published = np.ones(domains)
        self.nis = np.ones(domains)  # running mean of the squared innovations over their stated variance

    def observe(self, now_ns: int, ratio: NDArray[np.float64]) -> None:
        """Takes mean computing time over nominal (K,) since the last call; NaN where a domain computed
        nothing."""
        index = np.flatnonzero(np.isfinite(ratio))
        self._bank.observe(now_ns, index, np.log(ratio[index]))
        nis = self._bank.innovation[index] ** 2 / self._bank.total[index]
        self.nis[index] += NIS_MEMORY * (nis - self.nis[index])

    def factor(self, now_ns: int) -> NDArray[np.float64]:
        """(K,) estimated computing time over nominal, 1 = nominal; it becomes the published one."""
        estimate = self._estimate(now_ns)
        moved = (np.abs(estimate / self._published - 1) > LEAST_CHANGE) | (estimate == 1)
        self._published = np.where(moved, estimate, self._published)
        published: Array = self._published.copy()
        return published

    def moved(self, now_ns: int, threshold: float) -> list[int]:
        """Domains whose estimate differs from the published one by more than `threshold`, relatively."""
        change = np.abs(self._estimate(now_ns) / self._published - 1)
        return [int(k) for k in np.flatnonzero(change > threshold)]

    def _estimate(self, now_ns: int) -> Array:
        estimate = np.exp(self._bank.forecast(now_ns, np.zeros(1))[0][0])
        return np.where(np.abs(estimate - 1) <= LEAST_CHANGE, 1.0, estimate)
