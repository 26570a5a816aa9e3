"""Event engine: every micro-batch runs through SimPy (`twin.engines.microbatch_pipeline`)."""

from collections.abc import Generator, Sequence
from typing import Any

from simpy import Event

from ingest.core.errors import UsageError
from twin.core.domain import Pair
from twin.core.plan import Plan
from twin.engines.engine import Engine, EngineContext, Unfinished
from twin.engines.microbatch_pipeline import PipelineRun
from twin.engines.plan_timing import PlanTiming


class EventEngine(Engine):
    """Progress by the events of every micro-batch; `rescheduled` is also the end of an iteration."""

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._run: PipelineRun | None = None
        self._settled_ns = 0
        self._stalls = self._slowed = False
        context.network.links.watchers.append(self._links_changed)

    def start(self, plan: Plan) -> None:
        """Begin the first iteration under `plan` now."""
        self._plan = plan
        timing = self._timing(plan)
        self._network.links.watch(timing.links)
        self._run = PipelineRun(self._network, timing, self._iteration_ended)
        self._begin()
        self._reschedule()

    def settle(self) -> None:
        """Bring the stalled time up to now; iterations are reported when they end."""
        now = self._env.now
        if self._stalls:
            self._stalled_ns += now - self._settled_ns
        self._settled_ns = now
        self._stalls = self._run is not None and self._run.timing.stalled

    def slowdown_changed(self) -> None:
        """Let operations that begin from now on take the present compute speed of the domains."""
        if self._run is not None and self._plan is not None:
            self._run.set_durations(self._timing(self._plan))
            self._slowed = True

    def finish(self) -> Generator[Event, Any, None]:
        """Wait for the end of the running iteration, or not while it stalls."""
        self.settle()
        while self._run is not None and not self._stalls and self._env.now != self._began_ns:
            yield self._rescheduled
            self.settle()

    def stop(self) -> Unfinished | None:
        """Give up the running iteration; None where none runs."""
        self.settle()
        run = self._run
        if run is None:
            return None
        done, self._run, self._plan = run.done, None, None
        self._network.links.unwatch(run.timing.links)
        run.drop()
        self._reschedule()
        elapsed = self._env.now - self._began_ns
        return Unfinished(self._began_ns, elapsed, self._stalled_ns, done)

    def eta_ns(self, count: int) -> int | None:
        """None: the end of an iteration is not known before its events."""
        return None

    def _begin(self) -> None:
        assert self._run is not None
        self._began_ns = self._settled_ns = self._env.now
        self._stalled_ns, self._stalls, self._slowed = 0, False, False
        self.settle()
        self._factors = self._jitter.draw() if self._jitter else None
        self._run.begin(self._factors)

    def _iteration_ended(self) -> None:
        self.settle()
        assert self._run is not None
        uneven = self._jitter is not None or self._slowed
        extra_ns = self._run.extra_ns() if uneven else None
        self._on_iterations(1, self._began_ns, self._env.now - self._began_ns, self._stalled_ns, extra_ns)
        self._begin()
        self._reschedule()

    def _links_changed(self, changed: Sequence[Pair]) -> None:
        run = self._run
        if run is None:
            return
        timing = run.timing
        used = timing.crossings_over(set(changed))
        for pair in used:
            timing.update(pair, self._network.alone_bps(timing.routes[pair]))
        self.settle()
        if self._stalls:
            self._reschedule()

    def _timing(self, plan: Plan) -> PlanTiming:
        if plan.sync is not None:
            raise UsageError("the event engine runs one pipeline; for replicas use the kernel engine")
        return PlanTiming(self._network, self._estimator, plan, self._slowdown)
