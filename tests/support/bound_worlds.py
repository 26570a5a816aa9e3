"""Small traces and estimators for the clairvoyant bound."""

import numpy as np

from tests.support.cases import cluster, model
from tests.support.worlds import toy_wan
from twin.core.job import JobSpec
from twin.estimation.estimator import Estimator
from twin.traces.wan_trace import WanTrace

RESTART_S = 11.35


def tiny(size: int = 2, blocks: int = 3, batch: int = 4) -> Estimator:
    return Estimator(cluster(size, [1] * size, 1), JobSpec(model(blocks), batch, (1,), zero=1))


def restless(size: int, rng: np.random.Generator, seconds: float, changes: int = 12) -> WanTrace:
    """Bandwidths that jump at random times, now and then to 0."""
    steps = {}
    for i in range(size):
        for j in range(size):
            if i != j:
                at = np.sort(rng.uniform(1.0, seconds - 1.0, changes))
                rates = np.exp(rng.uniform(np.log(2e8), np.log(1e10), changes)) * (rng.random(changes) > 0.05)
                steps[i, j] = list(zip(at.tolist(), rates.tolist(), strict=True))
    return toy_wan(size, seconds=seconds, steps=steps, bps=2e9, latency_s=0.03)
