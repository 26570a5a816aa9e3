"""Reference simulator of one pool in SimPy: slow and plain; tests hold the kernel equal to it.

No arrays and no lists kept in order: a submission and a termination are events, the queue is sorted anew in
every pass, a reservation is found by trying every end of a job. Sums are exact integers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import Any

import numpy as np
from simpy import Environment

from ingest.core.units import NS_PER_S
from twin.core.clock import At
from twin.queue.dependencies import Dependencies, later
from twin.queue.jobs import Int, QueueJobs
from twin.queue.recipe import Backfill, OrderKeys
from twin.queue.rules import QueueRules
from twin.queue.scoring import CANDIDATES, DAY_S, fixed_features
from twin.queue.usage import Key, Run, usage_key

EARLY, LATE, LAST = 0, 1, 2
"""Ranks among the events of one instant."""
Promise = Callable[[int, int, int], None]
"""Called with (time, job, reserved start) whenever a job gets or keeps a reservation."""
SUBMITTED, STARTED, ENDED, KILLED, OUT, BACK = "submitted", "started", "ended", "killed", "out", "back"
Happening = tuple[int, str, int, tuple[Any, ...]]
"""Time, kind, job (or node, of OUT and BACK), and details: of STARTED whether the job overtakes the head of
the queue, and its places; of KILLED the work that is kept."""


def ignore(time: int, job: int, start: int) -> None:
    """Does nothing: the default of `promise`."""


@dataclass(slots=True)
class _Running:
    """A running job: its end, its predicted end, and when it was started among all."""

    end: int
    predicted_end: int
    turn: int


@dataclass
class Referee:
    """The events and passes of one pool; `twin/nodes/referee.py` gives jobs places."""

    jobs: QueueJobs
    predicted: Int
    processors: int
    keys: OrderKeys
    backfill: Backfill
    rules: QueueRules
    promise: Promise
    env: Environment = field(default_factory=lambda: Environment(initial_time=0))
    queue: list[int] = field(default_factory=list)
    running: dict[int, _Running] = field(default_factory=dict)
    reserved: dict[int, int] = field(default_factory=dict)
    started: dict[int, int] = field(default_factory=dict)
    overtook: set[int] = field(default_factory=set)
    ended_of: dict[int, list[int]] = field(default_factory=dict)
    """Jobs of each user that have ended, the last one last."""
    chosen: tuple[int, int] | None = None
    """The committed job and its reservation."""
    ended: bool = False
    pass_at: int = -1
    """Instant for which a pass at its end is due."""
    dependencies: Dependencies | None = None
    due: list[tuple[int, int]] = field(default_factory=list)
    """Submissions to come, as (time, job)."""
    turn: dict[int, int] = field(default_factory=dict)
    """Place of each job in the order of submission."""
    happened: list[Happening] = field(default_factory=list)
    """What has happened, in order."""

    def __post_init__(self) -> None:
        self.size = [int(size) for size in self.jobs.processors]
        self.submit = [int(time) for time in self.jobs.submit_ns]
        self.run_ns = [int(time) for time in self.jobs.run_ns]
        self.expected = [int(time) for time in self.predicted]
        self.turns = count()
        self.fixed = fixed_features(self.jobs, self.predicted, self.processors).tolist()

    def play(self) -> None:
        """Runs until every job has ended."""
        for job in range(len(self.jobs)):
            if self.dependencies is None or not self.dependencies.waits[job]:
                self.expect(job, self.submit[job])
        self.env.run()

    def expect(self, job: int, time: int) -> None:
        """Lets a job be submitted then; at one instant they are submitted in the order of the log."""
        rank = EARLY if self.rules.submissions_first else LATE
        heappush(self.due, (time, job))
        At(self.env, time - int(self.env.now), rank).callbacks.append(lambda _: self.arrive())

    def arrive(self) -> None:
        """Submits the first job that is due."""
        time, job = heappop(self.due)
        self.submit[job], self.turn[job] = time, len(self.turn)
        self.submitted(job)

    def note(self, kind: str, which: int, *details: Any) -> None:
        """Writes down what happens now."""
        self.happened.append((int(self.env.now), kind, which, details))

    def submitted(self, job: int) -> None:
        """Puts a job into the queue."""
        self.note(SUBMITTED, job)
        self.queue.append(job)
        self.schedule()

    def terminated(self, job: int) -> None:
        """Ends a running job."""
        self.note(ENDED, job)
        del self.running[job]
        self.ended_of.setdefault(int(self.jobs.user[job]), []).append(job)
        self.reserved.pop(job, None)
        self.ended = True
        if self.dependencies is not None:
            for one in np.flatnonzero(self.dependencies.preceding == job).tolist():
                self.expect(one, int(self.env.now) + int(self.dependencies.think_ns[one]))
        self.schedule()

    def schedule(self) -> None:
        """Makes a pass now, or once after all other events of this instant."""
        if self.rules.passes_each_event:
            self.pass_now()
        elif self.pass_at != self.env.now:
            self.pass_at = self.env.now
            At(self.env, 0, LAST).callbacks.append(lambda _: self.pass_now())

    def start(self, job: int, overtakes: bool) -> None:
        """Starts a job of the queue."""
        now = self.env.now
        self.queue.remove(job)
        self.started[job] = now
        self.running[job] = _Running(now + self.run_ns[job], now + self.expected[job], next(self.turns))
        if overtakes:
            self.overtook.add(job)
        self.note(STARTED, job, overtakes, self.places_of(job))
        rank, one = LATE if self.rules.submissions_first else EARLY, self.running[job]
        At(self.env, self.run_ns[job], rank).callbacks.append(lambda _: self.over(job, one))

    def places_of(self, job: int) -> list[tuple[int, int]] | None:
        """Returns where a job that starts lies; None: nowhere in particular."""
        return None

    def over(self, job: int, one: _Running) -> None:
        """Ends a run, unless it has been ended before."""
        if self.running.get(job) is one:
            self.terminated(job)

    def free(self) -> int:
        """Returns processors that a pass may give away."""
        held = (self.size[job] for job, one in self.running.items() if not self.freed(one))
        return self.processors - sum(held)

    def key(self, job: int) -> Key:
        """Returns what the queue is sorted by."""
        now, keys = int(self.env.now), self.keys
        if keys.scorer:
            return -self.score(job) if job in self.by_submission()[:CANDIDATES] else math.inf
        if keys.usage != "none":
            return usage_key(keys, self.jobs.user, self.runs(), job, now)
        if not keys.power:
            moved = later(self.submit[job], int(self.jobs.submit_ns[job])) if keys.log_weight else 0.0
            return float(keys.static[job]) + keys.log_weight * moved
        aged = (now - self.submit[job]) / NS_PER_S / float(keys.scale[job])
        return -(aged * aged * aged if keys.power == 3 else aged) * float(keys.factor[job])

    def runs(self) -> list[Run]:
        """Returns all runs so far; one that goes on ends in the future."""
        future = int(self.env.now) + 1
        return [
            (one, self.size[one], begin, future if one in self.running else begin + self.run_ns[one])
            for one, begin in self.started.items()
        ]

    def score(self, job: int) -> float:
        """Returns what the network says of a waiting job."""
        assert self.keys.scorer is not None
        values, weights = self.features(job), iter(self.keys.scorer.weights.tolist())
        widths = self.keys.scorer.widths
        for inputs, outputs in pairwise(widths):
            rows = [[next(weights) for _ in range(outputs)] for _ in range(inputs)]
            sums = [next(weights) for _ in range(outputs)]
            for value, row in zip(values, rows, strict=True):
                sums = [total + value * weight for total, weight in zip(sums, row, strict=True)]
            values = [max(total, 0.0) for total in sums]
        return float(sums[0])

    def features(self, job: int) -> list[float]:
        """Returns what the network is told of a waiting job."""
        now, last = int(self.env.now), self.ended_of.get(int(self.jobs.user[job]), [])[-2:]
        run_s, predicted_s = (
            1 + sum(column[one] for one in last) / NS_PER_S for column in (self.run_ns, self.expected)
        )
        angle = (now / NS_PER_S) % DAY_S / DAY_S * (2 * math.pi)
        return [
            math.log(1.0 + (now - self.submit[job]) / NS_PER_S) / 10,
            *self.fixed[job],
            math.log(run_s / predicted_s) / 5,
            self.free() / self.processors,
            math.log(1.0 + len(self.queue)) / 5,
            math.sin(angle),
            math.cos(angle),
        ]

    def pass_now(self) -> None:
        """Starts whoever may start now."""
        self.pass_at = -1
        self.queue = sorted(self.queue, key=lambda job: (self.key(job), self.turn[job]))
        if self.backfill == "conservative":
            self.start_reserved()
        else:
            self.start_in_order()

    def start_in_order(self) -> None:
        """Starts heads of the queue while there is room, then who may overtake."""
        while self.queue:
            job = self.chosen[0] if self.chosen else self.queue[0]
            if not self.room(job):
                break
            if self.held_up(job):
                return
            self.start(job, overtakes=False)
            self.chosen = None
        if self.queue and self.backfill != "none":
            self.overtake()
        elif self.queue and self.rules.commits and not self.chosen:
            self.chosen = (self.queue[0], 0)

    def room(self, job: int) -> bool:
        """Returns True if what a job asks for is free now."""
        return self.size[job] <= self.free()

    def held_up(self, job: int) -> bool:
        """Returns True if a job with room has to wait, and all behind it with it; here none has."""
        return False

    def overtake(self) -> None:
        """Reserves for the head, and starts who does not delay it."""
        head = self.chosen[0] if self.chosen else self.queue[0]
        shadow, spare = self.reservation(head)
        if self.rules.commits:
            self.chosen = self.chosen or (head, shadow)
            shadow = self.chosen[1]
        self.promise(self.env.now, head, shadow)
        for job in self.candidates():
            end = self.env.now + self.expected[job]
            in_time = end < shadow if self.rules.strict else end <= shadow
            spared = self.rules.spares and self.size[job] <= spare
            if job != head and self.room(job) and (in_time or spared):
                spare -= 0 if in_time else self.size[job]
                self.start(job, overtakes=True)

    def candidates(self) -> list[int]:
        """Returns the queue in the order in which jobs may overtake."""
        if self.rules.backfills_by_submission:
            return self.by_submission()
        if self.backfill == "easy-sjbf":
            return sorted(self.queue, key=lambda job: (self.expected[job], self.turn[job]))
        return list(self.queue)

    def by_submission(self) -> list[int]:
        """Returns the queue in order of submission."""
        return sorted(self.queue, key=self.turn.__getitem__)

    def reservation(self, head: int) -> tuple[int, int]:
        """Returns when a job fits by the predicted ends, and what it leaves free then."""
        for time in sorted(one.predicted_end for one in self.running.values()):
            gone = sum(
                self.size[job]
                for job, one in self.running.items()
                if one.predicted_end <= time and not self.freed(one)
            )
            if self.free() + gone >= self.size[head]:
                return time, self.free() + gone - self.size[head]
        raise AssertionError("the job is larger than the pool")

    def freed(self, one: _Running) -> bool:
        """Returns True for a job that counts as gone."""
        return self.rules.frees_predicted and bool(one.predicted_end <= self.env.now)

    def start_reserved(self) -> None:
        """Starts jobs whose reservation is now."""
        for job in [job for job in self.queue if job in self.reserved] if self.ended else []:
            del self.reserved[job]
            self.reserved[job] = self.earliest(job)
        for job in self.queue:
            if job not in self.reserved and (begin := self.earliest(job)) >= 0:
                self.reserved[job] = begin
            if job in self.reserved:
                self.promise(self.env.now, job, self.reserved[job])
        self.ended = False
        now = self.env.now
        due = [job for job in self.queue if self.reserved.get(job) == now]
        waiting = [job for job in self.queue if self.reserved.get(job) != now]
        for job in due:
            place = self.queue.index(job)
            self.start(job, overtakes=any(other in waiting for other in self.queue[:place]))

    def earliest(self, job: int) -> int:
        """Returns the earliest time at which a job fits beside all others that have a place."""
        places = [
            (begin, self.size[other], begin + self.expected[other]) for other, begin in self.reserved.items()
        ]
        now = int(self.env.now)
        times = {now, *(end for _, _, end in places if end > now)}
        return next(time for time in sorted(times) if self.fits(job, time, places))

    def fits(self, job: int, begin: int, places: list[tuple[int, int, int]]) -> bool:
        """Returns True if a job fits there."""
        end = begin + self.expected[job]
        marks = [begin, *(start for start, _, _ in places if begin < start < end)]
        used = (sum(size for start, size, stop in places if start <= mark < stop) for mark in marks)
        return all(taken + self.size[job] <= self.processors for taken in used)


def play(
    jobs: QueueJobs, predicted: Int, processors: int, keys: OrderKeys, backfill: Backfill, rules: QueueRules,
    promise: Promise = ignore, dependencies: Dependencies | None = None,
    happened: list[Happening] | None = None,
) -> tuple[list[int], list[bool]]:  # fmt: skip
    """Returns start, nanoseconds, of each job, and which jobs overtook the head of the queue; what happens is
    added to `happened`."""
    referee = Referee(jobs, predicted, processors, keys, backfill, rules, promise, dependencies=dependencies)
    referee.play()
    if happened is not None:
        happened += referee.happened
    indices = range(len(jobs))
    return [referee.started[job] for job in indices], [job in referee.overtook for job in indices]
