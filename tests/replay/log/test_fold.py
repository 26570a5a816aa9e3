"""Folds: the handler of the type, several folds in one pass, no handler for a type that does not exist."""

import pytest

from replay.log.events import Event, Json
from replay.log.fold import Fold, fold

EVENTS = [Event(n, n, kind, 1, "", {"n": n}) for n, kind in enumerate(("decided", "time_lost", "work_lost"))]


class Lost(Fold):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def _on_time_lost(self, event: Event, lost: Json) -> None:
        assert lost is event.payload
        self.seen.append(lost["n"])

    _on_work_lost = _on_time_lost


class Clock(Lost):
    now_ns = -1

    def add(self, event: Event) -> None:
        self.now_ns = event.sim_ns
        super().add(event)

    def _on_time_lost(self, event: Event, lost: Json) -> None:
        self.seen.append(-1)


def test_each_event_goes_to_the_handler_of_its_type_in_every_fold() -> None:
    clock = Clock()
    lost = fold(iter(EVENTS), Lost(), clock)
    assert lost.seen == [1, 2]
    assert clock.seen == [-1, 2] and clock.now_ns == 2


def test_a_handler_of_an_unknown_type_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"Typo .*iteration_dome"):
        type("Typo", (Fold,), {"_on_iteration_dome": lambda *_: None})
