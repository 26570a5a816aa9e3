"""Exact iteration times of many different plans in one go: the Estimator's, without making a plan of each.

Compiled code looks the stages of every row up in the tables of a `Menu`; rows with equally many stages and
micro-batches then share calls of the kernel. Schedules that the kernel has no recurrences for, extra warm-up
and tied embeddings, whose exchange needs both ends, go through the Estimator shape by shape.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE, NS_PER_S
from twin.estimate.mixed_shapes_kernel import Lines, empty, exact_ns
from policy.search.parallelism_options import BACKWARD, BYTES_EACH, BYTES_NONE, FORWARD, TAIL, Menu
from policy.search.plan_shapes import Shape
from twin.costs import tied_embeddings as tied
from twin.core.domain import LinkState
from twin.estimate.estimator import Estimator
from twin.pipeline.kernel import DEAD, LONGEST_NS
from twin.core.plan import Plan
from twin.core.layer_split import stage_start_compiled

Int = NDArray[np.int64]
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """P plans by their numbers on a menu, at default placement.

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

    def __getitem__(self, chosen: object) -> "Rows":
        return Rows(*(getattr(self, name)[chosen] for name in _FIELDS))

    @property
    def keys(self) -> Int:
        """(P, 2 + 3 W) everything about a row; equal rows are equal plans."""
        return np.column_stack([self.size, self.count, self.domain, self.option, self.layers])

    @property
    def shapes(self) -> Int:
        """(P, 2 + 2 W) everything about a row but how its layers are cut."""
        return np.column_stack([self.size, self.count, self.domain, self.option])

    def shape(self, menu: Menu, row: int) -> Shape:
        """Everything of a row but its cuts."""
        n, size = int(self.count[row]), menu.sizes[int(self.size[row])]
        order = tuple(self.domain[row, :n].tolist())
        at = (int(self.size[row]), menu.class_of[self.domain[row, :n]], self.option[row, :n])
        inner = tuple(zip(menu.tp[at].tolist(), menu.pp[at].tolist(), strict=True))
        return Shape(order, size.dp, inner, size.micro_batch)

    def cuts(self, row: int) -> tuple[int, ...]:
        """Cut points 0 = c_0 < ... < c_n = N of a row."""
        return (0, *np.cumsum(self.layers[row, : int(self.count[row])]).tolist())


STANDARD = ("gpipe", "1f1b")
"""Schedules that have a closed form and recurrences for many plans at once."""
_FIELDS = ("size", "count", "domain", "option", "layers")


def joined(parts: list[Rows]) -> Rows:
    """Rows one after the other, padded to the widest."""
    width = max(part.domain.shape[1] for part in parts)

    def padded(array: Int, fill: int) -> Int:
        wide = np.full((len(array), width), fill)
        wide[:, : array.shape[1]] = array
        return wide

    return Rows(
        np.concatenate([part.size for part in parts]),
        np.concatenate([part.count for part in parts]),
        np.concatenate([padded(part.domain, -1) for part in parts]),
        np.concatenate([padded(part.option, 0) for part in parts]),
        np.concatenate([padded(part.layers, 0) for part in parts]),
    )


def nothing(width: int) -> Rows:
    """No rows."""
    none, wide = np.zeros(0, np.int64), np.zeros((0, width), np.int64)
    return Rows(none, none, wide, wide, wide)


def row_of(menu: Menu, plan: Plan) -> Rows | None:
    """A pipeline as the only row; None where its sizes are not on the menu."""
    size = None if plan.sync is not None else menu.size(plan.dp, plan.micro_batch)
    if size is None:
        return None
    option = [menu.option(size, share.domain, share.tp, share.pp) for share in plan.shares]
    known = [one for one in option if one is not None]
    if len(known) < len(option):
        return None
    layers = [b - a for a, b in pairwise(plan.cuts)]
    lists = ([size], [len(option)], [list(plan.order)], [known], [layers])
    return Rows(*(np.array(one, dtype=np.int64) for one in lists))


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """What is sent on every link under every size, ns; -1: the link is dead."""

    occupancy: Int  # (C, K, K) of an activation
    latency: Int  # (K, K)
    tied: Int  # (C, K, K) the whole exchange of a tied embedding between the domains at both ends


def _messages(menu: Menu, bps: Float, latency_s: Float) -> Messages:
    """Occupancy and latency as `twin.boundaries` computes them for direct routes."""
    late = np.where(latency_s * NS_PER_S < LONGEST_NS, np.rint(latency_s * NS_PER_S), np.inf)

    def sent(size_bytes: Float) -> Float:
        with np.errstate(divide="ignore", invalid="ignore"):
            ns = size_bytes[:, None, None] * BITS_PER_BYTE / bps * NS_PER_S
        return np.where((bps > 0) & (ns < LONGEST_NS), np.rint(ns), np.inf)

    def whole(ns: Float) -> Int:
        return np.where(np.isfinite(ns), ns, -1.0).astype(np.int64)

    step = sent(menu.tied_bytes) + late
    both = tied.STEPS * np.maximum(step, step.swapaxes(1, 2))
    return Messages(
        whole(np.where(np.isfinite(late), sent(menu.message_bytes), np.inf)),
        whole(late),
        whole(np.where(menu.tied_bytes[:, None, None] > 0, both, 0.0)),
    )


class Scorer:
    """Iteration times under one link state."""

    def __init__(
        self, estimator: Estimator, menu: Menu, links: LinkState, slowdown: Float | None = None
    ) -> None:
        self._estimator, self.menu, self._links, self._slowdown = estimator, menu, links, slowdown
        cluster = estimator.cluster
        self.slow = np.ones(cluster.size) if slowdown is None else np.asarray(slowdown, dtype=np.float64)
        egress = np.array([[domain.egress_bps] for domain in cluster.domains])
        ingress = np.array([domain.ingress_bps for domain in cluster.domains])
        self._bps = np.minimum(np.minimum(links.bandwidth_bps, egress), ingress)
        self.messages = _messages(menu, self._bps, links.latency_s)

    def iter_ns(self, rows: Rows) -> Int:
        """Iteration time (P,) of each row; `DEAD` where memory does not suffice, a stage stays empty or a
        used link is dead. Equal to `Estimator.iter_ns_cuts`.
        """
        job = self._estimator.job
        if job.schedule not in STANDARD or job.extra_warmup:
            return self._one_by_one(rows)
        menu, total = self.menu, np.full(len(rows), DEAD)
        used = np.arange(rows.domain.shape[1]) < rows.count[:, None]
        at = (rows.size[:, None], menu.class_of[rows.domain], rows.option)
        stages = np.where(used, menu.pp[at], 0).sum(axis=1)
        times, between = empty(len(rows), int(stages.max(initial=1)))
        fine = np.zeros(len(rows), np.bool_)
        _fill(
            rows.size, rows.count, rows.domain, rows.option, rows.layers, menu.class_of, menu.pp, menu.table,
            menu.inside, menu.around, menu.spans, menu.memory, menu.micro_batches, self.slow, stages,
            job.schedule == "gpipe", self._estimator.n_layers, times, between, fine,
        )  # fmt: skip
        out = np.empty((int(fine.sum()), 1), np.int64)
        links = (np.broadcast_to(x, (len(out), 1, *x.shape)) for x in (self._bps, self._links.latency_s))
        lines = Lines(
            stages, menu.micro_batches[rows.size], *times, *between, menu.message_bytes[rows.size],
            menu.tied_bytes[rows.size],
        ).take(fine)  # fmt: skip
        exact_ns(lines, *links, job.schedule == "gpipe", job.p2p == "blocking", out)
        total[fine] = out[:, 0]
        return total

    def _one_by_one(self, rows: Rows) -> Int:
        """By the Estimator, all cuts of a shape at once."""
        total, by_shape = np.full(len(rows), DEAD), dict[Shape, list[int]]()
        for row in range(len(rows)):
            by_shape.setdefault(rows.shape(self.menu, row), []).append(row)
        for shape, some in by_shape.items():
            cuts = np.array([rows.cuts(row) for row in some], dtype=np.int64)
            total[some] = self._estimator.iter_ns_cuts(
                shape.order, cuts, shape.dp, shape.inner, shape.micro_batch, self._links, self._slowdown
            )
        return total


@njit(cache=True)
def _ns(seconds):  # type: ignore[no-untyped-def]
    """Rounded once, as the Estimator does."""
    return np.int64(np.rint(min(seconds * 1e9, LONGEST_NS)))


@njit(cache=True, nogil=True)
def _fill(  # type: ignore[no-untyped-def]
    size, count, domain, option, layers, class_of, pp, table, inside, around, spans, memory, micro_batches,
    slow, stages, gpipe, n_layers, times, between, fine,
):  # fmt: skip
    """Fill `times` = (forward, backward, tail), each (P, S), and `between` = (domain before the boundary,
    behind it, or occupancy, latency inside a domain), each (P, S - 1); say which rows fit."""
    forward, backward, tail = times
    source, target, occupancy, latency = between
    for p in range(len(size)):
        c, s, a, good = size[p], 0, 0, True
        m, whole = micro_batches[c], stages[p]
        for i in range(count[p]):
            k, q, held = domain[p, i], option[p, i], layers[p, i]
            z = class_of[k]
            depth = pp[c, z, q]
            start = a
            if held < depth:
                good = False
                break
            for j in range(depth):
                b = start + stage_start_compiled(j + 1, depth, held, start == 0, start + held == n_layers)
                costs = spans[table[c, z, q, j]]
                flight = m if gpipe else min(m, whole - s)
                if b <= a or costs[BYTES_NONE, a, b] + flight * costs[BYTES_EACH, a, b] > memory[z]:
                    good = False
                forward[p, s] = _ns(costs[FORWARD, a, b] * slow[k])
                backward[p, s] = _ns(costs[BACKWARD, a, b] * slow[k])
                tail[p, s] = _ns(costs[TAIL, a, b])
                if j + 1 < depth:
                    occupancy[p, s], latency[p, s] = inside[0, c, z, q, j], inside[1, c, z, q, j]
                elif i + 1 < count[p]:
                    source[p, s], target[p, s] = k, domain[p, i + 1]
                a = b
                s += 1
        fine[p] = good and a == n_layers
        if fine[p] and count[p] == 1 and whole > 1:
            ends = around[c, class_of[domain[p, 0]], option[p, 0]]
            tail[p, 0] += ends
            tail[p, whole - 1] += ends
