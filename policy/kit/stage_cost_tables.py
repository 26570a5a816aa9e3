"""Cost tables of stages by domain, tensor width and micro-batch, for all spans of layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from twin.core.layer_split import stage_start
from twin.estimation.estimator import Estimator

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SpanCosts:
    """A stage of tp x dp GPUs in one domain for each span of layers [i, j): (N + 1, N + 1) seconds or bytes.

    `compute_s` is forward and backward of a micro-batch, `tail_s` gradient synchronisation and update. Peak
    memory with f micro-batches in flight is `bytes_none + f * bytes_each`. Entries with j <= i are unused and
    0.
    """

    compute_s: Float
    tail_s: Float
    bytes_none: Float
    bytes_each: Float

    def most_in_flight(self, memory_bytes: float) -> Float:
        """Returns the micro-batches in flight that fit in `memory_bytes` (N + 1, N + 1); below 1: none."""
        free_bytes = memory_bytes - self.bytes_none
        return np.where(free_bytes < 0, 0.0, free_bytes / np.maximum(self.bytes_each, 1e-9))


def span_costs(
    estimator: Estimator, domain: int, dp: int, tp: int, micro_batch: int, slowdown: float = 1.0
) -> SpanCosts:
    """Returns the table for stages of dp x tp GPUs of `domain`, slowed down by `slowdown`."""
    domains = estimator.cluster.domains
    equal = (k for k, other in enumerate(domains) if _same(estimator, domain, k) and other.gpus >= dp * tp)
    first = next(equal)  # equal domains share a table
    return _span_costs(estimator, first, dp, tp, micro_batch, slowdown)


def _same(estimator: Estimator, a: int, b: int) -> bool:
    """Tells whether two domains have equal machines; names and prices may differ."""
    one, other = estimator.cluster.domains[a], estimator.cluster.domains[b]
    return a == b or (one.gpu, one.gpus_per_node, _fabric(estimator, a)) == (
        other.gpu, other.gpus_per_node, _fabric(estimator, b),
    )  # fmt: skip


def _fabric(estimator: Estimator, k: int) -> tuple[float, ...]:
    domain = estimator.cluster.domains[k]
    return (
        domain.intra_node_bps, domain.inter_node_bps,
        domain.intra_node_latency_s, domain.inter_node_latency_s,
    )  # fmt: skip


@lru_cache(maxsize=512)
def _span_costs(
    estimator: Estimator, domain: int, dp: int, tp: int, micro_batch: int, slowdown: float
) -> SpanCosts:
    n = estimator.n_layers
    spans = np.array([(i, j) for i in range(n) for j in range(i + 1, n + 1)], dtype=np.int64)
    one, two = (
        estimator.share_costs(domain, spans, dp, tp, 1, micro_batch, in_flight=flight) for flight in (1, 2)
    )
    each = two.peak_bytes[0] - one.peak_bytes[0]
    rows = (
        (one.forward_s[0] + one.backward_s[0]) * slowdown,
        one.sync_s[0] + one.update_s[0],
        one.peak_bytes[0] - each,
        each,
    )
    return SpanCosts(*(_square(row, spans, n) for row in rows))


def _square(row: Float, spans: NDArray[np.int64], n: int) -> Float:
    table = np.zeros((n + 1, n + 1))
    table[spans[:, 0], spans[:, 1]] = row
    return table


@dataclass(frozen=True, slots=True, eq=False)
class DomainStages:
    """A domain with `stages` equal stages of width `tp`, for all spans between L + 1 cut points.

    `slowest` and `total` (L + 1, L + 1): the largest and the summed seconds of a stage per micro-batch,
    infinite where a stage stays empty. `successors`: the number of stages of a 1F1B pipeline that may follow
    before memory overflows, infinite where all micro-batches fit.
    """

    tp: int
    stages: int
    slowest: Float
    total: Float
    successors: Float


def domain_stages(
    estimator: Estimator, domain: int, dp: int, tp: int, stages: int, micro_batch: int, count: int,
    points: Sequence[int], slowdown: float = 1.0,
) -> DomainStages:  # fmt: skip
    """Returns the costs of `stages` equal stages in `domain` over every span between `points`.

    A stage costs its computation and, once in `count` micro-batches, its gradient synchronisation.
    """
    costs = span_costs(estimator, domain, dp, tp, micro_batch, slowdown)
    holds = costs.most_in_flight(estimator.cluster.domains[domain].gpu.memory_bytes)
    in_flight = np.where(holds >= count, np.inf, np.floor(holds))
    each_s = costs.compute_s + costs.tail_s / count
    size, ends = len(points), np.asarray(points)
    a, b = np.nonzero(ends[None, :] - ends[:, None] >= stages)
    slowest, total, successors = (
        np.full((size, size), np.inf),
        np.full((size, size), np.inf),
        np.zeros((size, size)),
    )
    if len(a):
        bounds = _bounds(ends[a], ends[b], stages, estimator.n_layers)
        spans = bounds[:, :-1], bounds[:, 1:]
        slowest[a, b], total[a, b] = each_s[spans].max(axis=1), each_s[spans].sum(axis=1)
        successors[a, b] = (in_flight[spans] - (stages - np.arange(stages))).min(axis=1)
    return DomainStages(tp, stages, slowest, total, successors)


def _bounds(first: Int, past: Int, stages: int, layers: int) -> Int:
    """Returns the bounds of the stages of shares (P, stages + 1) of a model of `layers`, as the twin splits
    them."""
    a, b = first[:, None], past[:, None]
    return np.asarray(a + stage_start(np.arange(stages + 1), stages, b - a, a == 0, b == layers))
