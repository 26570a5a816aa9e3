"""Expected outcome of plans over a horizon: forecast slices, uncertainty by quadrature, the pause of a
move.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ingest.units import GB
from policy.objective import Outcome
from policy.rates import States, iteration_ns, per_second
from twin.costs import open_links
from twin.domain import LinkState, Matrix
from twin.estimate import Estimator, Move
from twin.plan import Plan
from twin.view import Forecast

NODES = (-1.0, 1.0)
"""Two-point Gauss-Hermite rule, weights 1/2: exact for polynomials of degree 3 in a standard normal."""


@dataclass(frozen=True, slots=True, eq=False)
class Outages:
    """Links that are dead now: when each is expected back (0 = it lives), with which bandwidth; (K, K)."""

    back_s: Matrix
    bandwidth_bps: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Horizon:
    """The time ahead in S slices with the links expected in each.

    `edges_s` (S + 1,) from 0 to the horizon. `middle` (S,) are the median links; `states` holds, slice after
    slice, one state for each node of the quadrature.
    """

    edges_s: NDArray[np.float64]
    middle: tuple[LinkState, ...]
    states: States

    @property
    def length_s(self) -> float:
        """Seconds ahead."""
        return float(self.edges_s[-1])


def ahead(forecast: Forecast, horizon_s: float, outages: Outages) -> Horizon:
    """Cut [0, horizon_s) midway between the forecast's horizons; the last forecast holds to the end.

    Where a dead link is expected back there is one more cut. Uncertainty is one common shock of every link by
    its own deviation: a plan is as fast as its worst link, and links of one direction share what slows them.
    """
    times = [float(h) for h in forecast.horizons_s if h < horizon_s]
    between = [(a + b) / 2 for a, b in pairwise(times)]
    back = [float(t) for t in outages.back_s.flat if 0 < t < horizon_s]
    edges = np.unique([0.0, *between, *back, horizon_s])
    middle, states = [], []
    for start in edges[:-1].tolist():
        h = sum(start >= edge for edge in between)
        revived = (outages.back_s > 0) & (outages.back_s <= start)
        bandwidth = np.where(revived, outages.bandwidth_bps, forecast.bandwidth_bps[h])
        middle.append(LinkState(bandwidth, forecast.latency_s))
        shaken = (bandwidth * np.exp(node * forecast.sd_log[h]) for node in NODES)
        states += [LinkState(shock, forecast.latency_s) for shock in shaken]
    return Horizon(edges, tuple(middle), States.of(states))


def outcomes(
    estimator: Estimator,
    plans: Sequence[Plan],
    horizon: Horizon,
    *,
    running: Plan | None,
    restart_s: float,
    slowdown: NDArray[np.float64] | None,
) -> list[Outcome]:
    """What each plan is expected to bring over the horizon when the job goes over to it from `running` now.

    The pause of the move (transfer at the present links, restart) brings nothing and its bytes are paid for.
    The iteration under way is finished under the old plan, so that nothing of it is lost.
    """
    found = []
    for plan in plans:
        move = estimator.move(running, plan, horizon.middle[0])
        rate = per_second(iteration_ns(estimator, plan, horizon.states, slowdown))
        pause = min(pause_s(estimator, move, restart_s), horizon.length_s)  # infinite over a dead link
        productive = np.diff(np.maximum(horizon.edges_s, pause))
        iterations = float(rate.reshape(-1, len(NODES)).mean(axis=1) @ productive)
        found.append(_outcome(estimator, plan, move, iterations, horizon.length_s, slowdown))
    return found


def _outcome(
    estimator: Estimator,
    plan: Plan,
    move: Move,
    iterations: float,
    seconds: float,
    slowdown: NDArray[np.float64] | None,
) -> Outcome:
    if iterations <= 0:
        return Outcome(float("inf"), 0.0, 0.0)
    busy_s, usd = per_iteration(estimator, plan, slowdown)
    moved_usd = egress_usd(estimator, move.bytes)
    return Outcome(seconds / iterations, busy_s * iterations / seconds, usd + moved_usd / iterations)


def pause_s(estimator: Estimator, move: Move, restart_s: float) -> float:
    """Seconds that a move stops the job when a restart takes `restart_s` in this run; 0 for free knobs."""
    return move.seconds - estimator.restart_s + restart_s if move.seconds > 0 else 0.0


def per_iteration(
    estimator: Estimator, plan: Plan, slowdown: NDArray[np.float64] | None
) -> tuple[float, float]:
    """Mean compute seconds of the active domains, and egress USD, of one iteration: whatever the links do."""
    slower = None if slowdown is None else tuple(float(s) for s in slowdown)
    return _per_iteration(estimator, plan, slower)


@lru_cache(maxsize=4096)
def _per_iteration(
    estimator: Estimator, plan: Plan, slowdown: tuple[float, ...] | None
) -> tuple[float, float]:
    slower = None if slowdown is None else np.array(slowdown)
    estimate = estimator.iteration(plan, open_links(estimator.cluster.size), slower)
    return estimate.utilisation * estimate.iter_s, estimate.usd


def egress_usd(estimator: Estimator, moved: Matrix) -> float:
    """Price of bytes between domains (K, K); the diagonal stays inside and is free."""
    prices = np.array(estimator.cluster.usd_per_gb)
    off = moved * ~np.eye(len(moved), dtype=np.bool_)
    return float((off * prices).sum() / GB)
