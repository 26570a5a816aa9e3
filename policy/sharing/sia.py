"""Sia: nodes, GPUs and GPU model of each job by an integer program (Jayaram Subramanya et al., SOSP 2023).

Every 60 s each job gets at most one configuration: on one node a power of two of GPUs, on several whole
nodes, all of one model. Its worth is goodput at the best batch over the least goodput of all configurations
that the job may have, times (T - N S) / (T + S) where it is another than now, of a job of age T that was
changed N times before with a restart of S. The program (sections 3.4 and 3.5, p = -0.5) has the least sum of
worth^p over jobs with a configuration and 1.1 over those without. HiGHS solves it. A job has the fewest GPUs
first and at most twice the most that it has had. Jobs that keep their configuration keep their place; where
another does not fit, smaller ones are moved.

Left open there, and taken so: a worth is 0.0001 at least (the authors' code). A start is not paid, so it is
not weighed down. Ties are those of the solver. A rigid job has its own size, whole nodes if it is larger than
one; so has any job whose curve holds no such configuration. Jobs that come, or GPUs that become free, wait
for the next round. A job that no one model can hold comes first, on whole nodes of several. Where the places
of jobs that may not be changed leave no room for a configuration, its job waits. Speeds are known: the paper
estimates those that were not measured from those that were.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from policy.sharing.pollux import GoodputRounds, penalties
from twin.queue.jobs import Float, Int
from twin.sharing.speed_table import Parts, SpeedTable, speed_table, with_spanning
from twin.sharing.view import SharingView

POWER, WAITING_COST = -0.5, 1.1
LEAST_WORTH = 1e-4
GAP = 1e-4
"""Relative gap at which the solver stops, as the authors'."""


class Configuration(NamedTuple):
    """GPUs of one model for a row; `used`: GPUs of the nodes that nobody else may have."""

    row: int
    model: int
    nodes: int
    gpus: int
    used: int
    speed: float


class SiaRounds(GoodputRounds):
    """Configurations by an integer program each round."""

    def optimised(self, view: SharingView, parts: Parts) -> Parts:
        """Returns the configurations of this round, placed."""
        table = speed_table(view)
        least = table.least()
        spans = least == 0
        if spans.any():
            parts = with_spanning(view, spans, parts)
        taken = parts.given[spans].sum(axis=0)
        free = np.bincount(table.of_node, view.free - taken, table.speed.shape[1])
        most = np.maximum(2 * self.had[view.job], least)
        offered = configurations(view, table, most, free.astype(np.int64))
        now = models_now(parts.given, table.of_node)
        chosen = solve(offered, worths(offered, now, penalties(view)), free.astype(np.float64))
        shut = view.spanned | ((parts.given[spans] > 0).sum(axis=0) > 0)
        placed = placed_anew(view, chosen, parts.given, table.of_node, view.free - taken, shut)
        placed[spans] = parts.given[spans]
        return Parts(placed, view.free - placed.sum(axis=0))


def configurations(view: SharingView, table: SpeedTable, most: Int, free: Int) -> list[Configuration]:
    """Returns what each row may have: up to `most` GPUs (rows,), and no more of a model than are free."""
    sizes = [int(view.sizes[table.of_node == model].max(initial=0)) for model in range(len(free))]
    return [
        one
        for row in range(len(view))
        for one in (_usual(table, row, sizes, free) or _own(table, row, sizes, free))
        if one.gpus <= most[row]
    ]


def _usual(table: SpeedTable, row: int, sizes: list[int], free: Int) -> list[Configuration]:
    """Returns powers of two on a node, and whole nodes, where the row runs."""
    found = []
    for model, size in enumerate(sizes):
        on_one = [(1, 2**power) for power in range(size.bit_length())] + [(1, size)]
        whole = [(nodes, nodes * size) for nodes in range(2, table.speed.shape[2])]
        for nodes, gpus in dict.fromkeys(on_one + whole):
            speed = table.speed[row, model, nodes, gpus] if gpus < table.speed.shape[3] else 0.0
            if size and speed > 0 and gpus <= free[model]:
                found.append(Configuration(row, model, nodes, gpus, gpus, float(speed)))
    return found


def _own(table: SpeedTable, row: int, sizes: list[int], free: Int) -> list[Configuration]:
    """Returns every number of GPUs on which the row runs, on as few nodes as hold them."""
    found = []
    for model, size in enumerate(sizes):
        for gpus in range(1, table.speed.shape[3]):
            nodes = -(-gpus // max(size, 1))
            used = gpus if nodes == 1 else nodes * size
            speed = table.speed[row, model, nodes, gpus] if nodes < table.speed.shape[2] else 0.0
            if size and speed > 0 and used <= free[model]:
                found.append(Configuration(row, model, nodes, gpus, used, float(speed)))
    return found


def models_now(given: Int, of_node: Int) -> list[tuple[int, int]]:
    """Returns the model and the GPUs that each row has now, GPUs 0 for none."""
    gpus = given.sum(axis=1).tolist()
    first = of_node[(given > 0).argmax(axis=1)].tolist() if given.size else []
    return list(zip(first, gpus, strict=True))


def worths(offered: list[Configuration], now: list[tuple[int, int]], penalty: Float) -> Float:
    """Returns the worth of each configuration: its goodput over the least of the row's, weighed down if it is
    another than now."""
    least: dict[int, float] = {}
    for one in offered:
        least[one.row] = min(one.speed, least.get(one.row, one.speed))
    found = [
        one.speed / least[one.row] * (1.0 if (one.model, one.gpus) == now[one.row] else penalty[one.row])
        for one in offered
    ]
    worth: Float = np.maximum(np.array(found), LEAST_WORTH)
    return worth


def solve(offered: list[Configuration], worth: Float, free: Float) -> list[Configuration]:
    """Returns the configurations of the least cost, one a row at most, within the GPUs of each model."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # brings scipy, needed here only
    from scipy.sparse import csr_array

    if not offered:
        return []
    columns = np.arange(len(offered))
    rows, models = np.array([one.row for one in offered]), np.array([one.model for one in offered])
    used = np.array([one.used for one in offered], np.float64)
    shape = int(rows.max()) + 1 + len(free), len(offered)
    matrix = csr_array(
        (
            np.concatenate((np.ones(len(offered)), used)),
            (np.concatenate((rows, shape[0] - len(free) + models)), np.concatenate((columns, columns))),
        ),
        shape=shape,
    )
    most = np.concatenate((np.ones(shape[0] - len(free)), free))
    with _unprinted():
        found = milp(
            worth**POWER - WAITING_COST, constraints=LinearConstraint(matrix, ub=most), bounds=Bounds(0, 1),
            integrality=np.ones(len(offered), np.int64), options={"mip_rel_gap": GAP},
        )  # fmt: skip
    assert found.x is not None, found.message
    return [one for one, taken in zip(offered, found.x.round().tolist(), strict=True) if taken]


@contextmanager
def _unprinted() -> Iterator[None]:
    """Keeps from standard output what HiGHS prints there in spite of its settings (HiGHS.jl, issue 312)."""
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        CDLL(None).fflush(None)  # the library's own buffer, which it shares with nobody in Python
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def placed_anew(
    view: SharingView, chosen: list[Configuration], now: Int, of_node: Int, free: Int, shut: NDArray[np.bool_]
) -> Int:
    """Returns the GPUs of each node for each row (rows, nodes): those that keep their configuration stay,
    others take the fullest node with room or whole nodes, larger ones first, and move smaller ones away."""
    places = _Places(np.zeros_like(now), free.copy(), view.sizes, shut)
    had, waiting = models_now(now, of_node), list[Configuration]()
    for one in chosen:
        if (one.model, one.gpus) == had[one.row] and (now[one.row] <= places.left).all():
            places.take(one, now[one.row])
        else:
            waiting.append(one)
    while waiting:
        waiting.sort(key=lambda one: (one.gpus, -one.row))
        one = waiting.pop()
        nodes = np.flatnonzero(of_node == one.model)
        waiting += places.put(one, nodes) if one.nodes == 1 else places.put_whole(one, nodes)
    return places.given


@dataclass
class _Places:
    """GPUs of each node by row, those left, and the configurations that lie there so far."""

    given: Int
    left: Int
    sizes: Int
    shut: NDArray[np.bool_]
    lies: dict[int, Configuration] = field(default_factory=dict)

    def take(self, one: Configuration, given: Int) -> None:
        """Gives these GPUs (nodes,) to a row."""
        self.given[one.row], self.lies[one.row] = given, one
        self.left -= given

    def put(self, one: Configuration, nodes: Int) -> list[Configuration]:
        """Puts a row on one of these nodes if there is a way; returns those that had to leave it."""
        rooms = {int(node): self._evicted(node, one.gpus) for node in nodes}
        ways = [
            (sum(other.gpus for other in gone), int(self.left[node]), node)
            for node, gone in rooms.items()
            if gone is not None
        ]
        if not ways:
            return []
        node = min(ways)[2]
        gone = self._leave(rooms[node] or [])
        self.take(one, np.where(np.arange(len(self.left)) == node, one.gpus, 0))
        return gone

    def put_whole(self, one: Configuration, nodes: Int) -> list[Configuration]:
        """Puts a row on several of these nodes, whole, if there is a way; returns those that had to leave."""
        rooms = {
            int(node): gone
            for node in nodes
            if not self.shut[node] and (gone := self._evicted(node, int(self.sizes[node]))) is not None
        }
        order = sorted(rooms, key=lambda node: (sum(other.gpus for other in rooms[node]), node))
        if len(order) < one.nodes:
            return []
        gone = self._leave([other for node in order[: one.nodes] for other in rooms[node]])
        given, rest = np.zeros(len(self.left), np.int64), one.gpus
        for node in order[: one.nodes]:
            given[node] = min(rest, self.sizes[node])
            rest -= given[node]
        self.take(one, given)
        return gone

    def _evicted(self, node: int, gpus: int) -> list[Configuration] | None:
        """Returns who must leave a node so that many GPUs are free there, the smallest first, all smaller
        than that and on this node alone; None if there is no way."""
        gone, room = list[Configuration](), int(self.left[node])
        there = [self.lies[row] for row in np.flatnonzero(self.given[:, node]).tolist()]
        for other in sorted(there, key=lambda other: (other.gpus, other.row)):
            if room >= gpus:
                break
            if other.nodes == 1 and other.gpus < gpus:
                gone.append(other)
                room += other.gpus
        return gone if room >= gpus else None

    def _leave(self, gone: list[Configuration]) -> list[Configuration]:
        for other in gone:
            self.left += self.given[other.row]
            self.given[other.row] = 0
            del self.lies[other.row]
        return gone
