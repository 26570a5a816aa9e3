"""The durations of a plan under the present links of the world, updated crossing by crossing."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twin.core.domain import Pair
from twin.core.plan import Plan
from twin.costs.boundary_terms import ends_ns, terms_compiled, wide_area_bytes
from twin.costs.tied_embeddings import spread
from twin.costs.wan_traffic import boundaries, iteration_bytes, stage_domains
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import costs_by_state, with_links
from twin.estimation.resource_use import open_links
from twin.network.flows import Network, Route
from twin.pipeline import kernel, operation_order
from twin.pipeline.kernel import LONGEST_NS
from twin.pipeline.pipeline import Int, Pipeline


class PlanTiming:
    """Durations of one iteration of `plan` now; on uncontended links its time is that of `Estimator.iter_ns`.

    `boundaries`: domains that each boundary between stages joins downstream, None inside a domain;
    `routes`: links of each crossing, both directions. `message_bytes` cross a wide-area boundary per
    micro-batch, those of all dp pipelines. `tied`: the last and the first domain where they exchange
    `tied_bytes` each way in each of two steps (`twin.costs.tied_embeddings`), else None; `own_tail` (S, 1):
    what follows a stage's last backward, without that exchange. Rates are those of the last `update`, at
    first of a network without other flows. `bytes_per_iteration` is the most that any crossing carries.
    """

    def __init__(
        self, network: Network, estimator: Estimator, plan: Plan, slowdown: NDArray[np.float64]
    ) -> None:
        pipeline = estimator.pipeline(plan, open_links(estimator.cluster.size), slowdown, exchange=False)
        assert pipeline is not None, "open links are never dead"
        down, up = (pipeline.of.copy(), pipeline.lf.copy()), (pipeline.ob.copy(), pipeline.lb.copy())
        self.own_tail = pipeline.tail
        self.pipeline: Pipeline = replace(
            pipeline, of=down[0], lf=down[1], ob=up[0], lb=up[1], tail=pipeline.tail.copy()
        )
        self.boundaries = boundaries(plan)
        self.bytes_per_iteration = iteration_bytes(estimator.job, plan)
        self.message_bytes, self.tied_bytes = wide_area_bytes(
            estimator.job, plan.dp, plan.micro_batch, spread(plan)
        )
        self.routes: dict[Pair, Route] = {}
        self._network = network
        self._domains = stage_domains(plan)
        self._size = estimator.cluster.size
        self._crossings: dict[Pair, list[tuple[int, bool]]] = {}
        for b, pair in enumerate(self.boundaries):
            if pair is not None:
                self._crossings.setdefault(pair, []).append((b, True))
                self._crossings.setdefault((pair[1], pair[0]), []).append((b, False))
        far = self.tied_bytes > 0 and len(plan.shares) > 1
        self.tied: Pair | None = (plan.order[-1], plan.order[0]) if far else None
        self._tied_ns = dict.fromkeys((self.tied, self.tied[::-1]) if self.tied else (), 0)
        self._dead: set[Pair] = set()
        for pair in (*self._crossings, *(pair for pair in self._tied_ns if pair not in self._crossings)):
            self.routes[pair] = plan.route(*pair)
            self.update(pair, network.alone_bps(self.routes[pair]))
        if self.pipeline.schedule == "crosspipe":  # the order is made once, for the links of this moment
            self.pipeline = replace(self.pipeline, order=operation_order.of(self.pipeline))

    @property
    def links(self) -> list[Pair]:
        """Every link that the plan sends anything over, once."""
        return list(dict.fromkeys(link for route in self.routes.values() for link in route))

    @property
    def stalled(self) -> bool:
        """True while a used link is dead, or a message would take longer than `LONGEST_NS`."""
        return bool(self._dead)

    def crossings_over(self, links: set[Pair]) -> list[Pair]:
        """Crossings whose route passes one of `links`."""
        return [pair for pair, route in self.routes.items() if not links.isdisjoint(route)]

    def update(self, crossing: Pair, rate_bps: float) -> None:
        """Set the rate of a crossing; its latency becomes that of the links now."""
        joints = self._crossings.get(crossing, ())
        one, latency_ns = self.pipeline, self._network.latency_ns(self.routes[crossing])
        message = float(self.message_bytes if joints else 0)
        exchanged = float(self.tied_bytes if crossing in self._tied_ns else 0)
        found = terms_compiled(message, exchanged, float(rate_bps), float(latency_ns))
        if max(found) >= LONGEST_NS:
            self._dead.add(crossing)
            return
        self._dead.discard(crossing)
        for boundary, downstream in joints:
            occupancy, latency = (one.of, one.lf) if downstream else (one.ob, one.lb)
            occupancy[boundary, 0], latency[boundary, 0] = found.occupancy, found.latency
        if crossing in self._tied_ns:
            self._tied_ns[crossing] = int(found.tied)
            one.tail[[0, -1]] = self.own_tail[[0, -1]] + ends_ns(*self._tied_ns.values())

    def scaled(self, factors: NDArray[np.float64] | None) -> Pipeline:
        """Durations of an iteration in which domain k computes `factors[k]` times slower; None: as usual."""
        one = self.pipeline
        if factors is None:
            return one
        scale = np.tile(factors[self._domains], one.chunks)[:, None]

        def rounded(row: Int) -> Int:
            return np.rint(row * scale).astype(np.int64)

        weight = None if one.tw is None else rounded(one.tw)
        return replace(one, tf=rounded(one.tf), tb=rounded(one.tb), tw=weight)

    def busy_ns(self, factors: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Forward and backward time of one iteration in each domain (K,): mean over its stages."""
        return self.mean(self.scaled(factors).busy_ns[:, 0].astype(np.float64))

    def mean(self, of_stages: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean of a figure of each stage (S,) over the stages of each domain (K,); 0 without stages."""
        count = np.bincount(self._domains, minlength=self._size)
        total = np.bincount(self._domains, weights=of_stages, minlength=self._size)
        mean: NDArray[np.float64] = total / np.maximum(count, 1)
        return mean

    def ahead(self) -> dict[int, int | None]:
        """Iteration times by ns at the next changes of links, all in one evaluation; None while stalled.

        As `iteration_ns` will return them if no other flow uses the links.
        """
        times, rates, delays = self._network.ahead(list(self.routes.values()))
        if not times or not self.routes:
            return {}
        pairs = [pair for pair in self.boundaries if pair is not None]
        ways = [way for i, j in pairs for way in ((i, j), (j, i))]
        rows = [list(self.routes).index(way) for way in (*ways, *self._tied_ns)]
        tied_bytes = 0 if self.tied is None else self.tied_bytes
        across = costs_by_state(self.message_bytes, tied_bytes, rates[rows], delays[rows])
        own = replace(self.pipeline, tail=self.own_tail)
        many = with_links(own, self.boundaries, across.occupancy, across.latency, across.tied)
        found = zip(times, across.alive.tolist(), kernel.iteration_ns(many).tolist(), strict=True)
        return {at_ns: ns if alive else None for at_ns, alive, ns in found}

    def iteration_ns(self, factors: NDArray[np.float64] | None = None) -> int | None:
        """Iteration time now; None while stalled."""
        if self._dead:
            return None
        return int(kernel.iteration_ns(self.scaled(factors))[0])
