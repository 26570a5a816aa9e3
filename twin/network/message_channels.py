"""Directions of boundaries between pipeline stages: one message at a time, the others queue.

A wide-area message goes on at the new rate when its rate changes, and waits while a link is dead. Callbacks
instead of SimPy processes: a day of iterations is millions of messages.
"""

from collections import deque
from collections.abc import Callable, Sequence

from simpy import Environment, Event

from ingest.core.units import to_ns, transmission_s
from twin.network.flows import Flow, Network, Route
from twin.network.max_min_fair import GREEDY
from twin.network.variable_rate_work import Work


class SiteChannel:
    """One direction of a boundary inside a domain: constant occupancy and latency."""

    def __init__(self, env: Environment, occupancy_ns: int, latency_ns: int) -> None:
        self.env = env
        self._occupancy_ns = occupancy_ns
        self._latency_ns = latency_ns
        self._queue = 0
        self._receivers: deque[Callable[[], None]] = deque()
        self._wake_number = 0
        self._work = Work(0, 0)

    def send(self, arrived: Callable[[], None]) -> None:
        """Queue a message; `arrived` is called when it has arrived."""
        self._receivers.append(arrived)
        self._queue += 1
        if self._queue == 1:
            self._begin()

    def occupancy_ns(self) -> int | None:
        """Nanoseconds that a message occupies this direction now; None on a dead link."""
        return self._occupancy_ns

    def latency_ns(self) -> int:
        """One-way latency now."""
        return self._latency_ns

    def _begin(self) -> None:
        self._work = Work(self.env.now, self.occupancy_ns())
        self._await_end()

    def _await_end(self) -> None:
        """Wake at the end of the message on the wire; an earlier wake-up is void."""
        self._wake_number += 1
        if not self._work.stalled:
            self.env.timeout(self._work.left_ns, self._wake_number).callbacks.append(self._sent)

    def _sent(self, end: Event) -> None:
        if end.value != self._wake_number:
            return
        self._release()
        self.env.timeout(self.latency_ns()).callbacks.append(self._arrive)
        self._queue -= 1
        if self._queue:
            self._begin()

    def _release(self) -> None:
        """Called when the message on the wire has left it."""

    def _arrive(self, _: Event) -> None:
        self._receivers.popleft()()


class WanChannel(SiteChannel):
    """One direction of a wide-area boundary: a flow while a message is on the wire."""

    def __init__(self, network: Network, route: Route, size_bytes: int) -> None:
        super().__init__(network.env, 0, 0)
        self._network = network
        self._flows = [Flow(self, route, network)]
        self._size_bytes = size_bytes
        self._live = True

    def occupancy_ns(self) -> int | None:
        """Nanoseconds that a message occupies the route at its present rate; None on a dead link."""
        rate = self._flows[0].rate_bps
        return to_ns(transmission_s(self._size_bytes, rate)) if rate > 0 else None

    def latency_ns(self) -> int:
        """One-way latency now."""
        return self._network.latency_ns(self._flows[0].route)

    def demand_bps(self, flow: Flow) -> float:
        """`GREEDY`."""
        return GREEDY

    def rates_changed(self, flows: Sequence[Flow]) -> None:
        """Go on with the message on the wire at the new rate."""
        self._work.set_full_time(self.env.now, self.occupancy_ns())
        self._await_end()

    def drop(self) -> None:
        """Stop for good, the message on the wire included."""
        self._live = False
        if self._queue:
            self._wake_number += 1
            self._queue = 0
            self._release()

    def send(self, arrived: Callable[[], None]) -> None:
        """Queue a message, unless the channel has been dropped."""
        if self._live:
            super().send(arrived)

    def _begin(self) -> None:
        self._network.open(self._flows)
        super()._begin()

    def _release(self) -> None:
        self._network.close(self._flows)
