"""Iteration times of plans under many link states at once: one kernel call per plan, exact."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE, NS_PER_S
from twin.core.domain import Cluster, LinkState, Pair
from twin.core.plan import Plan
from twin.costs import replica_sync
from twin.costs.boundary_terms import ends_ns, terms, wide_area_bytes
from twin.costs.tied_embeddings import spread
from twin.costs.wan_traffic import boundaries
from twin.estimation.estimator import Estimator
from twin.estimation.resource_use import open_links
from twin.pipeline import kernel
from twin.pipeline.kernel import DEAD, LONGEST_NS
from twin.pipeline.pipeline import Pipeline

Int = NDArray[np.int64]
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class States:
    """T link states: `bandwidth_bps` and `latency_s`, both (T, K, K)."""

    bandwidth_bps: Float
    latency_s: Float

    @classmethod
    def of(cls, links: Sequence[LinkState]) -> "States":
        """The given states, in order."""
        return cls(np.stack([x.bandwidth_bps for x in links]), np.stack([x.latency_s for x in links]))

    def __len__(self) -> int:
        return len(self.bandwidth_bps)


@dataclass(frozen=True, slots=True, eq=False)
class BoundaryCostsByState:
    """Times of the wide-area boundaries of a plan in T states, in nanoseconds, rounded as by the estimator.

    `tied` (T,): nanoseconds that a tied embedding adds to the tail of the first and the last stage.
    `occupancy` and `latency` (2 B, T): boundary after boundary, downstream then upstream. `alive`
    (T,): no used link is dead; where it is False the numbers mean nothing.
    """

    occupancy: Int
    latency: Int
    tied: Int
    alive: NDArray[np.bool_]


def crossings(estimator: Estimator, plan: Plan, states: States) -> BoundaryCostsByState:
    """The wide-area boundaries of `plan` in each state."""
    sizes, used = sent(estimator, plan)
    routes = [plan.route(i, j) for i, j in used]
    bandwidth = np.array([route_bps(estimator.cluster, states, way) for way in routes])
    delays = [sum(states.latency_s[:, i, j] for i, j in way) for way in routes]
    return costs_by_state(
        *sizes, bandwidth.reshape(-1, len(states)), np.array(delays).reshape(-1, len(states)) * NS_PER_S
    )


def sent(estimator: Estimator, plan: Plan) -> tuple[tuple[int, int], list[Pair]]:
    """Bytes of a message and of a step of the tied embedding's exchange, and the pairs of domains between
    which a pipeline sends: boundary after boundary, downstream then upstream, then those of the exchange."""
    joined = [pair for pair in boundaries(plan) if pair is not None]
    sizes = wide_area_bytes(estimator.job, plan.dp, plan.micro_batch, spread(plan))
    if sizes[1]:
        joined.append((plan.order[-1], plan.order[0]))
    return sizes, [pair for a, b in joined for pair in ((a, b), (b, a))]


def costs_by_state(
    message_bytes: int, tied_bytes: int, bandwidth_bps: Float, latency_ns: Float
) -> BoundaryCostsByState:
    """Times of crossings with `bandwidth_bps` and `latency_ns` (2 B, T), boundary after boundary,
    downstream then upstream; with `tied_bytes` two more, both directions between the ends of the
    pipeline."""
    joints = len(bandwidth_bps) - 2 * (tied_bytes > 0)
    at_ends = np.arange(len(bandwidth_bps))[:, None] >= joints
    with np.errstate(divide="ignore", invalid="ignore"):
        ns = terms(message_bytes * ~at_ends, tied_bytes * at_ends, bandwidth_bps, latency_ns)
    alive = np.logical_and.reduce(np.maximum.reduce(ns) < LONGEST_NS, axis=0)
    occupancy, latency, tied = (np.where(alive, row, 0.0).astype(np.int64) for row in ns)
    ends = ends_ns(*tied[joints:]) if tied_bytes else np.zeros(len(alive), np.int64)
    return BoundaryCostsByState(occupancy[:joints], latency[:joints], ends, alive)


def route_bps(cluster: Cluster, states: States, route: Sequence[tuple[int, int]]) -> Float:
    """Bandwidth of a single transfer over `route` in each state (T,)."""
    limits = [min(cluster.domains[i].egress_bps, cluster.domains[j].ingress_bps) for i, j in route]
    widths = [states.bandwidth_bps[:, i, j] for i, j in route]
    narrowest: Float = np.minimum(np.minimum.reduce(widths), min(limits))
    return narrowest


def iteration_ns(estimator: Estimator, plan: Plan, states: States, slowdown: Float | None = None) -> Int:
    """Iteration time of `plan` in each state (T,), equal to `Estimator.iter_ns`; DEAD where a used link is
    dead.
    """
    if plan.sync is not None:
        return _replicas_ns(estimator, plan, states, slowdown)
    pipeline = over_open_links(estimator, plan, slowdown)
    if len(plan.shares) == 1:
        return np.repeat(kernel.iteration_ns(pipeline), len(states))
    return crossed_ns(pipeline, plan, crossings(estimator, plan, states))


def over_open_links(estimator: Estimator, plan: Plan, slowdown: Float | None) -> Pipeline:
    """The pipeline of `plan` without the times of its wide-area boundaries."""
    return _over_open_links(estimator, plan, None if slowdown is None else tuple(slowdown.tolist()))


@lru_cache(maxsize=2048)
def _over_open_links(estimator: Estimator, plan: Plan, slowdown: tuple[float, ...] | None) -> Pipeline:
    slower = None if slowdown is None else np.array(slowdown)
    pipeline = estimator.pipeline(plan, open_links(estimator.cluster.size), slower, exchange=False)
    assert pipeline is not None, "open links are never dead"
    return pipeline


def crossed_ns(pipeline: Pipeline, plan: Plan, across: BoundaryCostsByState) -> Int:
    """Iteration time (T,) of the pipeline of `plan` (`over_open_links`) with these boundaries; DEAD where a
    used link is dead."""
    rows = np.concatenate([across.occupancy, across.latency, across.tied[None]])
    distinct, back = _distinct(rows[:, across.alive])
    times = np.full(len(across.alive), DEAD)
    if distinct.size:
        half = len(distinct) // 2
        links = distinct[:half], distinct[half:-1], distinct[-1]
        distinct_ns = kernel.iteration_ns(with_links(pipeline, boundaries(plan), *links))
        times[across.alive] = distinct_ns[back]
    return times


def _distinct(rows: Int) -> tuple[Int, Int]:
    """The distinct columns of (R, T), and the number of each column among them (T,). Columns are told apart
    by a hash, ten times faster than by sorting them; where two differ but have the same one, by sorting."""
    keys = _odd_numbers(len(rows)) @ rows.astype(np.uint64)
    _, first, back = np.unique(keys, return_index=True, return_inverse=True)
    distinct, back = rows[:, first], back.reshape(-1)
    if not np.array_equal(distinct[:, back], rows):
        distinct, back = np.unique(rows, axis=1, return_inverse=True)
    return distinct, back.reshape(-1)


@lru_cache(maxsize=64)
def _odd_numbers(count: int) -> NDArray[np.uint64]:
    drawn = np.random.default_rng(0).integers(2**63, size=count, dtype=np.uint64)
    return drawn * np.uint64(2) + np.uint64(1)


def fastest_ns(estimator: Estimator, plan: Plan, cuts: Int, states: States, depths: Sequence[int]) -> Int:
    """Iteration times (P, T) of the plans that are `plan` with other `cuts` (P, n + 1), default placement, in
    each state, with the best extra warm-up of `depths` there; DEAD where none fits or a used link is dead."""
    times = np.full((len(cuts), len(states)), DEAD)
    across = crossings(estimator, plan, states)
    links = across.occupancy[:, across.alive], across.latency[:, across.alive], across.tied[across.alive]
    if not across.alive.any():
        return times
    inner = [(share.tp, share.pp) for share in plan.shares]
    open_ = open_links(estimator.cluster.size)
    for pipeline, fits in estimator.pipelines(
        plan.order, cuts, plan.dp, inner, plan.micro_batch, open_, depths, exchange=False
    ):
        ns = kernel.iteration_ns(with_links(pipeline, boundaries(plan), *links))
        here = np.ix_(fits, across.alive)
        times[here] = np.minimum(times[here], ns.reshape(pipeline.plans, -1))
    return times


def _replicas_ns(estimator: Estimator, plan: Plan, states: States, slowdown: Float | None) -> Int:
    """Iteration time of replicas in each state (T,): the slowest of them, and their exchange."""
    open_ = open_links(estimator.cluster.size)
    slowest = max(estimator.iter_ns(plan.replica(n), open_, slowdown) for n in range(plan.replicas))
    step_s = np.zeros(len(states))
    for pair in replica_sync.ring(plan):
        route = plan.route(*pair)
        latency_ns = sum(np.rint(states.latency_s[:, i, j] * NS_PER_S) for i, j in route)
        with np.errstate(divide="ignore"):
            bits = replica_sync.step_bytes(estimator.job, plan) * BITS_PER_BYTE
            sent_s = bits / route_bps(estimator.cluster, states, route)
        step_s = np.maximum(step_s, latency_ns / NS_PER_S + sent_s)
    exchange = step_s * replica_sync.steps(plan) * NS_PER_S
    alive = exchange < LONGEST_NS
    return np.where(alive, slowest + np.rint(np.where(alive, exchange, 0.0)).astype(np.int64), DEAD)


def with_links(
    pipeline: Pipeline, joined: Sequence[Pair | None], occupancy: Int, latency: Int, tied_ns: Int
) -> Pipeline:
    """P pipelines under T states each (P x T, plan after plan) whose boundaries join the domains `joined`,
    None inside a domain; the other arguments as in `BoundaryCostsByState`."""
    states, plans = occupancy.shape[1], pipeline.plans
    wide = [row for row, pair in enumerate(joined) if pair is not None]

    def spread(row: Int) -> Int:
        return np.repeat(row, states * (plans if row.shape[1] == 1 else 1), axis=1)

    of, lf, ob, lb = (spread(row) for row in (pipeline.of, pipeline.lf, pipeline.ob, pipeline.lb))
    if plans > 1:
        occupancy, latency, tied_ns = (np.tile(row, plans) for row in (occupancy, latency, tied_ns))
    of[wide], lf[wide] = occupancy[::2], latency[::2]
    ob[wide], lb[wide] = occupancy[1::2], latency[1::2]
    tf, tb, tail = (spread(row) for row in (pipeline.tf, pipeline.tb, pipeline.tail))
    tail[[0, -1]] += tied_ns
    tw = None if pipeline.tw is None else spread(pipeline.tw)
    return replace(pipeline, tf=tf, tb=tb, of=of, lf=lf, ob=ob, lb=lb, tail=tail, tw=tw)


def per_second(ns: Int) -> Float:
    """Iterations per second; 0 where `ns` is `DEAD`."""
    rate: Float = np.where(ns == DEAD, 0.0, NS_PER_S / ns.astype(np.float64))
    return rate
