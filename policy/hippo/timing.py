"""Many different plans under many link states in one go: iteration times, compute seconds, the price of
moving.

The same cost model and kernel as the Estimator, without building a `Plan` for each: rows are filled from
`Problem.tables` by compiled code and run by `policy.hippo.clock`, plan after plan.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.units import BITS_PER_BYTE, NS_PER_S
from policy.hippo.clock import exact_ns, exchange_ns
from policy.hippo.problem import Codes, Problem
from twin.kernel import DEAD, LONGEST_NS
from twin.split import stage_start_compiled
from twin.stages import BUCKETS

Int = NDArray[np.int64]
Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Stage times of P plans, ns; S is the longest pipeline, shorter ones are padded."""

    stages: Int  # (P,)
    micro_batches: Int  # (P,)
    forward: Int  # (P, S)
    backward: Int  # (P, S)
    tail: Int  # (P, S)
    source: Int  # (P, S - 1) domain before the boundary, -1 inside a domain
    target: Int  # (P, S - 1)
    occupancy: Int  # (P, S - 1) of boundaries inside a domain
    latency: Int  # (P, S - 1)
    message_bytes: Float  # (P,)
    tied_bytes: Float  # (P,) what the first and the last domain exchange at a time
    busy_s: Float  # (P,) compute seconds of one iteration, mean over active domains


class Timer:
    """Times plans of one `Problem`."""

    def __init__(self, problem: Problem):
        self.problem = problem
        job, cluster = problem.estimator.job, problem.estimator.cluster
        self._schedule, self._p2p, self._zero = job.schedule, job.p2p, job.zero
        self._bytes_per_parameter = job.bytes_per_moved_parameter
        self._usd_per_gb = np.array(cluster.usd_per_gb)
        self._fabric_bps = np.array([(d.intra_node_bps, d.inter_node_bps) for d in cluster.domains])
        self._per_node = np.array([d.gpus_per_node for d in cluster.domains])
        self._parameters = np.diff(problem.tables.parameters)
        self._dp = np.array([knob.dp for knob in problem.knobs])

    def rows(self, codes: Codes, slowdown: Float) -> Rows:
        """Stage times of the plans when domain k computes `slowdown[k]` times slower; (P, K) or (K,)."""
        t = self.problem.tables
        plans, k = codes.domain.shape
        slow = np.ascontiguousarray(np.broadcast_to(slowdown, (plans, k)), dtype=np.float64)
        pp = t.pp[codes.knob[:, None], t.class_of[codes.domain], codes.choice]
        width = int(np.where(codes.domain >= 0, pp, 0).sum(1).max(initial=1))
        whole = [np.zeros((plans, width), np.int64) for _ in range(3)]
        edges = [np.full((plans, max(width - 1, 0)), -1, np.int64) for _ in range(2)]
        inner = [np.zeros((plans, max(width - 1, 0)), np.int64) for _ in range(2)]
        stages, busy = np.zeros(plans, np.int64), np.zeros(plans)
        _fill(
            codes.knob,
            codes.count,
            codes.domain,
            codes.layers,
            codes.choice,
            slow,
            t.kind_of,
            t.class_of,
            t.pp,
            t.tp,
            t.forward,
            t.backward,
            t.collective,
            t.update_per_parameter,
            t.inner_occupancy_ns,
            t.inner_latency_ns,
            t.tied_inside_ns,
            t.parameters,
            t.micro_batches,
            self._zero,
            *whole,
            *edges,
            *inner,
            stages,
            busy,
        )
        m = t.micro_batches[codes.knob]
        return Rows(
            stages,
            m,
            whole[0],
            whole[1],
            whole[2],
            edges[0],
            edges[1],
            inner[0],
            inner[1],
            t.message_bytes[codes.knob],
            t.tied_bytes[codes.knob],
            busy,
        )

    def iter_ns(self, rows: Rows, bandwidth_bps: Float, latency_s: Float) -> Int:
        """Iteration times (P, L) under L link states (P, L, K, K); `DEAD` where a used link has no
        bandwidth.
        """
        total = np.empty(bandwidth_bps.shape[:2], np.int64)
        exact_ns(
            rows.stages,
            rows.micro_batches,
            rows.forward,
            rows.backward,
            rows.tail,
            rows.source,
            rows.target,
            rows.occupancy,
            rows.latency,
            rows.message_bytes,
            bandwidth_bps,
            latency_s,
            rows.tied_bytes,
            self._schedule == "gpipe",
            self._p2p == "blocking",
            total,
        )
        return total

    def paced_ns(self, rows: Rows, bandwidth_bps: Float, latency_s: Float) -> Int:
        """As `iter_ns`, by the closed form of `twin.cycle`: one micro-batch through and back, then the pace.

        Not what a plan is judged by, but hundreds of times cheaper and mostly within a percent or two: it
        says which plans are worth timing.
        """
        total = np.empty(bandwidth_bps.shape[:2], np.int64)
        _paced(
            rows.stages,
            rows.micro_batches,
            rows.forward,
            rows.backward,
            rows.tail,
            rows.source,
            rows.target,
            rows.occupancy,
            rows.latency,
            rows.message_bytes,
            bandwidth_bps,
            latency_s,
            rows.tied_bytes,
            self._schedule == "gpipe",
            self._p2p == "blocking",
            total,
        )
        return total

    def moves(self, old: Codes, new: Codes, bandwidth_bps: Float, latency_s: Float) -> tuple[Float, Float]:
        """Pause seconds (without the restart) and egress USD of going from `old[p]` to `new[p]`; links (P,
        K, K).

        -1 seconds where nothing changes at all. Plans are packed, so a layer stays where it is if domain,
        tp, dp and the stage inside the share stay.
        """
        moved = np.zeros(bandwidth_bps.shape)
        same = np.zeros(len(new), np.bool_)
        tables = self.problem.tables
        _moved(
            old.knob,
            old.count,
            old.domain,
            old.layers,
            old.choice,
            new.knob,
            new.count,
            new.domain,
            new.layers,
            new.choice,
            tables.class_of,
            tables.pp,
            tables.tp,
            self._dp,
            self._parameters * self._bytes_per_parameter,
            moved,
            same,
        )
        diagonal = np.einsum("pkk->pk", moved).copy()
        np.einsum("pkk->pk", moved)[:] = 0
        with np.errstate(divide="ignore", invalid="ignore"):
            wan = np.where(moved > 0, latency_s + moved * BITS_PER_BYTE / bandwidth_bps, 0.0).max((1, 2))
        seconds = np.maximum(wan, self._inside(new, diagonal))
        usd = (moved * self._usd_per_gb).sum((1, 2)) / 1e9
        return np.where(same, -1.0, seconds), usd

    def _inside(self, new: Codes, moved: Float) -> Float:
        """Seconds of the slowest resharding inside a domain, (P,)."""
        tables, used = self.problem.tables, new.domain >= 0
        at = (new.knob[:, None], tables.class_of[new.domain], new.choice)
        gpus = self._dp[new.knob][:, None] * tables.tp[at] * tables.pp[at]
        far = (gpus > self._per_node[new.domain]).astype(np.int64)
        size = np.take_along_axis(moved, np.maximum(new.domain, 0), axis=1)
        seconds = size * BITS_PER_BYTE / (np.maximum(gpus, 1) * self._fabric_bps[new.domain, far])
        result: Float = np.where(used, seconds, 0.0).max(1)
        return result


def rate(ns: Int) -> Float:
    """Iterations per second; 0 where nothing runs."""
    return np.where(ns == DEAD, 0.0, NS_PER_S / np.maximum(ns, 1).astype(np.float64))


@njit(cache=True)
def _ns(seconds):  # type: ignore[no-untyped-def]
    return np.int64(np.rint(min(seconds * 1e9, 1e14)))


@njit(cache=True)
def _fill(  # type: ignore[no-untyped-def]
    knob,
    count,
    domain,
    layers,
    choice,
    slow,
    kind_of,
    class_of,
    pp,
    tp,
    forward,
    backward,
    collective,
    update_per,
    occ,
    lat,
    tied,
    parameters,
    m,
    zero,
    tf,
    tb,
    tail,
    source,
    target,
    of,
    lf,
    stages,
    busy,
):
    for p in range(len(knob)):
        c, at, s, total = knob[p], 0, 0, 0.0
        for i in range(count[p]):
            k, q = domain[p, i], choice[p, i]
            y, z = kind_of[k], class_of[k]
            depth, slower, mine = pp[c, z, q], slow[p, k], 0.0
            start, ends = at, (i == 0, i + 1 == count[p])
            for j in range(depth):
                end = start + stage_start_compiled(j + 1, depth, layers[p, i], ends[0], ends[1])
                held = (parameters[end] - parameters[at]) / tp[c, z, q]
                ahead = forward[c, y, q, end] - forward[c, y, q, at]
                behind = backward[c, y, q, end] - backward[c, y, q, at]
                reduce = collective[0, 0, c, y, q, j] + collective[0, 1, c, y, q, j] * held
                gather = collective[1, 0, c, y, q, j] + collective[1, 1, c, y, q, j] * held
                if zero == 0:  # as `twin.stages.StageModel`
                    sync = min(reduce, gather)
                elif zero < 3:
                    sync = max(reduce - behind, reduce / BUCKETS) + max(gather - ahead, gather / BUCKETS)
                else:
                    sync, ahead, behind = reduce / BUCKETS, max(ahead, gather), max(behind, gather + reduce)
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


@njit(cache=True)
def _paced(  # type: ignore[no-untyped-def]
    stages,
    micro_batches,
    tf,
    tb,
    tail,
    source,
    target,
    occ,
    lat,
    size,
    bandwidth_bps,
    latency_s,
    tied_bytes,
    gpipe,
    blocking,
    out,
):
    down, up = np.empty(tf.shape[1]), np.empty(tf.shape[1])
    there, back = np.empty(tf.shape[1]), np.empty(tf.shape[1])
    for p in range(len(stages)):
        depth, m = stages[p], micro_batches[p]
        for x in range(bandwidth_bps.shape[1]):
            once, pace, alive = 0.0, 0.0, True
            for b in range(depth - 1):
                i, j = source[p, b], target[p, b]
                if i >= 0:
                    slow = min(bandwidth_bps[p, x, i, j], bandwidth_bps[p, x, j, i])
                    alive = alive and slow > 0 and size[p] * 8e9 / slow < LONGEST_NS
                    if not alive:
                        break
                    there[b] = size[p] * 8e9 / bandwidth_bps[p, x, i, j]
                    back[b] = size[p] * 8e9 / bandwidth_bps[p, x, j, i]
                    down[b] = there[b] + latency_s[p, x, i, j] * 1e9
                    up[b] = back[b] + latency_s[p, x, j, i] * 1e9
                else:
                    there[b] = back[b] = occ[p, b]
                    down[b] = up[b] = occ[p, b] + lat[p, b]
                once += down[b] + up[b]
            tied = exchange_ns(p, x, depth, source, target, tied_bytes, bandwidth_bps, latency_s)
            if not alive or tied >= LONGEST_NS:
                out[p, x] = DEAD
                continue
            ends = max(tail[p, 0], tail[p, depth - 1]) + tied
            for i in range(depth):
                once += tf[p, i] + tb[p, i]
                ends = max(ends, tail[p, i])
            pace = (
                _gpipe_pace(depth, tf[p], tb[p], there, back, down, up, blocking)
                if gpipe
                else _pace(depth, m, tf[p], tb[p], there, back, down, up, blocking)
            )
            out[p, x] = np.int64(once + (m - 1) * pace + ends)


@njit(cache=True)
def _pace(depth, m, tf, tb, there, back, down, up, blocking):  # type: ignore[no-untyped-def]
    """Heaviest cycle of 1F1B over the micro-batches in it; warm-up depths are min(m, depth - 1 - i).

    With blocking sends and m >= depth a cycle over several stages is the mean of theirs: one stage is enough.
    """
    pace = 0.0
    if blocking and m >= depth:
        for i in range(depth):
            turns = (down[i] if i < depth - 1 else 0.0) + (up[i - 1] if i > 0 else 0.0)
            pace = max(pace, tf[i] + tb[i] + turns)
        return pace
    for i in range(depth):
        length = 0.0
        for j in range(i, depth):
            length += tf[j] + tb[j]
            if j > i:
                length += down[j - 1] + up[j - 1]
            turns = 0.0
            if blocking:
                turns = (down[j] if j < depth - 1 else 0.0) + (up[i - 1] if i > 0 else 0.0)
            pace = max(pace, (length + turns) / (min(m, depth - 1 - i) - min(m, depth - 1 - j) + 1))
    if not blocking:
        for b in range(depth - 1):
            pace = max(pace, there[b], back[b])
    return pace


@njit(cache=True)
def _gpipe_pace(depth, tf, tb, there, back, down, up, blocking):  # type: ignore[no-untyped-def]
    """Slowest forward step and slowest backward step."""
    ahead, behind = 0.0, 0.0
    for i in range(depth):
        out, home = i < depth - 1, i > 0
        if blocking:
            ahead = max(ahead, tf[i] + (down[i] if out else 0.0))
            behind = max(behind, tb[i] + (up[i - 1] if home else 0.0))
        else:
            ahead = max(ahead, tf[i], there[i] if out else 0.0)
            behind = max(behind, tb[i], back[i - 1] if home else 0.0)
    return ahead + behind


@njit(cache=True)
def _owners(c, count, domain, layers, choice, class_of, pp, tp, dp, out):  # type: ignore[no-untyped-def]
    """Per layer: domain, tp, dp, stage inside the share."""
    at = 0
    for i in range(count):
        k = domain[i]
        z, q = class_of[k], choice[i]
        depth = pp[c, z, q]
        start = at
        for j in range(depth):
            while at < start + stage_start_compiled(j + 1, depth, layers[i], i == 0, i + 1 == count):
                out[at, 0], out[at, 1], out[at, 2], out[at, 3] = k, tp[c, z, q], dp[c], j
                at += 1


@njit(cache=True)
def _moved(  # type: ignore[no-untyped-def]
    knob0,
    count0,
    domain0,
    layers0,
    choice0,
    knob,
    count,
    domain,
    layers,
    choice,
    class_of,
    pp,
    tp,
    dp,
    size,
    moved,
    same,
):
    n = len(size)
    was, now = np.zeros((n, 4), np.int64), np.zeros((n, 4), np.int64)
    for p in range(len(knob)):
        _owners(knob0[p], count0[p], domain0[p], layers0[p], choice0[p], class_of, pp, tp, dp, was)
        _owners(knob[p], count[p], domain[p], layers[p], choice[p], class_of, pp, tp, dp, now)
        same[p] = knob0[p] == knob[p] and count0[p] == count[p]
        for i in range(min(count0[p], count[p])):
            same[p] = same[p] and domain0[p, i] == domain[p, i] and layers0[p, i] == layers[p, i]
            same[p] = same[p] and choice0[p, i] == choice[p, i]
        for layer in range(n):
            i, k = was[layer, 0], now[layer, 0]
            if i != k:
                moved[p, i, k] += size[layer]
            elif (
                was[layer, 1] != now[layer, 1]
                or was[layer, 2] != now[layer, 2]
                or was[layer, 3] != now[layer, 3]
            ):
                moved[p, k, k] += size[layer] * dp[knob[p]]
