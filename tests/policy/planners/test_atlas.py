from itertools import product

from policy.planners.atlas import Atlas, candidates, greedy_fill
from tests.support.cases import cluster, model, random_case
from tests.support.views import context, view
from twin.core.job import JobSpec
from twin.estimation.estimator import Estimator


def test_stages_are_dealt_greedily_in_order() -> None:
    assert greedy_fill([4, 2, 1], 5) == [4, 1, 0]
    assert greedy_fill([1, 0, 3], 3) == [1, 0, 2]


def test_largest_domain_comes_first_and_every_size_is_looked_at() -> None:
    estimator = Estimator(cluster(3, [4, 8, 4]), JobSpec(model(8), 8, (1, 2)))
    plans = list(candidates(estimator, (4, 8, 4)))
    assert {plan.order for plan in plans} == {(1,), (1, 0), (1, 0, 2)}
    assert {share.tp for plan in plans for share in plan.shares} == {4}
    seen = {(plan.dp, plan.micro_batch, plan.stages) for plan in plans}
    room = {1: 4, 2: 1}  # stages of 4 x dp GPUs in 8, 4, 4
    assert seen == {(dp, b, p) for dp, b in product((1, 2), (1, 2)) for p in range(1, room[dp] + 1)}


def test_answers_with_the_fastest_of_its_candidates() -> None:
    for seed in range(10):
        estimator, links = random_case(seed, size=3)
        free = tuple(d.gpus for d in estimator.cluster.domains)
        policy = Atlas()
        policy.reset(context(estimator))
        plan = policy.decide(view(estimator, links)).plan
        assert plan is not None
        legal = [p for p in candidates(estimator, free) if not estimator.problems(p, free)]
        assert estimator.iter_ns(plan, links) == min(estimator.iter_ns(p, links) for p in legal)
