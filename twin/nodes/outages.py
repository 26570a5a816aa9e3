"""Outages of nodes: faults, which end the jobs on a node, and drains, which let them end."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from twin.placement.cluster import NodeCluster
from twin.placement.recipe import Int
from twin.queue.jobs import LATEST_NS

UP, FAULT, DRAIN = range(3)
"""Kinds of a node's changes: an outage of it is over, or begins."""
MOST_OUTAGES = 500_000
"""Outages that are drawn at most."""


@dataclass(frozen=True, slots=True)
class FaultLaw:
    """Law by which faults were drawn: mean seconds from a repair to the next fault of a node, mean seconds of
    a repair, and the seed."""

    mtbf_s: float
    mttr_s: float
    seed: int


class SlowTime(NamedTuple):
    """A time in which a node is slow: nanoseconds of its begin and end, and its speed, millionths."""

    node: int
    begin_ns: int
    end_ns: int
    speed_ppm: int


@dataclass(frozen=True, eq=False)
class NodeOutages:
    """Outages of nodes in the order in which they begin, one element an outage: node, nanoseconds of its
    begin and of its end, and whether it is a drain. A node is out as long as any outage of it lasts.

    `law` is that of faults that were drawn; None of others. `slow`: times in which nodes are slow, which are
    no outages."""

    node: Int
    down_ns: Int
    up_ns: Int
    drain: NDArray[np.bool_]
    law: FaultLaw | None = None
    slow: tuple[SlowTime, ...] = ()

    @classmethod
    def of_rows(cls, rows: list[tuple[int, int, int, bool]], slow: tuple[SlowTime, ...] = ()) -> Self:
        """Returns the outages of rows (node, begin and end in nanoseconds, whether it is a drain).

        Raises:
            UsageError: a time that cannot be.
        """
        ordered = sorted(rows, key=lambda row: (row[1], row[0], row[2]))
        for node, down_ns, up_ns, _ in ordered:
            if not 0 <= down_ns < up_ns < LATEST_NS:
                raise UsageError(f"an outage of node {node} ends before it begins, or after all time")
        columns = list(zip(*ordered, strict=True)) or [(), (), (), ()]
        times = [np.array(column, np.int64) for column in columns[:3]]
        return cls(times[0], times[1], times[2], np.array(columns[3], np.bool_), slow=slow)

    def __len__(self) -> int:
        return len(self.node)

    def check(self, cluster: NodeCluster) -> None:
        """Checks that the cluster has the nodes.

        Raises:
            UsageError: it has not.
        """
        if len(self) and not 0 <= self.node.min() <= self.node.max() < len(cluster):
            wrong = self.node[(self.node < 0) | (self.node >= len(cluster))][0]
            raise UsageError(f"an outage of node {wrong}: the nodes are 0 to {len(cluster) - 1}")

    def changes(self) -> tuple[Int, Int, Int]:
        """Returns time, node and kind of each change, in order; at one instant ends before begins, then by
        node."""
        kind = np.concatenate((np.full(len(self), UP), np.where(self.drain, DRAIN, FAULT)))
        time, node = np.concatenate((self.up_ns, self.down_ns)), np.tile(self.node, 2)
        order = np.lexsort((node, kind, time))
        return time[order], node[order], kind[order].astype(np.int64)

    def stretches(self) -> tuple[Int, Int, Int]:
        """Returns node, begin and end of each stretch of time in which a node is out, by node and time;
        outages that overlap or follow each other at once are one stretch."""
        order, many = np.lexsort((self.down_ns, self.node)), len(self)
        node, down_ns, up_ns = self.node[order], self.down_ns[order], self.up_ns[order]
        by_end = np.argsort(up_ns, kind="stable")
        rank = np.empty(many, np.int64)
        rank[by_end] = np.arange(many)
        latest = np.maximum.accumulate(node * many + rank) - node * many  # so far, of the same node
        latest_ns = up_ns[by_end[latest]]
        begins = np.ones(many, np.bool_)
        begins[1:] = (node[1:] != node[:-1]) | (down_ns[1:] > latest_ns[:-1])
        first = np.flatnonzero(begins)
        last = np.append(first, many)[1:] - 1
        return node[first], down_ns[first], latest_ns[last]

    def known_at(self, at_ns: int, up_ns: Int) -> "NodeOutages":
        """Returns the outages that have begun by a time; those that last on end at `up_ns` (m,) instead."""
        ends_ns = np.where(self.up_ns > at_ns, up_ns, self.up_ns)
        return replace(self, up_ns=ends_ns, law=None)._of(self.down_ns <= at_ns)

    def faults(self) -> "NodeOutages":
        """Returns the outages without drains."""
        return replace(self, law=None)._of(~self.drain)

    def begun_by(self, at_ns: int) -> "NodeOutages":
        """Returns the outages that begin up to a time, with all that is known of them."""
        return self._of(self.down_ns <= at_ns)

    def _of(self, chosen: NDArray[np.bool_]) -> "NodeOutages":
        """The outages of a mask."""
        node, down_ns, up_ns = self.node[chosen], self.down_ns[chosen], self.up_ns[chosen]
        return NodeOutages(node, down_ns, up_ns, self.drain[chosen], self.law)

    def out_gpu_s(self, gpus: Int, begin_ns: int, end_ns: int) -> float:
        """Returns the GPU-seconds of nodes of these GPUs (nodes,) that are out between two times."""
        node, down_ns, up_ns = self.stretches()
        lasted = np.maximum(np.minimum(up_ns, end_ns) - np.maximum(down_ns, begin_ns), 0)
        return sum(map(int.__mul__, lasted.tolist(), gpus[node].tolist())) / NS_PER_S


NO_OUTAGES = NodeOutages.of_rows([])


def drawn(nodes: int, mtbf_s: float, mttr_s: float, until_s: float, seed: int) -> NodeOutages:
    """Returns faults whose gaps and lengths are exponential, of each node by a stream of its own: drawn
    further, what was drawn before stays as it is. They are synthetic.

    mtbf_s is the mean time from a repair to the next fault of a node, mttr_s that of a repair. Faults that
    begin before `until_s` are drawn.

    Raises:
        UsageError: a mean that is not positive, or more faults than can be.
    """
    if not (0 < mtbf_s < np.inf and 0 < mttr_s < np.inf):
        raise UsageError("mean times between faults and to repair are positive: say more than 0")
    if nodes * until_s / (mtbf_s + mttr_s) > MOST_OUTAGES:
        raise UsageError(
            f"more than {MOST_OUTAGES:,} faults before the jobs end: jobs are ended again and again. Say a "
            "longer mean time between faults, or --checkpoint-interval-s"
        )
    rows = list[tuple[int, int, int, bool]]()
    for node in range(nodes):
        stream, time_ns = np.random.default_rng((seed, node)), 0
        while True:
            down_ns = time_ns + max(1, round(stream.exponential(mtbf_s) * NS_PER_S))
            if down_ns >= until_s * NS_PER_S:
                break
            time_ns = down_ns + max(1, round(stream.exponential(mttr_s) * NS_PER_S))
            rows.append((node, down_ns, time_ns, False))
    return replace(NodeOutages.of_rows(rows), law=FaultLaw(mtbf_s, mttr_s, seed))


@dataclass(frozen=True, eq=False)
class Interruptions:
    """Runs that a fault ended, in the order in which it did: place of the job, start and end (nanoseconds),
    the work of the run that its last checkpoint keeps (nanoseconds), whether it had overtaken the head, and
    its slots: those of run i are `slots[first[i]:first[i + 1]]`."""

    job: Int
    start_ns: Int
    end_ns: Int
    kept_ns: Int
    backfilled: NDArray[np.bool_]
    first: Int
    slots: Int

    def __len__(self) -> int:
        return len(self.job)

    @property
    def lost_ns(self) -> Int:
        """Returns the work that is lost of each run."""
        lost: Int = self.end_ns - self.start_ns - self.kept_ns
        return lost

    def of_jobs(self, jobs: int) -> Int:
        """Returns how often each job was ended by a fault (jobs,)."""
        return np.bincount(self.job, minlength=jobs).astype(np.int64)


_NONE = np.zeros(0, np.int64)
UNBROKEN = Interruptions(
    _NONE, _NONE, _NONE, _NONE, np.zeros(0, np.bool_), np.zeros(1, np.int64), _NONE
)  # fmt: skip
"""No run was ended."""
