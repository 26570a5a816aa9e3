"""DT-FM's shortest path against enumeration and by hand, and its plans."""

from itertools import pairwise, permutations

import numpy as np
import pytest

from policy import dtfm_costs
from policy.dtfm import DtFm, path, sizes
from policy.dtfm_costs import shortest_path
from tests.policy.cases import cluster, links, model
from tests.policy.views import context, flat, view
from twin.estimate import Estimator
from twin.job import JobSpec


def symmetric(size: int, rng: np.random.Generator) -> np.ndarray:
    apart = rng.uniform(1, 9, (size, size))
    apart = apart + apart.T
    np.fill_diagonal(apart, 0.0)
    return apart


@pytest.mark.parametrize("size", [1, 2, 5, 7])
def test_held_karp_equals_all_permutations(size: int) -> None:
    for seed in range(3):
        apart = symmetric(size, np.random.default_rng(seed))
        length, order = shortest_path(apart)
        best = min(sum(apart[a, b] for a, b in pairwise(p)) for p in permutations(range(size)))
        assert length == pytest.approx(best)
        assert sorted(order) == list(range(size))
        assert sum(apart[a, b] for a, b in pairwise(order)) == pytest.approx(best)


def test_long_paths_are_never_shorter_than_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = symmetric(9, np.random.default_rng(4))
    exact, _ = shortest_path(apart)
    monkeypatch.setattr(dtfm_costs, "HELD_KARP_UP_TO", 5)
    grown, order = shortest_path(apart)
    assert exact * (1 - 1e-12) <= grown <= 1.2 * exact
    assert sorted(order) == list(range(9))


def test_the_path_through_whole_groups_is_the_shortest() -> None:
    rng = np.random.default_rng(2)
    step = symmetric(3, rng) + np.eye(3) * 0.1
    along = path(step, [0, 1, 2])
    assert along is not None
    lengths = {p: step[p[0], p[1]] + step[p[1], p[2]] for p in permutations(range(3))}
    assert lengths[tuple(along)] == pytest.approx(min(lengths.values()))


def test_a_path_that_comes_back_to_a_domain_is_no_answer() -> None:
    """Inside domain 0 it is farther than by way of domain 1 and back."""
    step = np.array([[9.0, 1.0], [1.0, 0.1]])
    assert path(step, [0, 0, 1]) is None
    assert path(step, [0, 1, 1]) in ([0, 1, 1], [1, 1, 0])


def test_groups_stay_in_domains_and_answers_repeat() -> None:
    rng = np.random.default_rng(3)
    estimator = Estimator(cluster(3, [4, 6, 4]), JobSpec(model(8), 16, (1, 2), zero=1))
    seen = view(estimator, links(3, rng))
    answers = []
    for seed in (0, 0):
        policy = DtFm()
        policy.reset(context(estimator, seed=seed))
        answers.append(policy.plans(seen))
    assert answers[0] == answers[1]
    for plan in answers[0]:
        assert not estimator.problems(plan)
        assert (plan.shares[0].tp, plan.dp) in sizes(estimator, (4, 6, 4))


def test_slow_links_are_avoided_by_the_path() -> None:
    """Domains 0-1 and 1-2 are fast, 0-2 is slow: domain 1 belongs in the middle."""
    state = flat(3, 2e10, 0.005)
    state.bandwidth_bps[0, 2] = state.bandwidth_bps[2, 0] = 1e8
    estimator = Estimator(cluster(3, [4, 4, 4]), JobSpec(model(8), 16, (1,), zero=1))
    policy = DtFm()
    policy.reset(context(estimator))
    for plan in policy.plans(view(estimator, state)):
        if len(plan.order) == 3:
            assert plan.order[1] == 1
