"""Expected outcome of plans over a horizon: forecast slices, uncertainty by quadrature, the pause of a
move.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ingest.units import GB, NS_PER_S
from policy.objective import Outcome
from policy.search import shape_of
from policy.shapes import Shape
from twin.domain import LinkState, Matrix
from twin.estimate import DEAD, Estimator, Move
from twin.plan import Plan
from twin.view import Forecast

_NODES = (-(3.0**0.5), 0.0, 3.0**0.5)
_WEIGHTS = (1 / 6, 2 / 3, 1 / 6)
"""Three-point Gauss-Hermite rule: exact for polynomials of degree 5 in a standard normal."""


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A stretch [start_s, end_s) of the horizon and the link states it may have, with probabilities."""

    start_s: float
    end_s: float
    states: tuple[tuple[float, LinkState], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Outages:
    """Links that are dead now: when each is expected back (0 = it lives) and with which bandwidth; both
    (K, K).
    """

    back_s: Matrix
    bandwidth_bps: Matrix


def slices(forecast: Forecast, horizon_s: float, outages: Outages) -> tuple[Slice, ...]:
    """Cut [0, horizon_s) midway between the forecast's horizons; the last forecast holds to the end.

    Where a dead link is expected back there is one more cut. Uncertainty is one common shock of every link
    by its own deviation: a plan's time is governed by its worst link, and links of one direction share what
    makes them slow.
    """
    times = [float(h) for h in forecast.horizons_s if h < horizon_s]
    between = [(a + b) / 2 for a, b in pairwise(times)]
    back = {float(t) for t in outages.back_s.flat if 0 < t < horizon_s}
    edges = sorted({0.0, *between, *back, horizon_s})
    return tuple(
        Slice(start, end, _states(forecast, sum(start >= edge for edge in between), start, outages))
        for start, end in pairwise(edges)
    )


def _states(
    forecast: Forecast, h: int, start_s: float, outages: Outages
) -> tuple[tuple[float, LinkState], ...]:
    """Link states of the slice that starts at `start_s` under forecast `h`, with their probabilities."""
    revived = (outages.back_s > 0) & (outages.back_s <= start_s)
    bandwidth = np.where(revived, outages.bandwidth_bps, forecast.bandwidth_bps[h])
    return tuple(
        (weight, LinkState(bandwidth * np.exp(node * forecast.sd_log[h]), forecast.latency_s))
        for node, weight in zip(_NODES, _WEIGHTS, strict=True)
    )


def rates(
    estimator: Estimator, plans: Sequence[Plan], links: LinkState, slowdown: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Iterations per second of each plan (P,), 0 where nothing runs; one kernel batch per shape."""
    ns = np.empty(len(plans), dtype=np.int64)
    groups: dict[Shape, list[int]] = {}
    for row, plan in enumerate(plans):
        groups.setdefault(shape_of(plan), []).append(row)
    for shape, rows in groups.items():
        cuts = np.array([plans[row].cuts for row in rows], dtype=np.int64)
        ns[rows] = estimator.iter_ns_cuts(
            shape.order, cuts, shape.dp, shape.inner, shape.micro_batch, links, slowdown
        )
    return np.where(ns == DEAD, 0.0, NS_PER_S / ns.astype(np.float64))


def outcomes(
    estimator: Estimator,
    plans: Sequence[Plan],
    parts: Sequence[Slice],
    *,
    running: Plan | None,
    restart_s: float,
    slowdown: NDArray[np.float64] | None,
) -> list[Outcome]:
    """What each plan is expected to bring over the slices when the job goes over to it from `running` now.

    The pause of the move (transfer at the present links, restart) brings nothing and its bytes are paid for.
    The iteration under way is finished under the old plan, so that nothing of it is lost.
    """
    horizon = parts[-1].end_s
    now = parts[0].states[1][1]
    moves = [estimator.move(running, plan, now) for plan in plans]
    pauses = np.array([pause_s(estimator, move, restart_s) for move in moves])
    done = np.zeros(len(plans))
    for part in parts:
        rate = sum(p * rates(estimator, plans, state, slowdown) for p, state in part.states)
        done += rate * np.clip(part.end_s - np.maximum(part.start_s, pauses), 0.0, None)
    found = []
    for plan, move, iterations in zip(plans, moves, done.tolist(), strict=True):
        if iterations <= 0:
            found.append(Outcome(float("inf"), 0.0, 0.0))
            continue
        busy_s, usd = per_iteration(estimator, plan, slowdown)
        moved_usd = egress_usd(estimator, move.bytes)
        found.append(
            Outcome(horizon / iterations, busy_s * iterations / horizon, usd + moved_usd / iterations)
        )
    return found


def pause_s(estimator: Estimator, move: Move, restart_s: float) -> float:
    """Seconds that a move stops the job when a restart takes `restart_s` in this run; 0 for free knobs."""
    return move.seconds - estimator.restart_s + restart_s if move.seconds > 0 else 0.0


def per_iteration(
    estimator: Estimator, plan: Plan, slowdown: NDArray[np.float64] | None
) -> tuple[float, float]:
    """Mean compute seconds of the active domains and egress USD of one iteration: both whatever the links
    do.
    """
    size = estimator.cluster.size
    free = LinkState(np.full((size, size), 1e15), np.zeros((size, size)))
    estimate = estimator.iteration(plan, free, slowdown)
    return estimate.utilisation * estimate.iter_s, estimate.usd


def egress_usd(estimator: Estimator, moved: Matrix) -> float:
    """Price of bytes between domains (K, K); the diagonal stays inside and is free."""
    prices = np.array(estimator.cluster.usd_per_gb)
    off = moved * ~np.eye(len(moved), dtype=np.bool_)
    return float((off * prices).sum() / GB)
