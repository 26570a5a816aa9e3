"""The iterating job, kernel engine: no event per iteration, exact integer accounting between changes.

An iteration that starts under link state x takes T(plan, x). When a used link changes on the way, the
fraction still to do goes on at the new pace; while a used link is dead nothing goes on. Whole iterations
between two changes are counted by one division, so a long quiet stretch costs nothing.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from twin.estimate import Estimator
from twin.links import Links, Pair
from twin.pace import Work
from twin.plan import Plan
from twin.timing import PlanTiming

Iterated = Callable[[int, int, int, int], None]
"""Called with complete iterations: count, start_ns of the first, duration_ns of each, stalled_ns in all."""


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


class RateTraining:
    """Kernel engine: progress at the rate that the iteration-time model gives for the present link state.

    `slowdown` (K,) is updated in place by the world.
    """

    def __init__(
        self, links: Links, estimator: Estimator, slowdown: NDArray[np.float64], iterated: Iterated
    ) -> None:
        self._env = links.env
        self._links = links
        self._estimator = estimator
        self._slowdown = slowdown
        self._iterated = iterated
        self._plan: Plan | None = None
        self._timing: PlanTiming | None = None
        self._work = Work(0, None)
        self._began_ns = self._stalled_ns = 0
        self._disturbed = self._env.event()
        links.watchers.append(self._links_changed)

    def start(self, plan: Plan) -> None:
        """Begin the first iteration under `plan` now."""
        self._plan = plan
        self._timing = PlanTiming(self._links, self._estimator, plan, self._slowdown)
        self._began_ns, self._stalled_ns = self._env.now, 0
        self._work = Work(self._env.now, self._timing.iteration_ns())

    def settle(self) -> None:
        """Report every iteration that was complete by now."""
        now, work = self._env.now, self._work
        if self._timing is None:
            return
        if work.stalled:
            self._stalled_ns += now - work.since_ns
        elif now >= work.since_ns + work.left_ns:
            self._count(now)
        self._work.settle(now)

    def repace(self) -> None:
        """The compute speed of a domain has changed: carry on at the new pace."""
        if self._plan is not None:
            self._timing = PlanTiming(self._links, self._estimator, self._plan, self._slowdown)
            self._go_on(self._timing)

    def finish(self) -> Generator[Event, Any, None]:
        """Wait for the end of the running iteration, or not while it stalls."""
        self.settle()
        while self._timing and not self._work.stalled and self._env.now != self._began_ns:
            yield self._env.timeout(self._work.left_ns) | self._disturbed
            self.settle()

    def stop(self) -> Unfinished | None:
        """Give up the running iteration; None where none runs."""
        self.settle()
        if self._timing is None:
            return None
        self._plan = self._timing = None
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
        timing = self._timing
        used = [pair for pair in changed if timing is not None and timing.uses(pair)]
        if timing is not None and used:
            for pair in used:
                timing.update(pair)
            self._go_on(timing)

    def _go_on(self, timing: PlanTiming) -> None:
        """What is left of the running iteration takes its share of the new iteration time."""
        self.settle()
        self._work.repace(self._env.now, timing.iteration_ns())
        self._disturb()

    def _disturb(self) -> None:
        self._disturbed.succeed()
        self._disturbed = self._env.event()
