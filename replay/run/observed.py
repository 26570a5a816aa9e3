"""The world of a service in a run: with facts from outside as they come, or as its log has them."""

from collections.abc import Iterable, Iterator

from ingest.core.errors import DamageError
from ingest.core.terminal import SENTENCE, clipped
from replay.log.events import Event, Json
from replay.store.decision_codec import plan_in_force
from replay.store.event_sinks import DivergenceError, Reached
from replay.store.run_header import Header
from twin.core.facts import Fact
from twin.core.plan import Plan
from twin.scenario.prepare import PreparedScenario
from twin.world.observed_world import OUTSIDE, ObservedWorld


class MessageError(ValueError):
    """A message that was logged cannot be taken; earlier versions let more of them into the log."""


def world_of(header: Header, setup: PreparedScenario, outside: Iterable[Fact]) -> ObservedWorld:
    """Returns the world of a live run that takes `outside`."""
    assert header.live is not None
    return ObservedWorld(setup, outside, order_s=float(header.live["order_s"]), plan_of=_plan_of)


def _plan_of(value: Json) -> Plan:
    """Returns a plan that a job has reported.

    Raises:
        MessageError: it is none.
    """
    try:
        return plan_in_force(value)
    except DamageError as error:
        raise MessageError(str(error)) from error


def logged(events: Iterable[Event]) -> Iterator[tuple[int, Fact]]:
    """Yields the facts from outside that a log holds, with the numbers of their events."""
    for event in events:
        if event.type in OUTSIDE:
            yield event.seq, Fact(event.sim_ns, event.type, event.payload, event.job)


class LoggedFacts:
    """The facts from outside of a log for a comparison, which ends with them; iterate over it once.

    Raises:
        Reached: after the last one; a live run has no end of its own.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self._facts = logged(events)
        self._taken: tuple[int, Fact] | None = None

    def __iter__(self) -> Iterator[Fact]:
        """Yields the facts."""
        for taken in self._facts:
            self._taken = taken
            yield taken[1]
        self._taken = None
        raise Reached

    def broken(self, run: str, error: Exception) -> "BrokenMessageError":
        """Returns what is to be said of an error that came up while the last fact was worked on."""
        if self._taken is None:
            raise error
        seq, fact = self._taken
        why = clipped(f"{type(error).__name__}: {error}", SENTENCE)
        what = f"{fact.type} cannot be computed again: {why}"
        return BrokenMessageError(run, seq, what, last=next(self._facts, None) is None)


class BrokenMessageError(DivergenceError):
    """A message in a log breaks its run; `last`: nothing from outside comes after it."""

    def __init__(self, run: str, seq: int, what: str, *, last: bool) -> None:
        super().__init__(run, seq, what)
        self.last = last
