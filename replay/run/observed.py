"""The world of a service in a run: with facts from outside as they come, or as its log has them."""

from collections.abc import Iterable, Iterator

from replay.log.events import Event
from replay.store.decision_codec import plan_in_force
from replay.store.event_sinks import Reached
from replay.store.run_header import Header
from twin.core.facts import Fact
from twin.scenario.prepare import PreparedScenario
from twin.world.observed_world import OUTSIDE, ObservedWorld


def world_of(header: Header, setup: PreparedScenario, outside: Iterable[Fact]) -> ObservedWorld:
    """Returns the world of a live run that takes `outside`."""
    assert header.live is not None
    return ObservedWorld(setup, outside, order_s=float(header.live["order_s"]), plan_of=plan_in_force)


def logged(events: Iterable[Event]) -> Iterator[Fact]:
    """Yields the facts from outside that a log holds."""
    for event in events:
        if event.type in OUTSIDE:
            yield Fact(event.sim_ns, event.type, event.payload, event.job)


def until_the_end(events: Iterable[Event]) -> Iterator[Fact]:
    """Yields the same for a comparison, which ends with them.

    Raises:
        Reached: after the last one; a live run has no end of its own.
    """
    yield from logged(events)
    raise Reached
