"""Sailor's dynamic program (recipe 2, step 4): the best dealing of even stages to an order of regions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE
from policy.kit.even_stages import stage_layers, widths
from policy.kit.stage_cost_tables import span_costs
from twin.estimate.estimator import Estimator
from twin.core.view import View

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Dealing:
    """Sailor's iteration time, and how many stages of which width every region of the order takes."""

    seconds: float
    stages: tuple[int, ...]
    widths: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A stage of every number in one region, by width (W,): seconds of a micro-batch and of what follows the
    last one, whether it fits in memory (W, D), and how many such stages the region has GPUs for (W,)."""

    tp: Int
    compute_s: Float
    tail_s: Float
    fits: NDArray[np.bool_]
    most: Int


class Program:
    """The program for one dp, micro-batch and depth D."""

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
        self._columns: dict[tuple[object, ...], tuple[Column, tuple[Int, Float]]] = {}

    def solve(self, order: Sequence[int]) -> Dealing | None:
        """The best dealing of all stages to the regions in this order; None without one.

        T[n][q]: the best partial plan of the first q stages on the first n regions; a region takes any
        number of the next stages, none included.
        """
        regions, used = np.array(order, dtype=np.int64), [self._region(k)[1] for k in order]
        width, pieces = np.stack([w for w, _ in used]), np.stack([p for _, p in used])
        seconds, stages = _deal(regions, width, pieces, self.crossing_s, self.micro_batches, self._depth)
        if stages[0] < 0:
            return None
        before = np.cumsum([0, *stages[:-1]])
        tps = [self.width(k, int(q), int(n)) or 1 for k, q, n in zip(order, before, stages, strict=True)]
        return Dealing(float(seconds), tuple(stages.tolist()), tuple(tps))

    def width(self, region: int, placed: int, stages: int) -> int | None:
        """The smallest width with which a region holds `stages` stages from number `placed` on (H2)."""
        column, (width, _) = self._region(region)
        which = int(width[placed, stages]) if stages else -1
        return None if which < 0 else int(column.tp[which])

    def column(self, region: int) -> Column:
        """Every stage in this region under every width (H1)."""
        return self._region(region)[0]

    def _region(self, region: int) -> tuple[Column, tuple[Int, Float]]:
        domain, view = self._estimator.cluster.domains[region], self._view
        slow, free = float(view.slowdown[region]), view.free_gpus[region]
        fabric = (domain.intra_node_bps, domain.inter_node_bps, domain.intra_node_latency_s)
        key = (
            domain.gpu,
            domain.gpus,
            domain.gpus_per_node,
            *fabric,
            domain.inter_node_latency_s,
            slow,
            free,
        )
        if key not in self._columns:
            column = self._made(region, slow, free)
            found = _pieces(column.compute_s, column.tail_s, column.fits, column.most, self._depth)
            self._columns[key] = column, found
        return self._columns[key]

    def _made(self, region: int, slow: float, free: int) -> Column:
        domain, dp = self._estimator.cluster.domains[region], self._dp
        flight = np.minimum(self.micro_batches, self._depth - np.arange(self._depth))
        tps = [tp for tp in widths(self._estimator, domain) if tp * dp <= domain.gpus]
        costs = [span_costs(self._estimator, region, dp, tp, self._micro_batch, slow) for tp in tps]
        shape, memory = (len(tps), self._depth), domain.gpu.memory_bytes
        return Column(
            np.array(tps, dtype=np.int64),
            np.array([one.compute_s[self._spans] for one in costs]).reshape(shape),
            np.array([one.tail_s[self._spans] for one in costs]).reshape(shape),
            np.array([one.most_in_flight(memory)[self._spans] >= flight for one in costs]).reshape(shape),
            np.array([free // (tp * dp) for tp in tps], dtype=np.int64),
        )


FIRST, REST, TOTAL, LAST, TAIL = range(5)
"""Of consecutive stages: seconds of the first, the slowest other one, all, the last, and the slowest tail."""


@njit(cache=True)
def _pieces(compute, tail, fits, most, depth):  # type: ignore[no-untyped-def]
    """For n stages from number q on the width's number, -1 where none fits (D + 1, D + 1), and `FIRST` to
    `TAIL` (D + 1, D + 1, 5)."""
    width = np.full((depth + 1, depth + 1), -1, np.int64)
    pieces = np.zeros((depth + 1, depth + 1, 5))
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
                pieces[q, n] = (compute[w, q], rest, total, compute[w, s], slowest)
    return width, pieces


@njit(cache=True)
def _deal(regions, width, pieces, crossing_s, micro_batches, depth):  # type: ignore[no-untyped-def]
    """Sailor's time and the stages of every region; the first one -1 where nothing fits.

    A state is (slowest stage, sum, slowest tail, region and seconds of the last stage). The activation of a
    crossing counts with the stage that sends it, the gradient likewise.
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
                    piece = pieces[r, q, n]
                    first, total, last = piece[FIRST], piece[TOTAL], piece[LAST]
                    if after[3] >= 0:
                        before = np.int64(after[3])
                        down, up = crossing_s[before, regions[r]], crossing_s[regions[r], before]
                        after[0] = max(after[0], after[4] + down)
                        first, total = first + up, total + down + up
                        last = last + up if n == 1 else last
                    after[0] = max(after[0], first, piece[REST])
                    after[1] += total
                    after[2] = max(after[2], piece[TAIL])
                    after[3], after[4] = regions[r], last
                seconds = (micro_batches - 1) * after[0] + after[1] + after[2]
                if not now[q + n] or seconds < best[q + n]:
                    best[q + n], grown[q + n], now[q + n], taken[r, q + n] = seconds, after, True, n
        state, reached = grown, now
    if not reached[depth]:
        return np.inf, np.full(count, -1, np.int64)
    return best[depth], _read_back(taken, depth)


@njit(cache=True, nogil=True)
def _read_back(taken, depth):  # type: ignore[no-untyped-def]
    """Stages of every region, from what each took on the best way to so many stages."""
    stages, left = np.empty(len(taken), np.int64), depth
    for r in range(len(taken) - 1, -1, -1):
        stages[r] = taken[r, left]
        left -= stages[r]
    return stages
