"""The iterating job, kernel engine: no event per iteration, exact integer accounting between changes.

An iteration that starts under link state x takes T(plan, x). When a used link changes on the way, the
fraction still to do goes on at the new pace; while a used link is dead nothing goes on. Whole iterations
between two changes are counted by one division, so a long quiet stretch costs nothing.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from twin.estimate import Estimator
from twin.kernel import DEAD
from twin.links import Links, Pair
from twin.pace import Work
from twin.plan import Plan

Iterated = Callable[[int, int, int, int], None]
"""Called with complete iterations: count, start_ns of the first, duration_ns of each, stalled_ns in all."""
REMEMBERED = 4096
"""Iteration times kept per plan; more than the distinct link states between two moves of most runs."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An iteration that was given up: when it began, how long it ran and stood still, what share was done."""

    start_ns: int
    elapsed_ns: int
    stalled_ns: int
    done: tuple[int, int]


class Training(Protocol):
    """What the world asks of an engine."""

    def start(self, plan: Plan) -> None:
        """Begin the first iteration under `plan` now."""
        ...

    def settle(self) -> None:
        """Report every iteration that was complete by now."""
        ...

    def repace(self) -> None:
        """The compute speed of a domain has changed."""
        ...

    def finish(self) -> Generator[Event, Any, None]:
        """Process fragment: wait for the end of the running iteration, or not while it stalls."""
        ...

    def stop(self) -> Unfinished | None:
        """Give up the running iteration; None where none runs."""
        ...


def used_links(plan: Plan) -> tuple[Pair, ...]:
    """Directed links between consecutive domains of `plan`, both ways."""
    order = plan.order
    return tuple(pair for a, b in pairwise(order) for pair in ((a, b), (b, a)))


class RateTraining:
    """Kernel engine: progress at the rate that the iteration-time model gives for the present link state."""

    def __init__(
        self,
        links: Links,
        estimator: Estimator,
        slowdown: NDArray[np.float64],
        iterated: Iterated,
    ) -> None:
        self._env = links.env
        self._links = links
        self._estimator = estimator
        self._slowdown = slowdown  # (K,), updated in place by the world
        self._iterated = iterated
        self._plan: Plan | None = None
        self._used: tuple[Pair, ...] = ()
        self._times: dict[tuple[float, ...], int | None] = {}
        self._work = Work(0, None)
        self._began_ns = self._stalled_ns = 0
        self._disturbed = self._env.event()
        links.watchers.append(self._links_changed)

    def start(self, plan: Plan) -> None:
        """Begin the first iteration under `plan` now."""
        if plan != self._plan:
            self._times.clear()
        self._plan, self._used = plan, used_links(plan)
        self._began_ns, self._stalled_ns = self._env.now, 0
        self._work = Work(self._env.now, self._time())

    def settle(self) -> None:
        """Report every iteration that was complete by now."""
        now, work = self._env.now, self._work
        if self._plan is None:
            return
        if work.stalled:
            self._stalled_ns += now - work.since_ns
        elif now >= work.since_ns + work.left_ns:
            self._count(now)
        self._work.settle(now)

    def repace(self) -> None:
        """A used link, or the compute speed of a domain, has changed: carry on at the new pace."""
        if self._plan is None:
            return
        self.settle()
        self._work.repace(self._env.now, self._time())
        self._disturb()

    def finish(self) -> Generator[Event, Any, None]:
        """Wait for the end of the running iteration, or not while it stalls."""
        self.settle()
        while self._plan and not self._work.stalled and self._env.now != self._began_ns:
            yield self._env.timeout(self._work.left_ns) | self._disturbed
            self.settle()

    def stop(self) -> Unfinished | None:
        """Give up the running iteration; None where none runs."""
        self.settle()
        if self._plan is None:
            return None
        self._plan, self._used = None, ()
        self._disturb()
        elapsed = self._env.now - self._began_ns
        return Unfinished(self._began_ns, elapsed, self._stalled_ns, self._work.done)

    def _count(self, now: int) -> None:
        """The running iteration has ended, perhaps whole ones after it; the rest is the next one's."""
        work = self._work
        end = work.since_ns + work.left_ns
        self._iterated(1, self._began_ns, end - self._began_ns, self._stalled_ns)
        whole, rest = divmod(now - end, work.full_ns)
        if whole:
            self._iterated(whole, end, work.full_ns, 0)
        self._began_ns, self._stalled_ns = now - rest, 0
        self._work = Work(self._began_ns, work.full_ns)

    def _links_changed(self, changed: Sequence[Pair]) -> None:
        if any(pair in self._used for pair in changed):
            self.repace()

    def _disturb(self) -> None:
        self._disturbed.succeed()
        self._disturbed = self._env.event()

    def _time(self) -> int | None:
        """Iteration time now; None while a used link is dead."""
        state = self._links.state
        key = (
            *(float(state.bandwidth_bps[pair]) for pair in self._used),
            *(float(state.latency_s[pair]) for pair in self._used),
            *self._slowdown.tolist(),
        )
        if key not in self._times:
            if len(self._times) >= REMEMBERED:
                self._times.clear()
            assert self._plan is not None
            time_ns = self._estimator.iter_ns(self._plan, state, self._slowdown)
            self._times[key] = None if time_ns >= DEAD else time_ns
        return self._times[key]
