"""Where each job of a view could run, and how fast: what schedulers choose sizes and GPU models by."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.queue.jobs import Float, Int
from twin.sharing.changes import PPM
from twin.sharing.view import NOWHERE, Allocation, SharingView


@dataclass(frozen=True, eq=False)
class SpeedTable:
    """Speed of each row over that of its run time on so many nodes and GPUs of each model, (rows, models,
    nodes + 1, GPUs + 1), 0 where it cannot run; the model of each node (nodes,)."""

    speed: Float
    of_node: Int

    def least(self) -> Int:
        """Returns the fewest GPUs on which each row runs (rows,), 0 for one that runs on no one model."""
        found: Int = (self.speed > 0).any(axis=(1, 2)).argmax(axis=1).astype(np.int64)
        return found


def speed_table(view: SharingView) -> SpeedTable:
    """Returns the speeds of all rows on nodes of one model: by goodput, or by curves and GPU models."""
    facts = view.facts
    if facts.goodput is not None:
        of_node = facts.goodput.of_node
        nodes, gpus = _bounds(of_node, view.sizes)
        return SpeedTable(facts.goodput.speeds(view.job, view.left_ns, nodes, gpus), of_node)
    of_node = np.zeros(len(view.sizes), np.int64) if facts.kinds is None else facts.kinds.of_node
    nodes, gpus = _bounds(of_node, view.sizes)
    models = 1 if facts.kinds is None else len(facts.kinds.names)
    found = np.zeros((len(view), models, nodes + 1, gpus + 1))
    fits = np.arange(nodes + 1)[:, None] <= np.arange(gpus + 1)
    fits[0] = False
    for row, job in enumerate(view.job.tolist()):
        curve = facts.speeds.curves.speeds(job)[: gpus + 1] / PPM
        ratio = np.ones(1) if facts.kinds is None else facts.kinds.speed[job] / PPM
        found[row, :, :, : len(curve)] = ratio[:, None, None] * curve * fits[:, : len(curve)]
    total = np.bincount(of_node, view.sizes, models)
    found *= np.arange(gpus + 1) <= total[:, None, None]
    return SpeedTable(found, of_node)


def _bounds(of_node: Int, sizes: Int) -> tuple[int, int]:
    """Returns the most nodes and the most GPUs of one model."""
    return int(np.bincount(of_node).max()), int(np.bincount(of_node, sizes).max())


@dataclass(eq=False)
class Parts:
    """GPUs of each node that each row gets (rows, nodes), with the GPUs that are left (nodes,)."""

    given: Int
    left: Int

    @classmethod
    def of_view(cls, view: SharingView) -> "Parts":
        """Returns what rows hold now; nobody shares GPUs."""
        given = np.zeros((len(view), len(view.free)), np.int64)
        alone = np.flatnonzero((view.gpus > 0) & (view.node >= 0))
        given[alone, view.node[alone]] = view.gpus[alone]
        nodes = np.flatnonzero(view.whole >= 0)
        given[view.whole[nodes], nodes] = view.part[nodes]
        return cls(given, view.free - given.sum(axis=0))

    def allocation(self, again_ns: int | None) -> Allocation:
        """Returns the allocation; a row on several nodes is the only such one on each of them."""
        gpus, count = self.given.sum(axis=1), (self.given > 0).sum(axis=1)
        node, whole = np.full(len(gpus), NOWHERE, np.int64), np.full(len(self.left), NOWHERE, np.int64)
        alone, spread = count == 1, (self.given > 0) & (count > 1)[:, None]
        node[alone] = self.given[alone].argmax(axis=1)
        rows, nodes = np.nonzero(spread)
        whole[nodes] = rows
        part = np.where(spread, self.given, 0).sum(axis=0)
        return Allocation(gpus, node, whole, again_ns=again_ns, part=part)


def with_spanning(view: SharingView, spans: NDArray[np.bool_], parts: Parts) -> Parts:
    """Returns the parts with those of jobs that only several models hold; others give way."""
    mine = np.where(spans[:, None], parts.given, 0)
    found = Parts(mine, view.free - mine.sum(axis=0))
    _place_spanning(view, spans, found)
    used = found.given.sum(axis=0)
    others = np.where(spans[:, None], 0, parts.given)
    fits = (others.sum(axis=0) + used <= view.free)[None] | (others == 0)
    others[~fits.all(axis=1)] = 0
    given = others + found.given
    return Parts(given, view.free - given.sum(axis=0))


def _place_spanning(view: SharingView, rows: NDArray[np.bool_], parts: Parts) -> None:
    """Gives whole nodes of any model, in order of submission, to rows that run on no one model; a row that
    has its GPUs keeps them."""
    for row in np.flatnonzero(rows).tolist():
        want = int(view.asked[row])
        if parts.given[row].sum() == want:
            continue
        bare = np.flatnonzero((parts.left == view.sizes) & ~view.spanned)
        ends = np.cumsum(view.sizes[bare])
        many = int(np.searchsorted(ends, want)) + 1
        if many <= len(bare):
            parts.given[row, bare[:many]] = view.sizes[bare[:many]]
            parts.given[row, bare[many - 1]] -= ends[many - 1] - want
            parts.left[bare[:many]] -= parts.given[row, bare[:many]]
