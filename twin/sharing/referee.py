"""Reference simulator of changing jobs in SimPy: slow and plain; tests hold the engine equal to it.

No arrays and nothing kept up to date by hand: a job is an object with the pieces of its run behind it, an end
is an event that is void once the job was changed, sums are exact integers. The schedulers are the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from simpy import Environment

from twin.core.clock import At
from twin.queue.jobs import Int
from twin.sharing.changes import PPM
from twin.sharing.engine import SharingWorld
from twin.sharing.node_faults import (
    DRAINED,
    FAILED,
    NOTICED,
    REPAIRED,
    RESTORED,
    SLOWED,
    SUSPECTED,
    UNDRAINED,
    WORTH_PAUSES,
)
from twin.sharing.progress import KINDS, NEVER
from twin.sharing.referee_job import RefereeJob
from twin.sharing.speeds import INTERLEAVED
from twin.sharing.view import NOWHERE, Allocation, SharingScheduler, SharingView

FIRST, LAST = 0, 1
"""Ranks among the events of one instant: what happens, then the scheduler."""
Happened = tuple[int, str, int, int, int, int]
"""Time, kind, job, GPUs, node and rate after it."""


@dataclass
class SharingReferee:
    """Events and decisions of one run."""

    world: SharingWorld
    scheduler: SharingScheduler
    env: Environment = field(default_factory=lambda: Environment(initial_time=0))
    happened: list[Happened] = field(default_factory=list)
    active: list[RefereeJob] = field(default_factory=list)
    holder: dict[int, int] = field(default_factory=dict)
    """Job that lies on a node beside others, or holds it alone."""
    part: dict[int, int] = field(default_factory=dict)
    """How many GPUs of the node it holds."""
    arrived: int = 0
    due_at: int = -1
    asked_again: int = NEVER
    out: list[tuple[int, int]] = field(default_factory=list)
    """Kind and node of the faults, drains and noticed slow times that nodes are in."""
    slow: list[tuple[int, int]] = field(default_factory=list)
    """Node and speed of the slow times that nodes are in."""

    def __post_init__(self) -> None:
        jobs = self.world.jobs
        self.facts = self.world.facts()
        self.jobs = [RefereeJob(at, int(run)) for at, run in enumerate(jobs.run_ns)]
        self.spare = [int(one) for one in self.world.predicted_ns - jobs.run_ns]
        self.pause = [int(one) for one in self.world.pause_ns]

    def play(self) -> None:
        """Runs until nothing is to come."""
        for job in self.jobs:
            event = At(self.env, int(self.facts.submit_ns[job.index]), FIRST)
            event.callbacks.append(lambda _, job=job: self.submitted(job))
        faults = self.world.faults
        self.changes = [] if faults is None else faults.changes()
        self.every, self.shrinks = (0, False) if faults is None else (faults.every_ns, faults.shrinks)
        for at in sorted({at for at, *_ in self.changes}):
            At(self.env, at, FIRST).callbacks.append(lambda _: self.ask())
        self.env.run()

    def submitted(self, job: RefereeJob) -> None:
        """Takes in a job."""
        self.active.append(job)
        self.arrived += 1
        self.ask()

    def ask(self) -> None:
        """Lets the scheduler decide after all else of this instant."""
        if self.due_at != self.env.now:
            self.due_at = self.env.now
            At(self.env, 0, LAST).callbacks.append(lambda _: self.decide())

    def woken(self, at: int) -> None:
        """Asks the scheduler again, unless it has said another time since."""
        if self.asked_again == at:
            self.ask()

    def finish(self, job: RefereeJob, version: int) -> None:
        """Ends a job, unless it was changed since this was planned."""
        if job.version == version and job.gpus:
            self.ask()

    def decide(self) -> None:
        """Ends jobs, asks the scheduler about those that may be changed, and changes them."""
        now = int(self.env.now)
        for job in list(self.active):
            if job.gpus and not job.stands and job.end() == now:
                self.close(job)
                job.over = True
                self.release(job, keeps_nodes=True)
                self.note("end", job)
        self.ended_served = [_served(job.runs) for job in self.active if job.over]
        self.active = [job for job in self.active if not job.over]
        self.elect_leaders()
        for at, kind, node, speed in self.changes:
            if at == now:
                self.node_changes(now, kind, node, speed)
        if self.world.rules.charges_events:
            self.charge(now)
        held = self.held(now)
        open_jobs = [job for job in self.active if job not in held]
        found = self.scheduler.decide(self.view(now, open_jobs, held))
        self.arrived = 0
        if found.refused is not None:
            open_jobs, found = self.turn_away(open_jobs, found)
        self.change(now, open_jobs, held, found)
        self.plan(now, found, held)

    def elect_leaders(self) -> None:
        """Lets the first of those who share lead them where their leader has ended."""
        for job in self.active:
            old = job.leader
            if old != NOWHERE and not self.jobs[old].gpus:
                for mate in self.active:
                    if mate.leader == old:
                        mate.leader = job.index
                job.nodes = frozenset((at, self.part[at]) for at, one in self.holder.items() if one == old)
                self.holder = {at: job.index if one == old else one for at, one in self.holder.items()}
        self.holder = {at: one for at, one in self.holder.items() if self.jobs[one].gpus}

    def on_node(self, node: int) -> list[RefereeJob]:
        """Returns the jobs that hold GPUs of a node."""
        holder = self.holder.get(node, NOWHERE)
        return [
            job for job in self.active
            if job.gpus and (job.node == node or holder in {job.index, job.leader} - {NOWHERE})
        ]  # fmt: skip

    def node_changes(self, now: int, kind: int, node: int, speed: int) -> None:
        """A node fails, is drained, slow, or none of it any more, or that is noticed."""
        if kind == SLOWED:
            self.slow.append((node, speed))
        elif kind == RESTORED:
            self.slow.remove((node, speed))
        elif kind in (FAILED, DRAINED, SUSPECTED):
            self.out.append((kind, node))
        elif kind != NOTICED:
            self.out.remove(({REPAIRED: FAILED, UNDRAINED: DRAINED}.get(kind, SUSPECTED), node))
        if kind == SUSPECTED:
            self.leave_slow(now, node)
        for job in self.on_node(node):
            if kind == FAILED and not job.stands:
                back = job.kept(now, self.every)
                job.left -= job.work_by(now)
                self.close(job)
                job.stands, job.saved = True, back
                job.at, job.ready, job.rate = now, now, 0
                job.version += 1
                self.note("stall", job)
            elif kind == NOTICED and job.stands:
                job.stands = False
                if not self.shrink(now, job, node):
                    self.fault(job)

    def speed_of(self, nodes: set[int]) -> int:
        """Returns the speed of the slowest of some nodes, millionths."""
        return min([PPM, *(speed for node, speed in self.slow if node in nodes)])

    def leave_slow(self, now: int, node: int) -> None:
        """Takes jobs off a node that is known to be slow, where that pays and there is room elsewhere."""
        bad = {at for _, at in self.out}
        room = sum(size for at, size in enumerate(self.world.capacity.tolist()) if at not in bad)
        for job in self.active:
            if job.leader in (NOWHERE, job.index):
                held = [(job.node, job.gpus)] if job.node != NOWHERE else []
                held += [(at, self.part[at]) for at, one in self.holder.items() if one == job.index]
                room -= sum(gpus for at, gpus in held if at not in bad)
        for job in self.on_node(node):
            left = job.left - job.work_by(now) + self.spare[job.index]
            speed = self.speed_of({job.node, *(at for at, _ in job.nodes)})
            full = job.rate * PPM // speed if job.rate else 0
            pause = self.pause[job.index] if self.world.rules.costs else 0
            stays = job.stands or job.leader != NOWHERE or job.gpus > room
            if not stays and -(-left * PPM // job.rate) + (-left * PPM // full) > WORTH_PAUSES * pause:
                room -= job.gpus
                job.left -= job.work_by(now)
                self.close(job)
                self.release(job)
                self.note("evict", job)

    def shrink(self, now: int, job: RefereeJob, node: int) -> bool:
        """Lets a job go on with what it holds of nodes that work; returns False if it has to stop."""
        failed = {at for kind, at in self.out if kind == FAILED} | {node}
        rest = frozenset((at, gpus) for at, gpus in job.nodes if at not in failed)
        gpus = min(job.gpus, sum(gpus for _, gpus in rest))
        speeds = self.world.speeds.curves.speeds(job.index)
        runs = gpus and (self.world.goodput is not None or speeds[gpus] > 0)
        if not self.shrinks or job.leader != NOWHERE or not runs:
            return False
        self.close(job)
        lost = {at for at, _ in job.nodes - rest}
        self.holder = {at: one for at, one in self.holder.items() if at not in lost}
        job.gpus, job.nodes, job.at, job.since, job.ready = gpus, rest, now, now, now
        job.ready += self.pause[job.index] if self.world.rules.costs else 0
        job.changed += 1
        job.saved, job.pieces = job.left, [(job.ready, 0, job.left)]
        self.note("shrink", job)
        return True

    def fault(self, job: RefereeJob) -> None:
        """Stops a job, which goes back to its last checkpoint."""
        self.close(job)
        lost, job.left = job.saved - job.left, job.saved
        self.release(job)
        self.happened.append((int(self.env.now), "fault", job.index, 0, NOWHERE, lost))

    def charge(self, now: int) -> None:
        """Takes its pause off every running job, changed or not."""
        for job in self.active:
            if job.gpus:
                job.left -= max(0, now - job.at - job.charge) * job.rate // PPM
                self.close(job)
                job.at = job.ready = now

    def held(self, now: int) -> list[RefereeJob]:
        """Returns the jobs that may not be changed now, and those that share with them."""
        rules, held = self.world.rules, []
        for job in self.active:
            pause = self.pause[job.index]
            predicted = job.left - job.work_by(now) + self.spare[job.index]
            most = rules.most_preemptions
            if job.gpus and (
                now - job.since < rules.amortises * pause
                or (rules.amortises and predicted <= pause)
                or (most is not None and job.preempted >= most)
            ):
                held.append(job)
        drained = [self.on_node(node) for kind, node in self.out if kind in (DRAINED, SUSPECTED)]
        held += [job for job in self.active if job.stands or any(job in there for there in drained)]
        leaders = {job.leader for job in held} - {NOWHERE}
        return [job for job in self.active if job in held or job.leader in leaders]

    def view(self, now: int, rows: list[RefereeJob], held: list[RefereeJob]) -> SharingView:
        """Returns what the scheduler sees."""
        place = {job.index: row for row, job in enumerate(rows)}
        free = self.world.capacity.tolist()
        for job in held:
            if job.node != NOWHERE and job.leader in (NOWHERE, job.index):
                free[job.node] -= job.gpus
        for node, holder in self.holder.items():
            free[node] -= self.part[node] if self.jobs[holder] in held else 0
        for _, node in self.out:
            free[node] = 0
        whole = [place.get(self.holder.get(node, NOWHERE), NOWHERE) for node in range(self.world.nodes)]
        had = [[*job.runs, *([(job.at, now, job.gpus)] if job.gpus else [])] for job in rows]
        return SharingView(
            now, _row(job.index for job in rows), self.facts.asked[[job.index for job in rows]],
            _row(job.gpus for job in rows), _row(job.node for job in rows),
            _row(place.get(job.leader, NOWHERE) for job in rows),
            _row(job.left - job.work_by(now) + self.spare[job.index] for job in rows),
            _row(sum(end - begin for begin, end, _ in one) for one in had),
            _row(_served(one) for one in had),
            _row(job.first for job in rows), _row(job.mode for job in rows),
            _row(job.changed for job in rows), _row(whole),
            _row(self.part[at] if at in self.holder else 0 for at in range(self.world.nodes)), _row(free),
            self.world.capacity,
            np.array([self.jobs[self.holder[at]] in held if at in self.holder else False
                      for at in range(self.world.nodes)], np.bool_),
            self.world.node_gpus, self.arrived, _row(self.ended_served),
            self.facts, self.world.rules,
        )  # fmt: skip

    def turn_away(self, rows: list[RefereeJob], found: Allocation) -> tuple[list[RefereeJob], Allocation]:
        """Takes refused jobs out; returns the others, and the allocation as it is for them."""
        assert found.refused is not None
        stays = ~found.refused
        for row, job in enumerate(rows):
            if not stays[row]:
                self.active.remove(job)
                self.note("refuse", job)
        number = [*(np.cumsum(stays) - 1).tolist(), NOWHERE]  # row -1, nobody, stays nobody
        return [job for row, job in enumerate(rows) if stays[row]], replace(
            found, gpus=found.gpus[stays], node=found.node[stays], refused=None,
            leader=None if found.leader is None else _row(number[one] for one in found.leader[stays]),
            mode=None if found.mode is None else found.mode[stays],
            whole=_row(number[one] for one in found.whole),
        )  # fmt: skip

    def change(self, now: int, rows: list[RefereeJob], held: list[RefereeJob], found: Allocation) -> None:
        """Gives jobs what they hold from now on, preemptions first."""
        gpus = {job.index: job.gpus for job in held} | dict(
            zip(_indices(rows), found.gpus.tolist(), strict=True)
        )
        leader = {job.index: job.leader for job in held}
        mode = {job.index: job.mode for job in held}
        node = {job.index: job.node for job in held} | dict(
            zip(_indices(rows), found.node.tolist(), strict=True)
        )
        for row, job in enumerate(rows):
            mode[job.index] = INTERLEAVED if found.mode is None else int(found.mode[row])
            first = NOWHERE if found.leader is None else int(found.leader[row])
            leader[job.index] = NOWHERE if first == NOWHERE else rows[first].index
        holder = {at: one for at, one in self.holder.items() if self.jobs[one] in held}
        part = {at: self.part[at] for at in holder}
        given = self.world.capacity if found.part is None else found.part
        for at, row in enumerate(found.whole.tolist()):
            if row != NOWHERE and at not in holder:
                holder[at], part[at] = rows[row].index, int(given[at])
        order = _indices(self.active)
        held_by = [_row(one[job] for job in order) for one in (gpus, node, leader, mode)]
        alone = _row(holder.get(at, NOWHERE) for at in range(self.world.nodes))
        left = _row(job.left - job.work_by(now) for job in self.active)
        rates = self.world.rates(
            _row(order),
            _row(0 if self.jobs[job].stands else gpus[job] for job in order),
            held_by[1],
            _row(NOWHERE if self.jobs[job].stands else leader[job] for job in order),
            held_by[3],
            alone,
            left,
            found.links,
        )
        rate = dict(zip(order, rates.tolist(), strict=True))
        for row in order:
            first = row if leader[row] == NOWHERE else leader[row]
            speed = self.speed_of({node[row], *(at for at, one in holder.items() if one == first)})
            if rate[row] and speed < PPM:
                rate[row] = max(1, rate[row] * speed // PPM)
        for job in self.active:
            if job.gpus and not gpus[job.index]:
                self.stop(job, now)
        for job in self.active:
            one = job.index
            if gpus[one]:
                nodes = frozenset((at, part[at]) for at, holds in holder.items() if holds == one)
                job.leader, job.mode = leader[one], mode[one]
                mates = [at for at in order if leader[at] == leader[one] != NOWHERE] or [one]
                job.charge = sum(self.pause[at] for at in mates)
                self.put(job, now, gpus[one], node[one], nodes, rate[one])
        self.holder, self.part = holder, part

    def stop(self, job: RefereeJob, now: int) -> None:
        """Preempts a job."""
        job.left -= job.work_by(now)
        self.close(job)
        job.preempted += 1
        self.release(job)
        self.note("preempt", job)

    def put(
        self, job: RefereeJob, now: int, gpus: int, node: int, nodes: frozenset[tuple[int, int]], rate: int
    ) -> None:
        """Lets a job hold these GPUs from now on, if that is a change."""
        if not job.gpus:
            kind = "start" if job.first == NOWHERE else "resume"
        elif job.gpus != gpus:
            kind = "resize"
        elif job.node != node or job.nodes != nodes:
            kind = "move"
        elif job.rate != rate:
            kind = "speed"
        else:
            return
        if job.gpus:
            job.left -= job.work_by(now)
            self.close(job)
        job.at, job.ready = now, max(now, job.ready)
        job.gpus, job.node, job.nodes, job.rate = gpus, node, nodes, rate
        job.since = job.since if kind == "speed" else now
        job.changed += kind in ("resume", "resize", "move")
        if kind == "start":
            job.first = now
        elif kind != "speed" and self.world.rules.costs:
            job.ready = now + self.pause[job.index]
        if kind != "speed":
            job.saved, job.pieces = job.left, []
        job.pieces.append((job.ready, rate, job.left))
        self.note(kind, job)

    def plan(self, now: int, found: Allocation, held: list[RefereeJob]) -> None:
        """Plans the ends of running jobs, and when the scheduler is asked again."""
        for job in self.active:
            if job.gpus and not job.stands:
                job.version += 1
                event = At(self.env, job.end() - now, FIRST)
                event.callbacks.append(lambda _, job=job, version=job.version: self.finish(job, version))
        again = NEVER if found.again_ns is None else found.again_ns
        if not all(found.gpus):
            ripe = [job.since + self.world.rules.amortises * self.pause[job.index] for job in held]
            again = min([again, *(time for time in ripe if time > now)])
        if any(job.gpus for job in self.active):
            again = min(again, now + self.world.refresh_ns)
        self.asked_again = again
        if again < NEVER:
            At(self.env, again - now, FIRST).callbacks.append(lambda _: self.woken(again))

    def close(self, job: RefereeJob) -> None:
        """Puts the piece of its run up to now behind a job."""
        job.runs.append((job.at, int(self.env.now), job.gpus))

    def release(self, job: RefereeJob, keeps_nodes: bool = False) -> None:
        """Takes all GPUs from a job; whole nodes may pass to one that shares them."""
        job.gpus, job.rate, job.node, job.leader, job.nodes = 0, 0, NOWHERE, NOWHERE, frozenset()
        if not keeps_nodes:
            self.holder = {at: one for at, one in self.holder.items() if one != job.index}

    def note(self, kind: str, job: RefereeJob) -> None:
        """Writes down what happened to a job."""
        self.happened.append((int(self.env.now), kind, job.index, job.gpus, job.node, job.rate))


def referee_events(world: SharingWorld, scheduler: SharingScheduler) -> list[Happened]:
    """Returns every event of a run in its order."""
    referee = SharingReferee(world, scheduler)
    referee.play()
    return referee.happened


def named(events: Int) -> list[Happened]:
    """Returns events of the engine (events, 6) as the referee writes them."""
    return [(time, KINDS[kind], *rest) for time, kind, *rest in events.tolist()]


def _served(runs: list[tuple[int, int, int]]) -> int:
    """Returns the GPU time of pieces of a run."""
    return sum((end - begin) * gpus for begin, end, gpus in runs)


def _indices(jobs: list[RefereeJob]) -> list[int]:
    return [job.index for job in jobs]


def _row(values: Iterable[int]) -> Int:
    return np.array(list(values), np.int64)
