"""Exact iteration times of many different plans at once, equal to the Estimator's, without making `Plan`s.

Compiled code looks up the stages of every row in `OptionArrays`; rows with the same numbers of stages and
micro-batches then share calls of the kernel. Jobs with a schedule that the kernel has no recurrence for, or
with extra warm-up, are timed by the Estimator, shape by shape.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import NS_PER_S
from policy.search.parallelism_options import (
    BACKWARD,
    BYTES_EACH,
    BYTES_NONE,
    FORWARD,
    TAIL,
    OptionArrays,
    ParallelismOptions,
)
from policy.search.plan_shapes import Shape
from twin.core.domain import Cluster, LinkState
from twin.core.layer_split import stage_start_compiled
from twin.core.plan import Plan
from twin.costs.boundary_terms import ends_ns, terms
from twin.estimation.estimator import Estimator
from twin.estimation.mixed_shapes_kernel import Lines, empty, exact_ns
from twin.pipeline.kernel import DEAD, LONGEST_NS
from twin.pipeline.pipeline import MODES

Int = NDArray[np.int64]
Float = NDArray[np.float64]


class RowArrays(NamedTuple):
    """The arrays of `OptionRows`, for compiled code."""

    size: Int  # (P,)
    shares: Int  # (P,) number of shares in use
    domain: Int  # (P, W)
    option: Int  # (P, W)
    layers: Int  # (P, W)


@dataclass(frozen=True, slots=True, eq=False)
class OptionRows:
    """P plans by their indices in `ParallelismOptions`, at default placement.

    `size` (P,); `count` (P,) shares in use; `domain`, `option`, `layers` (P, W) of each share in pipeline
    order, padded with -1, 0 and 0.
    """

    size: Int
    count: Int
    domain: Int
    option: Int
    layers: Int

    def __len__(self) -> int:
        return len(self.size)

    def __getitem__(self, chosen: object) -> "OptionRows":
        return OptionRows(*(getattr(self, name)[chosen] for name in _FIELDS))

    @property
    def arrays(self) -> RowArrays:
        """The five arrays, contiguous: for others the compiled code would be compiled again."""
        return RowArrays(*(np.ascontiguousarray(getattr(self, name)) for name in _FIELDS))

    @property
    def keys(self) -> Int:
        """All columns (P, 2 + 3 W); equal rows are equal plans."""
        return np.column_stack([self.size, self.count, self.domain, self.option, self.layers])

    @property
    def shapes(self) -> Int:
        """All columns but the layers (P, 2 + 2 W)."""
        return np.column_stack([self.size, self.count, self.domain, self.option])

    def shape(self, options: ParallelismOptions, row: int) -> Shape:
        """Returns the plan of a row without its cuts."""
        n, size, arrays = int(self.count[row]), options.sizes[int(self.size[row])], options.arrays
        order = tuple(self.domain[row, :n].tolist())
        index = (int(self.size[row]), arrays.class_of[self.domain[row, :n]], self.option[row, :n])
        inner = tuple(zip(arrays.tp[index].tolist(), arrays.pp[index].tolist(), strict=True))
        return Shape(order, size.dp, inner, size.micro_batch, size.ep)

    def cuts(self, row: int) -> tuple[int, ...]:
        """Returns the cut points 0 = c_0 < ... < c_n = N of a row."""
        return (0, *np.cumsum(self.layers[row, : int(self.count[row])]).tolist())


CLOSED_FORM_SCHEDULES = ("gpipe", "1f1b")
"""Schedules with a closed form and with kernel recurrences for many plans at once."""
_FIELDS = ("size", "count", "domain", "option", "layers")


def concatenated(parts: list[OptionRows]) -> OptionRows:
    """Returns the rows of all parts, padded to the widest."""
    width = max(part.domain.shape[1] for part in parts)

    def padded(array: Int, fill: int) -> Int:
        wide = np.full((len(array), width), fill)
        wide[:, : array.shape[1]] = array
        return wide

    return OptionRows(
        np.concatenate([part.size for part in parts]),
        np.concatenate([part.count for part in parts]),
        np.concatenate([padded(part.domain, -1) for part in parts]),
        np.concatenate([padded(part.option, 0) for part in parts]),
        np.concatenate([padded(part.layers, 0) for part in parts]),
    )


def no_rows(width: int) -> OptionRows:
    """Returns zero rows of up to `width` shares."""
    none, wide = np.zeros(0, np.int64), np.zeros((0, width), np.int64)
    return OptionRows(none, none, wide, wide, wide)


def single_domain_rows(options: ParallelismOptions, layers: int) -> OptionRows:
    """Returns every plan inside one domain."""
    found = [
        (size, domain, option)
        for size in range(len(options.sizes))
        for domain, z in enumerate(options.arrays.class_of.tolist())
        if z >= 0
        for option in range(int(options.arrays.option_count[size, z]))
    ]
    size, domain, option = np.array(found, dtype=np.int64).reshape(-1, 3).T
    one = np.ones_like(size)
    return OptionRows(size, one, domain[:, None], option[:, None], layers * one[:, None])


def row_of(options: ParallelismOptions, plan: Plan) -> OptionRows | None:
    """Returns a pipeline plan as the only row; None where its sizes are not offered."""
    size = None if plan.sync is not None else options.size(plan.dp, plan.micro_batch, plan.ep)
    if size is None:
        return None
    found = [options.option(size, share.domain, share.tp, share.pp) for share in plan.shares]
    option = [one for one in found if one is not None]
    if len(option) < len(found):
        return None
    layers = [b - a for a, b in pairwise(plan.cuts)]
    lists = ([size], [len(option)], [list(plan.order)], [option], [layers])
    return OptionRows(*(np.array(one, dtype=np.int64) for one in lists))


class MessageTimes(NamedTuple):
    """Times on every link under every size, ns; -1: the link is dead."""

    occupancy: Int  # (C, K, K) of an activation
    latency: Int  # (K, K)
    tied: Int  # (C, K, K) whole tied-embedding exchange between the first and the last domain


def single_flow_bps(cluster: Cluster, bandwidth_bps: Float) -> Float:
    """Returns the bandwidth (..., K, K) of a single flow under the limits of the domains at both ends."""
    egress = np.array([[domain.egress_bps] for domain in cluster.domains])
    ingress = np.array([domain.ingress_bps for domain in cluster.domains])
    capped: Float = np.minimum(np.minimum(bandwidth_bps, egress), ingress)
    return capped


def message_times(options: OptionArrays, bps: Float, latency_s: Float) -> MessageTimes:
    """Returns the terms of `twin.costs.boundary_terms` for direct routes; of links (T, 1, K, K) those of T
    states, (T, C, K, K)."""
    message, tied = options.message_bytes[:, None, None], options.tied_bytes[:, None, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = terms(message, tied, bps, latency_s * NS_PER_S)

    def whole(ns: Float, alive: NDArray[np.bool_]) -> Int:
        return np.where(alive, ns, -1.0).astype(np.int64)

    fine = found.latency < LONGEST_NS
    back = found.tied.swapaxes(-1, -2)
    return MessageTimes(
        whole(found.occupancy, fine & (found.occupancy < LONGEST_NS)),
        whole(found.latency, fine),
        whole(ends_ns(found.tied, back), np.maximum(found.tied, back) < LONGEST_NS),
    )


class Scorer:
    """Computes iteration times under one link state."""

    def __init__(
        self,
        estimator: Estimator,
        options: ParallelismOptions,
        links: LinkState,
        slowdown: Float | None = None,
    ) -> None:
        self._estimator, self.options, self._links, self._slowdown = estimator, options, links, slowdown
        self.slowdown = (
            np.ones(estimator.cluster.size) if slowdown is None else np.array(slowdown, dtype=np.float64)
        )
        self._bps = single_flow_bps(estimator.cluster, links.bandwidth_bps)
        self.messages = message_times(options.arrays, self._bps, links.latency_s)

    def iter_ns(self, rows: OptionRows) -> Int:
        """Returns the iteration time (P,) of each row; `DEAD` where memory does not suffice, a stage stays
        empty or a used link is dead. Equal to `Estimator.iter_ns_cuts`.
        """
        job, gpipe = self._estimator.job, self._estimator.job.schedule == "gpipe"
        if job.schedule not in CLOSED_FORM_SCHEDULES or job.extra_warmup:
            return self._by_estimator(rows)
        options, total = self.options.arrays, np.full(len(rows), DEAD)
        used = np.arange(rows.domain.shape[1]) < rows.count[:, None]
        index = (rows.size[:, None], options.class_of[rows.domain], rows.option)
        stages = np.where(used, options.pp[index], 0).sum(axis=1)
        times, between = empty(len(rows), int(stages.max(initial=1)))
        fits = np.zeros(len(rows), np.bool_)
        layers = self._estimator.n_layers
        _fill(rows.arrays, options, self.slowdown, stages, gpipe, layers, (times, between), fits)
        out = np.empty((int(fits.sum()), 1), np.int64)
        bps, late_s = (
            np.broadcast_to(x, (len(out), 1, *x.shape)) for x in (self._bps, self._links.latency_s)
        )
        lines = Lines(
            stages, options.micro_batches[rows.size], *times, *between, options.message_bytes[rows.size],
            options.tied_bytes[rows.size],
        ).take(fits)  # fmt: skip
        exact_ns(lines, bps, late_s, gpipe, MODES[job.p2p], out)
        total[fits] = out[:, 0]
        return total

    def _by_estimator(self, rows: OptionRows) -> Int:
        """Returns the Estimator's times, all cuts of a shape in one call."""
        total, by_shape = np.full(len(rows), DEAD), dict[Shape, list[int]]()
        for row in range(len(rows)):
            by_shape.setdefault(rows.shape(self.options, row), []).append(row)
        for shape, some in by_shape.items():
            cuts = np.array([rows.cuts(row) for row in some], dtype=np.int64)
            total[some] = self._estimator.iter_ns_cuts(
                shape.order, cuts, shape.dp, shape.inner, shape.micro_batch, self._links, self._slowdown,
                shape.ep,
            )  # fmt: skip
        return total


@njit(inner=True, cache=True)
def _ns(seconds):  # type: ignore[no-untyped-def]
    """Returns nanoseconds, rounded once as the Estimator does."""
    return np.int64(np.rint(min(seconds * 1e9, LONGEST_NS)))


@njit(cache=True, nogil=True)
def _fill(rows, options, slowdown, stages, gpipe, n_layers, out, fits):  # type: ignore[no-untyped-def]
    """Fills `out`, the two tuples of `twin.estimation.mixed_shapes_kernel.empty`, and `fits` (P,): the row is
    legal, memory included."""
    size, shares, domain, option, layers = rows
    class_of, pp, inside = options.class_of, options.pp, options.inside
    (forward, backward, tail), (source, target, occupancy, latency) = out
    for p in range(len(size)):
        c, s, a, legal = size[p], 0, 0, True
        m, depth_of_all = options.micro_batches[c], stages[p]
        for i in range(shares[p]):
            k, q, held = domain[p, i], option[p, i], layers[p, i]
            z = class_of[k]
            depth = pp[c, z, q]
            start = a
            if held < depth:
                legal = False
                break
            for j in range(depth):
                b = start + stage_start_compiled(j + 1, depth, held, start == 0, start + held == n_layers)
                costs = options.spans[options.stage_table[c, z, q, j]]
                in_flight = m if gpipe else min(m, depth_of_all - s)
                peak = costs[BYTES_NONE, a, b] + in_flight * costs[BYTES_EACH, a, b]
                if b <= a or peak > options.memory_bytes[z]:
                    legal = False
                forward[p, s] = _ns(costs[FORWARD, a, b] * slowdown[k])
                backward[p, s] = _ns(costs[BACKWARD, a, b] * slowdown[k])
                tail[p, s] = _ns(costs[TAIL, a, b])
                if j + 1 < depth:
                    occupancy[p, s], latency[p, s] = inside[0, c, z, q, j], inside[1, c, z, q, j]
                elif i + 1 < shares[p]:
                    source[p, s], target[p, s] = k, domain[p, i + 1]
                a = b
                s += 1
        fits[p] = legal and a == n_layers
        if fits[p] and shares[p] == 1 and depth_of_all > 1:
            tied_ns = options.tied_inside_ns[c, class_of[domain[p, 0]], option[p, 0]]
            tail[p, 0] += tied_ns
            tail[p, depth_of_all - 1] += tied_ns
