"""When decisions are taken."""

from typing import Any

from simpy import Environment

from twin.core.clock import SENSE, TRUTH, At
from twin.world.decision_trigger import DecisionTrigger


class Log:
    """A controller whose decisions are written down: (time, trigger, reasons)."""

    def __init__(self, period_ns: int = 100) -> None:
        self.env = Environment()
        self.taken: list[tuple[int, str, dict[str, list[Any]]]] = []
        self.controller = DecisionTrigger(self.env, period_ns, self._decide)

    def _decide(self, trigger: str, reasons: dict[str, list[Any]]) -> None:
        self.taken.append((self.env.now, trigger, reasons))

    def at(self, ns: int, trigger: str, rank: int = SENSE, detail: Any = None) -> None:
        At(self.env, ns, rank).callbacks.append(lambda _: self.controller.request(trigger, detail))

    def run(self, until_ns: int) -> list[tuple[int, str]]:
        self.env.run(until=until_ns)
        return [(ns, trigger) for ns, trigger, _ in self.taken]


def test_start_then_every_period() -> None:
    assert Log().run(301) == [(0, "start"), (100, "period"), (200, "period"), (300, "period")]


def test_requests_of_one_instant_become_one_decision_named_after_the_most_urgent() -> None:
    log = Log()
    log.at(100, "change", detail=[0, 1])
    log.at(100, "change", detail=[1, 0])
    log.at(100, "failure", TRUTH, detail="link")
    assert log.run(150) == [(0, "start"), (100, "failure")]
    assert log.taken[1][2] == {"failure": ["link"], "change": [[0, 1], [1, 0]], "period": []}


def test_while_a_plan_is_put_into_effect_requests_wait_and_are_answered_together() -> None:
    log = Log()
    log.at(110, "alarm")
    At(log.env, 105, TRUTH).callbacks.append(lambda _: log.controller.hold())
    At(log.env, 320, TRUTH).callbacks.append(lambda _: log.controller.release())
    assert log.run(350) == [(0, "start"), (100, "period"), (320, "alarm")]
    assert log.taken[2][2] == {"alarm": [], "period": []}


def test_nothing_is_decided_when_nothing_was_asked() -> None:
    log = Log(period_ns=10_000)
    log.controller.hold()
    log.controller.release()
    assert log.run(5_000) == [(0, "start")]
