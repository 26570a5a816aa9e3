"""Order of events: integer nanoseconds, then a fixed rank among the events of one instant."""

from simpy import Environment, Event

TRUTH = 0
"""Changes of the world: links, faults, repairs."""
WORK = 1
"""Training and transfers; the rank of SimPy's own timeouts and processes."""
SENSE = 2
"""Telemetry samples are taken and arrive."""
END = 3
"""The horizon: iterations completed by then count, nothing is decided any more."""
DECIDE = 4
"""Decisions, made after everything else of an instant."""


class At(Event):
    """An event that happens `delay_ns` from now, at rank `rank` among the events of that instant."""

    def __init__(self, env: Environment, delay_ns: int, rank: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority=rank, delay=delay_ns)
