"""The durations of a plan under the links of the running world, kept up to date link by link."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from twin import kernel
from twin.costs import open_links
from twin.estimate import Estimator
from twin.kernel import LONGEST_NS
from twin.links import Links, Pair
from twin.pipeline import Pipeline
from twin.plan import Plan


class PlanTiming:
    """What one iteration of `plan` takes now; equal to `Estimator.iter_ns` under the present link state.

    `boundaries` says which link each boundary between stages crosses downstream, None inside a domain.
    `message_bytes` is what crosses a wide-area boundary per micro-batch: all dp pipelines share the link.
    """

    def __init__(self, links: Links, estimator: Estimator, plan: Plan, slowdown: NDArray[np.float64]) -> None:
        pipeline = estimator.pipeline(plan, open_links(estimator.cluster.size), slowdown)
        assert pipeline is not None, "open links are never dead"
        down, up = (pipeline.of.copy(), pipeline.lf.copy()), (pipeline.ob.copy(), pipeline.lb.copy())
        self.pipeline: Pipeline = replace(pipeline, of=down[0], lf=down[1], ob=up[0], lb=up[1])
        self.boundaries = _boundaries(plan)
        self.message_bytes = estimator.job.message_bytes(plan.micro_batch) * plan.dp
        self._links = links
        self._crossings = {}
        for b, pair in enumerate(self.boundaries):
            if pair is not None:
                self._crossings[pair] = (b, *down)
                self._crossings[pair[1], pair[0]] = (b, *up)
        self._dead: set[Pair] = set()
        for pair in self._crossings:
            self.update(pair)

    def uses(self, pair: Pair) -> bool:
        """Whether the plan sends anything over `pair`."""
        return pair in self._crossings

    @property
    def stalled(self) -> bool:
        """Whether a used link is dead, or so slow that it might as well be."""
        return bool(self._dead)

    def update(self, pair: Pair) -> None:
        """The used link `pair` has changed."""
        boundary, occupancy, latency = self._crossings[pair]
        occupancy_ns = self._links.transmission_ns(pair, self.message_bytes)
        if occupancy_ns is None or occupancy_ns >= LONGEST_NS:
            self._dead.add(pair)
            return
        self._dead.discard(pair)
        occupancy[boundary, 0] = occupancy_ns
        latency[boundary, 0] = self._links.latency_ns(pair)

    def iteration_ns(self) -> int | None:
        """Iteration time now; None while stalled."""
        return None if self._dead else int(kernel.iteration_ns(self.pipeline)[0])


def _boundaries(plan: Plan) -> list[Pair | None]:
    domains = [share.domain for share in plan.shares for _ in range(share.pp)]
    return [(a, b) if a != b else None for a, b in pairwise(domains)]
