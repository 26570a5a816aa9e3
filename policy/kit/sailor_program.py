"""Sailor's dynamic program: the best assignment of even stages to an order of regions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import BITS_PER_BYTE
from policy.kit.even_stages import stage_layers, tensor_widths
from policy.kit.stage_cost_tables import span_costs
from twin.core.view import View
from twin.estimation.estimator import Estimator

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StageAssignment:
    """Sailor's iteration time, and the number and tensor width of the stages of every region of the order."""

    seconds: float
    stages: tuple[int, ...]
    widths: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RegionStageCosts:
    """Costs of each of D stages in one region under W tensor widths."""

    tp: Int  # (W,)
    compute_s: Float  # (W, D) of a micro-batch
    tail_s: Float  # (W, D) after the last micro-batch
    fits: NDArray[np.bool_]  # (W, D) in memory
    most: Int  # (W,) stages for which the region has GPUs


class SailorProgram:
    """The dynamic program for one dp, micro-batch and number of stages D."""

    def __init__(self, estimator: Estimator, view: View, dp: int, micro_batch: int, depth: int) -> None:
        self._estimator, self._view, self._dp, self._depth = estimator, view, dp, depth
        count = estimator.job.micro_batches(dp, micro_batch)
        layers = stage_layers(estimator.n_layers, depth)
        assert count is not None and layers is not None
        self.micro_batches, self._micro_batch = count, micro_batch
        cuts = np.cumsum([0, *layers])
        self._spans = (cuts[:-1], cuts[1:])
        links, size = view.forecast.links(), dp * estimator.job.message_bytes(micro_batch)
        with np.errstate(divide="ignore"):
            self.crossing_s: Float = size * BITS_PER_BYTE / links.bandwidth_bps + links.latency_s
        """Seconds of a message between regions (K, K)."""
        self._costs: dict[tuple[object, ...], tuple[RegionStageCosts, tuple[Int, Float]]] = {}

    def solve(self, order: Sequence[int]) -> StageAssignment | None:
        """Returns the best assignment of all stages to the regions in this order; None if there is none.

        T[n][q]: the best partial plan of the first q stages on the first n regions; a region takes any
        number of the next stages, none included.
        """
        regions, used = np.array(order, dtype=np.int64), [self._region(k)[1] for k in order]
        width, runs = np.stack([w for w, _ in used]), np.stack([r for _, r in used])
        seconds, stages = _assign(regions, width, runs, self.crossing_s, self.micro_batches, self._depth)
        if stages[0] < 0:
            return None
        before = np.cumsum([0, *stages[:-1]])
        tps = [self.width(k, int(q), int(n)) or 1 for k, q, n in zip(order, before, stages, strict=True)]
        return StageAssignment(float(seconds), tuple(stages.tolist()), tuple(tps))

    def width(self, region: int, placed: int, stages: int) -> int | None:
        """Returns the smallest width with which a region holds `stages` stages from index `placed` on
        (H2)."""
        costs, (width, _) = self._region(region)
        which = int(width[placed, stages]) if stages else -1
        return None if which < 0 else int(costs.tp[which])

    def costs(self, region: int) -> RegionStageCosts:
        """Returns the costs of every stage in this region under every width (H1)."""
        return self._region(region)[0]

    def _region(self, region: int) -> tuple[RegionStageCosts, tuple[Int, Float]]:
        domain, view = self._estimator.cluster.domains[region], self._view
        slow, free = float(view.slowdown[region]), view.free_gpus[region]
        fabric = (domain.intra_node_bps, domain.inter_node_bps, domain.intra_node_latency_s)
        machine = (domain.gpu, domain.gpus, domain.gpus_per_node, *fabric, domain.inter_node_latency_s)
        key = (*machine, slow, free)
        if key not in self._costs:
            costs = self._stage_costs(region, slow, free)
            found = _runs(costs.compute_s, costs.tail_s, costs.fits, costs.most, self._depth)
            self._costs[key] = costs, found
        return self._costs[key]

    def _stage_costs(self, region: int, slow: float, free: int) -> RegionStageCosts:
        domain, dp = self._estimator.cluster.domains[region], self._dp
        flight = np.minimum(self.micro_batches, self._depth - np.arange(self._depth))
        tps = [tp for tp in tensor_widths(self._estimator, domain) if tp * dp <= domain.gpus]
        costs = [span_costs(self._estimator, region, dp, tp, self._micro_batch, slow) for tp in tps]
        shape, memory = (len(tps), self._depth), domain.gpu.memory_bytes
        return RegionStageCosts(
            np.array(tps, dtype=np.int64),
            np.array([one.compute_s[self._spans] for one in costs]).reshape(shape),
            np.array([one.tail_s[self._spans] for one in costs]).reshape(shape),
            np.array([one.most_in_flight(memory)[self._spans] >= flight for one in costs]).reshape(shape),
            np.array([free // (tp * dp) for tp in tps], dtype=np.int64),
        )


FIRST, REST, TOTAL, LAST, TAIL = range(5)
"""Of a run of consecutive stages: seconds of the first, the slowest other one, all, the last, the slowest
tail."""


@njit(cache=True)
def _runs(compute, tail, fits, most, depth):  # type: ignore[no-untyped-def]
    """Returns for runs of n stages from index q on the index of the width, -1 where none fits (D + 1, D + 1),
    and `FIRST` to `TAIL` (D + 1, D + 1, 5)."""
    width = np.full((depth + 1, depth + 1), -1, np.int64)
    runs = np.zeros((depth + 1, depth + 1, 5))
    for w in range(len(compute) - 1, -1, -1):  # narrower ones overwrite wider ones
        for q in range(depth):
            rest = total = slowest = 0.0
            for n in range(1, min(depth - q, most[w]) + 1):
                s = q + n - 1
                if not fits[w, s]:
                    break
                rest = max(rest, compute[w, s]) if n > 1 else 0.0
                total, slowest = total + compute[w, s], max(slowest, tail[w, s])
                width[q, n] = w
                runs[q, n] = (compute[w, q], rest, total, compute[w, s], slowest)
    return width, runs


@njit(cache=True)
def _assign(regions, width, runs, crossing_s, micro_batches, depth):  # type: ignore[no-untyped-def]
    """Returns Sailor's time and the stages of every region; the first one -1 where nothing fits.

    A state is (slowest stage, sum, slowest tail, region and seconds of the last stage). Activations and
    gradients between regions count with the stage that sends them.
    """
    count = len(regions)
    taken = np.full((count, depth + 1), -1, np.int64)
    state = np.zeros((depth + 1, 5))
    reached = np.zeros(depth + 1, np.bool_)
    state[0, 3], reached[0] = -1.0, True
    for r in range(count):
        best, grown, now = np.full(depth + 1, np.inf), np.zeros((depth + 1, 5)), np.zeros(depth + 1, np.bool_)
        for q in range(depth + 1):
            if not reached[q]:
                continue
            for n in range(depth - q + 1):
                after = state[q].copy()
                if n > 0:
                    if width[r, q, n] < 0:
                        break  # more stages fit even less
                    run = runs[r, q, n]
                    first, total, last = run[FIRST], run[TOTAL], run[LAST]
                    if after[3] >= 0:
                        before = np.int64(after[3])
                        down, up = crossing_s[before, regions[r]], crossing_s[regions[r], before]
                        after[0] = max(after[0], after[4] + down)
                        first, total = first + up, total + down + up
                        last = last + up if n == 1 else last
                    after[0] = max(after[0], first, run[REST])
                    after[1] += total
                    after[2] = max(after[2], run[TAIL])
                    after[3], after[4] = regions[r], last
                seconds = (micro_batches - 1) * after[0] + after[1] + after[2]
                if not now[q + n] or seconds < best[q + n]:
                    best[q + n], grown[q + n], now[q + n], taken[r, q + n] = seconds, after, True, n
        state, reached = grown, now
    if not reached[depth]:
        return np.inf, np.full(count, -1, np.int64)
    return best[depth], _trace_back(taken, depth)


@njit(inner=True, cache=True, nogil=True)
def _trace_back(taken, depth):  # type: ignore[no-untyped-def]
    """Returns the stages of every region, traced back from the last one."""
    stages, left = np.empty(len(taken), np.int64), depth
    for r in range(len(taken) - 1, -1, -1):
        stages[r] = taken[r, left]
        left -= stages[r]
    return stages
