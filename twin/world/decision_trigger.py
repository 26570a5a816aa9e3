"""Triggers of decisions: the reasons of one instant become one decision, one decision at a time."""

from collections.abc import Callable, Generator
from typing import Any

from simpy import Environment, Event

from twin.core.clock import DECIDE, At

TRIGGERS = ("start", "failure", "repair", "alarm", "change", "period")
"""Names of the triggers, the most urgent first; the first of several reasons names the decision."""


class DecisionTrigger:
    """Turns requests into decisions.

    Requests of one instant become one decision, after everything else of that instant. Between `hold` and
    `release`, while a plan is being put into effect, requests are collected. Of several triggers at one
    instant that with the lowest `rank` decides first. `decide` is called with the trigger's name and all
    reasons.
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
        self._scheduled = False
        self._rank = DECIDE + rank
        self._stopped = False
        env.process(self._periodically(period_ns))

    def request(self, trigger: str, detail: Any = None) -> None:
        """Request a decision because of `trigger`; `detail` (JSON) describes what happened."""
        assert trigger in TRIGGERS, trigger
        details = self._reasons.setdefault(trigger, [])
        if detail is not None:
            details.append(detail)
        self._schedule()

    def hold(self) -> None:
        """Postpone decisions until `release`: a plan is being put into effect."""
        self._busy = True

    def stop(self) -> None:
        """Make no decision any more."""
        self._stopped = True

    def release(self) -> None:
        """Decide again, at once if requests have come meanwhile."""
        self._busy = False
        self._schedule()

    def _schedule(self) -> None:
        if self._reasons and not self._scheduled and not self._stopped:
            self._scheduled = True
            At(self._env, 0, self._rank).callbacks.append(self._fire)

    def _fire(self, _: Event) -> None:
        self._scheduled = False
        if self._busy or self._stopped:
            return
        reasons = {name: self._reasons[name] for name in TRIGGERS if name in self._reasons}
        self._reasons = {}
        self._decide(next(iter(reasons)), reasons)

    def _periodically(self, period_ns: int) -> Generator[Event, Any, None]:
        self.request("start")
        while not self._stopped:
            yield self._env.timeout(period_ns)
            self.request("period")
