"""Kernel engine: no event per iteration, exact integer accounting between changes of links.

An iteration that starts under link state x takes T(plan, x). When a used link changes during an iteration,
the fraction still to do takes that fraction of the new T; while a used link is dead there is no progress.
Whole iterations between two changes are counted by one division.

On a link with other flows (`twin.network.flows`) a plan sends its messages at its max-min fair rate. Its
demand, which limits the others, is its mean traffic without them: bytes of an iteration over T on free
links.
"""

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from ingest.core.units import BITS_PER_BYTE, NS_PER_S
from twin.core.domain import Pair
from twin.core.plan import Plan
from twin.engines.engine import Engine, EngineContext, Unfinished
from twin.engines.replica_timing import Timing, timing_of
from twin.network.flows import Flow
from twin.network.variable_rate_work import Work
from twin.scenario.step_jitter import Jitter


class KernelEngine(Engine):
    """Progress at the rate that the iteration-time model gives for the present link state."""

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._flows: dict[Pair, Flow] = {}
        self._times_ahead: dict[int, int | None] = {}
        self._computed_ns: NDArray[np.float64] | None = None  # (K,) computed before the speed changed
        self._computed_share = 0.0  # share of the iteration that this was
        self._uncontended: Timing | None = None  # on links without other flows
        self._mean_rates: tuple[float, ...] = ()
        self._mean = 0.0
        self._timing: Timing | None = None
        self._work = Work(0, None)

    def start(self, plan: Plan) -> None:
        """Begin the first iteration under `plan` now."""
        self._plan = plan
        self._timing = timing = timing_of(self._network, self._estimator, plan, self._slowdown)
        self._flows = {pair: Flow(self, route, self._network) for pair, route in timing.routes.items()}
        self._uncontended, self._mean_rates = None, ()
        self._times_ahead = {}
        self._network.links.watch(timing.links)
        self._network.open(list(self._flows.values()))
        self._take_rates(timing)
        self._began_ns, self._stalled_ns = self._env.now, 0
        self._computed_ns, self._computed_share = None, 0.0
        self._factors = self._jitter.draw() if self._jitter else None
        self._work = Work(self._env.now, timing.iteration_ns(self._factors))
        self._reschedule()

    def settle(self) -> None:
        """Report every iteration that was complete by now."""
        now, work = self._env.now, self._work
        if self._timing is None:
            return
        if work.stalled:
            self._stalled_ns += now - work.since_ns
        elif now >= work.since_ns + work.left_ns:
            self._complete(now)
        self._work.settle(now)

    def slowdown_changed(self) -> None:
        """Go on at the present compute speed of the domains."""
        if self._plan is not None and self._timing is not None:
            self.settle()
            done, full = self._work.done
            share = done / full - self._computed_share
            before = share * self._timing.busy_ns(self._factors)
            self._computed_ns = before if self._computed_ns is None else self._computed_ns + before
            self._computed_share += share
            self._timing = timing_of(self._network, self._estimator, self._plan, self._slowdown)
            self._uncontended, self._mean_rates = None, ()
            self._times_ahead = {}
            self._take_rates(self._timing)
            self._continue(self._timing)

    def finish(self) -> Generator[Event, Any, None]:
        """Wait for the end of the running iteration, or not while it stalls."""
        self.settle()
        while self._timing and not self._work.stalled and self._env.now != self._began_ns:
            yield self._env.timeout(self._work.left_ns) | self._rescheduled
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
        self._reschedule()
        elapsed = self._env.now - self._began_ns
        return Unfinished(self._began_ns, elapsed, self._stalled_ns, self._work.done)

    def eta_ns(self, count: int) -> int | None:
        """Nanoseconds until `count` more iterations are complete at this pace; with jitter until one is."""
        work = self._work
        if self._timing is None or work.stalled:
            return None
        return work.left_ns + (0 if self._jitter else (count - 1) * work.full_ns)

    def _complete(self, now: int) -> None:
        """Report the running iteration, which has ended, and whole ones after it; the rest is the next
        one's."""
        work = self._work
        end = work.since_ns + work.left_ns
        self._on_iterations(1, self._began_ns, end - self._began_ns, self._stalled_ns, self._extra_ns())
        self._computed_ns, self._computed_share = None, 0.0
        if self._jitter is not None:
            self._complete_each(end, now, self._jitter)
            return
        whole, rest = divmod(now - end, work.full_ns)
        if whole:
            self._on_iterations(whole, end, work.full_ns, 0, None)
        self._began_ns, self._stalled_ns = now - rest, 0
        self._work = Work(self._began_ns, work.full_ns)

    def _extra_ns(self) -> NDArray[np.float64] | None:
        """Computing time (K,) of the running iteration beyond the usual; None: nothing."""
        if self._timing is None or (self._computed_ns is None and self._factors is None):
            return None
        rest = (1 - self._computed_share) * self._timing.busy_ns(self._factors)
        extra: NDArray[np.float64] = rest - self._timing.busy_ns()
        return extra if self._computed_ns is None else extra + self._computed_ns

    def _complete_each(self, start: int, now: int, jitter: Jitter) -> None:
        """Report the iterations that end by `now`, from `start` on, each with its own jitter."""
        assert self._timing is not None
        while True:
            self._factors = jitter.draw()
            full_ns = self._timing.iteration_ns(self._factors)
            self._began_ns, self._stalled_ns, self._work = start, 0, Work(start, full_ns)
            if full_ns is None or start + full_ns > now:
                return
            self._on_iterations(1, start, full_ns, 0, self._extra_ns())
            start += full_ns

    def demand_bps(self, flow: Flow) -> float:
        """Mean traffic of the plan in bit/s on links without other flows."""
        timing = self._timing
        assert timing is not None
        rates = tuple(self._network.alone_bps(other.route) for other in self._flows.values())
        if rates != self._mean_rates:
            self._mean_rates, self._mean = rates, self._mean_bps(rates)
        return self._mean

    def _mean_bps(self, rates: tuple[float, ...]) -> float:
        assert self._plan is not None
        if self._uncontended is None:
            self._uncontended = timing_of(self._network, self._estimator, self._plan, self._slowdown)
        alone, before = self._uncontended, self._mean_rates or rates
        for pair, rate, old in zip(self._flows, rates, before, strict=True):
            if rate != old:
                alone.update(pair, rate)
        iteration_ns = alone.iteration_ns()
        if iteration_ns is None:
            return 0.0  # a stalled iteration sends nothing
        return alone.bytes_per_iteration * BITS_PER_BYTE * NS_PER_S / iteration_ns

    def rates_changed(self, flows: Sequence[Flow]) -> None:
        """Go on at the present rates of `flows`."""
        timing = self._timing
        if timing is not None:
            self.settle()  # at the old rates until now
            self._take_rates(timing, flows)
            self._continue(timing)

    def _take_rates(self, timing: Timing, flows: Sequence[Flow] | None = None) -> None:
        for pair, flow in self._flows.items():
            if flows is None or flow in flows:
                timing.update(pair, flow.rate_bps)

    def _continue(self, timing: Timing) -> None:
        """Let the rest of the running iteration take its share of the new iteration time."""
        self.settle()
        self._work.set_full_time(self._env.now, self._iteration_ns(timing))
        self._reschedule()

    def _iteration_ns(self, timing: Timing) -> int | None:
        """Iteration time now; on uncontended links those of many coming changes are evaluated at once."""
        if self._jitter is not None or self._network.contended:
            return timing.iteration_ns(self._factors)
        now = self._env.now
        if now not in self._times_ahead:
            self._times_ahead = timing.ahead() | {now: timing.iteration_ns()}
        return self._times_ahead[now]
