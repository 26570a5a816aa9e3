"""Reference simulator of a queue over sites in SimPy: slow and plain; tests hold the kernel equal to it.

A change of the links, the end of a transfer or of a run, and a submission are events. What a job has left is
a whole number, taken off at every change of its speed; an end that a change has made stale is passed over.
"""

from dataclasses import dataclass
from typing import Any

from simpy import Environment

from ingest.core.units import NS_PER_S
from twin.core.clock import At
from twin.queue.jobs import LATEST_NS, Int, QueueJobs
from twin.queue.recipe import Backfill, OrderKeys
from twin.queue.referee import ENDED, STARTED, SUBMITTED, Happening
from twin.queue.usage import Key, usage_key
from twin.sites.inputs import (
    FULL_RATE,
    MOST_DEMAND_PPM,
    NOWHERE,
    SiteCarbon,
    SiteJobs,
    SiteLinks,
    SiteOptions,
    SiteRule,
)

CHANGE, END, SUBMISSION, PASS = range(4)
"""Ranks among the events of one instant."""


@dataclass(slots=True)
class _Held:
    """A running job: its way, whether its data come, what is left, since when, at which speed, and the number
    of its speed."""

    option: int
    coming: bool
    left: int
    since: int
    speed: int = 0
    version: int = 0


class SiteReferee:
    """The events and passes of a queue over sites."""

    def __init__(
        self, jobs: QueueJobs, predicted: Int, asked: SiteJobs, gpus: Int, links: SiteLinks,
        options: SiteOptions, keys: OrderKeys, backfill: Backfill, rule: SiteRule,
        carbon: SiteCarbon | None = None,
    ) -> None:  # fmt: skip
        self.jobs, self.asked, self.links, self.options = jobs, asked, links, options
        self.keys, self.backfill, self.rule, self.carbon = keys, backfill, rule, carbon
        self.expected = [int(one) for one in predicted]
        self.run_ns = [int(one) for one in jobs.run_ns]
        self.size = [int(one) for one in jobs.processors]
        self.data = list(zip(map(int, asked.data_kb), map(int, asked.data_at), strict=True))
        self.need = [tuple(map(int, row)) for row in options.need]
        self.gpus = [int(one) for one in gpus]
        self.free = list(self.gpus)
        self.env = Environment(initial_time=0)
        self.step, self.pass_at = 0, -1
        self.queue: list[int] = []
        self.running: dict[int, _Held] = {}
        self.started: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.ways: dict[int, int] = {}
        self.overtook: set[int] = set()
        self.happened: list[Happening] = []
        self.turns: dict[int, tuple[int, int, int]] = {}
        """Begin, end and way that waiting jobs have reserved."""
        self.run_ended = False

    def play(self) -> None:
        """Runs until every job has ended."""
        for at in self.links.at[1:]:
            self.when(int(at), CHANGE, self.changed)
        for job, at in enumerate(self.jobs.submit_ns):
            self.when(int(at), SUBMISSION, self.submitted, job)
        self.env.run()

    def when(self, at: int, rank: int, call: Any, *what: Any) -> None:
        """Calls something at a time."""
        At(self.env, at - int(self.env.now), rank).callbacks.append(lambda _: call(*what))

    @property
    def now(self) -> int:
        """Returns the present time."""
        return int(self.env.now)

    def note(self, kind: str, job: int, *details: Any) -> None:
        """Writes down what happens now."""
        self.happened.append((self.now, kind, job, details))

    def changed(self) -> None:
        """Links take their next step."""
        self.step += 1
        self.turns.clear()
        for job, one in self.running.items():
            self.settle(one)
            self.pace(job, one)
        self.pass_later()

    def settle(self, one: _Held) -> None:
        """Takes off what was done since the last change of speed."""
        one.left, one.since = self.left(one), self.now

    def left(self, one: _Held) -> int:
        """Returns what is left now."""
        return max(0, one.left - one.speed * (self.now - one.since))

    def pace(self, job: int, one: _Held) -> None:
        """Gives a job the speed of the present step, and an event at its end."""
        home = int(self.options.home[one.option])
        if one.coming:
            one.speed = int(self.links.kb_s[self.step, self.data[job][1], home])
        else:
            one.speed = int(self.options.rate[self.step, one.option])
        one.version += 1
        end = self.after(self.now, one.left, one.speed)
        if end is not None:
            self.when(end, END, self.reached, job, one.version)

    @staticmethod
    def after(time: int | None, left: int, speed: int) -> int | None:
        """Returns the time at which something is done; None: never."""
        if time is None or (left and not speed):
            return None
        length = -(-left // speed) if left else 0
        return None if length > LATEST_NS else time + length

    def reached(self, job: int, version: int) -> None:
        """A transfer or a run is over, unless its speed has changed since."""
        one = self.running.get(job)
        if one is None or one.version != version:
            return
        if one.coming:
            one.coming, one.left, one.since = False, self.run_ns[job] * FULL_RATE, self.now
            self.pace(job, one)
            self.pass_later()
            return
        del self.running[job]
        self.ended[job], self.run_ended = self.now, True
        self.note(ENDED, job)
        self.free = [a + b for a, b in zip(self.free, self.need[one.option], strict=True)]
        self.pass_later()

    def submitted(self, job: int) -> None:
        """Puts a job into the queue."""
        self.note(SUBMITTED, job)
        self.queue.append(job)
        self.pass_later()

    def pass_later(self) -> None:
        """Makes one pass after all other events of this instant."""
        if self.pass_at != self.now:
            self.pass_at = self.now
            self.when(self.now, PASS, self.pass_now)

    def key(self, job: int) -> Key:
        """Returns what the queue is sorted by."""
        if self.keys.usage != "none":
            runs = [
                (one, self.size[one], begin, self.ended.get(one, self.now + 1))
                for one, begin in self.started.items()
            ]
            return usage_key(self.keys, self.jobs.user, runs, job, self.now)
        if not self.keys.power:
            return float(self.keys.static[job])
        aged = (self.now - int(self.jobs.submit_ns[job])) / NS_PER_S / float(self.keys.scale[job])
        return -(aged * aged * aged if self.keys.power == 3 else aged) * float(self.keys.factor[job])

    def pass_now(self) -> None:
        """Starts whoever may start now."""
        self.pass_at = -1
        self.queue.sort(key=lambda job: (self.key(job), job))
        if self.backfill == "conservative":
            self.start_reserved()
            return
        while self.queue and (way := self.choice(self.queue[0])) is not None:
            self.start(self.queue[0], way)
        if not self.queue or self.backfill == "none":
            return
        head = self.queue[0]
        latest, future = self.reserved(head)
        for job in self.candidates():
            way = None if job == head else self.choice(job)
            if way is None:
                continue
            end = self.end_of(job, way)
            assert end is not None
            if latest is not None and end > latest:
                without = [a - b for a, b in zip(future, self.need[way], strict=True)]
                if not self.ever(without, head):
                    continue
                future = without
            self.overtook.add(job)
            self.start(job, way)

    def candidates(self) -> list[int]:
        """Returns the queue in the order in which jobs may overtake."""
        if self.backfill == "easy-sjbf":
            return sorted(self.queue, key=lambda job: (self.expected[job], job))
        return list(self.queue)

    def ways_of(self, job: int) -> range:
        """Returns the ways to run a job."""
        size = int(self.asked.size[job])
        return range(int(self.options.first[size]), int(self.options.first[size + 1]))

    def fits(self, free: list[int], way: int) -> bool:
        """Returns True if GPUs are free for a way."""
        return all(need <= have for need, have in zip(self.need[way], free, strict=True))

    def ever(self, free: list[int], job: int) -> bool:
        """Returns True if GPUs are free for a job in some way."""
        return any(self.fits(free, way) for way in self.ways_of(job))

    def end_of(self, job: int, way: int) -> int | None:
        """Returns the predicted end of a job that starts now; None: never."""
        kb, site = self.data[job]
        home, arrives = int(self.options.home[way]), self.now
        if site not in (NOWHERE, home) and kb:
            found = self.after(self.now, kb * NS_PER_S, int(self.links.kb_s[self.step, site, home]))
            if found is None:
                return None
            arrives = found
        return self.after(arrives, self.expected[job] * FULL_RATE, int(self.options.rate[self.step, way]))

    def choice(self, job: int) -> int | None:
        """Returns the way in which a job starts now; None: none."""
        return self.best(job, [way for way in self.ways_of(job) if self.fits(self.free, way)], self.now)

    def best(self, job: int, ways: list[int], at: int) -> int | None:
        """Returns the way among some by which a job runs from a time on; None: none."""
        found = []
        kb, site = self.data[job]
        homes = {int(self.options.home[way]) for way in self.ways_of(job)}
        for way in ways:
            home, end = int(self.options.home[way]), self.end_of(job, way)
            if end is None or (self.rule == "at-data" and site in homes and home != site):
                continue
            usd = int(self.options.nano_usd_ms[way]) * (self.expected[job] // 10**6)
            usd += 0 if site == NOWHERE else int(self.links.nano_usd_kb[site, home]) * kb
            ranks = {"first-site": (0, 0), "least-egress": (usd, end)}
            if self.rule == "least-loaded":
                ranks = {self.rule: (self.busy_ppm(way), end)}
            if self.rule == "greenest":
                ranks = {self.rule: (self.carbon_of(way, at, end - self.now), end)}
            if self.rule == "mast":
                ranks = {self.rule: (self.demand(job, way), end)}
            found.append((ranks.get(self.rule, (end, usd)), way))
        return min(found)[1] if found else None

    def busy_ppm(self, way: int) -> int:
        """Returns millionths of the GPUs in use at the busiest site of a way."""
        each = zip(self.need[way], self.free, self.gpus, strict=True)
        return max((total - free) * 1_000_000 // total for need, free, total in each if need)

    def demand(self, job: int, way: int) -> int:
        """Returns demand over supply at the busiest site of a way; a way over several sites, or one to which
        data move, is worse."""
        kb, data = self.data[job]
        found = []
        for site, need in enumerate(self.need[way]):
            waits = sum(self.size[one] for one in self.queue if one != job and self.data[one][1] == site)
            if need:
                demand = self.gpus[site] - self.free[site] + waits + need
                found.append(demand * 1_000_000 // self.gpus[site])
        worse = 2 * (len(found) > 1) + (kb > 0 and data not in (NOWHERE, int(self.options.home[way])))
        return int(worse) * MOST_DEMAND_PPM + max(found)

    def carbon_of(self, way: int, at: int, length: int) -> int:
        """Returns seconds x GPUs x milligrams a kilowatt-hour, at the intensity of a time."""
        assert self.carbon is not None
        now = max(step for step, begin in enumerate(self.carbon.at) if begin <= at)
        rate = sum(need * int(mg) for need, mg in zip(self.need[way], self.carbon.mg_kwh[now], strict=True))
        return rate * (length // NS_PER_S)

    def start(self, job: int, way: int) -> None:
        """Starts a job of the queue."""
        self.queue.remove(job)
        kb, site = self.data[job]
        coming = site not in (NOWHERE, int(self.options.home[way])) and kb > 0
        self.started[job], self.ways[job] = self.now, way
        self.note(STARTED, job, job in self.overtook, way)
        left = kb * NS_PER_S if coming else self.run_ns[job] * FULL_RATE
        self.running[job] = one = _Held(way, coming, left, self.now)
        self.free = [a - b for a, b in zip(self.free, self.need[way], strict=True)]
        self.pace(job, one)

    def predicted_end(self, job: int) -> int | None:
        """Returns the end of a running job by its prediction, as links are; None: never."""
        one = self.running[job]
        rate, work = int(self.options.rate[self.step, one.option]), self.expected[job] * FULL_RATE
        if one.coming:
            return self.after(self.after(self.now, self.left(one), one.speed), work, rate)
        return self.after(self.now, max(0, work - (self.run_ns[job] * FULL_RATE - self.left(one))), rate)

    def reserved(self, head: int) -> tuple[int | None, list[int]]:
        """Returns when GPUs are free for the head by the predicted ends, None: never, and which are then."""
        if self.ever(self.free, head):
            return self.now, list(self.free)
        ends = {job: self.predicted_end(job) for job in self.running}
        free = list(self.free)
        for time in sorted({end for end in ends.values() if end is not None}):
            free = list(self.free)
            for job, end in ends.items():
                if end is not None and end <= time:
                    free = [a + b for a, b in zip(free, self.need[self.running[job].option], strict=True)]
            if self.ever(free, head):
                return time, free
        return None, free

    def start_reserved(self) -> None:
        """Starts jobs whose reservation is now."""
        for job in [job for job in self.queue if job in self.turns] if self.run_ended else []:
            del self.turns[job]
            self.reserve(job)
        for job in self.queue:
            if job not in self.turns:
                self.reserve(job)
        self.run_ended = False
        due = [job for job in self.queue if job in self.turns and self.turns[job][0] == self.now]
        late = set(self.queue) - set(due)
        for job in due:
            if late & set(self.queue[: self.queue.index(job)]):
                self.overtook.add(job)
            self.start(job, self.turns.pop(job)[2])

    def reserve(self, job: int) -> None:
        """Reserves the earliest time at which a job fits in some way; none if no link serves it."""
        held = [
            (self.now, self.predicted_end(other), self.need[one.option])
            for other, one in self.running.items()
        ]
        held += [(begin, end, self.need[way]) for begin, end, way in self.turns.values()]
        for time in sorted({self.now, *(end for _, end, _ in held if end is not None)}):
            if time > LATEST_NS:
                return
            way = self.best(job, [way for way in self.ways_of(job) if self.lasts(job, way, time, held)], time)
            if way is not None:
                end = self.end_of(job, way)
                assert end is not None
                self.turns[job] = (time, time + end - self.now, way)
                return

    def lasts(
        self, job: int, way: int, time: int, held: list[tuple[int, int | None, tuple[int, ...]]]
    ) -> bool:
        """Returns True if a way has its GPUs from a time to its predicted end."""
        found = self.end_of(job, way)
        if found is None:
            return False
        end = time + found - self.now
        for mark in {time, *(begin for begin, _, _ in held if time < begin < end)}:
            free = list(self.gpus)
            for begin, stop, need in held:
                if begin <= mark and (stop is None or mark < stop):
                    free = [a - b for a, b in zip(free, need, strict=True)]
            if not self.fits(free, way):
                return False
        return True


def play(
    *given: Any, happened: list[Happening] | None = None
) -> tuple[list[int], list[int], list[int], list[bool]]:
    """Returns start and end of each job, its way, and which overtook the head; arguments as `kernel.play`.
    What happens is added to `happened`."""
    referee = SiteReferee(*given)
    referee.play()
    if happened is not None:
        happened += referee.happened
    everyone = range(len(referee.jobs))
    return (
        [referee.started[job] for job in everyone], [referee.ended[job] for job in everyone],
        [referee.ways[job] for job in everyone], [job in referee.overtook for job in everyone],
    )  # fmt: skip
