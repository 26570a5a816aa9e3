"""Moving layers over links that change: the step function of each link's bandwidth is integrated."""

from collections.abc import Generator
from typing import Any

from simpy import Environment, Event

from twin.domain import Matrix
from twin.links import Links, Pair
from twin.pace import Work


class Transfers:
    """One bulk transfer per directed link, all at once; each link serialises its own bytes.

    A transfer takes the integral of 8 * bytes / bandwidth over time (waiting while its link is dead), then
    the link's one-way latency at that moment.
    """

    def __init__(self, env: Environment, links: Links, sizes_bytes: dict[Pair, int]) -> None:
        self.env = env
        self.links = links
        self.sizes_bytes = sizes_bytes
        self._work: dict[Pair, Work] = {}

    def run(self) -> Generator[Event, Any, None]:
        """Process fragment that ends when the last byte of every transfer has arrived."""
        yield self.env.all_of([self.env.process(self._send(pair)) for pair in self.sizes_bytes])

    def sent_bytes(self) -> dict[Pair, int]:
        """Bytes sent so far over each link, rounded down."""
        sent = {}
        for pair, work in self._work.items():
            work.settle(self.env.now)
            done, full = work.done
            sent[pair] = self.sizes_bytes[pair] * done // full
        return sent

    def _send(self, pair: Pair) -> Generator[Event, Any, None]:
        size = self.sizes_bytes[pair]
        work = self._work[pair] = Work(self.env.now, self.links.transmission_ns(pair, size))
        while work.left_ns:
            change = self.links.change(pair)
            yield change if work.stalled else self.env.timeout(work.left_ns) | change
            if change.processed or change.triggered:
                work.repace(self.env.now, self.links.transmission_ns(pair, size))
            else:
                work.settle(self.env.now)
        yield self.env.timeout(self.links.latency_ns(pair))


def directed(sizes_bytes: Matrix) -> dict[Pair, int]:
    """The links with something to send, in order, in whole bytes; not the diagonal (inside a domain)."""
    size = len(sizes_bytes)
    return {
        (i, j): round(float(sizes_bytes[i, j]))
        for i in range(size)
        for j in range(size)
        if i != j and sizes_bytes[i, j] > 0
    }
