"""Orders to a job that runs outside: one waits at a time, until the job answers or its time is over."""

from dataclasses import dataclass
from typing import Any

from twin.core.plan import Plan

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Order:
    """An order to go to `plan`, None: to stop and give all GPUs back; `decision` is the number of the
    decision, None: a rollback."""

    number: int
    given_ns: int
    plan: Plan | None
    decision: int | None
    reason: str


class Orders:
    """The order that waits, and the plans that were in force before.

    An order expires `limit_ns` after it was given. The plan in force is *virtual* while the job has not said
    that it runs one: then it is what the decisions would have led to.
    """

    def __init__(self, limit_ns: int) -> None:
        self._limit_ns = limit_ns
        self._next = 0
        self.waiting: Order | None = None
        self.in_force: Plan | None = None
        self.virtual = True
        self.since_ns = 0
        self.earlier: list[Plan] = []
        """Plans that the job ran before, the oldest first."""

    def give(self, now_ns: int, plan: Plan | None, decision: int | None, reason: str) -> Order:
        """Makes a new order that waits; there must be none."""
        if self.waiting is not None:
            raise RuntimeError("an order waits already")
        self.waiting = Order(self._next, now_ns, plan, decision, reason)
        self._next += 1
        return self.waiting

    def expired(self, now_ns: int) -> bool:
        """True if an order waits, and has for too long."""
        return self.waiting is not None and now_ns - self.waiting.given_ns > self._limit_ns

    def close(self) -> Order:
        """Returns the order that waited; none waits any more."""
        order = self.waiting
        assert order is not None
        self.waiting = None
        return order

    def stop(self, now_ns: int) -> None:
        """Takes that the job runs no plan any more, and holds no GPUs."""
        self.in_force, self.virtual, self.since_ns = None, True, now_ns

    def take_over(self, number: int, earlier: list[Plan]) -> None:
        """Goes on counting orders from a number, and with plans that the job ran before."""
        self._next, self.earlier = max(self._next, number), earlier

    @property
    def next_number(self) -> int:
        """Number of the next order."""
        return self._next

    def run(self, now_ns: int, plan: Plan, *, virtual: bool) -> None:
        """Puts a plan in force; the one before is kept for a rollback if the job ran it."""
        if plan == self.in_force and virtual == self.virtual:
            return
        if self.in_force is not None and not self.virtual and plan != self.in_force:
            self.earlier = [*self.earlier[-15:], self.in_force]
        if plan != self.in_force:
            self.since_ns = now_ns
        self.in_force, self.virtual = plan, virtual
