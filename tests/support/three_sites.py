"""Three sites, their estimator, and views of them."""

from dataclasses import replace

import numpy as np

from ingest.core.units import NS_PER_S
from tests.support.cases import cluster, model
from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.core.view import Forecast, View
from twin.estimation.estimator import Estimator

HORIZONS_S = (0.0, 60.0, 600.0)


def estimator(size: int = 3, gpus: int = 4, blocks: int = 8) -> Estimator:
    return Estimator(cluster(size, [gpus] * size), JobSpec(model(blocks), 64, (1, 2), zero=1))


def view(
    made: Estimator,
    bps: float | tuple[float, ...] = 3e9,
    *,
    plan: Plan | None = None,
    free: tuple[int, ...] | None = None,
    trigger: str = "period",
    now_s: float = 0.0,
    sd: float = 0.0,
) -> View:
    """All links alike; a tuple gives the bandwidth at each horizon."""
    size = made.cluster.size
    levels = bps if isinstance(bps, tuple) else (bps,) * len(HORIZONS_S)
    off = ~np.eye(size, dtype=bool)
    rows = np.stack([np.where(off, level, np.inf) for level in levels])
    seen = Forecast(
        np.array(HORIZONS_S), rows, np.where(off, sd, 0.0) + 0 * rows.clip(max=0), np.where(off, 0.02, 0.0)
    )
    alive = free or tuple(domain.gpus for domain in made.cluster.domains)
    return View(int(now_s * NS_PER_S), trigger, seen, plan, alive, np.ones(size), 100.0, 0.0)


def dead(seen: View, *pairs: tuple[int, int]) -> View:
    bandwidth = seen.forecast.bandwidth_bps.copy()
    for i, j in pairs:
        bandwidth[:, i, j] = 0.0
    return replace(seen, forecast=replace(seen.forecast, bandwidth_bps=bandwidth))
