"""The true state of the wide-area links as the clock runs: the trace drives it, outages override it."""

from collections.abc import Callable, Generator, Sequence
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

    `state` is updated in place. A link that the trace or an outage has brought to 0 bit/s is dead. Watchers
    are called with the pairs that changed, at the instant of the change; `dies` and `revives` are called for a
    pair whose bandwidth fell to 0 or rose from it.
    """

    def __init__(self, env: Environment, trace: WanTrace) -> None:
        start = trace.at(0)
        self.env = env
        self.state = LinkState(start.bandwidth_bps.copy(), start.latency_s.copy())
        self.watchers: list[Watcher] = []
        self.dies: Callable[[Pair], None] = _ignore
        self.revives: Callable[[Pair], None] = _ignore
        self._traced = start.bandwidth_bps.copy()
        self._outages = np.zeros(start.bandwidth_bps.shape, dtype=np.int64)
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

    def fail(self, pair: Pair) -> None:
        """An outage of `pair` begins; outages may overlap."""
        self._outages[pair] += 1
        self._publish([pair])

    def restore(self, pair: Pair) -> None:
        """An outage of `pair` ends."""
        self._outages[pair] -= 1
        self._publish([pair])

    def _follow(self, trace: WanTrace) -> Generator[Event, Any, None]:
        times, sources, targets, bandwidths, latencies = trace.changes()
        starts = np.flatnonzero(np.diff(times, prepend=-1))
        for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(times)], strict=True):
            yield At(self.env, int(times[first]) - self.env.now, TRUTH)
            pairs = list(zip(sources[first:last].tolist(), targets[first:last].tolist(), strict=True))
            for pair, bandwidth, latency in zip(
                pairs, bandwidths[first:last].tolist(), latencies[first:last].tolist(), strict=True
            ):
                self._traced[pair] = bandwidth
                self.state.latency_s[pair] = latency
            self._publish(pairs)

    def _publish(self, pairs: list[Pair]) -> None:
        bandwidth, turned = self.state.bandwidth_bps, []
        for pair in pairs:
            before, after = bandwidth[pair], 0.0 if self._outages[pair] else self._traced[pair]
            bandwidth[pair] = after
            if (before > 0) != (after > 0):
                turned.append(pair)
            if pair in self._waiting:
                self._waiting.pop(pair).succeed()
        for watcher in self.watchers:
            watcher(pairs)
        for pair in turned:
            (self.dies if self.is_dead(pair) else self.revives)(pair)


def _ignore(pair: Pair) -> None:
    """Nobody asked to be told."""
