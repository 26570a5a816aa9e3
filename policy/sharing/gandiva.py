"""Gandiva: time slices, packing where it pays, migration to where there is room (Xiao et al., OSDI 2018).

Jobs are admitted at once. While there is room each has its GPUs; then jobs of one size share GPUs: packed in
pairs where their measured stages let both run faster than in turns, else in turns, in which each runs for its
slice. A job goes where the fewest jobs share, ties to the place of the job that came first. When GPUs become
free, a job that shares moves to them (the pause of a restart is charged).

Left open: the length of a slice (a minute there; here turns are a rate, as a slice is far below a job), how
many share at most (here no bound) and growing and shrinking, which asks for jobs that say so and is left to
`elasticflow` and `edf-elastic`.
"""

from dataclasses import dataclass, field

import numpy as np

from policy.sharing.muri import Group
from twin.sharing import placing
from twin.sharing.speeds import INTERLEAVED, TURNS
from twin.sharing.view import NOWHERE, Allocation, SharingView


@dataclass
class Gandiva:
    """All jobs at once. `groups`: who shares with whom, by job, until one ends or a place becomes free."""

    groups: list[list[int]] = field(default_factory=list)

    def decide(self, view: SharingView) -> Allocation:
        """Returns GPUs for all jobs that a place of their size lets share."""
        row_of = {job: row for row, job in enumerate(view.job.tolist())}
        kept = [[row_of[job] for job in group if job in row_of] for group in self.groups]
        placed = [group for group in kept if group]
        known = {row for group in placed for row in group}
        new = [row for row in range(len(view)) if row not in known]
        room = placing.FreeGpus(view)
        placed = [group for group in placed if room.takes(int(view.asked[group[0]]))]
        new += sorted(known - {row for group in placed for row in group})
        for row in new:
            self._admit(view, row, placed, room)
        self._spread(view, placed, room)
        self.groups = [[int(view.job[row]) for row in group] for group in placed]
        return self._allocated(view, placed)

    def _admit(self, view: SharingView, row: int, placed: list[Group], room: placing.FreeGpus) -> None:
        """Puts a job on free GPUs, else where the fewest jobs of its size share."""
        size = int(view.asked[row])
        if room.takes(size):
            placed.append([row])
            return
        same = [group for group in placed if view.asked[group[0]] == size]
        if same:
            min(same, key=lambda group: (len(group), group[0])).append(row)

    def _spread(self, view: SharingView, placed: list[Group], room: placing.FreeGpus) -> None:
        """Moves jobs that share to free GPUs, from the fullest places first."""
        for group in sorted(placed, key=lambda group: (-len(group), group[0])):
            while len(group) > 1 and room.takes(int(view.asked[group[0]])):
                placed.append([group.pop()])

    def _allocated(self, view: SharingView, placed: list[Group]) -> Allocation:
        lead = np.array([group[0] for group in placed], np.int64)
        found = placing.fill(view, lead)
        leader, mode = (np.full(len(view), NOWHERE, np.int64) for _ in range(2))
        speeds = view.facts.speeds
        for group in placed:
            if len(group) > 1 and found.gpus[group[0]]:
                found.gpus[group], found.node[group] = view.asked[group], found.node[group[0]]
                leader[group] = group[0]
                jobs = tuple(view.job[group].tolist())
                pays = len(group) == 2 and sum(speeds.interleaved(jobs)) > 1
                mode[group] = INTERLEAVED if pays else TURNS
        return Allocation(found.gpus, found.node, found.whole, leader, mode)
