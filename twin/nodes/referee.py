"""Reference simulator of a cluster of nodes in SimPy: slow and plain; tests hold the kernel equal to it.

The pool's referee with places: every pass asks every job anew, and a reservation is found by emptying a copy
of the nodes end by end. A node that is out holds nothing new; a fault sends its jobs back to the queue."""

from collections import Counter
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from twin.core.clock import At
from twin.nodes.outages import FAULT, NO_OUTAGES, UP, NodeOutages
from twin.nodes.sleeping import SleepRule
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands, popular
from twin.placement.plain import Piece, PlainNodes, at_least
from twin.placement.recipe import PlacementRecipe
from twin.queue.jobs import Int, QueueJobs
from twin.queue.recipe import Backfill, OrderKeys
from twin.queue.referee import BACK, EARLY, KILLED, OUT, Happening, Promise, Referee, ignore
from twin.queue.rules import QueueRules
from twin.queue.usage import Run

FIRST_OF_ALL = EARLY - 1
"""Rank of changes of nodes among the events of one instant."""
NEVER = int(np.iinfo(np.int64).max)
Broken = tuple[int, int, int, int, bool, list[Piece]]
"""A run that a fault ended: job, start, end, work kept, whether it had overtaken the head, and its pieces."""


@dataclass
class _NodeReferee(Referee):
    nodes: PlainNodes | None = None
    class_of: Int | None = None
    outages: NodeOutages = NO_OUTAGES
    checkpoint_interval_ns: int = 0
    sleep: SleepRule | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.nodes is not None and self.class_of is not None
        self.site: PlainNodes = self.nodes
        self.kind = [int(kind) for kind in self.class_of]
        self.tasks: Counter[int] = Counter()
        self.held: dict[int, list[Piece]] = {}
        self.laid: dict[int, list[Piece]] = {}
        self.planned: dict[int, list[Piece]] = {}
        self.empty = self.site.copy()
        self.future, self.latest = self.site, -1
        self.broken: list[Broken] = []
        self.changed = False
        self.idle_since: dict[int, int] = {}
        self.woke = [0] * len(self.jobs)
        changes = zip(*(column.tolist() for column in self.outages.changes()), strict=True)
        for time, same in groupby(changes, key=lambda change: int(change[0])):
            event, these = At(self.env, time, FIRST_OF_ALL), [(node, kind) for _, node, kind in same]
            event.callbacks.append(lambda _, these=these: self.change_nodes(these))

    def change_nodes(self, changes: list[tuple[int, int]]) -> None:
        """Takes nodes out and gives them back; a fault ends the jobs on its node for now."""
        for n, kind in changes:
            self.note(BACK if kind == UP else OUT, n)
            for nodes in (self.site, self.empty):
                nodes.nodes[n].outages += -1 if kind == UP else 1
            hit = [job for job, pieces in self.held.items() if n in [node for node, _ in pieces]]
            for job in sorted(hit) if kind == FAULT else []:
                if self.started[job] + self.run_ns[job] > self.env.now:
                    self.interrupted(job)
        self.changed = self.ended = True
        self.schedule()

    def interrupted(self, job: int) -> None:
        """Puts a running job back into the queue with what it has still to run."""
        self.leave(job)
        del self.running[job]
        self.reserved.pop(job, None)
        begin, now, every = self.started.pop(job), int(self.env.now), self.checkpoint_interval_ns
        kept = (now - begin) // every * every if every else 0
        self.broken.append((job, begin, now, kept, job in self.overtook, self.laid[job]))
        self.overtook.discard(job)
        self.note(KILLED, job, kept)
        self.run_ns[job] -= kept
        self.expected[job] = max(self.expected[job] - kept, min(self.expected[job], 1))
        self.queue.append(job)

    def runs(self) -> list[Run]:
        return [(job, self.size[job], begin, end) for job, begin, end, *_ in self.broken] + super().runs()

    def submitted(self, job: int) -> None:
        self.tasks[int(self.site.wants.task[self.kind[job]])] += 1
        count = self.tasks.total()
        if count & (count - 1) == 0:
            counts = np.array([self.tasks[task] for task in range(len(self.site.mix.gpus))], np.int64)
            self.site.mix = popular(self.site.mix, counts)
        super().submitted(job)

    def terminated(self, job: int) -> None:
        for node in {node for node, _ in self.laid[job]}:
            if not self.users(node, job):
                self.idle_since[node] = int(self.env.now)
        self.leave(job)
        super().terminated(job)

    def users(self, node: int, but: int) -> list[int]:
        """Returns the other jobs that run on a node."""
        return [job for job in self.running if job != but and node in [one for one, _ in self.laid[job]]]

    def waking(self, job: int) -> int:
        """Returns how long a job that has its place waits for its nodes."""
        if self.sleep is None:
            return 0
        first = int(self.jobs.submit_ns.min())
        lengths = [
            self.env.now - self.idle_since.get(node, first)
            for node in {node for node, _ in self.laid[job]} if not self.users(node, job)
        ]  # fmt: skip
        return self.sleep.wake_ns if max(lengths, default=-1) >= self.sleep.after_ns else 0

    def leave(self, job: int) -> None:
        """Gives back what a job still holds."""
        for piece in self.held.pop(job, []):
            self.site.move(self.kind[job], piece, 1)

    def place(self, job: int) -> None:
        if job in self.planned:
            for piece in self.planned[job]:
                self.site.move(self.kind[job], piece, -1)
        laid = self.planned.pop(job, None) or self.site.put(self.kind[job], job)
        self.held[job] = self.laid[job] = laid

    def pass_now(self) -> None:
        for job in [job for job, one in self.running.items() if self.freed(one)]:
            self.leave(job)
        if self.changed:
            for job in self.queue:
                self.reserved.pop(job, None)
                self.planned.pop(job, None)
        super().pass_now()
        self.changed = self.ended = False

    def room(self, job: int) -> bool:
        return self.site.could(self.kind[job])

    def start(self, job: int, overtakes: bool) -> None:
        if job not in self.held:
            self.place(job)
        self.woke[job] = wakes = self.waking(job)
        self.run_ns[job] += wakes
        self.expected[job] += wakes
        super().start(job, overtakes)

    def places_of(self, job: int) -> list[tuple[int, int]] | None:
        return [(int(node), int(gpu)) for node, gpu in self.laid[job]]

    def overtake(self) -> None:
        head = self.chosen[0] if self.chosen else self.queue[0]
        if not self.chosen or self.changed:
            self.latest, self.future = self.reserved_for(head)
        if self.rules.commits:
            self.chosen = (head, self.latest)
        if self.latest < NEVER:
            self.promise(self.env.now, head, self.latest)
        for job in self.candidates():
            if job != head and (self.in_time(job) or self.rules.spares) and self.room(job):
                self.try_to_overtake(job, head)

    def in_time(self, job: int, wakes: int = 0) -> bool:
        """Returns True if a job that starts now ends before the head of the queue wants to start."""
        end = int(self.env.now) + self.expected[job] + wakes
        return end < self.latest if self.rules.strict else end <= self.latest

    def try_to_overtake(self, job: int, head: int) -> None:
        """Starts a job that fits, unless it would be in the way of the head."""
        self.place(job)
        if not self.in_time(job, self.waking(job)):
            if not self.rules.spares:
                self.leave(job)
                return
            without = self.future.copy()
            for piece in self.held[job]:
                without.move(self.kind[job], piece, -1)
            if not without.could(self.kind[head]):
                self.leave(job)
                return
            self.future = without
        self.start(job, overtakes=True)

    def reserved_for(self, head: int) -> tuple[int, PlainNodes]:
        """Returns when a job fits by the predicted ends, and the nodes as they are then; never, if it fits on
        no nodes that are not out."""
        for time in sorted({one.predicted_end for job, one in self.running.items() if job in self.held}):
            nodes = self.site.copy()
            for job, one in self.running.items():
                if one.predicted_end <= time:
                    for piece in self.held.get(job, []):
                        nodes.move(self.kind[job], piece, 1)
            if nodes.could(self.kind[head]):
                return time, nodes
        return NEVER, self.site

    def earliest(self, job: int) -> int:
        """Returns the earliest time at which a job has a place beside the places of all others, and plans it;
        -1 if it fits on no nodes that are not out."""
        length = max(self.expected[job], 1)
        places = [
            (begin, other, begin + max(self.expected[other], 1)) for other, begin in self.reserved.items()
        ]
        now = int(self.env.now)
        for time in sorted({now, *(end for _, _, end in places if end > now)}):
            nodes = self.least(time, time + length, places)
            if nodes.could(self.kind[job]):
                self.planned[job] = nodes.put(self.kind[job], job)
                return time
        return -1

    def least(self, begin: int, end: int, places: list[tuple[int, int, int]]) -> PlainNodes:
        """Returns the nodes at their least between two times."""
        states = []
        for mark in {begin, *(start for start, _, _ in places if begin < start < end)}:
            nodes = self.empty.copy()
            for start, other, stop in places:
                if start <= mark < stop:
                    for piece in self.planned.get(other) or self.laid[other]:
                        nodes.move(self.kind[other], piece, -1)
            states.append(nodes.nodes)
        return self.site.but(at_least(states))


def play(
    jobs: QueueJobs, predicted: Int, cluster: NodeCluster, demands: Demands, placement: PlacementRecipe,
    keys: OrderKeys, backfill: Backfill, rules: QueueRules, seed: int = 0, promise: Promise = ignore,
    outages: NodeOutages = NO_OUTAGES, checkpoint_interval_ns: int = 0,
    happened: list[Happening] | None = None, sleep: SleepRule | None = None,
) -> tuple[list[int], list[bool], list[list[Piece]], list[Broken]]:  # fmt: skip
    """Returns start, nanoseconds, of each job's last run, which of them overtook the head, the node and GPU
    of each of its pieces, and the runs that faults ended; what happens is added to `happened`."""
    nodes = PlainNodes(cluster, demands, placement, seed)
    referee = _NodeReferee(
        jobs, predicted, 1, keys, backfill, rules, promise, nodes=nodes, class_of=demands.class_of,
        outages=outages, checkpoint_interval_ns=checkpoint_interval_ns, sleep=sleep,
    )  # fmt: skip
    referee.play()
    if happened is not None:
        happened += referee.happened
    everyone = range(len(jobs))
    return (
        [referee.started[job] for job in everyone], [job in referee.overtook for job in everyone],
        [referee.laid[job] for job in everyone], referee.broken,
    )  # fmt: skip
