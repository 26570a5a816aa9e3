"""The iterating job, event engine: every micro-batch goes through SimPy (`twin.microbatches`)."""

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from twin.costs import open_links
from twin.estimate import Estimator
from twin.links import Links, Pair
from twin.microbatches import Run
from twin.pipeline import Pipeline
from twin.plan import Plan
from twin.training import Iterated, Unfinished, used_links


class MicrobatchTraining:
    """Event engine: the `Training` that runs every micro-batch through SimPy."""

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
        self._run: Run | None = None
        self._used: tuple[Pair, ...] = ()
        self._began_ns = self._stalled_ns = self._seen_ns = 0
        self._stalls = False
        self._disturbed = self._env.event()
        links.watchers.append(self._links_changed)

    def start(self, plan: Plan) -> None:
        """Begin the first iteration under `plan` now."""
        self._plan, self._used = plan, used_links(plan)
        self._run = Run(self._links, self._estimator, plan, self._pipeline(), self._iteration_ended)
        self._begin()

    def settle(self) -> None:
        """Bring the stalled time up to now; iterations report themselves when they end."""
        now = self._env.now
        if self._stalls:
            self._stalled_ns += now - self._seen_ns
        self._seen_ns = now
        self._stalls = any(self._links.is_dead(pair) for pair in self._used)

    def repace(self) -> None:
        """The compute speed of a domain has changed: operations that begin from now on take another time."""
        if self._run is not None:
            self._run.pace(self._pipeline())

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
        run.live, self._run, self._used = False, None, ()
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
        if self._run is None or not any(pair in self._used for pair in changed):
            return
        self.settle()
        for pair in changed:
            if pair in self._run.wires:
                self._run.wires[pair].changed()
        if self._stalls:
            self._disturb()

    def _disturb(self) -> None:
        self._disturbed.succeed()
        self._disturbed = self._env.event()

    def _pipeline(self) -> Pipeline:
        assert self._plan is not None
        links = open_links(self._estimator.cluster.size)
        pipeline = self._estimator.pipeline(self._plan, links, self._slowdown)
        assert pipeline is not None, "open links are never dead"
        return pipeline
