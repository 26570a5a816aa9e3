"""What a scheduler answers, as what each job and node holds from now on."""

import numpy as np
from numpy.typing import NDArray

from twin.queue.jobs import Int
from twin.sharing.progress import JobStates
from twin.sharing.speeds import INTERLEAVED
from twin.sharing.view import NOWHERE, Allocation, SharingView


def merged(
    s: JobStates, active: Int, held: NDArray[np.bool_], found: Allocation, all_rows: Int
) -> tuple[Int, Int, Int, Int, Int]:
    """GPUs, node, leader and mode of all active jobs, and who holds a node alone, as jobs: those of the
    scheduler where it decides, else what they are."""
    gpus, node, leader, whole = s.gpus[active], s.node[active], s.leader[active], s.whole.copy()
    stays = np.ones(len(found.gpus), np.bool_) if found.refused is None else ~found.refused
    gpus[~held], node[~held] = found.gpus[stays], found.node[stays]
    mode = s.mode[active]
    mode[~held] = INTERLEAVED if found.mode is None else found.mode[stays]
    leader[~held] = NOWHERE if found.leader is None else jobs_of(all_rows, found.leader)[stays]
    free = ~np.isin(whole, active[held])
    whole[free] = jobs_of(all_rows, found.whole)[free]
    return gpus, node, leader, mode, whole


def parts(s: JobStates, whole: Int, held: Int, found: Allocation, capacity: Int) -> Int:
    """Returns the GPUs of each node that the job in `whole` holds from now on."""
    given = capacity if found.part is None else found.part
    return np.where(whole < 0, np.int64(0), np.where(np.isin(whole, held), s.part, given))


def jobs_of(rows: Int, chosen: Int) -> Int:
    """Returns the jobs of rows, NOWHERE where there is none."""
    if not len(rows):
        return np.full(len(chosen), NOWHERE, np.int64)
    return np.where(chosen < 0, np.int64(NOWHERE), rows[chosen])


def fits(view: SharingView, found: Allocation) -> bool:
    """Returns True if no node gives more than it has; those who share hold the GPUs of their leader."""
    rows = np.arange(len(view))
    first = found.gpus > 0
    if found.leader is not None:
        first &= (found.leader < 0) | (found.leader == rows)
    placed = first & (found.node >= 0)
    used = np.bincount(found.node[placed], found.gpus[placed], len(view.free))
    lies = found.whole >= 0
    part = view.sizes if found.part is None else found.part
    used[lies] += part[lies]
    if found.part is not None:
        assert (part[lies] > 0).all() and not (lies & view.spanned).any()
        held = np.bincount(found.whole[lies], part[lies], len(view))
        assert (held[held > 0] == found.gpus[held > 0]).all(), "a job holds the parts that it was given"
    return bool((used <= view.free).all() and found.gpus[first].sum() <= view.free.sum())
