"""The iterating job, event engine: every micro-batch goes through SimPy (`twin.microbatches`)."""

from collections.abc import Generator, Sequence
from typing import Any

from simpy import Event

from ingest.core.errors import UsageError
from twin.network.link_state import Pair
from twin.engines.microbatch_pipeline import Run
from twin.core.plan import Plan
from twin.engines.plan_timing import PlanTiming
from twin.engines.engine import Site, Training, Unfinished


class MicrobatchTraining(Training):
    """Event engine: every micro-batch runs through SimPy. `disturbed` is also the end of an iteration."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._run: Run | None = None
        self._seen_ns = 0
        self._stalls = self._paced = False
        site.network.links.watchers.append(self._links_changed)

    def start(self, plan: Plan) -> None:
        """Begin the first iteration under `plan` now."""
        self._plan = plan
        timing = self._timing(plan)
        self._network.links.watch(timing.links)
        self._run = Run(self._network, timing, self._iteration_ended)
        self._begin()
        self._disturb()

    def settle(self) -> None:
        """Bring the stalled time up to now; iterations report themselves when they end."""
        now = self._env.now
        if self._stalls:
            self._stalled_ns += now - self._seen_ns
        self._seen_ns = now
        self._stalls = self._run is not None and self._run.timing.stalled

    def repace(self) -> None:
        """The compute speed of a domain has changed: operations that begin from now on take another time."""
        if self._run is not None and self._plan is not None:
            self._run.pace(self._timing(self._plan))
            self._paced = True

    def finish(self) -> Generator[Event, Any, None]:
        """Wait for the end of the running iteration, or not while it stalls."""
        self.settle()
        while self._run is not None and not self._stalls and self._env.now != self._began_ns:
            yield self._disturbed
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
        self._disturb()
        elapsed = self._env.now - self._began_ns
        return Unfinished(self._began_ns, elapsed, self._stalled_ns, done)

    def eta_ns(self, count: int) -> int | None:
        """Events tell when an iteration ends; nobody knows before."""
        return None

    def _begin(self) -> None:
        assert self._run is not None
        self._began_ns = self._seen_ns = self._env.now
        self._stalled_ns, self._stalls, self._paced = 0, False, False
        self.settle()
        self._factors = self._jitter.draw() if self._jitter else None
        self._run.begin(self._factors)

    def _iteration_ended(self) -> None:
        self.settle()
        assert self._run is not None
        uneven = self._jitter is not None or self._paced
        extra_ns = self._run.extra_ns() if uneven else None
        self._iterated(1, self._began_ns, self._env.now - self._began_ns, self._stalled_ns, extra_ns)
        self._begin()
        self._disturb()

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
            self._disturb()

    def _timing(self, plan: Plan) -> PlanTiming:
        if plan.sync is not None:
            raise UsageError("the event engine runs one pipeline; for replicas use the kernel engine")
        return PlanTiming(self._network, self._estimator, plan, self._slowdown)
