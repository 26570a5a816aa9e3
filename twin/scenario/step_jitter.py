"""Random factors on compute times, drawn from the scatter of measured step times."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Factors = NDArray[np.float64]


@dataclass
class Jitter:
    """Draws a factor on the compute time of each of K domains for every iteration.

    `quantiles` (n,): measured factors, ascending and equally likely, 1 being the median; a domain's factor is
    drawn from them by interpolation, independently for each domain and iteration. Within a domain all GPUs
    wait for the slowest, so the measurement is of a whole worker group.
    """

    quantiles: Factors
    domains: int
    rng: np.random.Generator

    def draw(self) -> Factors:
        """Factors (K,) of the next iteration."""
        place = self.rng.random(self.domains) * (len(self.quantiles) - 1)
        factors: Factors = np.interp(place, np.arange(len(self.quantiles)), self.quantiles)
        return factors


def quantiles(step_s: NDArray[np.float64], workers: NDArray[np.int64], points: int = 1001) -> Factors:
    """Quantiles (points,) of step times (n,) over the median of their worker (n,), without steps of 0 s.

    Raises:
        ValueError: no step takes any time.
    """
    kept = step_s > 0
    step_s, workers = step_s[kept], workers[kept]
    if not len(step_s):
        raise ValueError("no step time is greater than 0")
    ratios = np.empty(len(step_s))
    for worker in np.unique(workers):
        own = workers == worker
        ratios[own] = step_s[own] / np.median(step_s[own])
    found: Factors = np.quantile(ratios, np.linspace(0, 1, points))
    return found
