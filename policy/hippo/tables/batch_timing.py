"""Many different plans under many link states in one go: iteration times, compute seconds, the price of
moving.

The same cost model and kernel as the Estimator, without building a `Plan` for each: rows are filled from
`Problem.tables` by compiled code and run by `policy.exact`, plan after plan.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from twin.estimate.mixed_shapes_kernel import Lines, empty, exact_ns
from policy.hippo.tables.migration_costs import price_moves
from policy.hippo.tables.critical_cycle_times import paced_ns
from policy.hippo.tables.planning_tables import Codes, Problem
from twin.pipeline.kernel import DEAD
from twin.core.layer_split import stage_start_compiled
from twin.costs.stage_costs import BUCKETS

Int = NDArray[np.int64]
Float = NDArray[np.float64]


class Rows(NamedTuple):
    """P plans as pipelines, and the compute seconds of an iteration, mean over a plan's domains (P,)."""

    lines: Lines
    busy_s: Float


class Timer:
    """Times plans of one `Problem`."""

    def __init__(self, problem: Problem):
        self.problem = problem
        job, cluster = problem.estimator.job, problem.estimator.cluster
        self._gpipe, self._blocking, self._zero = job.schedule == "gpipe", job.p2p == "blocking", job.zero
        self._usd_per_gb = np.array(cluster.usd_per_gb)
        self._fabric_bps = np.array([(d.intra_node_bps, d.inter_node_bps) for d in cluster.domains])
        self._per_node = np.array([d.gpus_per_node for d in cluster.domains])
        self._moved_bytes = np.diff(problem.tables.parameters) * job.bytes_per_moved_parameter
        self._dp = np.array([knob.dp for knob in problem.knobs])
        self._limits_bps = np.array([(d.egress_bps, d.ingress_bps) for d in cluster.domains]).T.copy()

    def rows(self, codes: Codes, slowdown: Float) -> Rows:
        """Stage times of the plans when domain k computes `slowdown[k]` times slower; (P, K) or (K,)."""
        t = self.problem.tables
        plans, k = codes.domain.shape
        slow = np.ascontiguousarray(np.broadcast_to(slowdown, (plans, k)), dtype=np.float64)
        pp = t.pp[codes.knob[:, None], t.class_of[codes.domain], codes.choice]
        times, between = empty(plans, int(np.where(codes.domain >= 0, pp, 0).sum(1).max(initial=1)))
        stages, busy = np.zeros(plans, np.int64), np.zeros(plans)
        _fill(
            codes.knob, codes.count, codes.domain, codes.layers, codes.choice, slow, t.kind_of, t.class_of,
            t.pp, t.tp, t.forward, t.backward, t.collective, t.update_per_parameter, t.inner_occupancy_ns,
            t.inner_latency_ns, t.tied_inside_ns, t.parameters, t.micro_batches, self._zero, *times, *between,
            stages, busy,
        )  # fmt: skip
        m, sent, tied_sent = (
            t.micro_batches[codes.knob], t.message_bytes[codes.knob], t.tied_bytes[codes.knob],
        )  # fmt: skip
        return Rows(Lines(stages, m, *times, *between, sent, tied_sent), busy)

    def iter_ns(self, rows: Rows, bandwidth_bps: Float, latency_s: Float) -> Int:
        """Iteration times (P, L) under L link states (P, L, K, K); `DEAD` where a used link has no
        bandwidth.
        """
        total = np.empty(bandwidth_bps.shape[:2], np.int64)
        exact_ns(rows.lines, self._granted(bandwidth_bps), latency_s, self._gpipe, self._blocking, total)
        return total

    def paced_ns(self, rows: Rows, bandwidth_bps: Float, latency_s: Float) -> Int:
        """As `iter_ns`, by the closed form of `twin.cycle`: one micro-batch through and back, then the pace.

        Not what a plan is judged by, but hundreds of times cheaper and mostly within a percent or two: it
        says which plans are worth timing.
        """
        total = np.empty(bandwidth_bps.shape[:2], np.int64)
        paced_ns(rows.lines, self._granted(bandwidth_bps), latency_s, self._gpipe, self._blocking, total)
        return total

    def _granted(self, bandwidth_bps: Float) -> Float:
        """What a single flow gets of each link (..., K, K) under the limits of the domains at its ends."""
        sent, received = self._limits_bps
        if not np.isfinite(self._limits_bps).any():
            return bandwidth_bps
        granted: Float = np.minimum(bandwidth_bps, np.minimum(sent[:, None], received))
        return granted

    def moves(self, old: Codes, new: Codes, bandwidth_bps: Float, latency_s: Float) -> tuple[Float, Float]:
        """Pause seconds (without the restart) and egress USD of going from `old[p]` to `new[p]`; links (P,
        K, K).

        -1 seconds where nothing changes at all. Plans are packed, so a layer stays where it is if domain,
        tp, dp and the stage inside the share stay.
        """
        t, seconds, usd = self.problem.tables, np.empty(len(new)), np.empty(len(new))
        price_moves(
            old.knob, old.count, old.domain, old.layers, old.choice, new.knob, new.count, new.domain,
            new.layers, new.choice, t.class_of, t.pp, t.tp, self._dp, self._moved_bytes, self._usd_per_gb,
            self._fabric_bps, self._per_node, self._limits_bps, bandwidth_bps, latency_s, seconds, usd,
        )  # fmt: skip
        return seconds, usd


def rate(ns: Int) -> Float:
    """Iterations per second; 0 where nothing runs."""
    return np.where(ns == DEAD, 0.0, NS_PER_S / np.maximum(ns, 1).astype(np.float64))


@njit(cache=True)
def _ns(seconds):  # type: ignore[no-untyped-def]
    """Rounded once, as the Estimator does."""
    return np.int64(np.rint(min(seconds * 1e9, 1e14)))


@njit(cache=True)
def _overlapped(zero, ahead, behind, reduce, gather):  # type: ignore[no-untyped-def]
    """Seconds of a stage's collectives that computing does not hide, and those of forward and backward."""
    if zero == 0:
        return min(reduce, gather), ahead, behind
    if zero < 3:
        shown = max(reduce - behind, reduce / BUCKETS) + max(gather - ahead, gather / BUCKETS)
        return shown, ahead, behind
    return reduce / BUCKETS, max(ahead, gather), max(behind, gather + reduce)


@njit(cache=True, error_model="numpy")
def _fill(  # type: ignore[no-untyped-def]
    knob, count, domain, layers, choice, slow, kind_of, class_of, pp, tp, forward, backward, collective,
    update_per, occ, lat, tied, parameters, m, zero, tf, tb, tail, source, target, of, lf, stages, busy,
):  # fmt: skip
    """Fill what follows `zero` row by row, as `twin.stages.StageModel` has it."""
    for p in range(len(knob)):
        c, at, s, total = knob[p], 0, 0, 0.0
        for i in range(count[p]):
            k, q = domain[p, i], choice[p, i]
            y, z = kind_of[k], class_of[k]
            depth, width, slower, mine = pp[c, z, q], tp[c, z, q], slow[p, k], 0.0
            start, held_here, ends = at, layers[p, i], (i == 0, i + 1 == count[p])
            for j in range(depth):
                end = start + stage_start_compiled(j + 1, depth, held_here, ends[0], ends[1])
                held = (parameters[end] - parameters[at]) / width
                ahead = forward[c, y, q, end] - forward[c, y, q, at]
                behind = backward[c, y, q, end] - backward[c, y, q, at]
                reduce = collective[0, 0, c, y, q, j] + collective[0, 1, c, y, q, j] * held
                gather = collective[1, 0, c, y, q, j] + collective[1, 1, c, y, q, j] * held
                sync, ahead, behind = _overlapped(zero, ahead, behind, reduce, gather)
                tf[p, s], tb[p, s] = _ns(ahead * slower), _ns(behind * slower)
                update = update_per[c, y, q, j] * held
                tail[p, s] = _ns(update + sync)
                mine += m[c] * (tf[p, s] + tb[p, s]) / 1e9 + update
                if j + 1 < depth:
                    of[p, s], lf[p, s] = occ[c, y, q, j], lat[c, y, q, j]
                elif i + 1 < count[p]:
                    source[p, s], target[p, s] = k, domain[p, i + 1]
                at = end
                s += 1
            total += mine / depth
        if count[p] == 1 and s > 1:  # both copies of a tied embedding in one domain
            inside = tied[knob[p], kind_of[domain[p, 0]], choice[p, 0]]
            tail[p, 0] += inside
            tail[p, s - 1] += inside
        stages[p] = s
        busy[p] = total / count[p]
