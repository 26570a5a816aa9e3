"""Directions of boundaries between pipeline stages: one message at a time, the others queue.

A wide-area message that is on its way when its link changes goes on at the new rate, and waits while the
link is dead. Callbacks instead of processes: a day of iterations is millions of messages.
"""

from collections.abc import Callable

from simpy import Environment, Event

from twin.links import Links, Pair
from twin.pace import Work


class Fabric:
    """One direction of a boundary inside a domain: always the same occupancy and latency."""

    pair: Pair | None = None

    def __init__(self, env: Environment, occupancy_ns: int, latency_ns: int) -> None:
        self.env = env
        self._occupancy_ns = occupancy_ns
        self._latency_ns = latency_ns
        self.arrived: Callable[[], None] = _nobody
        self._queue = 0
        self._turn = 0
        self._work = Work(0, 0)

    def send(self) -> None:
        """One more message to carry; messages occupy the direction one after the other."""
        self._queue += 1
        if self._queue == 1:
            self._begin()

    def occupancy_ns(self) -> int | None:
        """Nanoseconds that a message occupies this direction now; None when nothing passes."""
        return self._occupancy_ns

    def latency_ns(self) -> int:
        """One-way latency now."""
        return self._latency_ns

    def _begin(self) -> None:
        self._work = Work(self.env.now, self.occupancy_ns())
        self._await_end()

    def _await_end(self) -> None:
        """Expect the end of the message on the wire; an older expectation is void."""
        self._turn += 1
        if not self._work.stalled:
            self.env.timeout(self._work.left_ns, self._turn).callbacks.append(self._sent)

    def _sent(self, end: Event) -> None:
        if end.value != self._turn:
            return
        self.env.timeout(self.latency_ns()).callbacks.append(self._arrive)
        self._queue -= 1
        if self._queue:
            self._begin()

    def _arrive(self, _: Event) -> None:
        self.arrived()


class Wire(Fabric):
    """One direction of a wide-area boundary: occupancy and latency are those of its link at the time."""

    def __init__(self, links: Links, pair: Pair, size_bytes: int) -> None:
        super().__init__(links.env, 0, 0)
        self.pair = pair
        self._links = links
        self._size_bytes = size_bytes

    def occupancy_ns(self) -> int | None:
        """Nanoseconds that a message occupies the link now; None while it is dead."""
        assert self.pair is not None
        return self._links.transmission_ns(self.pair, self._size_bytes)

    def latency_ns(self) -> int:
        """One-way latency now."""
        assert self.pair is not None
        return self._links.latency_ns(self.pair)

    def changed(self) -> None:
        """The link has another bandwidth: the message on the wire goes on at the new rate."""
        if self._queue:
            self._work.repace(self.env.now, self.occupancy_ns())
            self._await_end()


def _nobody() -> None:
    """Nobody listens yet."""
