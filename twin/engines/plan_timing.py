"""The durations of a plan under the links of the running world, kept up to date crossing by crossing."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE, NS_PER_S, to_ns, transmission_s
from twin.pipeline import kernel, operation_order as orders
from twin.costs import tied_embeddings as tied
from twin.estimate.resource_use import open_links
from twin.estimate.estimator import Estimator
from twin.pipeline.kernel import LONGEST_NS
from twin.network.link_state import Pair
from twin.network.flows import Network, Route
from twin.pipeline.pipeline import Int, Pipeline
from twin.core.plan import Plan
from twin.costs.wan_traffic import boundaries, iteration_bytes, stage_domains


class PlanTiming:
    """What one iteration of `plan` takes now; equal to `Estimator.iter_ns` under the present link state
    while the plan meets nobody on its way.

    `boundaries` says which domains each boundary between stages joins downstream, None inside a domain;
    `routes` over which links, for both directions. `message_bytes` is what crosses a wide-area boundary per
    micro-batch: all dp pipelines share the link. `tied` joins the last and the first stage where they
    exchange `tied_bytes` each way in each of two steps over wide-area links (`twin.tied`), None where they do
    not; `own_tail` (S, 1) is what follows a stage's last backward without that exchange. Rates are what
    `update` was told last; at first those of a network without others. `bytes_per_iteration` is the most that
    any crossing carries.
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
        self.message_bytes = estimator.job.message_bytes(plan.micro_batch) * plan.dp
        self.routes: dict[Pair, Route] = {}
        self._network = network
        self._domains = stage_domains(plan)
        self._size = estimator.cluster.size
        self._crossings: dict[Pair, list[tuple[int, bool]]] = {}
        for b, pair in enumerate(self.boundaries):
            if pair is not None:
                self._crossings.setdefault(pair, []).append((b, True))
                self._crossings.setdefault((pair[1], pair[0]), []).append((b, False))
        self.tied_bytes = tied.step_bytes(estimator.job, plan.stages) * plan.dp
        far = self.tied_bytes > 0 and len(plan.shares) > 1
        self.tied: Pair | None = (plan.order[-1], plan.order[0]) if far else None
        self._tied_ns = dict.fromkeys((self.tied, self.tied[::-1]) if self.tied else (), 0)
        self._dead: set[Pair] = set()
        for pair in (*self._crossings, *(pair for pair in self._tied_ns if pair not in self._crossings)):
            self.routes[pair] = plan.route(*pair)
            self.update(pair, network.alone_bps(self.routes[pair]))
        if self.pipeline.schedule == "crosspipe":  # the order is made once, for the links of this moment
            self.pipeline = replace(self.pipeline, order=orders.of(self.pipeline))

    @property
    def links(self) -> list[Pair]:
        """Every link that the plan sends anything over, once."""
        return list(dict.fromkeys(link for route in self.routes.values() for link in route))

    @property
    def stalled(self) -> bool:
        """Whether a used link is dead, or so slow that it might as well be."""
        return bool(self._dead)

    def crossings_over(self, links: set[Pair]) -> list[Pair]:
        """The crossings whose route passes one of `links`."""
        return [pair for pair, route in self.routes.items() if not links.isdisjoint(route)]

    def update(self, crossing: Pair, rate_bps: float) -> None:
        """Messages from domain to domain now travel at this rate, with the latency of the links now."""
        joints = self._crossings.get(crossing, ())
        occupancy_ns = _occupancy_ns(self.message_bytes, rate_bps) if joints else 0
        step_ns = _occupancy_ns(self.tied_bytes, rate_bps) if crossing in self._tied_ns else 0
        if max(occupancy_ns, step_ns) >= LONGEST_NS:
            self._dead.add(crossing)
            return
        self._dead.discard(crossing)
        one, latency_ns = self.pipeline, self._network.latency_ns(self.routes[crossing])
        for boundary, downstream in joints:
            occupancy, latency = (one.of, one.lf) if downstream else (one.ob, one.lb)
            occupancy[boundary, 0], latency[boundary, 0] = occupancy_ns, latency_ns
        if crossing in self._tied_ns:
            self._tied_ns[crossing] = step_ns + latency_ns
            exchange_ns = tied.STEPS * max(self._tied_ns.values())
            one.tail[[0, -1]] = self.own_tail[[0, -1]] + exchange_ns

    def paced(self, factors: NDArray[np.float64] | None) -> Pipeline:
        """An iteration in which domain k computes `factors[k]` times slower than usual; None: as usual."""
        one = self.pipeline
        if factors is None:
            return one
        scale = np.tile(factors[self._domains], one.chunks)[:, None]

        def scaled(row: Int) -> Int:
            return np.rint(row * scale).astype(np.int64)

        weight = None if one.tw is None else scaled(one.tw)
        return replace(one, tf=scaled(one.tf), tb=scaled(one.tb), tw=weight)

    def busy_ns(self, factors: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Forward and backward time of one iteration in each domain (K,): mean over its stages."""
        return self.mean(self.paced(factors).busy_ns[:, 0].astype(np.float64))

    def mean(self, of_stages: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean of a figure of each stage (S,) over the stages of each domain (K,); 0 without stages."""
        count = np.bincount(self._domains, minlength=self._size)
        total = np.bincount(self._domains, weights=of_stages, minlength=self._size)
        mean: NDArray[np.float64] = total / np.maximum(count, 1)
        return mean

    def ahead(self) -> dict[int, int | None]:
        """Iteration times at the next instants that matter, as `iteration_ns` will give them if nobody else
        comes: one evaluation for many changes."""
        times, rates, delays = self._network.ahead(list(self.routes.values()))
        if not times or not self.routes:
            return {}
        used = [(pair in self._crossings, pair in self._tied_ns) for pair in self.routes]
        sizes = np.array([(self.message_bytes, self.tied_bytes)]) * np.array(used)
        with np.errstate(divide="ignore", invalid="ignore"):
            both = np.where(sizes.T[:, :, None] > 0, sizes.T[:, :, None] * BITS_PER_BYTE / rates, 0.0)
        occupancy, steps = np.rint(both * NS_PER_S)
        dead = np.any(np.maximum(occupancy, steps) >= LONGEST_NS, axis=0)
        occupancy[:, dead] = steps[:, dead] = 0
        one = self.pipeline
        rows = [np.repeat(row, len(times), axis=1) for row in (one.of, one.lf, one.ob, one.lb)]
        for n, (src, dst) in enumerate(self.routes):
            for boundary, down in self._crossings.get((src, dst), ()):
                rows[0 if down else 2][boundary] = occupancy[n].astype(np.int64)
                rows[1 if down else 3][boundary] = delays[n].astype(np.int64)
        wide = [np.repeat(row, len(times), axis=1) for row in (one.tf, one.tb, self.own_tail)]
        if self.tied is not None:
            both_ways = [n for n, pair in enumerate(self.routes) if pair in self._tied_ns]
            slower = (steps[both_ways] + delays[both_ways]).max(axis=0)
            wide[2][[0, -1]] += tied.STEPS * slower.astype(np.int64)
        weight = None if one.tw is None else np.repeat(one.tw, len(times), axis=1)
        of, lf, ob, lb = rows
        many = replace(one, tf=wide[0], tb=wide[1], tail=wide[2], of=of, lf=lf, ob=ob, lb=lb, tw=weight)
        found = kernel.iteration_ns(many).tolist()
        return {ns: None if dead[n] else found[n] for n, ns in enumerate(times)}

    def iteration_ns(self, factors: NDArray[np.float64] | None = None) -> int | None:
        """Iteration time now; None while stalled."""
        if self._dead:
            return None
        return int(kernel.iteration_ns(self.paced(factors))[0])


def _occupancy_ns(size_bytes: int, rate_bps: float) -> int:
    return to_ns(transmission_s(size_bytes, rate_bps)) if rate_bps > 0 else LONGEST_NS
