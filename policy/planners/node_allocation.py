"""Nodes given to a job, one up or down at a time: the job's home domain, and the domains around it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InfeasibleError
from policy.planners.megatron import sized
from twin.core.domain import Matrix
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan

Allocation = tuple[int, ...]
"""(K,) nodes of each domain."""
ACTIONS = tuple((home, away) for home in (0, 1, -1) for away in (0, 1, -1))
"""(change at home, change elsewhere) in nodes; the first one holds."""


class Allocator:
    """What can be given to a job under these GPUs and links; plans are made once for each allocation."""

    def __init__(self, estimator: Estimator, free_gpus: Sequence[int], bandwidth_bps: Matrix) -> None:
        self._estimator, self._free, self._bandwidth = estimator, tuple(free_gpus), bandwidth_bps
        self._node = [domain.gpus_per_node for domain in estimator.cluster.domains]
        self.most: Allocation = tuple(
            -(-free // node) for free, node in zip(self._free, self._node, strict=True)
        )
        self._plans: dict[Allocation, Plan | None] = {}

    def of(self, plan: Plan) -> Allocation:
        """Nodes that a plan occupies, no more than there are."""
        nodes = [0] * len(self.most)
        for share in plan.shares:
            nodes[share.domain] = -(-len(share.gpus) // self._node[share.domain])
        return tuple(min(n, most) for n, most in zip(nodes, self.most, strict=True))

    def plan(self, allocation: Allocation) -> Plan | None:
        """Megatron's rule over the given nodes; None where the model does not fit."""
        if allocation not in self._plans:
            gpus = [
                min(free, n * node) for free, n, node in zip(self._free, allocation, self._node, strict=True)
            ]
            try:
                self._plans[allocation] = sized(self._estimator, [k for k, n in enumerate(gpus) if n], gpus)
            except InfeasibleError:
                self._plans[allocation] = None
        return self._plans[allocation]

    def home(self, allocation: Allocation) -> int:
        """The domain with most nodes of the job."""
        return int(np.argmax(allocation))

    def after(self, allocation: Allocation, action: tuple[int, int]) -> Allocation | None:
        """The allocation after an action; None where there is no node to take or to give.

        Elsewhere the job grows in the domain with the widest link to its home, and shrinks in that with the
        narrowest.
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
        """Which of `ACTIONS` lead to a plan (9,)."""
        ahead = [self.after(allocation, action) for action in ACTIONS]
        return np.array([a is not None and self.plan(a) is not None for a in ahead])

    def first(self) -> Allocation | None:
        """The largest domain whole, and more over the widest links until the model fits; None if it never
        does."""
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
