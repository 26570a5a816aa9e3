"""Free GPUs of nodes of several models, while jobs are put on them one after the other."""

import numpy as np

from twin.queue.jobs import Int
from twin.sharing.view import NOWHERE, Allocation, SharingView


class ModelPlaces:
    """Places of jobs on nodes of one model each: the fullest node with room, or whole nodes.

    `of_node`: model of each node (nodes,).
    """

    def __init__(self, view: SharingView, of_node: Int) -> None:
        self.view, self.of_node, self.free = view, of_node, view.free.copy()
        self.gpus = np.zeros(len(view), np.int64)
        self.node = np.full(len(view), NOWHERE, np.int64)
        self.whole = np.full(len(view.free), NOWHERE, np.int64)

    def model_now(self, row: int) -> int:
        """Returns the model that a job runs on, NOWHERE for one that waits or lies on several."""
        held = self._held(row)
        models = set(self.of_node[held].tolist())
        return models.pop() if len(models) == 1 else NOWHERE

    def keep(self, row: int) -> bool:
        """Leaves a running job where it is; returns False if it runs on no nodes or they are taken."""
        held = self._held(row)
        if not len(held) or self.view.gpus[row] != self.view.asked[row]:
            return False
        each = self.view.gpus[row] if self.view.node[row] >= 0 else self.view.sizes[held]
        if (self.free[held] < each).any():
            return False
        if self.view.node[row] >= 0:
            self._put_on(row, int(self.view.node[row]))
        else:
            self._take(row, held)
        return True

    def put(self, row: int, model: int) -> bool:
        """Puts a job on nodes of that model, NOWHERE for any; returns False if it does not fit."""
        want, sizes = int(self.view.asked[row]), self.view.sizes
        right = (self.of_node == model) | (model == NOWHERE)
        fits = np.flatnonzero(right & (self.free >= want))
        if len(fits):
            self._put_on(row, int(fits[int(np.argmin(self.free[fits]))]))
            return True
        bare = np.flatnonzero(right & (self.free == sizes))
        many = int(np.searchsorted(np.cumsum(sizes[bare]), want)) + 1
        if many > len(bare):
            return False
        self._take(row, bare[:many])
        return True

    def allocation(self, again_ns: int | None) -> Allocation:
        """Returns what was given."""
        return Allocation(self.gpus, self.node, self.whole, again_ns=again_ns)

    def _held(self, row: int) -> Int:
        if self.view.node[row] >= 0:
            return self.view.node[[row]]
        return np.flatnonzero(self.view.whole == row).astype(np.int64)

    def _put_on(self, row: int, node: int) -> None:
        """Gives GPUs of one node to a job."""
        self.gpus[row], self.node[row] = self.view.asked[row], node
        self.free[node] -= self.view.asked[row]

    def _take(self, row: int, nodes: Int) -> None:
        """Gives whole nodes to a job."""
        self.gpus[row] = self.view.asked[row]
        self.whole[nodes] = row
        self.free[nodes] = 0
