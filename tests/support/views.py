"""What a policy is given at the start of a run, for tests that call one directly."""

from collections.abc import Sequence

import numpy as np

from policy.core.protocol import Context
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.core.view import Forecast, View
from twin.estimation.estimator import Estimator


def context(estimator: Estimator, *, seed: int = 0, period_s: float = 60.0) -> Context:
    """The estimator with ordinary settings."""
    return Context(estimator, period_s, estimator.restart_s, (1.0, 0.0, 0.0), np.random.default_rng(seed))


def view(
    estimator: Estimator,
    links: LinkState,
    *,
    plan: Plan | None = None,
    trigger: str = "start",
    free_gpus: Sequence[int] | None = None,
    now_s: float = 0.0,
) -> View:
    """Links that are forecast to stay as they are."""
    horizons = np.array([0.0, 60.0, 300.0])
    size = estimator.cluster.size
    forecast = Forecast(
        horizons, np.stack([links.bandwidth_bps] * 3), np.full((3, size, size), 0.1), links.latency_s
    )
    free = tuple(d.gpus for d in estimator.cluster.domains) if free_gpus is None else tuple(free_gpus)
    return View(int(now_s * 1e9), trigger, forecast, plan, free, np.ones(size), now_s, 0.0)


def flat(size: int, bps: float = 5e9, latency_s: float = 0.03) -> LinkState:
    """The same link between all domains."""
    bandwidth, latency = np.full((size, size), bps), np.full((size, size), latency_s)
    np.fill_diagonal(bandwidth, np.inf)
    np.fill_diagonal(latency, 0.0)
    return LinkState(bandwidth, latency)
