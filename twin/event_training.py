"""The iterating job, event engine: every micro-batch goes through SimPy (`twin.microbatches`)."""

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from twin.estimate import Estimator
from twin.links import Links, Pair
from twin.microbatches import Run
from twin.plan import Plan
from twin.timing import PlanTiming
from twin.training import Iterated, Unfinished


class MicrobatchTraining:
    """Event engine: the `Training` that runs every micro-batch through SimPy.

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
        self._run: Run | None = None
        self._began_ns = self._stalled_ns = self._seen_ns = 0
        self._stalls = False
        self._disturbed = self._env.event()
        links.watchers.append(self._links_changed)

    def start(self, plan: Plan) -> None:
        """Begin the first iteration under `plan` now."""
        self._plan = plan
        self._run = Run(self._links, self._timing(plan), self._iteration_ended)
        self._begin()

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
        run.live, self._run, self._plan = False, None, None
        self._disturb()
        elapsed = self._env.now - self._began_ns
        return Unfinished(self._began_ns, elapsed, self._stalled_ns, run.done)

    def _begin(self) -> None:
        assert self._run is not None
        self._began_ns = self._seen_ns = self._env.now
        self._stalled_ns, self._stalls = 0, False
        self.settle()
        self._run.begin()

    def _iteration_ended(self) -> None:
        self.settle()
        self._iterated(1, self._began_ns, self._env.now - self._began_ns, self._stalled_ns)
        self._begin()
        self._disturb()

    def _links_changed(self, changed: Sequence[Pair]) -> None:
        run = self._run
        used = [pair for pair in changed if run is not None and run.timing.uses(pair)]
        if run is None or not used:
            return
        for pair in used:
            run.link_changed(pair)
        self.settle()
        if self._stalls:
            self._disturb()

    def _disturb(self) -> None:
        self._disturbed.succeed()
        self._disturbed = self._env.event()

    def _timing(self, plan: Plan) -> PlanTiming:
        return PlanTiming(self._links, self._estimator, plan, self._slowdown)
