"""When the best candidate is taken, and when the job holds."""

import pytest

from policy.control.decision_rule import choose_candidate
from policy.core.protocol import Candidate
from tests.support.three_sites import estimator, view
from twin.core.plan import Plan

INF = float("inf")


@pytest.fixture(scope="module")
def plans() -> tuple[Plan, Plan]:
    made = estimator()
    return made.make((0,), (6,), 1, ((1, 1),), 1), made.make((1,), (6,), 1, ((1, 1),), 1)


def always(_: Plan) -> bool:
    return True


def scored(plans: tuple[Plan, ...], *scores: float) -> list[Candidate]:
    return [Candidate(plan, score, 2.0, 0.5, 0.1) for plan, score in zip(plans, scores, strict=True)]


def test_a_better_plan_that_pays_by_more_than_the_margin_is_taken(plans: tuple[Plan, Plan]) -> None:
    now = view(estimator(), 1e11, plan=plans[0])
    candidates = scored(plans, 0.1, 0.3)
    moved = choose_candidate(now, candidates, [0.1, 0.2], 0.05, always)
    assert moved.plan == plans[1] and moved.extra == {"gain": pytest.approx(0.1), "margin": 0.05}
    assert [c.plan for c in moved.candidates] == [plans[1], plans[0]]
    held = choose_candidate(now, candidates, [0.1, 0.14], 0.05, always)
    assert held.plan is None and "margin" in held.reason


def test_it_is_better_to_wait_where_waiting_scores_more(plans: tuple[Plan, Plan]) -> None:
    now = view(estimator(), 1e11, plan=plans[0])
    held = choose_candidate(now, scored(plans, 0.3, 0.2), [0.1, 0.2], 0.05, always)
    assert held.plan is None and held.reason == "no plan is expected to bring more"


def test_a_plan_that_cannot_be_held_is_left_for_the_best(plans: tuple[Plan, Plan]) -> None:
    now = view(estimator(), 1e11, plan=plans[0])
    only = scored(plans, 0.3, 0.2)[1:]
    assert choose_candidate(now, only, [-1.0], 0.05, always).plan == plans[1]


def test_a_stalled_job_goes_on_where_something_runs(plans: tuple[Plan, Plan]) -> None:
    now = view(estimator(), 1e11, plan=plans[0])
    moved = choose_candidate(now, scored(plans, -INF, 0.2), [-INF, 0.2], 0.05, always)
    assert moved.plan == plans[1] and moved.extra["gain"] is None
    stuck = choose_candidate(now, scored(plans, -INF, -INF), [-INF, -INF], 0.05, always)
    assert stuck.plan is None


def test_a_move_that_would_not_have_paid_yet_waits_and_another_that_would_is_made(
    plans: tuple[Plan, Plan],
) -> None:
    third = estimator().make((2,), (6,), 1, ((1, 1),), 1)
    now, three = view(estimator(), 1e11, plan=plans[0]), (*plans, third)
    candidates, kept = scored(three, 0.1, 0.3, 0.2), [0.1, 0.3, 0.2]
    waits = choose_candidate(now, candidates, kept, 0.05, lambda plan: False)
    assert waits.plan is None and "would not have paid" in waits.reason
    assert waits.extra["gain"] == pytest.approx(0.2)
    second = choose_candidate(now, candidates, kept, 0.05, lambda plan: plan == third)
    assert second.plan == third and second.extra["gain"] == pytest.approx(0.1)
