"""Muri: jobs that need different resources are interleaved on the same GPUs (Zhao et al., SIGCOMM 2022).

Jobs go by remaining service where run times are known (Muri-S), else by service had (Muri-L). In that order
each job that finds room brings the next jobs of its size with it, four a place; these candidates are paired
by how much of the resources a pair uses, pairs are paired again, as long as they ask for more GPUs than there
are. A group whose period is longer than its jobs one after the other is dissolved. Groups go by their first
job; those that do not fit wait. Size for size, jobs of different GPU counts never share, as in the paper.

Left open there, taken from the authors' simulator: ties go as at the event before with larger jobs first, and
places are given to larger jobs first. Pairs: `matching.py` in place of the blossom algorithm.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from policy.sharing.matching import paired_by_kind
from policy.sharing.srtf import KeptOrder
from twin.queue.jobs import Int
from twin.sharing import placing
from twin.sharing.speeds import MOST_SHARING, MeasuredSpeeds, Stages
from twin.sharing.view import NOWHERE, Allocation, SharingView

RESOURCES = 4
"""Resources of the authors: storage, CPU, GPU, network; the traces have times for the first two together."""
Group = list[int]
"""Rows of jobs that share the same GPUs."""


@dataclass
class Muri:
    """Groups of jobs of one size; `known`: by remaining service (Muri-S), else by service had (Muri-L)."""

    known: bool
    order: KeptOrder = field(default_factory=KeptOrder)

    def decide(self, view: SharingView) -> Allocation:
        """Returns groups of jobs and their places."""
        key = view.left_ns * view.asked if self.known else view.served_ns
        order = self.order.sort(view, key)
        rank = np.empty(len(view), np.int64)
        rank[order] = np.arange(len(view))
        groups = [part for group in self._grouped(view, order) for part in _worthwhile(view, group)]
        groups.sort(key=lambda group: min(rank[row] for row in group))
        room = placing.FreeGpus(view)
        groups = [group for group in groups if room.takes(int(view.asked[group[0]]))]
        self.order.jobs = view.job[order[np.argsort(-view.asked[order], kind="stable")]]
        return allocated(view, sorted(groups, key=lambda group: -view.asked[group[0]]))

    def _grouped(self, view: SharingView, order: Int) -> Iterator[Group]:
        """Yields the candidates, paired and paired again while they ask for more than there is."""
        nodes = _candidates(view, order)
        capacity = int(view.free.sum())
        asked = sum(size * len(found) for size, found in nodes.items())
        for _ in range(MOST_SHARING):
            for size, found in nodes.items():
                nodes[size], saved = _paired(view, found, max(0, -(-(asked - capacity) // size)))
                asked -= saved * size
            if asked <= capacity:
                break
        for found in nodes.values():
            yield from found


def _candidates(view: SharingView, order: Int) -> dict[int, list[Group]]:
    """Returns the jobs that may run now, by size: each that finds room brings the next three of its size."""
    by_size: dict[int, list[int]] = {}
    for row in order.tolist():
        by_size.setdefault(int(view.asked[row]), []).append(row)
    chosen, room = dict.fromkeys(by_size, 0), placing.FreeGpus(view)
    place = {row: at for rows in by_size.values() for at, row in enumerate(rows)}
    for row in order.tolist():
        size = int(view.asked[row])
        if place[row] >= chosen[size] and room.takes(size):
            chosen[size] = min(chosen[size] + MOST_SHARING, len(by_size[size]))
    return {size: [[row] for row in rows[: chosen[size]]] for size, rows in by_size.items()}


def _paired(view: SharingView, nodes: list[Group], most: int) -> tuple[list[Group], int]:
    """Returns the nodes with at most so many pairs joined, those of the first nodes first, and how many."""
    if most < 1 or len(nodes) < 2:
        return nodes, 0
    speeds = view.facts.speeds
    stages = [tuple(sorted(speeds.stages_of(int(view.job[row])) for row in group)) for group in nodes]
    names = sorted(set(stages))
    number = {name: at for at, name in enumerate(names)}
    pairs = paired_by_kind([number[one] for one in stages], lambda a, b: _use(speeds, names[a] + names[b]))
    partner = {later: first for first, later in pairs}
    paired = {one for pair in pairs for one in pair}
    found, joined = list[Group](), 0
    for at, group in enumerate(nodes):
        if at not in paired:
            found.append(group)
        elif at in partner and joined < most:
            found.append(nodes[partner[at]] + group)
            joined += 1
        elif at in partner:
            found += [nodes[partner[at]], group]
    return found, joined


def _use(speeds: MeasuredSpeeds, group: tuple[Stages, ...]) -> float:
    """Share of the resources that a group uses; 0 for one that is too large or not measured."""
    if len(group) > MOST_SHARING or any(stages == (0.0, 1.0, 0.0) for stages in group):
        return 0.0
    return sum(map(sum, group)) / (speeds.group_period(group) * RESOURCES)


def _worthwhile(view: SharingView, group: Group) -> list[Group]:
    """Returns the group, or its jobs alone where together they are slower than one after the other."""
    speeds = view.facts.speeds
    jobs = [int(view.job[row]) for row in group]
    if len(group) == 1 or sum(speeds.interleaved(tuple(jobs))) >= 1:
        return [group]
    return [[row] for row in group]


def _who_leads(view: SharingView, group: Group) -> int:
    """Returns who leads a group so that as few as possible move: who leads or runs alone now, else who
    runs."""
    leads = [row for row in group if view.gpus[row] and view.leader[row] in (row, NOWHERE)]
    runs = [row for row in group if view.gpus[row]]
    return (leads or runs or group)[0]


def allocated(
    view: SharingView, groups: list[Group], mode: Int | None = None, *, lead_first: bool = False
) -> Allocation:
    """Returns the allocation of groups in this order; a running job of a group leads it, so that it stays,
    or the first of each group."""
    lead = [group[0] if lead_first else _who_leads(view, group) for group in groups]
    found = placing.fill(view, np.array(lead, np.int64))
    leader = np.full(len(view), NOWHERE, np.int64)
    for first, group in zip(lead, groups, strict=True):
        if len(group) > 1 and found.gpus[first]:
            found.gpus[group] = view.asked[group]
            found.node[group], leader[group] = found.node[first], first
    return Allocation(found.gpus, found.node, found.whole, leader, mode)
