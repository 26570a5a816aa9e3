"""Reference simulator of one pool under limits of power, in SimPy: slow, plain, and equal to the kernel.

The pool's referee with power: what is free is summed anew, and the lowest level within the window of the ramp
limit is looked up in the list of all levels that ever were.
"""

from dataclasses import dataclass, field

from twin.core.clock import At
from twin.power.limits import PowerLimits
from twin.queue.jobs import Int, QueueJobs
from twin.queue.recipe import Backfill, OrderKeys
from twin.queue.referee import LAST, Referee
from twin.queue.rules import QueueRules


@dataclass
class _CappedReferee(Referee):
    watts: Int | None = None
    limits: PowerLimits = field(default_factory=PowerLimits)

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.watts is not None
        self.more = [int(one) for one in self.watts]
        self.levels: list[tuple[int, int]] = [(-1, 0)]  # since when, what jobs add
        self.wake_at = -1

    def drawn(self) -> int:
        """Returns what running jobs add, those that count as gone left out."""
        return sum(self.more[job] for job, one in self.running.items() if not self.freed(one))

    def note_level(self) -> None:
        """Keeps the level of now, in place of another one of this instant."""
        now = int(self.env.now)
        if self.levels[-1][0] == now:
            self.levels.pop()
        if not self.levels or self.levels[-1][1] != self.drawn():
            self.levels.append((now, self.drawn()))

    def past(self) -> list[tuple[int, int]]:
        """Returns level and end of all levels that lasted and are within the window, the present one last."""
        now = int(self.env.now)
        ends = [since for since, _ in self.levels[1:]] + [now]
        return [
            (level, end)
            for (since, level), end in zip(self.levels, ends, strict=True)
            if since < end and end > now - self.limits.window_ns
        ]

    def held_up(self, job: int) -> bool:
        """Returns True if the ramp limit keeps a job out now."""
        if self.limits.rise_mw is None:
            return False
        lowest = min(level for level, _ in self.past())
        return self.drawn() + self.more[job] - lowest > self.limits.rise_mw

    def room(self, job: int) -> bool:
        cap = self.limits.cap_mw
        return super().room(job) and (cap is None or self.drawn() + self.more[job] <= cap)

    def terminated(self, job: int) -> None:
        del self.running[job]
        self.reserved.pop(job, None)
        self.ended = True
        self.note_level()
        self.schedule()

    def start(self, job: int, overtakes: bool) -> None:
        super().start(job, overtakes)
        self.note_level()

    def pass_now(self) -> None:
        self.note_level()
        super().pass_now()
        self.set_wake()

    def set_wake(self) -> None:
        """Makes a pass when the lowest level leaves the window, if jobs wait and it is below the present."""
        self.wake_at = -1
        if self.limits.rise_mw is None or not self.queue:
            return
        lowest = min(level for level, _ in self.past())
        if lowest < self.drawn():
            last_end = max(end for level, end in self.past() if level == lowest)
            self.wake_at = last_end + self.limits.window_ns
            At(self.env, self.wake_at - int(self.env.now), LAST).callbacks.append(lambda _: self.wake())

    def wake(self) -> None:
        """Makes the pass that was set for now, unless another one is due or has been."""
        if self.wake_at == self.env.now and self.pass_at != self.env.now:
            self.pass_now()

    def overtake(self) -> None:
        head = self.chosen[0] if self.chosen else self.queue[0]
        shadow, spare, spare_mw = self.reserved_with_power(head)
        if self.rules.commits:
            self.chosen = self.chosen or (head, shadow)
            shadow = self.chosen[1]
        self.promise(self.env.now, head, shadow)
        for job in self.candidates():
            end = self.env.now + self.expected[job]
            in_time = end < shadow if self.rules.strict else end <= shadow
            spared = self.rules.spares and self.size[job] <= spare and self.more[job] <= spare_mw
            if job != head and self.room(job) and (in_time or spared) and not self.held_up(job):
                if not in_time:
                    spare, spare_mw = spare - self.size[job], spare_mw - self.more[job]
                self.start(job, overtakes=True)

    def reserved_with_power(self, head: int) -> tuple[int, int, int]:
        """Returns when a job fits by the predicted ends, and what it leaves free then."""
        cap = self.limits.cap_mw
        for time in sorted(one.predicted_end for one in self.running.values()):
            gone = [
                job for job, one in self.running.items() if one.predicted_end <= time and not self.freed(one)
            ]
            spare = self.free() + sum(self.size[job] for job in gone) - self.size[head]
            left = (2**62 if cap is None else cap) - self.drawn()
            spare_mw = left + sum(self.more[job] for job in gone) - self.more[head]
            if spare >= 0 and spare_mw >= 0:
                return time, spare, spare_mw
        raise AssertionError("the job is larger than the pool or its power")

    def fits(self, job: int, begin: int, places: list[tuple[int, int, int]]) -> bool:
        if not super().fits(job, begin, places):
            return False
        cap, end = self.limits.cap_mw, begin + self.expected[job]
        if cap is None:
            return True
        spans = [(at, at + self.expected[one], self.more[one]) for one, at in self.reserved.items()]
        marks = [begin, *(at for at, _, _ in spans if begin < at < end)]
        return all(
            sum(more for at, stop, more in spans if at <= mark < stop) + self.more[job] <= cap
            for mark in marks
        )


def play(
    jobs: QueueJobs, predicted: Int, processors: int, keys: OrderKeys, backfill: Backfill, rules: QueueRules,
    job_mw: Int, limits: PowerLimits,
) -> tuple[list[int], list[bool]]:  # fmt: skip
    """Returns start, nanoseconds, of each job, and which jobs overtook the head of the queue."""
    referee = _CappedReferee(
        jobs, predicted, processors, keys, backfill, rules, lambda time, job, start: None,
        watts=job_mw, limits=limits,
    )  # fmt: skip
    referee.play()
    everyone = range(len(jobs))
    return [referee.started[job] for job in everyone], [job in referee.overtook for job in everyone]
