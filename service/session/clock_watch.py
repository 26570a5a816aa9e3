"""Notices a wrong clock: compares the wall clock with the steady one and with the times that clients report.

The time of a run goes on by the steady clock. While the wall clock agrees with it, it is followed. When it
does not, it has *jumped*, and the run goes on without it until

* it agrees again,
* a client reports a time that agrees with the wall clock and not with the run,
* nobody has contradicted it for `WAIT_S`, or `WAIT_ALONE_S` where no client has reported anything yet.

In the last two cases the run takes the wall clock's time: a step forward of at most `DOWNTIME_NS` is made in
the run, any other one by a renewal, whose new run has its own time 0.

After a start nobody knows for how long the service was down. Then a wall clock up to `DOWNTIME_NS` ahead is
taken as it is; with one further ahead, or behind, the time that clients report moves the run on. A clock that
was wrong from the beginning is noticed by its clients as well: all of them are then ahead of it, or before
the run's begin, by the same time at every report.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ingest.core.units import NS_PER_S
from service.session.clock import LiveClock
from service.session.reported_time import AHEAD_NS, ReportedTime
from twin.core.facts import Fact

STEP_NS = 60 * NS_PER_S
"""A wall clock that differs by no more is followed without a word."""
DOWNTIME_NS = 86_400 * NS_PER_S
"""Longest time for which a service may have been down, where only the wall clock says so."""
WAIT_S = 900.0
"""Seconds after which a jump is taken for true that no client has contradicted."""
WAIT_ALONE_S = 60.0
"""The same while no client has reported anything."""
AGREES_NS = 300 * NS_PER_S
"""A report agrees with a time that differs by no more: samples may come a little late."""
RECENT_S = 600.0
"""Seconds for which it counts what a client's clock has said."""
STRIKES = 3
"""Batches of a client, all off by the same, that call the clock of this machine into question."""
SAME_NS = 5 * NS_PER_S
"""Offsets of a client that differ by no more are the same: late samples catch up, a wrong clock does not."""
BELIEVED_NS = 100 * 366 * 86_400 * NS_PER_S
"""An offset beyond this is no clock but a mistake."""
MAX_CLIENTS = 1_000
"""Clients whose clocks are compared."""


@dataclass(frozen=True, slots=True)
class _ClientOffset:
    """How far a client's clock is ahead of the wall clock, at how many batches in a row, and when last."""

    offset_ns: int
    strikes: int
    last_ns: int


class ClockWatch:
    """Watches the clocks of a session, from run to run; called in the session's thread.

    `problem` is the reason for which the clock is in doubt; empty: it is not. `newest_ns` returns the newest
    time that a client has reported (epoch), None where none has.
    """

    def __init__(self, newest_ns: Callable[[], int | None]) -> None:
        self._newest_ns = newest_ns
        self.problem = ""
        self.renews = False
        """The run was ended because of the clock: the next one begins at the time of the wall clock."""
        self.ahead_ns = 0
        """How far the wall clock is ahead of the run."""
        self._jump_ns: int | None = None  # `ahead_ns` when the jump was noticed
        self._jumped_ns = 0  # and the steady time then
        self._slack_ns = DOWNTIME_NS  # how far the wall clock may be ahead
        self._started = True  # nothing has agreed with the wall clock since the start
        self._contradicted_ns: int | None = None
        self._agreed_ns: int | None = None
        self._offsets: dict[str, _ClientOffset] = {}
        self._settled = ""  # why the wall clock is believed although it jumped

    def facts(self, clock: LiveClock, report: ReportedTime | None) -> Iterator[Fact]:
        """Yields what is to be logged of the clock now; `report` is of the batch that is to be taken next.

        `renewal_requested` is the last fact of a run: the next one begins at `wall_ns` of the clock.
        """
        self.ahead_ns = clock.wall_ns() - clock.epoch_ns()
        if -STEP_NS <= self.ahead_ns <= self._slack_ns:
            clock.move_to(clock.wall_ns())
            self._slack_ns, self._started, self._jump_ns, self._settled = STEP_NS, False, None, ""
            self.ahead_ns = 0
            yield from self._compare(clock, report)
            return
        yield from self._doubt(clock)
        self._judge(clock, report)
        if not self._settled:
            return
        if 0 < self.ahead_ns <= DOWNTIME_NS:
            clock.move_to(clock.wall_ns())
            yield from self._settle(clock, self._settled)
        else:
            reason = f"the clock was set: {self._settled}"
            yield from self._settle(clock, self._settled)
            self.renews = True
            yield Fact(clock.now_ns(), "renewal_requested", {"client": "", "reason": reason})

    def begin(self) -> None:
        """Takes that a new run begins at the time of the wall clock."""
        self.renews = False
        self._slack_ns, self._started, self._jump_ns, self._settled = STEP_NS, False, None, ""

    # -- a wall clock that jumped

    def _doubt(self, clock: LiveClock) -> Iterator[Fact]:
        """Yields the jump, once for every time to which the wall clock is set."""
        if self._jump_ns is not None and abs(self.ahead_ns - self._jump_ns) <= STEP_NS:
            return
        self._jump_ns, self._jumped_ns = self.ahead_ns, clock.steady_ns()
        self._settled, self._contradicted_ns, self._agreed_ns = "", None, None
        where = "ahead of" if self.ahead_ns > 0 else "behind"
        since = "the run's last event" if self._started else "the time that has passed in the run"
        self.problem = (
            f"the clock of this machine is {duration(self.ahead_ns)} {where} {since}; the run goes on by a "
            "clock that is never set, until this one is right again or a client's clock agrees with it"
        )
        yield Fact(clock.now_ns(), "clock_jumped", self._payload(clock, self.problem))

    def _judge(self, clock: LiveClock, report: ReportedTime | None) -> None:
        """Finds whether the wall clock is to be believed although it jumped."""
        newest_ns, steady_ns = self._newest_ns(), clock.steady_ns()
        if self._started and self.ahead_ns < 0 and (newest_ns or 0) <= clock.wall_ns() + STEP_NS:
            self._settled = "no client has reported a later time"
        if report is not None:
            self._take_report(clock, report)
        wait_s = WAIT_ALONE_S if newest_ns is None else WAIT_S
        since_ns = max(self._jumped_ns, self._contradicted_ns or self._jumped_ns)
        if steady_ns - since_ns >= wait_s * NS_PER_S and not self._settled:
            self._settled = f"nobody has contradicted it for {wait_s:g} s"

    def _take_report(self, clock: LiveClock, report: ReportedTime) -> None:
        """Compares a report with the wall clock and with the run; it may move the run on after a start."""
        near_ns = min(AGREES_NS, abs(self.ahead_ns) // 2)
        if abs(report.epoch_ns - clock.wall_ns()) <= near_ns:
            self._settled = f"the clock of client {report.client or 'without a name'} agrees with it"
            return
        passed_ns = report.epoch_ns - clock.epoch_ns()
        if self._started and 0 < passed_ns <= DOWNTIME_NS and (
            self.ahead_ns < 0 or passed_ns < self.ahead_ns
        ):  # fmt: skip
            clock.move_to(report.epoch_ns)
            passed_ns = 0
        if abs(passed_ns) <= near_ns:
            self._contradicted_ns = clock.steady_ns()

    # -- a wall clock that was wrong from the beginning

    def _compare(self, clock: LiveClock, report: ReportedTime | None) -> Iterator[Fact]:
        """Yields that all clients contradict the wall clock, or that this is over, or a jump."""
        steady_ns = clock.steady_ns()
        if report is not None:
            self._take_offset(clock, report, steady_ns)
        agreed = self._agreed_ns is not None and steady_ns - self._agreed_ns <= RECENT_S * NS_PER_S
        off = None if agreed else self._off(steady_ns)
        if off is None and self.problem:
            why = "a client's clock agrees with it" if agreed else "it is right again"
            yield from self._settle(clock, why)
        elif off is not None and not self.problem:
            name, offset_ns = off
            where = "ahead of" if offset_ns > 0 else "behind"
            self.problem = (
                f"the clock of client {name or 'without a name'} is {duration(offset_ns)} {where} that of "
                "this machine, and no client's clock agrees with it; nothing is taken until they agree"
            )
            yield Fact(clock.now_ns(), "clock_jumped", self._payload(clock, self.problem, -offset_ns))

    def _take_offset(self, clock: LiveClock, report: ReportedTime, steady_ns: int) -> None:
        """Notes whether the time of a report can be one of this run, as `Intake` judges it."""
        offset_ns = report.epoch_ns - clock.wall_ns()
        if clock.origin_epoch_ns <= report.epoch_ns <= clock.epoch_ns() + AHEAD_NS:
            self._agreed_ns = steady_ns
            self._offsets.pop(report.client, None)
            return
        known = self._offsets.pop(report.client, None)
        if abs(offset_ns) > BELIEVED_NS:
            return
        same = known is not None and abs(offset_ns - known.offset_ns) <= SAME_NS
        strikes = known.strikes + 1 if known is not None and same else 1
        self._offsets[report.client] = _ClientOffset(offset_ns, strikes, steady_ns)
        if len(self._offsets) > MAX_CLIENTS:
            del self._offsets[next(iter(self._offsets))]

    def _off(self, steady_ns: int) -> tuple[str, int] | None:
        """Returns a client whose clock has been off by the same for several batches, and by how much."""
        for name, seen in self._offsets.items():
            if seen.strikes >= STRIKES and steady_ns - seen.last_ns <= RECENT_S * NS_PER_S:
                return name, seen.offset_ns
        return None

    def _settle(self, clock: LiveClock, reason: str) -> Iterator[Fact]:
        """Yields that the clock is believed again."""
        self.problem, self._jump_ns, self._settled = "", None, ""
        self._offsets.clear()
        yield Fact(clock.now_ns(), "clock_settled", self._payload(clock, reason))

    def _payload(self, clock: LiveClock, reason: str, ahead_ns: int | None = None) -> dict[str, Any]:
        ahead_ns = self.ahead_ns if ahead_ns is None else ahead_ns
        return {"wall_epoch_ns": clock.wall_ns(), "ahead_s": ahead_ns / NS_PER_S, "reason": reason}


def duration(ns: int) -> str:
    """Returns the length of a time in words, without its sign: `30.0 days`."""
    seconds = abs(ns) / NS_PER_S
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
