import numpy as np
import pytest

from policy.search.batch_scoring import Scorer
from policy.search.closed_form import closed_form_s, tables
from policy.search.mean_rates import mean_rates
from policy.search.plan_search import explore
from tests.support.cases import links, random_case
from twin.estimation.link_state_times import States


@pytest.mark.parametrize("seed", range(4))
def test_rates_are_those_of_each_state_alone(seed: int) -> None:
    estimator, state = random_case(seed, size=3)
    rng = np.random.default_rng(seed)
    free = [domain.gpus for domain in estimator.cluster.domains]
    rows = explore(estimator, state, free_gpus=free).fastest(60)
    states = [links(3, rng) for _ in range(5)]
    states[2].bandwidth_bps[0, 1] = 0.0
    weight, slowdown = rng.dirichlet(np.ones(5)), rng.uniform(1.0, 2.0, 3)
    known, expected = tables(estimator, free), np.zeros(len(rows))
    for part, one in zip(weight.tolist(), states, strict=True):
        expected += part / closed_form_s(Scorer(estimator, known.options, one, slowdown), known, rows)
    found = mean_rates(estimator, known, States.of(states), weight, slowdown, rows)
    assert len(rows) and found.tolist() == expected.tolist()
