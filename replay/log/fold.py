"""Folds over the events of a run: one method per event type, any number of folds in one pass. Example:

    class Moves(Fold):
        count = 0

        def _on_plan_applied(self, event: Event, applied: Json) -> None:
            self.count += applied["pause_ns"] > 0

    moves, figures = Moves(), KpiFold()
    fold(reader.events(), moves, figures)

A name after `_on_` that is no event type is an error when the class is made.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

from replay.log.events import EVENT_TYPES, Event, Json

PREFIX = "_on_"


class Fold:
    """Base of a fold: `_on_TYPE(event, payload)` handles the events of a type; other types are skipped.

    `end_ns` is the simulated time of the last event.
    """

    end_ns = 0
    _handlers: ClassVar[dict[str, Callable[[Any, Event, Json], None]]] = {}

    def __init_subclass__(cls) -> None:
        names = [name.removeprefix(PREFIX) for name in dir(cls) if name.startswith(PREFIX)]
        assert set(names) <= EVENT_TYPES.keys(), f"{cls.__name__} handles an unknown event type: {names}"
        cls._handlers = {name: getattr(cls, PREFIX + name) for name in names}

    def add(self, event: Event) -> None:
        """Applies the handler of the event's type, if any; override it to see every event."""
        self.end_ns = event.sim_ns
        handle = self._handlers.get(event.type)
        if handle is not None:
            handle(self, event, event.payload)


AnyFold = TypeVar("AnyFold", bound=Fold)


def fold(events: Iterable[Event], first: AnyFold, *others: Fold) -> AnyFold:
    """Adds every event to every fold, in one pass, and returns the first fold."""
    adders = [first.add, *(other.add for other in others)]
    for event in events:
        for add in adders:
            add(event)
    return first
