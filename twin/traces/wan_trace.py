"""Wide-area network over time: one step function per directed link, the ground truth of a world."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from twin.core.domain import LinkState, Matrix

Times = NDArray[np.int64]
Values = NDArray[np.float64]
Changes = tuple[Times, Times, Times, Values, Values]
"""time_ns, i, j, bandwidth_bps, latency_s: arrays of equal length, sorted by (time, i, j)."""


@dataclass(frozen=True, slots=True, eq=False)
class LinkSeries:
    """Series of a directed link: each sample holds until the next one, the first also before its own time.

    Shapes (n,), n >= 1. `times_ns` strictly ascending, `bandwidth_bps` >= 0 (0 = dead), `latency_s` one way.
    """

    times_ns: Times
    bandwidth_bps: Values
    latency_s: Values

    def __post_init__(self) -> None:
        n = len(self.times_ns)
        if n == 0 or len(self.bandwidth_bps) != n or len(self.latency_s) != n:
            raise ValueError("a link series needs as many values as times, and at least one")
        if np.any(np.diff(self.times_ns) <= 0):
            raise ValueError("times of a link series must ascend strictly")
        if not (np.isfinite(self.bandwidth_bps).all() and np.isfinite(self.latency_s).all()):
            raise ValueError("bandwidth and latency of a link series must be finite")
        if self.bandwidth_bps.min() < 0 or self.latency_s.min() < 0:
            raise ValueError("bandwidth and latency of a link series cannot be negative")

    def index(self, ns: int) -> int:
        """Index of the sample in force at `ns`."""
        return max(0, int(np.searchsorted(self.times_ns, ns, side="right")) - 1)

    def window(self, start_ns: int, end_ns: int) -> "LinkSeries":
        """Samples in force during [start, end), with `start_ns` as time 0."""
        first = self.index(start_ns)
        last = max(first + 1, int(np.searchsorted(self.times_ns, end_ns, side="left")))
        times = np.maximum(self.times_ns[first:last] - start_ns, 0)
        values = self.bandwidth_bps[first:last], self.latency_s[first:last]
        if 2 * (last - first) < len(self.times_ns):  # a view would keep the whole series in memory
            values = values[0].copy(), values[1].copy()
        return LinkSeries(times, *values)


@dataclass(frozen=True, slots=True, eq=False)
class WanTrace:
    """Series of all directed links of K domains over [start_ns, end_ns).

    `series[(i, j)]` exists for every i != j. `origin_epoch_ns` is the UTC time of simulation time 0, `note`
    states the modelling steps between the measurements and these numbers, `digest` identifies the content.
    `capacity_bps` (K, K) is what no link exceeds, None where that is not known.
    """

    names: tuple[str, ...]
    series: Mapping[tuple[int, int], LinkSeries]
    start_ns: int
    end_ns: int
    origin_epoch_ns: int
    digest: str
    note: str
    capacity_bps: Matrix | None = None

    def at(self, ns: int) -> LinkState:
        """True state of every link at `ns`."""
        size = len(self.names)
        bandwidth: Matrix = np.full((size, size), np.inf)
        latency: Matrix = np.zeros((size, size))
        for (i, j), link in self.series.items():
            now = link.index(ns)
            bandwidth[i, j] = link.bandwidth_bps[now]
            latency[i, j] = link.latency_s[now]
        return LinkState(bandwidth, latency)

    def changes(self) -> Changes:
        """Every change strictly inside (start, end), sorted by (time, i, j).

        Returns: time_ns, i, j, bandwidth_bps, latency_s; arrays of equal length.
        """
        return self._between(self.start_ns + 1, self.end_ns)

    def stream(self, about: int = 4096) -> Iterator[Changes]:
        """`changes` in pieces of `about` changes on average, so that memory does not grow with the trace."""
        count = sum(len(link.times_ns) for link in self.series.values())
        pieces = max(1, count // about)
        edges = np.linspace(self.start_ns + 1, self.end_ns, pieces + 1).astype(np.int64).tolist()
        edges[-1] = self.end_ns
        for start_ns, end_ns in pairwise(edges):
            piece = self._between(start_ns, end_ns)
            if len(piece[0]):
                yield piece

    def _between(self, start_ns: int, end_ns: int) -> Changes:
        """Changes in [start, end), sorted by (time, i, j)."""
        parts = []
        for (i, j), link in sorted(self.series.items()):
            first, last = np.searchsorted(link.times_ns, (start_ns, end_ns)).tolist()
            here = (np.full(last - first, i, np.int64), np.full(last - first, j, np.int64))
            values = (link.bandwidth_bps[first:last], link.latency_s[first:last])
            parts.append((link.times_ns[first:last], *here, *values))
        times, i_, j_, bandwidth, latency = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((j_, i_, times))
        return times[order], i_[order], j_[order], bandwidth[order], latency[order]

    def breakpoints(self) -> Times:
        """Distinct times (n,) at which any link changes, the start included."""
        return np.unique(np.concatenate([np.array([self.start_ns]), self.changes()[0]]))

    def window(self, start_ns: int, end_ns: int) -> "WanTrace":
        """Part [start, end) with `start_ns` as time 0."""
        if not self.start_ns <= start_ns < end_ns <= self.end_ns:
            raise ValueError(f"window [{start_ns}, {end_ns}) is not inside [{self.start_ns}, {self.end_ns})")
        series = {pair: link.window(start_ns, end_ns) for pair, link in self.series.items()}
        origin_ns = self.origin_epoch_ns + start_ns
        return trace(self.names, series, end_ns - start_ns, origin_ns, self.note, self.capacity_bps)

    def with_series(self, series: Mapping[tuple[int, int], LinkSeries], note: str) -> "WanTrace":
        """Same window with other link series and one more stated modelling step."""
        joined = f"{self.note}; {note}" if self.note else note
        return trace(self.names, series, self.end_ns, self.origin_epoch_ns, joined, self.capacity_bps)


def trace(
    names: tuple[str, ...],
    series: Mapping[tuple[int, int], LinkSeries],
    end_ns: int,
    origin_epoch_ns: int = 0,
    note: str = "",
    capacity_bps: Matrix | None = None,
) -> WanTrace:
    """`WanTrace` from 0 to `end_ns` over `series`, which must hold every ordered pair of `names`."""
    size = len(names)
    wanted = [(i, j) for i in range(size) for j in range(size) if i != j]
    missing = [pair for pair in wanted if pair not in series]
    if missing or len(series) != len(wanted):
        raise ValueError(f"a trace over {size} domains needs every ordered pair; missing {missing}")
    if end_ns <= 0:
        raise ValueError("a trace must last longer than 0")
    ordered = {pair: series[pair] for pair in wanted}
    digest = _digest(names, ordered, end_ns)
    return WanTrace(names, ordered, 0, end_ns, origin_epoch_ns, digest, note, capacity_bps)


def _digest(names: tuple[str, ...], series: Mapping[tuple[int, int], LinkSeries], end_ns: int) -> str:
    """SHA-256 over names, length and every sample, byte order fixed."""
    state = sha256(repr((names, end_ns)).encode())
    for pair, link in series.items():
        state.update(repr((pair, len(link.times_ns))).encode())
        state.update(link.times_ns.astype("<i8").tobytes())
        state.update(link.bandwidth_bps.astype("<f8").tobytes())
        state.update(link.latency_s.astype("<f8").tobytes())
    return state.hexdigest()
