"""The loop over facts that no simulated world made: a list of them stands for live telemetry."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from policy.core.protocol import Decision
from replay.log.events import Event
from replay.run import loop
from replay.store.event_sinks import Collect
from replay.store.run_header import Header
from tests.support.toys import toy_setup
from tests.support.views import flat, view
from twin.core.facts import Fact, Trigger
from twin.core.plan import Plan
from twin.core.view import View

NS_PER_S = 10**9


@dataclass
class Telemetry:
    """Facts in the order of time; `applied` holds the plans that were put in force."""

    facts: list[Fact]
    applied: list[Plan | None] = field(default_factory=list)

    def __iter__(self) -> Iterator[Fact]:
        for number, fact in enumerate(self.facts):
            yield fact
            triggers = sum(isinstance(each, Trigger) for each in self.facts[: number + 1])
            assert len(self.applied) == triggers, "a decision is applied before the next fact"

    def apply(self, plan: Plan | None) -> None:
        self.applied.append(plan)


@dataclass
class Fixed:
    """Decides for one plan, with a latency."""

    plan: Plan | None

    def decide(self, number: int, view: View) -> tuple[Decision, dict[str, Any]]:
        return Decision(self.plan, f"decision {number}"), {"latency_s": 0.5}


def played(telemetry: Telemetry, plan: Plan | None) -> list[Event]:
    sink, header = Collect(), Header(toy_setup().header(), "static", "kernel", None, False)
    loop.play(telemetry, header, {"": Fixed(plan)}, sink)
    return sink.events


def facts() -> list[Fact]:
    estimator = toy_setup().estimator()
    seen = view(estimator, flat(estimator.cluster.size))
    trigger = {"trigger": "period", "reasons": {}}
    return [
        Fact(NS_PER_S, "link_failed", {"src": 0, "dst": 1}),
        Trigger(2 * NS_PER_S, "triggered", {"number": 0, **trigger}, "", seen),
        Trigger(3 * NS_PER_S, "triggered", {"number": 1, **trigger}, "", seen),
        Fact(4 * NS_PER_S, "run_finished", {"totals": {"tokens": 0}}),
    ]


def test_facts_and_decisions_are_logged_in_order_and_plans_applied() -> None:
    telemetry = Telemetry(facts())
    events = played(telemetry, None)
    kinds = ["run_started", "link_failed", "triggered", "decided", "triggered", "decided", "run_finished"]
    assert [event.type for event in events] == kinds
    assert [event.sim_ns // NS_PER_S for event in events] == [0, 1, 2, 2, 3, 3, 4]
    assert telemetry.applied == [None, None]
    assert [e.payload["reason"] for e in events if e.type == "decided"] == ["decision 0", "decision 1"]
    assert events[3].wall == {"latency_s": 0.5} and events[-1].payload == {"totals": {"tokens": 0}}


def test_facts_that_stop_before_run_finished_are_an_error() -> None:
    with pytest.raises(AssertionError, match="a world ends with run_finished"):
        played(Telemetry(facts()[:-1]), None)
