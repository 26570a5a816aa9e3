"""Lucid: no preemption; small jobs first by predicted time, pairs packed where they hardly disturb each other
(Hu et al., ASPLOS 2023).

Jobs wait in the order of predicted run time x GPUs. One that finds no room is packed with a running job of
its size that shares with nobody, if both keep at least 85 % of their speed by their measured stages; the
best pair is taken, ties to the job that came first. Nobody is preempted or moved.

Left open, or not here: the profiler (profiles are those of the log's list), the threshold of the sharing
score, which Lucid learns from load and which is fixed here, and the learned prediction of run times, which
is that of `--prediction`.
"""

from dataclasses import dataclass, field

import numpy as np

from policy.sharing.muri import Group, allocated
from twin.sharing import placing
from twin.sharing.view import NOWHERE, Allocation, SharingView

LEAST_SPEED = 0.85
"""Both jobs of a pair keep at least this much of their speed."""


@dataclass
class LucidPacking:
    """Running jobs go on; the smallest waiting ones start, alone or in a pair. `pairs`: scores of pairs."""

    pairs: dict[tuple[int, int], float] = field(default_factory=dict)

    def decide(self, view: SharingView) -> Allocation:
        """Returns running jobs where they are, and places for waiting ones."""
        groups = _running(view)
        room = placing.FreeGpus(view)
        groups = [group for group in groups if room.takes(int(view.asked[group[0]]))]
        alone: dict[int, list[Group]] = {}
        for group in groups:
            if len(group) == 1 and view.facts.speeds.profiled(view.job[group])[0]:
                alone.setdefault(int(view.asked[group[0]]), []).append(group)
        waiting = np.flatnonzero(view.gpus == 0)
        for row in waiting[np.argsort((view.left_ns * view.asked)[waiting], kind="stable")].tolist():
            if room.takes(int(view.asked[row])):
                groups.append([row])
            elif mates := alone.get(int(view.asked[row])):
                self._pack(view, row, mates)
        return allocated(view, groups)

    def _pack(self, view: SharingView, row: int, alone: list[Group]) -> None:
        """Adds a job to the job alone beside which it does best, if it is mild enough there."""
        job = int(view.job[row])
        if not view.facts.speeds.profiled(view.job[[row]])[0]:
            return
        scores = [self._mildest(view, int(view.job[group[0]]), job) for group in alone]
        best = int(np.argmax(scores))
        if scores[best] >= LEAST_SPEED:
            alone.pop(best).append(row)

    def _mildest(self, view: SharingView, job: int, other: int) -> float:
        """Returns the lower of the speeds of two jobs in a pair over their speeds alone."""
        if (job, other) not in self.pairs:
            self.pairs[job, other] = min(view.facts.speeds.interleaved((job, other)))
        return self.pairs[job, other]


def _running(view: SharingView) -> list[Group]:
    """Returns the groups that run now, in order of submission."""
    found: dict[int, Group] = {}
    for row in np.flatnonzero(view.gpus).tolist():
        first = int(view.leader[row])
        found.setdefault(row if first == NOWHERE else first, []).append(row)
    return list(found.values())
