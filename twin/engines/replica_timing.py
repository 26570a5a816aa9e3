"""The durations of replicas under the present links of the world: the slowest one, and their exchange."""

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE, NS_PER_S, to_s, transmission_s
from twin.core.domain import Pair
from twin.core.plan import Plan
from twin.costs import replica_sync
from twin.engines.plan_timing import PlanTiming
from twin.estimation.estimator import Estimator
from twin.network.flows import Network, Route
from twin.pipeline.kernel import LONGEST_NS


class ReplicaTiming:
    """Durations of one iteration of replicas now: `PlanTiming` for plans with `sync`.

    `routes` are those of the ring; rates are those of the last `update`.
    """

    def __init__(
        self, network: Network, estimator: Estimator, plan: Plan, slowdown: NDArray[np.float64]
    ) -> None:
        self.routes: dict[Pair, Route] = {pair: plan.route(*pair) for pair in replica_sync.ring(plan)}
        self._network = network
        self._steps, self._size = replica_sync.steps(plan), replica_sync.step_bytes(estimator.job, plan)
        self._replicas = [
            PlanTiming(network, estimator, plan.replica(n), slowdown) for n in range(plan.replicas)
        ]
        self._step_s: dict[Pair, float] = {}
        for pair, route in self.routes.items():
            self.update(pair, network.alone_bps(route))

    @property
    def links(self) -> list[Pair]:
        """Every link that the ring sends anything over, once."""
        return list(dict.fromkeys(link for route in self.routes.values() for link in route))

    @property
    def bytes_per_iteration(self) -> float:
        """Bytes that each route of the ring carries in one iteration."""
        return self._steps * self._size

    def update(self, crossing: Pair, rate_bps: float) -> None:
        """Set the rate of a crossing; its latency becomes that of the links now."""
        latency_s = to_s(self._network.latency_ns(self.routes[crossing]))
        self._step_s[crossing] = latency_s + transmission_s(self._size, rate_bps) if rate_bps > 0 else np.inf

    def iteration_ns(self, factors: NDArray[np.float64] | None = None) -> int | None:
        """Iteration time now; None while the exchange stalls."""
        exchange = max(self._step_s.values(), default=0.0) * self._steps * NS_PER_S
        return None if exchange >= LONGEST_NS else self._slowest_ns(factors) + round(exchange)

    def busy_ns(self, factors: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Computing time of an iteration in each domain (K,)."""
        total: NDArray[np.float64] = np.sum([one.busy_ns(factors) for one in self._replicas], axis=0)
        return total

    def ahead(self) -> dict[int, int | None]:
        """Iteration times by ns at the next changes of links, if no other flow uses them."""
        times, rates, delays = self._network.ahead(list(self.routes.values()))
        if not times:
            return {}
        with np.errstate(divide="ignore"):
            seconds = delays / NS_PER_S + self._size * BITS_PER_BYTE / rates
        exchange = seconds.max(axis=0) * self._steps * NS_PER_S
        slowest = self._slowest_ns(None)
        return {
            ns: None if exchange[n] >= LONGEST_NS else slowest + round(float(exchange[n]))
            for n, ns in enumerate(times)
        }

    def _slowest_ns(self, factors: NDArray[np.float64] | None) -> int:
        """Time of the slowest replica; inside a domain nothing stalls."""
        return max(one.iteration_ns(factors) or 0 for one in self._replicas)


Timing = PlanTiming | ReplicaTiming


def timing_of(network: Network, estimator: Estimator, plan: Plan, slowdown: NDArray[np.float64]) -> Timing:
    """Durations of `plan` under the present links."""
    kind = PlanTiming if plan.sync is None else ReplicaTiming
    return kind(network, estimator, plan, slowdown)
