"""Where jobs lie: consolidated on one node, or on whole nodes, in the order in which a scheduler wants
them."""

import numpy as np

from ingest.core.compiled import njit
from twin.queue.jobs import Int
from twin.sharing.view import NOWHERE, Allocation, SharingView


def fill(view: SharingView, order: Int, gpus: Int | None = None) -> Allocation:
    """Returns the allocation of jobs in this order (rows): each gets what it asks for if that is free, and
    later ones may start where an earlier one does not fit.

    A job lies on the first node with enough free GPUs; one larger than a node takes whole free nodes (Zhao
    et al., SIGCOMM 2022, whose simulator has this rule from Tiresias, NSDI 2019). Among nodes of several
    sizes it takes whole free ones as well where no larger one has room. Unless the rules place
    anew, a running job whose turn comes before its GPUs were given away keeps them, and others take GPUs
    that nobody holds before those of jobs further back. `gpus`: how many each row shall get, in place of
    what it asks for.
    """
    wanted = view.asked if gpus is None else gpus
    return Allocation(
        *_fill(
            order, wanted, view.gpus, view.node, view.whole, view.free, view.sizes,
            not view.rules.places_anew,
        )
    )  # fmt: skip


def count(view: SharingView, order: Int) -> Allocation:
    """Returns the allocation of jobs in this order by the number of free GPUs, wherever they are."""
    gpus = _count(order, view.asked, int(view.free.sum()))
    return Allocation(gpus, np.full(len(view), NOWHERE, np.int64), np.full(len(view.free), NOWHERE, np.int64))


@njit(cache=True, nogil=True)
def _count(order: Int, asked: Int, free: int) -> Int:
    gpus = np.zeros(len(asked), np.int64)
    for row in order:
        if asked[row] <= free:
            gpus[row] = asked[row]
            free -= asked[row]
    return gpus


@njit(cache=True, nogil=True)
def _fill(
    order: Int,
    asked: Int,
    gpus_now: Int,
    node_now: Int,
    whole_now: Int,
    free_gpus: Int,
    sizes: Int,
    keeps: bool,
) -> tuple[Int, Int, Int]:
    free, nodes, largest, smallest = free_gpus.copy(), len(free_gpus), sizes.max(), sizes.min()
    gpus, node = np.zeros(len(asked), np.int64), np.full(len(asked), NOWHERE, np.int64)
    whole, later = np.full(nodes, NOWHERE, np.int64), np.zeros(nodes, np.int64)
    if keeps:
        for row in order:
            _count_later(later, gpus_now[row], node_now[row], whole_now, row, sizes, 1)
    for row in order:
        want = asked[row]
        if keeps:
            _count_later(later, gpus_now[row], node_now[row], whole_now, row, sizes, -1)
        if want <= largest:
            place = NOWHERE
            if keeps and gpus_now[row] and node_now[row] >= 0 and free[node_now[row]] >= want:
                place = node_now[row]
            for spared in range(1 if keeps else 0, -1, -1):
                for one in range(nodes):
                    if place < 0 and free[one] - spared * later[one] >= want:
                        place = one
            if place >= 0:
                gpus[row], node[row] = want, place
                free[place] -= want
            if place >= 0 or want <= smallest:
                continue
        chosen, count, held = np.full(nodes, NOWHERE, np.int64), 0, 0
        if keeps:
            for one in range(nodes):  # the nodes that it holds, if they are free, go first
                if whole_now[one] == row and free[one] == sizes[one] and held < want:
                    chosen[count] = one
                    count += 1
                    held += sizes[one]
        for spared in range(1 if keeps else 0, -1, -1):
            for one in range(nodes):
                bare = free[one] == sizes[one] and (not spared or not later[one])
                if bare and held < want and not (chosen[:count] == one).any():
                    chosen[count] = one
                    count += 1
                    held += sizes[one]
        if held >= want:
            gpus[row] = want
            for one in chosen[:count]:
                whole[one] = row
                free[one] = 0
    return gpus, node, whole


@njit(inline="always")
def _count_later(later: Int, gpus: int, node: int, whole: Int, row: int, sizes: Int, sign: int) -> None:
    """Counts the GPUs that a running job holds among those of jobs whose turn is still to come."""
    if gpus and node >= 0:
        later[node] += sign * gpus
    elif gpus:
        for one in range(len(whole)):
            if whole[one] == row:
                later[one] += sign * sizes[one]


class FreeGpus:
    """The GPUs of each node that are still free while jobs are tried, one after the other."""

    def __init__(self, view: SharingView) -> None:
        self.free, self.sizes = view.free.tolist(), view.sizes.tolist()
        self.largest, self.smallest = max(self.sizes), min(self.sizes)

    def takes(self, gpus: int) -> bool:
        """Returns True if a job of that size fits, and counts it: on the first node with room, or, larger
        than a node, on whole free ones."""
        if gpus <= self.largest:
            for at, free in enumerate(self.free):
                if free >= gpus:
                    self.free[at] -= gpus
                    return True
            if gpus <= self.smallest:
                return False
        chosen, held = list[int](), 0
        for at, (free, size) in enumerate(zip(self.free, self.sizes, strict=True)):
            if held < gpus and free == size:
                chosen.append(at)
                held += size
        if held < gpus:
            return False
        for at in chosen:
            self.free[at] = 0
        return True
