"""Bulk transfers over links that change and are shared: the step function of each rate is integrated."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from simpy import Event

from ingest.core.units import to_ns, transmission_s
from twin.core.domain import Matrix, Pair
from twin.network.flows import Flow, Network, Route
from twin.network.max_min_fair import GREEDY
from twin.network.variable_rate_work import Work


class Transfers:
    """One bulk transfer per pair of domains, all at once.

    A transfer ends when the integral of its rate over time is its size, plus the one-way latency of its
    route at that moment. `routes`: relays; a pair that is not listed goes directly.
    """

    def __init__(
        self, network: Network, sizes_bytes: dict[Pair, int], routes: Mapping[Pair, Route] | None = None
    ) -> None:
        self.env = network.env
        self.sizes_bytes = sizes_bytes
        self._network = network
        relays = routes or {}
        self._flows = {pair: Flow(self, relays.get(pair, (pair,)), network) for pair in sizes_bytes}
        self._links = [link for flow in self._flows.values() for link in flow.route]
        self._open: dict[Flow, Work] = {}
        self._work: dict[Pair, Work] = {}
        self._changes: dict[Flow, Event] = {}
        self._dropped = self.env.event()

    def run(self) -> Generator[Event, Any, None]:
        """Process fragment that ends when the last byte of every transfer has arrived, or with `drop`."""
        self._network.links.watch(self._links)
        self._network.open(list(self._flows.values()))
        for pair, flow in self._flows.items():
            duration_ns = _transmission_ns(self.sizes_bytes[pair], flow)
            self._work[pair] = self._open[flow] = Work(self.env.now, duration_ns)
        sending = [self.env.process(self._send(pair)) for pair in self.sizes_bytes]
        yield self.env.all_of(sending) | self._dropped
        self._network.links.unwatch(self._links)

    def drop(self) -> None:
        """Stop for good; `sent_bytes` stays what was sent."""
        if not self._dropped.triggered:
            self._dropped.succeed()
            self._network.close(list(self._open))
            for work in self._open.values():
                work.settle(self.env.now)
            self._open.clear()

    def sent_bytes(self) -> dict[Pair, int]:
        """Bytes sent so far over each link, rounded down; every link of a route carries them."""
        sent: dict[Pair, int] = {}
        for pair, work in self._work.items():
            if self._flows[pair] in self._open:
                work.settle(self.env.now)
            done, full = work.done
            for link in self._flows[pair].route:
                sent[link] = sent.get(link, 0) + self.sizes_bytes[pair] * done // full
        return sent

    def demand_bps(self, flow: Flow) -> float:
        """`GREEDY`."""
        return GREEDY

    def rates_changed(self, flows: Sequence[Flow]) -> None:
        """Wake the senders of `flows`, which go on at their new rates."""
        for flow in flows:
            change = self._changes.pop(flow, None)
            if change is not None:
                change.succeed()

    def _send(self, pair: Pair) -> Generator[Event, Any, None]:
        flow, size, work = self._flows[pair], self.sizes_bytes[pair], self._work[pair]
        while flow in self._open:
            work.set_full_time(self.env.now, _transmission_ns(size, flow))
            if not work.left_ns:
                break
            change = self._changes.setdefault(flow, self.env.event())
            yield change if work.stalled else self.env.timeout(work.left_ns) | change
        if flow not in self._open:
            return
        del self._open[flow]
        self._network.close([flow])
        yield self.env.timeout(self._network.latency_ns(flow.route))


def over_links(
    sizes_bytes: Mapping[Pair, int], routes: Mapping[Pair, Route] | None = None
) -> dict[Pair, int]:
    """Bytes on each directed link when `sizes_bytes` are sent between domains, relayed bytes on each link."""
    carried: dict[Pair, int] = {}
    for pair, size in sizes_bytes.items():
        for link in (routes or {}).get(pair, (pair,)):
            carried[link] = carried.get(link, 0) + size
    return carried


def directed(sizes_bytes: Matrix) -> dict[Pair, int]:
    """Whole bytes by pair of different domains, from a matrix (K, K); pairs without bytes are left out."""
    size = len(sizes_bytes)
    return {
        (i, j): round(float(sizes_bytes[i, j]))
        for i in range(size)
        for j in range(size)
        if i != j and sizes_bytes[i, j] > 0
    }


def _transmission_ns(size_bytes: int, flow: Flow) -> int | None:
    return to_ns(transmission_s(size_bytes, flow.rate_bps)) if flow.rate_bps > 0 else None
