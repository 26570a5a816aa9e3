"""Allocations of nodes to a job, changed by one node in its home domain and one elsewhere at a time."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InfeasibleError
from policy.planners.megatron import megatron_plan
from twin.core.domain import Matrix
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator

Allocation = tuple[int, ...]
"""(K,) nodes of each domain."""
ACTIONS = tuple((home, away) for home in (0, 1, -1) for away in (0, 1, -1))
"""(change at home, change elsewhere) in nodes; the first one holds."""


class Allocator:
    """The possible allocations under given GPUs and links; the plan of each is cached."""

    def __init__(self, estimator: Estimator, free_gpus: Sequence[int], bandwidth_bps: Matrix) -> None:
        self._estimator, self._free, self._bandwidth = estimator, tuple(free_gpus), bandwidth_bps
        self._node = [domain.gpus_per_node for domain in estimator.cluster.domains]
        self.most: Allocation = tuple(
            -(-free // node) for free, node in zip(self._free, self._node, strict=True)
        )
        self._plans: dict[Allocation, Plan | None] = {}

    def allocation_of(self, plan: Plan) -> Allocation:
        """Returns the nodes that a plan occupies, no more than there are."""
        nodes = [0] * len(self.most)
        for share in plan.shares:
            nodes[share.domain] = -(-len(share.gpus) // self._node[share.domain])
        return tuple(min(n, most) for n, most in zip(nodes, self.most, strict=True))

    def plan(self, allocation: Allocation) -> Plan | None:
        """Returns the plan of Megatron's rule over these nodes; None where the model does not fit."""
        if allocation not in self._plans:
            gpus = [
                min(free, n * node) for free, n, node in zip(self._free, allocation, self._node, strict=True)
            ]
            try:
                self._plans[allocation] = megatron_plan(
                    self._estimator, [k for k, n in enumerate(gpus) if n], gpus
                )
            except InfeasibleError:
                self._plans[allocation] = None
        return self._plans[allocation]

    def home(self, allocation: Allocation) -> int:
        """Returns the domain with most nodes of the job."""
        return int(np.argmax(allocation))

    def after(self, allocation: Allocation, action: tuple[int, int]) -> Allocation | None:
        """Returns the allocation after an action; None where there is no node to add or to remove.

        Elsewhere nodes are added in the domain with the widest link to the home domain, and removed in the
        one with the narrowest.
        """
        nodes, home = list(allocation), self.home(allocation)
        nodes[home] += action[0]
        if action[1]:
            others = [k for k in range(len(nodes)) if k != home and 0 <= nodes[k] + action[1] <= self.most[k]]
            if not others:
                return None
            nodes[min(others, key=lambda k: (-action[1] * self._width(home, k), k))] += action[1]
        legal = 0 <= nodes[home] <= self.most[home] and any(nodes)
        return tuple(nodes) if legal else None

    def mask(self, allocation: Allocation) -> NDArray[np.bool_]:
        """Tells which of `ACTIONS` lead to a plan (9,)."""
        next_ = [self.after(allocation, action) for action in ACTIONS]
        return np.array([a is not None and self.plan(a) is not None for a in next_])

    def initial(self) -> Allocation | None:
        """Returns the largest domain, and more domains over the widest links until the model fits; None if it
        never does."""
        nodes = [0] * len(self.most)
        home = int(np.argmax(self.most))
        nodes[home] = self.most[home]
        for k in sorted(range(len(nodes)), key=lambda k: (k != home, -self._width(home, k), k)):
            nodes[k] = self.most[k]
            if self.plan(tuple(nodes)) is not None:
                return tuple(nodes)
        return None

    def _width(self, home: int, k: int) -> float:
        return float(min(self._bandwidth[home, k], self._bandwidth[k, home]))
