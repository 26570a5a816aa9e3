"""When to decide: reasons are collected, those of one instant become one decision, one decision at a time."""

from collections.abc import Callable, Generator
from typing import Any

from simpy import Environment, Event

from twin.clock import DECIDE, At

TRIGGERS = ("start", "failure", "repair", "alarm", "change", "period")
"""Names of the triggers, the most urgent first; it names a decision that has several reasons."""


class Controller:
    """Turns requests into decisions.

    Requests of the same instant are answered together, after everything else of that instant. While a plan is
    being put into effect (`busy`) requests wait, and are answered together when it is.
    """

    def __init__(
        self, env: Environment, period_ns: int, decide: Callable[[str, dict[str, list[Any]]], None]
    ) -> None:
        self._env = env
        self._decide = decide
        self._reasons: dict[str, list[Any]] = {}
        self._busy = False
        self._due = False
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

    def release(self) -> None:
        """Decisions may be taken again."""
        self._busy = False
        self._plan_decision()

    def _plan_decision(self) -> None:
        if self._reasons and not self._due:
            self._due = True
            At(self._env, 0, DECIDE).callbacks.append(self._fire)

    def _fire(self, _: Event) -> None:
        self._due = False
        if self._busy:
            return
        reasons = {name: self._reasons[name] for name in TRIGGERS if name in self._reasons}
        self._reasons = {}
        self._decide(next(iter(reasons)), reasons)

    def _periodically(self, period_ns: int) -> Generator[Event, Any, None]:
        self.request("start")
        while True:
            yield self._env.timeout(period_ns)
            self.request("period")
