"""DT-FM's costs against enumeration and by hand, and the parts of its genetic search."""

from itertools import pairwise, permutations

import numpy as np
import pytest

from policy import dtfm_costs
from policy.dtfm import CROSSOVER, DtFm, circular_moves, crossover, search, sizes
from policy.dtfm_costs import Costs, Delays, bottleneck_matching, shortest_path
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


@pytest.mark.parametrize("seed", range(5))
def test_the_matching_has_the_least_longest_edge(seed: int) -> None:
    delays = np.random.default_rng(seed).uniform(1, 9, (5, 5))
    best = min(max(delays[i, j] for i, j in enumerate(p)) for p in permutations(range(5)))
    assert bottleneck_matching(delays) == best


def test_costs_by_hand() -> None:
    """Two domains, D = 2: whole groups pay 2 s inside, mixed ones 20 s; crossing takes 5 s, staying 1 s."""
    costs = Costs(Delays(np.array([[2.0, 20.0], [20.0, 2.0]]), np.array([[1.0, 5.0], [5.0, 1.0]])), 2)
    whole, mixed = ((0, 2), (2, 0)), ((1, 1), (1, 1))
    assert costs.data_parallel_s(whole) == 2.0
    assert costs.data_parallel_s(mixed) == 20.0
    assert costs.between_s((0, 2), (2, 0)) == 5.0
    assert costs.between_s((1, 1), (1, 1)) == 1.0
    assert costs.score(whole) == 2.0 + 2 * 5.0
    assert costs.score(mixed) == 20.0 + 2 * 1.0


def test_crossover_keeps_sizes_and_takes_five_labels() -> None:
    rng = np.random.default_rng(0)
    one, two = np.repeat(np.arange(4), 3), np.tile(np.arange(4), 3)
    child = crossover(one, two, 3, rng)
    assert np.bincount(child).tolist() == [3] * 4
    assert 0 < (child != two).sum() <= 2 * CROSSOVER
    assert (crossover(two, two, 3, rng) == two).all()


def test_circular_moves_unmix_two_groups() -> None:
    costs = Costs(Delays(np.array([[2.0, 20.0], [20.0, 2.0]]), np.array([[1.0, 5.0], [5.0, 1.0]])), 2)
    labels, home = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    after = circular_moves(labels, home, costs)
    assert after[0] == after[1] != after[2] == after[3]
    assert (circular_moves(after, home, costs) == after).all()


def test_the_search_finds_the_best_partition_of_a_small_case() -> None:
    rng = np.random.default_rng(2)
    sync, step = symmetric(3, rng) + np.eye(3) * 0.1, symmetric(3, rng) + np.eye(3) * 0.1
    costs = Costs(Delays(10 * sync, step), 2)
    along = search(costs, [0, 0, 1, 1, 2, 2], 2, rng)
    assert along is not None
    lengths = {p: step[p[0], p[1]] + step[p[1], p[2]] for p in permutations(range(3))}
    assert lengths[tuple(along)] == pytest.approx(min(lengths.values()))


def test_groups_stay_in_domains_and_the_search_follows_its_stream() -> None:
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
