"""The iterating job, kernel engine: no event per iteration, exact integer accounting between changes.

An iteration that starts under link state x takes T(plan, x). When a used link changes on the way, the
fraction still to do goes on at the new pace; while a used link is dead nothing goes on. Whole iterations
between two changes are counted by one division, so a long quiet stretch costs nothing.

Beside others on a link (`twin.network`) a plan sends its messages at its max-min fair rate; what it leaves to
them is its mean traffic when alone: bytes of an iteration over the time of one that meets nobody.
"""

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from ingest.core.units import BITS_PER_BYTE, NS_PER_S
from twin.scenario.step_jitter import Jitter
from twin.network.link_state import Pair
from twin.network.flows import Flow
from twin.network.variable_rate_work import Work
from twin.core.plan import Plan
from twin.engines.replica_timing import Timing, timing_of
from twin.engines.engine import Site, Training, Unfinished


class RateTraining(Training):
    """Kernel engine: progress at the rate that the iteration-time model gives for the present link state."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._flows: dict[Pair, Flow] = {}
        self._ahead: dict[int, int | None] = {}
        self._credit: NDArray[np.float64] | None = None  # computed (K,) ns at an earlier speed
        self._credited = 0.0  # the share of the iteration that this was
        self._alone: Timing | None = None  # as if nobody else were there
        self._mean_at: tuple[float, ...] = ()
        self._mean = 0.0
        self._timing: Timing | None = None
        self._work = Work(0, None)

    def start(self, plan: Plan) -> None:
        """Begin the first iteration under `plan` now."""
        self._plan = plan
        self._timing = timing = timing_of(self._network, self._estimator, plan, self._slowdown)
        self._flows = {pair: Flow(self, route, self._network) for pair, route in timing.routes.items()}
        self._alone, self._mean_at = None, ()
        self._ahead = {}
        self._network.links.watch(timing.links)
        self._network.open(list(self._flows.values()))
        self._take_rates(timing)
        self._began_ns, self._stalled_ns = self._env.now, 0
        self._credit, self._credited = None, 0.0
        self._factors = self._jitter.draw() if self._jitter else None
        self._work = Work(self._env.now, timing.iteration_ns(self._factors))
        self._disturb()

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
        if self._plan is not None and self._timing is not None:
            self.settle()
            done, full = self._work.done
            share = done / full - self._credited
            before = share * self._timing.busy_ns(self._factors)
            self._credit = before if self._credit is None else self._credit + before
            self._credited += share
            self._timing = timing_of(self._network, self._estimator, self._plan, self._slowdown)
            self._alone, self._mean_at = None, ()
            self._ahead = {}
            self._take_rates(self._timing)
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
        timing = self._timing
        if timing is None:
            return None
        flows = list(self._flows.values())
        self._plan = self._timing = None
        self._flows = {}
        self._network.links.unwatch(timing.links)
        self._network.close(flows)
        self._disturb()
        elapsed = self._env.now - self._began_ns
        return Unfinished(self._began_ns, elapsed, self._stalled_ns, self._work.done)

    def eta_ns(self, count: int) -> int | None:
        """Nanoseconds until `count` more iterations are complete at this pace; until one, if uneven."""
        work = self._work
        if self._timing is None or work.stalled:
            return None
        return work.left_ns + (0 if self._jitter else (count - 1) * work.full_ns)

    def _count(self, now: int) -> None:
        """The running iteration has ended, perhaps whole ones after it; the rest is the next one's."""
        work = self._work
        end = work.since_ns + work.left_ns
        self._iterated(1, self._began_ns, end - self._began_ns, self._stalled_ns, self._extra_ns())
        self._credit, self._credited = None, 0.0
        if self._jitter is not None:
            self._count_each(end, now, self._jitter)
            return
        whole, rest = divmod(now - end, work.full_ns)
        if whole:
            self._iterated(whole, end, work.full_ns, 0, None)
        self._began_ns, self._stalled_ns = now - rest, 0
        self._work = Work(self._began_ns, work.full_ns)

    def _extra_ns(self) -> NDArray[np.float64] | None:
        """What the domains compute longer than usual in the running iteration; None: nothing."""
        if self._timing is None or (self._credit is None and self._factors is None):
            return None
        rest = (1 - self._credited) * self._timing.busy_ns(self._factors)
        extra: NDArray[np.float64] = rest - self._timing.busy_ns()
        return extra if self._credit is None else extra + self._credit

    def _count_each(self, start: int, now: int, jitter: Jitter) -> None:
        """Iterations from `start` on, no two alike."""
        assert self._timing is not None
        while True:
            self._factors = jitter.draw()
            full_ns = self._timing.iteration_ns(self._factors)
            self._began_ns, self._stalled_ns, self._work = start, 0, Work(start, full_ns)
            if full_ns is None or start + full_ns > now:
                return
            self._iterated(1, start, full_ns, 0, self._extra_ns())
            start += full_ns

    def demand_bps(self, flow: Flow) -> float:
        """Mean traffic of the plan over `flow` when it meets nobody."""
        timing = self._timing
        assert timing is not None
        rates = tuple(self._network.alone_bps(other.route) for other in self._flows.values())
        if rates != self._mean_at:
            self._mean_at, self._mean = rates, self._mean_bps(rates)
        return self._mean

    def _mean_bps(self, rates: tuple[float, ...]) -> float:
        assert self._plan is not None
        if self._alone is None:
            self._alone = timing_of(self._network, self._estimator, self._plan, self._slowdown)
        alone, before = self._alone, self._mean_at or rates
        for pair, rate, old in zip(self._flows, rates, before, strict=True):
            if rate != old:
                alone.update(pair, rate)
        iteration_ns = alone.iteration_ns()
        if iteration_ns is None:
            return 0.0  # a stalled iteration sends nothing
        return alone.bytes_per_iteration * BITS_PER_BYTE * NS_PER_S / iteration_ns

    def rates_changed(self, flows: Sequence[Flow]) -> None:
        """Links have changed, or others came or went: carry on at the new pace."""
        timing = self._timing
        if timing is not None:
            self.settle()  # until now the old pace held
            self._take_rates(timing, flows)
            self._go_on(timing)

    def _take_rates(self, timing: Timing, flows: Sequence[Flow] | None = None) -> None:
        for pair, flow in self._flows.items():
            if flows is None or flow in flows:
                timing.update(pair, flow.rate_bps)

    def _go_on(self, timing: Timing) -> None:
        """What is left of the running iteration takes its share of the new iteration time."""
        self.settle()
        self._work.repace(self._env.now, self._iteration_ns(timing))
        self._disturb()

    def _iteration_ns(self, timing: Timing) -> int | None:
        """Iteration time now; changes of links nobody else uses are evaluated many at once."""
        if self._jitter is not None or self._network.crowded:
            return timing.iteration_ns(self._factors)
        now = self._env.now
        if now not in self._ahead:
            self._ahead = timing.ahead() | {now: timing.iteration_ns()}
        return self._ahead[now]
