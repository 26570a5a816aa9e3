"""When to decide: reasons are collected, those of one instant become one decision, one decision at a time."""

from collections.abc import Callable, Generator
from typing import Any

from simpy import Environment, Event

from twin.core.clock import DECIDE, At

TRIGGERS = ("start", "failure", "repair", "alarm", "change", "period")
"""Names of the triggers, the most urgent first; it names a decision that has several reasons."""


class Controller:
    """Turns requests into decisions.

    Requests of the same instant are answered together, after everything else of that instant. While a plan is
    being put into effect (`busy`) requests wait, and are answered together when it is. Of several controllers
    the one with the lowest `rank` decides first.
    """

    def __init__(
        self,
        env: Environment,
        period_ns: int,
        decide: Callable[[str, dict[str, list[Any]]], None],
        rank: int = 0,
    ) -> None:
        self._env = env
        self._decide = decide
        self._reasons: dict[str, list[Any]] = {}
        self._busy = False
        self._due = False
        self._rank = DECIDE + rank
        self._over = False
        env.process(self._periodically(period_ns))

    def request(self, trigger: str, detail: Any = None) -> None:
        """Ask for a decision because of `trigger`; `detail` (JSON) says what happened."""
        assert trigger in TRIGGERS, trigger
        details = self._reasons.setdefault(trigger, [])
        if detail is not None:
            details.append(detail)
        self._plan_decision()

    def hold(self) -> None:
        """A plan is being put into effect: no decision until `release`."""
        self._busy = True

    def stop(self) -> None:
        """Nothing is left to decide."""
        self._over = True

    def release(self) -> None:
        """Decisions may be taken again."""
        self._busy = False
        self._plan_decision()

    def _plan_decision(self) -> None:
        if self._reasons and not self._due and not self._over:
            self._due = True
            At(self._env, 0, self._rank).callbacks.append(self._fire)

    def _fire(self, _: Event) -> None:
        self._due = False
        if self._busy or self._over:
            return
        reasons = {name: self._reasons[name] for name in TRIGGERS if name in self._reasons}
        self._reasons = {}
        self._decide(next(iter(reasons)), reasons)

    def _periodically(self, period_ns: int) -> Generator[Event, Any, None]:
        self.request("start")
        while not self._over:
            yield self._env.timeout(period_ns)
            self.request("period")
