"""Orders of domains worth planning for under weights of speed, utilisation and money.

A search for speed keeps orders that are fast; what is cheap, or uses its domains well, may be slow. So paths
are grown as in `policy.search.domain_orders`, ranked by an estimate of the weighted objective. With layers
split perfectly over the n domains of a path, N layers and m micro-batches,

    T = m P,    U = (N / sum over domains of 1 / c_k) / P,    C = sum over boundaries of b (p_ij + p_ji),

P the time of a micro-batch by the formula given there, b the bytes of all activations of an iteration at a
boundary and p prices. A tied embedding is in P, not in C.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import GB
from policy.core.objective import Objective
from policy.search.batch_scoring import Scorer
from policy.search.closed_form import ShareTimeTables
from policy.search.domain_orders import path_weights, typical_sizes
from policy.search.plan_search import TimedPlans
from twin.core.domain import Matrix
from twin.estimation.estimator import Estimator

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Path = tuple[int, ...]

BEAM = 24
"""Paths grown at each length for each message size,"""
KEPT = 8
"""and paths of each length that are planned for, both ways."""
PATIENCE = 2
"""Lengths in a row without improvement after which growing stops."""


def add_weighted(pool: TimedPlans, alive: Sequence[int], objective: Objective) -> None:
    """Times the fastest plan of each order that is good by the weighted objective."""
    found = weighted_orders(pool.estimator, pool.scorer, pool.tables, alive, objective)
    if found:
        pool.add_orders(found)


def weighted_orders(
    estimator: Estimator, scorer: Scorer, known: ShareTimeTables, alive: Sequence[int], objective: Objective
) -> list[Path]:
    """Returns the best orders of each length by the estimate above, each also in reverse."""
    usd = boundary_usd(estimator)
    found: dict[Path, None] = {}
    for size in typical_sizes(known):
        edge, speed, ends = path_weights(scorer, known, size, alive)
        micro_batches = int(known.options.arrays.micro_batches[size])
        paths = _Paths(edge, speed, ends, usd, known.layers, micro_batches, objective)
        found |= dict.fromkeys(path for one in paths.grown() for path in (one, one[::-1]))
    return list(found)


def boundary_usd(estimator: Estimator) -> Matrix:
    """Returns the egress of an iteration of a boundary between each two domains, both ways, (K, K)."""
    job, prices = estimator.job, np.array(estimator.cluster.usd_per_gb)
    activations = job.message_bytes(1) * job.global_batch
    return np.asarray(activations / GB * (prices + prices.T))


@dataclass(frozen=True, slots=True, eq=False)
class _Grown:
    """P paths of one length, the best first: domains (P, n), and sums over them (P,)."""

    domains: Int
    waits: Float
    speed: Float
    usd: Float


@dataclass(frozen=True, slots=True, eq=False)
class _Paths:
    """Weights of a graph over domains (see `path_weights`), and the objective of paths in it."""

    edge: Float
    speed: Float
    ends: Float
    usd: Matrix
    layers: int
    micro_batches: int
    objective: Objective

    def grown(self) -> list[Path]:
        """Returns the `KEPT` best paths of each length, shortest first, as long as longer ones improve."""
        usable = np.flatnonzero(self.speed > 0)
        none = np.zeros(len(usable))
        paths = self._best(_Grown(usable[:, None], none, self.speed[usable], none))
        found: list[Path] = []
        best, idle = -np.inf, 0
        while len(paths.domains) and idle <= PATIENCE:
            found += [tuple(row) for row in paths.domains[:KEPT].tolist()]
            leader = float(self._values(paths)[0])
            idle = 0 if leader > best else idle + 1
            best = max(best, leader)
            paths = self._best(self._longer(paths))
        return found

    def _longer(self, paths: _Grown) -> _Grown:
        """Returns every path with one more domain at its end; paths are grown at both ends, since each is
        kept both ways."""
        both = [(paths.domains, paths.domains[:, -1]), (paths.domains[:, ::-1], paths.domains[:, 0])]
        parts = []
        for domains, end in both:
            free = np.isfinite(self.edge[end])
            np.put_along_axis(free, domains, values=False, axis=1)
            row, k = np.nonzero(free)
            parts.append(
                _Grown(
                    np.column_stack([domains[row], k]),
                    paths.waits[row] + self.edge[end[row], k],
                    paths.speed[row] + self.speed[k],
                    paths.usd[row] + self.usd[end[row], k],
                )
            )
        return _Grown(*(np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS))

    def _best(self, paths: _Grown) -> _Grown:
        """Returns the `BEAM` best paths; of a path and its reverse one, since weights are the same."""
        forward = paths.domains[:, 0] <= paths.domains[:, -1]
        one_way = np.where(forward[:, None], paths.domains, paths.domains[:, ::-1])
        _, first = np.unique(one_way, axis=0, return_index=True)
        values = self._values(paths)[first]
        order = first[np.lexsort((first, -values))][:BEAM]
        order = order[np.isfinite(self._values(paths)[order])]
        return _Grown(*(getattr(paths, name)[order] for name in _FIELDS))

    def _values(self, paths: _Grown) -> Float:
        """Returns the estimated objective of each path (P,), up to a constant."""
        time, utilisation, cost = self.objective.weights
        base = self.objective.base
        pace = (self.layers + paths.waits) / paths.speed
        pace = pace + self.ends[paths.domains[:, 0], paths.domains[:, -1]]
        used = self.layers / paths.speed / pace
        relative = paths.usd / base.usd if base.usd > 0 else paths.usd
        seconds = pace * self.micro_batches / 1e9
        return np.asarray(utilisation * used - time * seconds / base.iter_s - cost * relative)


_FIELDS = ("domains", "waits", "speed", "usd")
