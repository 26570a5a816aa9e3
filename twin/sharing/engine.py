"""The event loop of jobs whose runs are changed: next event, progress, the scheduler, its changes.

Progress and changes are compiled (`progress.py`); the scheduler is asked once after all events of an instant.
`referee.py` has the same meaning in SimPy.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import UsageError
from twin.nodes.outages import NO_OUTAGES
from twin.queue.jobs import LATEST_NS, Int, QueueJobs
from twin.sharing import answers, progress
from twin.sharing.changes import ChangeRules
from twin.sharing.job_goodput import JobGoodput
from twin.sharing.kinds import NodeKinds
from twin.sharing.node_faults import FaultyNodes, NoticedOutages
from twin.sharing.progress import NEVER, REFUSE, REFUSED, RUNNING, WAITING, WIDTH, JobStates
from twin.sharing.speeds import MeasuredSpeeds
from twin.sharing.uplinks import LinkOrder, Uplinks
from twin.sharing.view import NOWHERE, Allocation, JobFacts, SharingScheduler, SharingView

MOST_STUCK = 2_000
"""Decisions in a row without progress of any job, after which a schedule is refused."""


@dataclass(frozen=True, eq=False)
class SharingWorld:
    """Jobs (their runs as they will be), nodes, rules, and the speeds that sharing and sizes bring.

    `predicted_ns`: what the scheduler takes for the run time; nowhere below it. `kinds`: GPU models of the
    nodes, None where all are alike. `sizes`: GPUs of each node (nodes,), at most `node_gpus`, None where all
    have these. `goodput`: speeds of jobs alone that change with their progress, in place of those of sizes
    and kinds. `uplinks`: links that jobs share, None: nobody waits for a link. `faults`: None: no node fails.

    Raises:
        UsageError: the rules take a restart at every event, of which goodput makes one a minute; or they do,
            or count GPUs wherever they are, and nodes fail.
    """

    jobs: QueueJobs
    predicted_ns: Int
    pause_ns: Int
    nodes: int
    node_gpus: int
    rules: ChangeRules
    speeds: MeasuredSpeeds
    kinds: NodeKinds | None = None
    sizes: Int | None = None
    goodput: JobGoodput | None = None
    uplinks: Uplinks | None = None
    faults: NoticedOutages | None = None

    def __post_init__(self) -> None:
        if self.goodput is not None and self.rules.charges_events:
            raise UsageError(
                f"--changes {self.rules.name} takes a restart at every event, and goodput is found anew each "
                "minute; take steady or paid"
            )
        if self.faults is not None and (self.rules.charges_events or self.rules.counts):
            raise UsageError(
                f"--changes {self.rules.name} counts GPUs, or takes a restart at every event: nodes do not "
                "fail there; take steady, paid or free beside outages"
            )

    @property
    def capacity(self) -> Int:
        """GPUs of each node (nodes,)."""
        return np.full(self.nodes, self.node_gpus, np.int64) if self.sizes is None else self.sizes

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return int(self.capacity.sum())

    @property
    def refresh_ns(self) -> int:
        """Time after which speeds are found anew if nothing happens before."""
        return NEVER if self.goodput is None else self.goodput.refresh_ns

    def rates(
        self, job: Int, gpus: Int, node: Int, leader: Int, mode: Int, whole: Int, left: Int,
        order: LinkOrder | None = None,
    ) -> Int:  # fmt: skip
        """Returns the speed of each of these jobs (rows,), millionths, on what it holds; `left`: its work,
        `order`: who goes first on links."""
        if self.goodput is not None:
            alone = self.goodput.rates(job, gpus, node, leader, whole, left)
            found = self.speeds.shared(alone, job, gpus, leader, mode)
        else:
            found = self.speeds.rates(job, gpus, leader, mode)
            if self.kinds is not None:
                found = self.kinds.adjusted(found, job, node, leader, whole)
        return found if self.uplinks is None else self.uplinks.slowed(found, job, gpus, leader, whole, order)

    def facts(self) -> JobFacts:
        """Returns what schedulers know of all jobs."""
        jobs = self.jobs
        return JobFacts(
            jobs.processors, jobs.deadline_ns, self.pause_ns, self.predicted_ns, jobs.submit_ns,
            jobs.priority, self.speeds, self.kinds, self.goodput,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class SharedSchedule:
    """The outcome: every event (events, 6), and their states after the last."""

    world: SharingWorld
    events: Int
    states: JobStates

    @property
    def end_ns(self) -> Int:
        """End of each job (n,), nanoseconds; 0 of those that were refused."""
        return self.states.ended


def play(world: SharingWorld, scheduler: SharingScheduler) -> SharedSchedule:
    """Returns what a scheduler makes of the jobs.

    Raises:
        UsageError: the last jobs would end later than a time can be, or jobs wait for ever.
    """
    loop = _Loop(world, scheduler)
    while loop.step():
        pass
    events = np.concatenate(loop.events) if loop.events else np.zeros((0, WIDTH), np.int64)
    return SharedSchedule(world, events, loop.states)


@dataclass
class _Loop:
    """One run: who is active, the time of the last event, and when the scheduler wants to be asked."""

    world: SharingWorld
    scheduler: SharingScheduler
    active: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    events: list[Int] = field(default_factory=list)
    come: int = 0
    last: int = 0
    again: int = NEVER
    end: int = NEVER
    least: int = NEVER
    stuck: int = 0

    def __post_init__(self) -> None:
        world = self.world
        every = 0 if world.faults is None else world.faults.every_ns
        self.facts, self.costs = world.facts(), progress.costs_of(world.rules, every)
        self.broken = FaultyNodes(world, world.faults or NoticedOutages(NO_OUTAGES))
        self.states = progress.initial(world.jobs.run_ns, world.nodes)
        self.spare = world.predicted_ns - world.jobs.run_ns

    def step(self) -> bool:
        """Plays all events of the next instant; returns False after the last one."""
        submit = self.facts.submit_ns
        coming = int(submit[self.come]) if self.come < len(submit) else NEVER
        changes = self.broken.next_ns if len(self.active) or coming < NEVER else NEVER
        time = min(coming, self.end, self.again, changes)
        if time == NEVER:
            if len(self.active):
                raise UsageError(
                    f"{len(self.active):,} jobs wait for ever under this scheduler; take another"
                )
            return False
        if time > LATEST_NS:
            raise UsageError("the queue grows beyond 73 years: take a larger pool or fewer jobs")
        self._advance(time)
        self._fail(time)
        self._submit(time)
        self._decide(time)
        return True

    def _advance(self, time: int) -> None:
        written = np.empty((len(self.active), WIDTH), np.int64)
        s = self.states
        count = progress.advance(s, self.active, self.costs, self.last, time, written)
        self.ended_served = s.served[self.active[s.status[self.active] > RUNNING]]
        if count:
            self.events.append(written[:count])
            self.active = self.active[s.status[self.active] <= RUNNING]
        self.last = time

    def _fail(self, time: int) -> None:
        written = self.broken.play(self.states, self.active, self.costs, time)
        if len(written):
            self.events.append(written)
            self.least = NEVER  # work that was lost is done again

    def _submit(self, time: int) -> None:
        first = self.come
        self.come = int(np.searchsorted(self.facts.submit_ns, time, side="right"))
        if self.come > first:
            new = np.arange(first, self.come, dtype=np.int64)
            self.states.status[new] = WAITING
            self.active = np.concatenate((self.active, new))
        self.arrived = self.come - first

    def _decide(self, time: int) -> None:
        """Asks the scheduler about all jobs that may be changed, and changes them."""
        world, s, active = self.world, self.states, self.active
        held = progress.held(s, active, world.pause_ns, self.spare, self.costs, time)
        held |= self.broken.pinned(s, active)
        rows = active[~held]
        view = observe(
            world,
            self.facts,
            s,
            rows,
            active[held],
            self.spare,
            time,
            self.arrived,
            self.ended_served,
            self.broken.out,
        )
        found = self.scheduler.decide(view)
        assert answers.fits(view, found), "a scheduler gives away GPUs that are not there"
        active, held = self._refuse(rows, found, held, time)
        gpus, node, leader, mode, whole = answers.merged(s, active, held, found, rows)
        part = answers.parts(s, whole, active[held], found, world.capacity)
        left = progress.rest(s, active, time)
        self._must_progress(left, waits_for_nodes=bool(self.broken.out.any()) and not gpus.any())
        runs = ~self.broken.stands[active]
        rate = world.rates(
            active,
            np.where(runs, gpus, 0),
            node,
            np.where(runs, leader, NOWHERE),
            mode,
            whole,
            left,
            found.links,
        )
        rate = self.broken.slowed(rate, active, node, leader, whole)
        written = np.empty((len(active), WIDTH), np.int64)
        count = progress.change(
            s, active, gpus, node, leader, mode, whole, part, rate, world.pause_ns, self.costs, time, written
        )
        if count:
            self.events.append(written[:count])
        self.again = NEVER if found.again_ns is None else found.again_ns
        assert self.again > time, "a scheduler asks to be asked at once"
        if (gpus > 0).any():
            self.again = min(self.again, time + world.refresh_ns)
        waits = bool((gpus == 0).any())
        if waits and held.any():
            until = progress.holds_on_until(s, active[held], world.pause_ns, self.costs, time)
            self.again = min(self.again, until)
        self.end = int(progress.next_end(s, active))

    def _must_progress(self, left: Int, waits_for_nodes: bool) -> None:
        """Refuses a schedule in which jobs are restarted faster than they start, which would never end."""
        work = int(left.sum())
        moved = self.arrived > 0 or work < self.least or waits_for_nodes
        self.least, self.stuck = (work, 0) if moved else (self.least, self.stuck + 1)
        if self.stuck > MOST_STUCK:
            raise UsageError(
                f"no job came further in {MOST_STUCK:,} decisions: this scheduler restarts jobs faster than "
                "their pauses last; take other rules (--changes) or another scheduler"
            )

    def _refuse(
        self, rows: Int, found: Allocation, held: NDArray[np.bool_], time: int
    ) -> tuple[Int, NDArray[np.bool_]]:
        """Turns jobs away; returns who stays, and which of them are held."""
        if found.refused is None or not found.refused.any():
            return self.active, held
        gone = rows[found.refused]
        self.states.status[gone] = REFUSED
        written = np.zeros((len(gone), WIDTH), np.int64)
        written[:, 0], written[:, 1], written[:, 2], written[:, 4] = time, REFUSE, gone, NOWHERE
        self.events.append(written)
        stays = ~np.isin(self.active, gone)
        self.active = self.active[stays]
        return self.active, held[stays]


def observe(
    world: SharingWorld, facts: JobFacts, s: JobStates, rows: Int, held: Int, spare: Int, time: int,
    arrived: int, ended_served: Int, out: NDArray[np.bool_],
) -> SharingView:  # fmt: skip
    """Returns what the scheduler sees of these jobs; `held` keep their GPUs, which it does not see, and nodes
    that are `out` have none for it."""
    place = np.full(len(facts.asked), NOWHERE, np.int64)
    place[rows] = np.arange(len(rows))
    leader = s.leader[rows]
    free = world.capacity.copy()
    for job in held:
        if s.node[job] >= 0 and (s.leader[job] < 0 or s.leader[job] == job):
            free[s.node[job]] -= s.gpus[job]
    spanned = np.isin(s.whole, held)
    free[spanned] -= s.part[spanned]
    free[out] = 0
    return SharingView(
        time, rows, facts.asked[rows], s.gpus[rows], s.node[rows],
        np.where(leader < 0, NOWHERE, place[leader]), progress.rest(s, rows, time) + spare[rows],
        s.executed[rows], s.served[rows], s.first[rows], s.mode[rows],
        s.changed[rows], np.where(s.whole < 0, NOWHERE, place[s.whole]), s.part.copy(), free, world.capacity,
        spanned, world.node_gpus, arrived, ended_served, facts, world.rules,
    )  # fmt: skip
