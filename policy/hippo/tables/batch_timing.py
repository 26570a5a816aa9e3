"""Iteration times, compute seconds and migration costs of many plans under many link states.

The cost model and kernel of the Estimator without a `Plan` each: compiled code fills pipelines from
`PlanningTables.tables`, `twin.estimation.mixed_shapes_kernel` times them.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import BITS_PER_BYTE, NS_PER_S
from policy.control.best_relay_times import ROUNDS
from policy.control.relay_links import forwarding_bps
from policy.hippo.tables.best_relay_batch import ChosenRelays, TrueLinks, best_routes, routed, traffic_bytes
from policy.hippo.tables.critical_cycle_times import closed_form_ns
from policy.hippo.tables.migration_costs import MoveCosts, price_moves
from policy.hippo.tables.planning_tables import Codes, PlanningTables
from twin.core.layer_split import stage_start_compiled
from twin.costs.gradient_reduction import BUCKETS
from twin.estimation.mixed_shapes_kernel import Lines, empty, exact_ns
from twin.pipeline.kernel import DEAD
from twin.pipeline.pipeline import MODES

Int = NDArray[np.int64]
Float = NDArray[np.float64]


class PipelineBatch(NamedTuple):
    """P plans as pipelines, and compute seconds of an iteration, mean over a plan's domains (P,)."""

    lines: Lines
    busy_s: Float

    def take(self, index: NDArray[Any]) -> "PipelineBatch":
        """Returns the plans `index`, numbers or a mask."""
        return PipelineBatch(self.lines.take(index), self.busy_s[index])


class Timer:
    """Times and migration costs of the plans of one `PlanningTables`."""

    def __init__(self, problem: PlanningTables):
        self.problem = problem
        job, cluster = problem.estimator.job, problem.estimator.cluster
        self._gpipe, self._mode, self._zero = job.schedule == "gpipe", MODES[job.p2p], job.zero
        self._limits_bps = np.array([(d.egress_bps, d.ingress_bps) for d in cluster.domains]).T.copy()
        self._forwarding_bps = forwarding_bps(cluster)
        self._move_costs = MoveCosts(
            np.array([knob.dp for knob in problem.knobs]),
            np.diff(problem.tables.parameters) * job.bytes_per_moved_parameter,
            np.array(cluster.usd_per_gb),
            np.array([(d.intra_node_bps, d.inter_node_bps) for d in cluster.domains]),
            np.array([d.gpus_per_node for d in cluster.domains]),
            self._limits_bps,
        )

    def rows(self, codes: Codes, slowdown: Float) -> PipelineBatch:
        """Returns the plans as pipelines; domain k computes `slowdown[k]` times slower, (P, K) or (K,)."""
        t = self.problem.tables
        plans, k = codes.domain.shape
        slow = np.array(np.broadcast_to(slowdown, (plans, k)), dtype=np.float64, order="C")
        pp = t.pp[codes.knob[:, None], t.class_of[codes.domain], codes.choice]
        times, between = empty(plans, int(np.where(codes.domain >= 0, pp, 0).sum(1).max(initial=1)))
        m, sent = t.micro_batches[codes.knob], t.message_bytes[codes.knob]
        lines = Lines(np.zeros(plans, np.int64), m, *times, *between, sent, t.tied_bytes[codes.knob])
        busy = np.zeros(plans)
        _fill(codes.arrays, slow, t, self._zero, lines, busy)
        return PipelineBatch(lines, busy)

    def iter_ns(self, rows: PipelineBatch, bandwidth_bps: Float, latency_s: Float) -> Int:
        """Iteration times (P, L) under L link states (P, L, K, K); `DEAD` where a used link has no
        bandwidth.
        """
        total = np.empty(bandwidth_bps.shape[:2], np.int64)
        exact_ns(rows.lines, self._capped(bandwidth_bps), latency_s, self._gpipe, self._mode, total)
        return total

    def best_relay_ns(self, rows: PipelineBatch, bandwidth_bps: Float, latency_s: Float) -> tuple[Int, Float]:
        """Returns `iter_ns` with every message over the direct link or the relay that is best for it in each
        state, links shared by the messages of the plan, and the bandwidth (P, L, K, K) that messages find.

        The faster of `iter_ns` and `policy.control.best_relay_times.best_relay_ns`.
        """
        best_ns, found_bps = self.iter_ns(rows, bandwidth_bps, latency_s), bandwidth_bps.copy()
        links = TrueLinks(
            np.array(bandwidth_bps, order="C"), np.array(latency_s, order="C"), self._forwarding_bps
        )
        alone = best_routes(rows.lines, links, 0)
        together = best_routes(rows.lines, links, ROUNDS)
        anew = (together.via != alone.via).any(axis=-1)
        for routes, tried in ((alone, alone.relayed), (together, together.relayed & anew)):
            p, x = np.nonzero(tried)
            ns, width_bps = self._routed_ns(rows.take(p), links.at(p, x), routes.at(p, x))
            better = ns < best_ns[p, x]
            best_ns[p[better], x[better]] = ns[better]
            found_bps[p[better], x[better]] = width_bps[better]
        return best_ns, found_bps

    def _routed_ns(self, rows: PipelineBatch, links: TrueLinks, routes: ChosenRelays) -> tuple[Int, Float]:
        """Returns iteration times (P,) over given relays under one state for each plan, and the bandwidth
        (P, K, K) that messages find."""
        width_bps, late_s = routed(rows.lines, links, routes.via, np.zeros((len(routes.via), 1)))
        ns = self.iter_ns(rows, width_bps, late_s)
        again = np.flatnonzero(routes.shared)  # elsewhere it does not matter how much the others send
        if len(again):
            some, part = rows.take(again), links.at(again, np.zeros_like(again))
            busiest = traffic_bytes(some.lines, self.problem.k).max(axis=(1, 2))
            mean_bps = BITS_PER_BYTE * busiest[:, None] * rate(ns[again])
            width_bps[again], late = routed(some.lines, part, routes.via[again], mean_bps)
            ns[again] = self.iter_ns(some, width_bps[again], late)
        return ns[:, 0], width_bps[:, 0]

    def closed_form_ns(self, rows: PipelineBatch, bandwidth_bps: Float, latency_s: Float) -> Int:
        """Approximates `iter_ns` by the closed form of `twin.pipeline.critical_cycle`: one micro-batch
        through and back, then the period of the critical cycle; hundreds of times cheaper, mostly within two
        percent.
        """
        total = np.empty(bandwidth_bps.shape[:2], np.int64)
        closed_form_ns(rows.lines, self._capped(bandwidth_bps), latency_s, self._gpipe, self._mode, total)
        return total

    def _capped(self, bandwidth_bps: Float) -> Float:
        """Bandwidth (..., K, K) in bit/s of a single flow under the limits of the domains at both ends."""
        sent, received = self._limits_bps
        if not np.isfinite(self._limits_bps).any():
            return bandwidth_bps
        capped: Float = np.minimum(bandwidth_bps, np.minimum(sent[:, None], received))
        return capped

    def moves(self, old: Codes, new: Codes, bandwidth_bps: Float, latency_s: Float) -> tuple[Float, Float]:
        """Returns pause seconds (without the restart) and egress USD of going from `old[p]` to `new[p]`;
        links are (P, K, K).

        -1 seconds where the plans are equal. Plans are packed, so a layer stays where it is if domain, tp, dp
        and the stage inside the share stay.
        """
        shapes, seconds, usd = self.problem.shapes, np.empty(len(new)), np.empty(len(new))
        links = (
            np.array(bandwidth_bps, order="C"),
            np.array(latency_s, order="C"),
        )  # writable, like the rest
        price_moves(old.arrays, new.arrays, shapes, self._move_costs, *links, seconds, usd)
        return seconds, usd


def rate(ns: Int) -> Float:
    """Iterations per second; 0 where nothing runs."""
    return np.where(ns == DEAD, 0.0, NS_PER_S / np.maximum(ns, 1).astype(np.float64))


@njit(inner=True, cache=True)
def _ns(seconds):  # type: ignore[no-untyped-def]
    """Nanoseconds, rounded once as in the Estimator."""
    return np.int64(np.rint(min(seconds * 1e9, 1e14)))


@njit(inner=True, cache=True)
def _overlapped(zero, forward, backward, reduce, gather):  # type: ignore[no-untyped-def]
    """Seconds of a stage's collectives that computing does not hide, of forward and of backward."""
    if zero == 0:
        return min(reduce, gather), forward, backward
    if zero < 3:
        exposed = max(reduce - backward, reduce / BUCKETS) + max(gather - forward, gather / BUCKETS)
        return exposed, forward, backward
    return reduce / BUCKETS, max(forward, gather), max(backward, gather + reduce)


@njit(cache=True, error_model="numpy")
def _fill(plans, slowdown, tables, zero, lines, busy_s):  # type: ignore[no-untyped-def]
    """Fills `lines` and `busy_s` (P,) with what `twin.costs.stage_costs.StageModel` gives."""
    tf, tb, tail, collective = lines.forward, lines.backward, lines.tail, tables.collective
    for p in range(len(plans.knob)):
        c, count, at, s, total = plans.knob[p], plans.shares[p], 0, 0, 0.0
        for i in range(count):
            k, q = plans.domain[p, i], plans.choice[p, i]
            y, z = tables.kind_of[k], tables.class_of[k]
            depth, width, slower, domain_s = tables.pp[c, z, q], tables.tp[c, z, q], slowdown[p, k], 0.0
            start, layers = at, plans.layers[p, i]
            for j in range(depth):
                end = start + stage_start_compiled(j + 1, depth, layers, i == 0, i + 1 == count)
                parameters = (tables.parameters[end] - tables.parameters[at]) / width
                forward = tables.forward[c, y, q, end] - tables.forward[c, y, q, at]
                backward = tables.backward[c, y, q, end] - tables.backward[c, y, q, at]
                reduce = collective[0, 0, c, y, q, j] + collective[0, 1, c, y, q, j] * parameters
                gather = collective[1, 0, c, y, q, j] + collective[1, 1, c, y, q, j] * parameters
                sync, forward, backward = _overlapped(zero, forward, backward, reduce, gather)
                tf[p, s], tb[p, s] = _ns(forward * slower), _ns(backward * slower)
                update = tables.update_per_parameter[c, y, q, j] * parameters
                tail[p, s] = _ns(update + sync)
                domain_s += tables.micro_batches[c] * (tf[p, s] + tb[p, s]) / 1e9 + update
                if j + 1 < depth:
                    lines.occupancy[p, s] = tables.inner_occupancy_ns[c, y, q, j]
                    lines.latency[p, s] = tables.inner_latency_ns[c, y, q, j]
                elif i + 1 < count:
                    lines.source[p, s], lines.target[p, s] = k, plans.domain[p, i + 1]
                at = end
                s += 1
            total += domain_s / depth
        if count == 1 and s > 1:  # both copies of a tied embedding in one domain
            k, q = plans.domain[p, 0], plans.choice[p, 0]
            inside = tables.tied_inside_ns[c, tables.kind_of[k], q]
            tail[p, 0] += inside
            tail[p, s - 1] += inside
        lines.stages[p] = s
        busy_s[p] = total / count
