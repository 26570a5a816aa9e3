"""DT-FM's shortest path against enumeration, its cost by hand, and its plans."""

from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest

from policy.kit import dtfm_costs
from policy.kit.dtfm_costs import reduce_s, shortest_path
from policy.planners.dtfm import DtFm, DtFmNative, path, sizes
from tests.support.cases import cluster, links, model
from tests.support.views import context, flat, view
from twin.core.domain import Cluster
from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator


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
    length, along = path(step, [0, 1, 2])
    assert along is not None
    lengths = {p: step[p[0], p[1]] + step[p[1], p[2]] for p in permutations(range(3))}
    assert length == lengths[tuple(along)] == pytest.approx(min(lengths.values()))


def test_a_path_that_comes_back_to_a_domain_is_no_answer() -> None:
    """Inside domain 0 it is farther than by way of domain 1 and back."""
    step = np.array([[9.0, 1.0], [1.0, 0.1]])
    assert path(step, [0, 0, 1]) == (2.0, None)
    assert path(step, [0, 1, 1]) in ((1.1, [0, 1, 1]), (1.1, [1, 1, 0]))


def test_all_reduces_by_hand() -> None:
    """8 devices of 2 GPUs, nodes of 4: one other device is in the node, six are not. S is half of 4 bytes
    a parameter of a stage, 1/8 of it a message; 2.4 Tbit/s and 3 us inside a node, 0.2 and 8 us outside."""
    estimator = Estimator(cluster(2, [16, 16]), JobSpec(model(8), 16, (1,), zero=1))
    sent = 8 * 4 * estimator.job.model.parameters / 2 / 2 / 8
    near, far = 2 * (3e-6 + sent / 2.4e12), 2 * (8e-6 + sent / 2e11)
    assert reduce_s(estimator, [0, 1], 8, 2, 2) == pytest.approx(near + 6 * far, rel=1e-12)
    assert reduce_s(estimator, [0], 4, 1, 2) == pytest.approx(
        3 * 2 * (3e-6 + 2 * 2 * sent / 2.4e12), rel=1e-12
    )
    assert reduce_s(estimator, [0, 1], 1, 1, 2) == 0.0


def test_the_slowest_group_counts() -> None:
    made = cluster(2, [8, 8])
    slow = Cluster((made.domains[0], replace(made.domains[1], inter_node_bps=1e10)), made.usd_per_gb)
    estimator = Estimator(slow, JobSpec(model(8), 16, (1,), zero=1))
    fast, both = (reduce_s(estimator, domains, 8, 1, 2) for domains in ([0], [0, 1]))
    assert fast < both == reduce_s(estimator, [1], 8, 1, 2)


def test_the_native_variant_takes_the_least_cost() -> None:
    """Two domains of four GPUs, 8 Gbit/s and 0.03 s apart, 16 sequences of A = 2^24 B: a link takes
    0.03 + 16 / D * 2^24 / 1e9 s, a boundary inside a domain 8e-6 + 16 / D * 2^24 / 25e9 s."""
    estimator = Estimator(cluster(2, [4, 4]), JobSpec(model(8), 16, (1, 2), zero=1))
    policies = DtFm(), DtFmNative()
    for policy in policies:
        policy.reset(context(estimator))
    seen = view(estimator, flat(2, 8e9, 0.03))
    graded, own = (policy.plans(seen) for policy in policies)
    assert set(graded) == set(own)

    def cost(plan: Plan) -> float:
        dp, tp, stages = plan.dp, plan.shares[0].tp, sum(share.pp for share in plan.shares)
        sent = 16 / dp * 2**24
        along = 0.03 + sent / 1e9 + (stages - 2) * (8e-6 + sent / 25e9)
        gradients = 4 * estimator.job.model.parameters / (stages * tp * dp)
        return (dp - 1) * 2 * (3e-6 + gradients * 8 / 2.4e12) + 2 * along

    assert [cost for cost, _ in policies[1]._found(seen)] == pytest.approx(
        [cost(plan) for _, plan in policies[1]._found(seen)], rel=1e-9
    )
    assert cost(own[0]) == pytest.approx(min(cost(plan) for plan in own), rel=1e-9)
    assert (own[0].dp, own[0].shares[0].tp, own[0].micro_batch) == (4, 1, 2)


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
