"""AntMan: guaranteed jobs as if alone, opportunistic ones in what they leave (Xiao et al., OSDI 2020).

Guaranteed jobs start in order of submission; an opportunistic job may hold free GPUs, and is preempted there
when a guaranteed one needs them, or it runs on the GPUs of a guaranteed job of its size or larger, at the
speed that is left (`Speeds`, mode BELOW). At most two jobs share, as in Muri's simulation of AntMan. Memory
is taken to suffice, as there; the paper moves it between GPU and host. Priority 0 is guaranteed, 1
opportunistic; where a log has none all jobs are guaranteed.

Left open: which GPUs an opportunistic job shares. Here those on which it runs fastest, ties by submission; it
stays there while its leader runs. Where no guaranteed job has room below it, two opportunistic ones take
turns.
"""

import numpy as np

from policy.sharing.muri import Group, allocated
from twin.queue.jobs import Int
from twin.sharing import placing
from twin.sharing.speeds import BELOW, TURNS
from twin.sharing.view import Allocation, SharingView


class AntMan:
    """Guaranteed jobs first, opportunistic ones beside or below them."""

    def decide(self, view: SharingView) -> Allocation:
        """Returns the jobs that hold GPUs, with those that run in what they leave."""
        low = view.facts.priority[view.job] > 0
        running = view.gpus > 0
        order = np.lexsort((np.arange(len(view)), ~running, low))
        room = placing.FreeGpus(view)
        held = [row for row in order.tolist() if room.takes(int(view.asked[row]))]
        waiting = np.flatnonzero(low & ~np.isin(np.arange(len(view)), held))
        below = self._below(view, waiting, [row for row in held if not low[row]])
        rest = np.setdiff1d(waiting, [row for mates in below.values() for row in mates])
        below |= self._below(view, rest, [row for row in held if low[row]])
        groups: list[Group] = [[row, *below.get(row, [])] for row in held]
        mode = np.full(len(view), BELOW, np.int64)
        for first, mates in below.items():
            mode[[first, *mates]] = TURNS if low[first] else BELOW
        return allocated(view, groups, mode, lead_first=True)

    def _below(self, view: SharingView, waiting: Int, leaders: list[int]) -> dict[int, list[int]]:
        """Returns who runs in what which leader leaves."""
        speeds, found = view.facts.speeds, dict[int, list[int]]()
        for row in waiting.tolist():
            stays = int(view.leader[row])
            fits = [
                one
                for one in leaders
                if one not in found
                and view.asked[one] >= view.asked[row]
                and speeds.profiled(view.job[[one]])[0]
            ]
            if stays in fits:
                found[stays] = [row]
            elif fits:
                job = int(view.job[row])
                best = max(fits, key=lambda one: (speeds.beside(job, int(view.job[one])), -one))
                found[best] = [row]
        return found
