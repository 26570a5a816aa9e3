"""What the scout keeps up: plans that bring most in expectation, searched again only when links changed."""

from dataclasses import replace

import numpy as np
import pytest

from policy.control import candidate_search
from policy.control.candidate_search import CandidateSearch
from policy.control.horizon import Horizon, Outages, PlanComparison, make_horizon
from policy.core.objective import Objective, PlanOutcome
from policy.search import plan_search
from tests.support.cases import shape_of
from tests.support.three_sites import dead, estimator, view
from twin.core.view import View
from twin.estimation.estimator import Estimator

SPEED = Objective((1.0, 0.0, 0.0), PlanOutcome(10.0, 0.5, 1.0))
CHEAP = Objective((0.0, 0.0, 1.0), PlanOutcome(10.0, 0.5, 1.0))


@pytest.fixture(scope="module")
def made() -> Estimator:
    return estimator()


def horizon(seen: View) -> Horizon:
    none = np.zeros((3, 3))
    return make_horizon(seen.forecast, 3600.0, Outages(none, none))


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The bandwidths for which everything was searched."""
    done: list[float] = []
    whole = plan_search.explore

    def counted(made, links, **given):  # type: ignore[no-untyped-def]
        done.append(float(links.bandwidth_bps[0, 1]))
        return whole(made, links, **given)

    monkeypatch.setattr(candidate_search, "explore", counted)
    return done


def test_plans_come_by_expected_pace_one_of_each_shape(made: Estimator) -> None:
    seen = view(made, 3e9, sd=0.5)
    found = CandidateSearch(made, 10).plans(seen, horizon(seen), SPEED, None)
    assert len(found) == 10 == len({shape_of(plan) for plan in found})
    paces = [
        one.iter_s for one in PlanComparison(made, horizon(seen), None, 11.35, None).kept_outcomes(found)
    ]
    assert min(paces) == pytest.approx(paces[0], rel=0.02)  # the closed form is as exact as that
    assert paces[-1] > paces[0]


def test_what_leans_on_uncertain_links_comes_later(made: Estimator) -> None:
    sure, vague = view(made, 3e10), view(made, 3e10, sd=1.0)
    first = [CandidateSearch(made, 1).plans(seen, horizon(seen), SPEED, None)[0] for seen in (sure, vague)]
    expected = PlanComparison(made, horizon(vague), None, 11.35, None).kept_outcomes(first)
    assert expected[1].iter_s < expected[0].iter_s


@pytest.mark.parametrize("kept", [candidate_search.KEPT, 3])
def test_money_finds_its_plan_where_it_counts(
    made: Estimator, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(
        candidate_search, "KEPT", kept
    )  # in larger clusters the cheap plans are not among the fast ones
    seen = view(made, 1e11)
    fast, cheap = (
        CandidateSearch(made, 6).plans(seen, horizon(seen), aim, None)[0] for aim in (SPEED, CHEAP)
    )
    assert len(fast.shares) > 1 == len(cheap.shares)


def test_unchanged_links_are_searched_once(made: Estimator, searches: list[float]) -> None:
    kept, seen = CandidateSearch(made, 6), view(made, 3e9, sd=2.0)
    kept.plans(seen, horizon(seen), SPEED, None)
    assert len(searches) == 2 and searches[0] == 3e9 > searches[1]  # as they are, and cautiously later
    alike = view(made, 3e9 * 1.04, sd=2.0)
    assert kept.plans(alike, horizon(alike), SPEED, None)
    assert len(searches) == 2


def test_drifted_links_are_searched_near_by_and_changed_ones_wholly(
    made: Estimator, searches: list[float]
) -> None:
    kept, seen = CandidateSearch(made, 6), view(made, 3e9)
    kept.plans(seen, horizon(seen), SPEED, None)
    before = len(searches)
    drifted = view(made, 3e9 * 1.2)
    near = kept.plans(drifted, horizon(drifted), SPEED, None)
    assert near and len(searches) == before
    cut = dead(view(made, 3e9), (0, 1), (1, 0))
    for plan in kept.plans(cut, horizon(cut), SPEED, None):
        assert not {(0, 1), (1, 0)} & set(zip(plan.order, plan.order[1:], strict=False))
    assert len(searches) > before


def test_lost_gpus_are_searched_without(made: Estimator, searches: list[float]) -> None:
    kept, seen = CandidateSearch(made, 6), view(made, 3e9)
    kept.plans(seen, horizon(seen), SPEED, None)
    before = len(searches)
    fewer = replace(seen, free_gpus=(4, 4, 0))
    assert all(2 not in plan.order for plan in kept.plans(fewer, horizon(fewer), SPEED, None))
    assert len(searches) > before


def test_nothing_fits_without_gpus(made: Estimator) -> None:
    seen = replace(view(made, 3e9), free_gpus=(0, 0, 0))
    assert CandidateSearch(made, 6).plans(seen, horizon(seen), SPEED, None) == []
