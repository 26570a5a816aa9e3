"""Accounts of a job that runs outside: its time is filled without a gap, and what it costs adds up."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ingest.core.units import NS_PER_S, to_ns
from policy.search.plan_search import best_plans
from tests.support.worlds import toy_setup
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.world.step_accounts import StepAccounts

Json = dict[str, Any]


class Reported:
    """Accounts of the toy job, two of its plans, and the facts that they emit."""

    def __init__(self) -> None:
        setup = toy_setup()
        self.estimator: Estimator = setup.estimator()
        self.links = LinkState(np.full((3, 3), 2e9), np.full((3, 3), 0.05))
        found = best_plans(self.estimator, self.links, free_gpus=(4, 4, 4), top=32)
        self.plan: Plan = found[0][0]
        self.other = next(plan for plan, _ in found if plan.order != self.plan.order)
        self.facts: list[tuple[str, Json]] = []
        self.accounts = StepAccounts(self.estimator, lambda kind, payload: self.facts.append((kind, payload)))

    def spans(self) -> list[tuple[int, int]]:
        """Begin and end of what every fact accounts for."""
        found = []
        for kind, payload in self.facts:
            start = payload["started_ns"] if kind == "plan_applied" else payload["start_ns"]
            length = {
                "plan_applied": lambda p: p["pause_ns"],
                "time_lost": lambda p: p["lost_ns"],
                "iteration_done": lambda p: sum(count * ns for count, ns in p["durations"]),
            }[kind](payload)
            found.append((start, start + length))
        return found


@pytest.fixture
def job() -> Reported:
    return Reported()


def test_nothing_is_accounted_for_before_a_plan_is_known(job: Reported) -> None:
    assert job.accounts.step(5 * NS_PER_S, 1.0, {}) == {}
    job.accounts.flush()
    assert job.facts == []


def test_time_is_filled_without_a_gap(job: Reported) -> None:
    job.accounts.run(to_ns(10), job.plan, 0.0, job.links)
    for end_s, seconds in ((12.0, 2.0), (14.1, 2.0), (30.0, 2.0), (29.0, 2.0), (31.0, 5.0)):
        job.accounts.step(to_ns(end_s), seconds, {})
    job.accounts.run(to_ns(40), job.other, 4.0, job.links)
    job.accounts.step(to_ns(43), 3.0, {})
    job.accounts.flush()
    spans = job.spans()
    assert spans[0][0] == 0 and spans[-1][1] == to_ns(43)
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    durations = [ns for kind, p in job.facts if kind == "iteration_done" for _, ns in p["durations"]]
    # The gap of 0.1 s belongs to its step; the step that ended at 29 s came too late; 31 s overlapped.
    assert durations == [to_ns(2.0), to_ns(2.1), to_ns(2.0), to_ns(1.0), to_ns(3.0)]


def test_a_move_is_paid_for_and_a_wait_before_the_first_plan_is_not(job: Reported) -> None:
    job.accounts.run(to_ns(10), job.plan, 0.0, job.links)
    job.accounts.run(to_ns(20), job.other, 4.0, job.links)
    kinds = [kind for kind, _ in job.facts]
    assert kinds == ["time_lost", "plan_applied", "time_lost", "plan_applied"]
    first, _, second, moved = (payload for _, payload in job.facts)
    assert first["gpu_usd"] == 0 and second["gpu_usd"] > 0
    assert moved["pause_ns"] == to_ns(4) and moved["moved_bytes"] and moved["egress_usd"] > 0
    job.accounts.run(to_ns(21), job.other, 4.0, job.links)
    assert len(job.facts) == 4  # it runs already


def test_no_domain_computes_longer_than_its_step_and_measured_times_count(job: Reported) -> None:
    job.accounts.run(0, job.plan, 0.0, job.links)
    domain = job.plan.order[0]
    job.accounts.step(to_ns(0.001), 0.001, {})
    pace = job.accounts.step(to_ns(1000.001), 1000.0, {domain: 500.0})
    job.accounts.flush()
    (done,) = (payload for kind, payload in job.facts if kind == "iteration_done")
    assert done["compute_ns"][domain] == pytest.approx(to_ns(500.001), abs=2)
    assert all(c <= a for c, a in zip(done["compute_ns"], done["active_ns"], strict=True))
    usual_s = job.estimator.iteration(job.plan, job.links).compute_s
    assert set(pace) == {domain} and pace[domain] == pytest.approx(500.0 / usual_s[0], rel=0.5)


def test_a_job_that_stops_is_charged_up_to_then(job: Reported) -> None:
    job.accounts.run(to_ns(10), job.plan, 0.0, job.links)
    job.accounts.stop(to_ns(15))
    job.accounts.stop(to_ns(20))
    _, _, held, idle = (payload for _, payload in job.facts)
    assert (held["lost_ns"], held["gpu_usd"] > 0) == (to_ns(5), True)
    assert (idle["lost_ns"], idle["gpu_usd"]) == (to_ns(5), 0.0)
