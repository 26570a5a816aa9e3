"""Jobs that run outside, several in one world: whatever they say and are told, no two get the same GPU."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.worlds import toy_setup
from twin.core.facts import Fact, Trigger
from twin.core.plan import Plan
from twin.scenario.prepare import PreparedScenario
from twin.world.observed_world import ObservedWorld

S = 10**9
NAMES = ("low", "high", "other")
JOBS = [{"name": "low"}, {"name": "high", "priority": 1}, {"name": "other"}]
KINDS = ("submit", "submit", "answer", "answer", "answer", "refuse", "end", "pull", "shadow")
ACTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(NAMES), st.integers(0, 2)), min_size=4, max_size=24
)


@pytest.fixture(scope="module")
def setup() -> PreparedScenario:
    return toy_setup(jobs=JOBS)


class Outside:
    """Facts of what jobs and clients do; jobs answer the orders that they have."""

    def __init__(self, acts: list[tuple[str, str, int]]) -> None:
        self.acts = acts
        self.world: ObservedWorld

    def __iter__(self) -> Iterator[Fact]:
        yield Fact(0, "mode_changed", {"mode": "active", "client": "", "reason": ""})
        for n, (act, name, _) in enumerate(self.acts, 1):
            fact = self._fact(n * S, act, name)
            if fact is not None:
                yield fact

    def _fact(self, ns: int, act: str, name: str) -> Fact | None:
        job = self.world.jobs.get(name)
        if act in ("submit", "end"):
            if (job is None) != (act == "submit") or (job is not None and not job.active):
                return None
            return Fact(ns, "jobs_changed", {"client": "", "changes": [{"kind": act, "id": name}]})
        if act == "shadow":
            mode = "shadow" if self.world.mode == "active" else "active"
            return Fact(ns, "mode_changed", {"mode": mode, "client": "", "reason": ""})
        if act == "pull":
            return Fact(ns, "decision_requested", {"by": "pull", "client": ""})
        if job is None or job.orders.waiting is None:
            return None
        said = {"ns": ns, "state": "applied" if act == "answer" else "refused", "plan": None, "job": name,
                "order": job.orders.waiting.number, "pause_s": 0.0, "reason": ""}  # fmt: skip
        empty = dict.fromkeys(("links", "steps", "sent", "computed", "memory", "gpus", "slowdowns"), ())
        return Fact(ns, "telemetry_received", {**empty, "plans": [said], "jobs": list(NAMES)})


def chosen(setup: PreparedScenario, trigger: Trigger, wish: int) -> Plan | None:
    """The plan of one, two or three sites that begins at site `wish`, if its GPUs may be had."""
    view = trigger.view
    assert view is not None
    order = tuple((wish + k) % 3 for k in range(1 + wish))
    cuts = {1: (34,), 2: (17, 17), 3: (12, 11, 11)}[len(order)]
    plan = setup.estimator().make(order, cuts, 1, [(4, 1)] * len(order), 1)
    return plan if all(view.free_gpus[share.domain] >= 4 for share in plan.shares) else None


def unread(_: dict[str, Any]) -> Plan:
    raise AssertionError("no job reports a plan of its own here")


@settings(max_examples=40, deadline=None)
@given(acts=ACTS)
def test_no_two_jobs_run_or_are_ordered_the_same_gpu(setup: PreparedScenario, acts: list[Any]) -> None:
    outside = Outside(acts)
    world = outside.world = ObservedWorld(setup, outside, order_s=600, plan_of=unread)
    wishes = {n * S: wish for n, (_, _, wish) in enumerate(acts, 1)}
    ordered: dict[str, int] = {}
    for fact in world:
        if isinstance(fact, Trigger):
            world.apply(chosen(setup, fact, wishes.get(fact.sim_ns, 0)))
        if fact.type == "order_given":
            assert fact.payload["number"] == ordered.get(fact.job, 0)  # each job counts its own
            ordered[fact.job] = fact.payload["number"] + 1
        there = [job for job in world.jobs.values() if job.active and job.ahead is None]
        for site, gpus in enumerate(world.free_gpus):
            assert sum(job.held[site] for job in there) <= gpus
    for job in world.jobs.values():  # who waits for others to stop waits for some that were told to
        for name in () if job.ahead is None else job.ahead.until:
            waiting = world.jobs[name].orders.waiting
            assert waiting is not None and waiting.plan is None
