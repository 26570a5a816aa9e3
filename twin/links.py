"""The true state of the wide-area links as the clock runs: the trace drives it."""

from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from simpy import Environment, Event

from ingest.units import to_ns, transmission_s
from twin.clock import TRUTH, At
from twin.domain import LinkState
from twin.wan import WanTrace

Pair = tuple[int, int]
Watcher = Callable[[Sequence[Pair]], None]


class Links:
    """Bandwidth and latency of every directed link now.

    `state` is updated in place; a link at 0 bit/s is dead. At the instant of a change the watchers are
    called with the pairs that changed, then `dies` or `revives` for each pair whose bandwidth fell to 0 or
    rose from it.
    """

    def __init__(self, env: Environment, trace: WanTrace) -> None:
        start = trace.at(0)
        self.env = env
        self.state = LinkState(start.bandwidth_bps.copy(), start.latency_s.copy())
        self.watchers: list[Watcher] = []
        self.dies: Callable[[Pair], None] = _ignore
        self.revives: Callable[[Pair], None] = _ignore
        self._waiting: dict[Pair, Event] = {}
        env.process(self._follow(trace))

    def is_dead(self, pair: Pair) -> bool:
        """Whether nothing passes from `pair[0]` to `pair[1]`."""
        return bool(self.state.bandwidth_bps[pair] <= 0)

    def dead(self) -> list[Pair]:
        """Dead links, in order."""
        return [(int(i), int(j)) for i, j in np.argwhere(self.state.bandwidth_bps <= 0)]

    def transmission_ns(self, pair: Pair, size_bytes: float) -> int | None:
        """Nanoseconds that `size_bytes` occupy a link at its present bandwidth; None on a dead link."""
        if self.is_dead(pair):
            return None
        return to_ns(transmission_s(size_bytes, float(self.state.bandwidth_bps[pair])))

    def latency_ns(self, pair: Pair) -> int:
        """One-way latency now."""
        return to_ns(float(self.state.latency_s[pair]))

    def change(self, pair: Pair) -> Event:
        """An event that happens at the next change of `pair`."""
        if pair not in self._waiting:
            self._waiting[pair] = self.env.event()
        return self._waiting[pair]

    def _follow(self, trace: WanTrace) -> Generator[Event, Any, None]:
        times, sources, targets, bandwidths, latencies = trace.changes()
        edges = np.append(np.flatnonzero(np.diff(times, prepend=-1)), len(times))
        for first, last in pairwise(edges.tolist()):
            yield At(self.env, int(times[first]) - self.env.now, TRUTH)
            pairs = list(zip(sources[first:last].tolist(), targets[first:last].tolist(), strict=True))
            self._set(pairs, bandwidths[first:last].tolist(), latencies[first:last].tolist())

    def _set(self, pairs: list[Pair], bandwidths: list[float], latencies: list[float]) -> None:
        turned = []
        for pair, bandwidth, latency in zip(pairs, bandwidths, latencies, strict=True):
            if (bandwidth > 0) == self.is_dead(pair):
                turned.append(pair)
            self.state.bandwidth_bps[pair] = bandwidth
            self.state.latency_s[pair] = latency
            if pair in self._waiting:
                self._waiting.pop(pair).succeed()
        for watcher in self.watchers:
            watcher(pairs)
        for pair in turned:
            (self.dies if self.is_dead(pair) else self.revives)(pair)


def _ignore(pair: Pair) -> None:
    """Nobody asked to be told."""
