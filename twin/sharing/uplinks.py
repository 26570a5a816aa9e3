"""Uplinks of racks, which jobs that lie in several racks share: how much slower each iterates there.

A job goes over the uplink of each of its racks with its traffic to and from the others. Its workers lie in a
ring, rack by rack, so that one stream enters and one leaves a rack, each at most as fast as the network of
one node (ring all-reduce: Patarasuk and Yuan, J. Parallel Distrib. Comput. 2009). An uplink carries nodes /
oversubscription such streams (oversubscription of racks: Al-Fares et al., SIGCOMM 2008), as a fluid: no flow
is unlucky in its path. Iterations follow measured stages (`iterations.py`); a job without them puts nothing
on a link. Jobs may start their iterations at any time: a speed is the mean over `PHASES` ways to lie, evenly
apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ingest.core.errors import UsageError
from twin.queue.jobs import Float, Int
from twin.sharing import iterations
from twin.sharing.iterations import LinkFlow, Pattern

PHASES = 4
"""Ways to lie in time: in way p job i starts its iterations i x p / PHASES of one later."""


class LinkOrder(Protocol):
    """An order of jobs on shared links."""

    def ranks(self, jobs: Int) -> Int:
        """Returns the rank of each of these jobs, which are all that go over links now; lower first."""
        ...


def patterns_of(iteration: Float, stages: Float) -> list[Pattern | None]:
    """Returns the iteration of each job, None without a measured network stage.

    `iteration` (n,) and `stages` (n, 3) as in `MeasuredSpeeds`. The network stage lies at the end of the
    iteration; what the three stages are longer than it is the overlap of network and GPU.
    """
    found = list[Pattern | None]()
    for whole, (storage, gpu, network) in zip(iteration.tolist(), stages.tolist(), strict=True):
        if whole <= 0 or network <= 0:
            found.append(None)
            continue
        lasts = min(network, whole)
        begin = whole - lasts
        found.append(Pattern(begin, lasts, min(max(begin, storage + gpu), whole)))
    return found


@dataclass(frozen=True, eq=False)
class Uplinks:
    """Rack of each node (nodes,), what the uplink of each carries in streams of a node (racks,), and the
    iteration of each job. `known`: speeds found so far.

    Raises:
        UsageError: fewer than two racks, or an uplink that carries nothing.
    """

    rack: Int
    capacity: tuple[float, ...]
    patterns: Sequence[Pattern | None]
    known: dict[tuple[LinkFlow, ...], list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.capacity) < 2 or min(self.capacity) <= 0:
            raise UsageError("uplinks: there are two racks or more, and each uplink carries something")

    @classmethod
    def oversubscribed(cls, rack: Int, times: float, patterns: Sequence[Pattern | None]) -> "Uplinks":
        """Returns uplinks that carry the network of the nodes of their rack over `times`.

        Raises:
            UsageError: fewer than two racks.
        """
        return cls(rack, tuple((np.bincount(rack) / times).tolist()), patterns)

    def crossing(self, job: Int, gpus: Int, leader: Int, whole: Int) -> dict[int, tuple[int, ...]]:
        """Returns the places of jobs in these rows (rows,) that lie in several racks, with their racks.

        `whole`: the job that lies on each node beside others (nodes,); those who share lie where their leader
        does.
        """
        racks: dict[int, set[int]] = {}
        for node in np.flatnonzero(whole >= 0).tolist():
            racks.setdefault(int(whole[node]), set()).add(int(self.rack[node]))
        found = {}
        for row in np.flatnonzero(gpus > 0).tolist():
            one, first = int(job[row]), int(leader[row])
            held = racks.get(first if first >= 0 else one, set())
            if len(held) > 1 and self.patterns[one] is not None:
                found[row] = tuple(sorted(held))
        return found

    def slowed(self, rate: Int, job: Int, gpus: Int, leader: Int, whole: Int, order: LinkOrder | None) -> Int:
        """Returns the speed of each of these jobs (rows,), millionths, of `rate` without others on links.

        `order`: who goes first; None: all alike.
        """
        over = self.crossing(job, gpus, leader, whole)
        if not over:
            return rate
        rows, found = list(over), rate.copy()
        ranks = np.zeros(len(rows), np.int64) if order is None else order.ranks(job[rows])
        dense = np.unique(ranks, return_inverse=True)[1].tolist()
        flows = []
        for row, rank in zip(rows, dense, strict=True):
            pattern = self.patterns[int(job[row])]
            assert pattern is not None
            flows.append(LinkFlow(pattern, over[row], rank))
        for row, share in zip(rows, self.shares(tuple(flows)), strict=True):
            found[row] = max(1, int(rate[row] * share))
        return found

    def shares(self, flows: tuple[LinkFlow, ...]) -> list[float]:
        """Returns the speed of each flow over that alone at the full rate of its nodes."""
        if flows not in self.known:
            self.known[flows] = self._shares(flows)
        return self.known[flows]

    def _shares(self, flows: tuple[LinkFlow, ...]) -> list[float]:
        users = np.bincount([link for one in flows for link in one.links], minlength=len(self.capacity))
        if (users <= np.array(self.capacity)).all():
            return [1.0] * len(flows)
        sums = np.zeros(len(flows))
        for way in range(PHASES):
            offset = [at * way / PHASES % 1 * one.pattern.alone for at, one in enumerate(flows)]
            mean = iterations.played(flows, self.capacity, offset)
            sums += [one.pattern.alone / time for one, time in zip(flows, mean, strict=True)]
        return [min(1.0, one) for one in (sums / PHASES).tolist()]
