"""Order in the world: integer nanoseconds, then a fixed rank for what happens at the same instant."""

from simpy import Environment, Event

TRUTH = 0
"""The world itself changes: links, faults, repairs."""
WORK = 1
"""Training and transfers; the rank of SimPy's own timeouts and processes."""
SENSE = 2
"""Measurements are taken and arrive."""
END = 3
"""The horizon: what was completed by then counts, nothing is decided any more."""
DECIDE = 4
"""The controller acts on everything that is known at this instant."""


class At(Event):
    """An event that happens `delay_ns` from now, at rank `rank` among the events of that instant."""

    def __init__(self, env: Environment, delay_ns: int, rank: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority=rank, delay=delay_ns)
