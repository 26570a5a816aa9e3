"""The capacity bound: a hand-computed case, and nothing above it."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from policy.bound.best_fixed_plan import every_plan
from policy.bound.capacity import tokens_per_s
from tests.support.worlds import toy_setup
from twin.core.domain import Domain
from twin.core.plan import Recompute
from twin.core.switches import PLAIN, TensorMode
from twin.core.transformer import Transformer
from twin.costs.layer_compute import LayerTimes
from twin.estimation.estimator import Estimator
from twin.estimation.resource_use import open_links


def slow_in(factor: dict[str, tuple[float, float]]):  # type: ignore[no-untyped-def]
    """Blocks of 3 and other layers of 0.3 GPU seconds a micro-batch, times what the domain's name says."""

    def times(
        model: Transformer,
        domain: Domain,
        tp: int,
        micro_batch: int,
        recompute: Recompute,
        *,
        mode: TensorMode = PLAIN,
    ) -> LayerTimes:
        seconds = np.full(len(model.layers()), factor[domain.name][0])
        seconds[[0, -1]] = factor[domain.name][1]
        return LayerTimes(seconds * micro_batch / tp, 2 * seconds * micro_batch / tp)

    return times


def test_equal_gpus_share_the_work_of_all_layers() -> None:
    setup = toy_setup(2)
    names = [domain.name for domain in setup.cluster.domains]
    estimator = Estimator(setup.cluster, setup.job, compute=slow_in(dict.fromkeys(names, (1.0, 0.1))))
    gpus, blocks = sum(d.gpus for d in setup.cluster.domains), setup.job.model.blocks
    assert tokens_per_s(estimator) == pytest.approx(gpus * setup.job.model.seq / (3 * blocks + 0.6))


def test_unequal_gpus_take_the_layers_that_they_are_good_at() -> None:
    """One domain is fast in blocks, the other in the rest. The optimum lies below the bound, which is no more
    than every layer where it is fastest."""
    setup = toy_setup(2)
    first, second = setup.cluster.domains
    estimator = Estimator(
        setup.cluster, setup.job, compute=slow_in({first.name: (1.0, 9.0), second.name: (9.0, 1.0)})
    )
    blocks, seq = setup.job.model.blocks, setup.job.model.seq
    apart = min(first.gpus * seq / (3 * blocks), second.gpus * seq / 6)
    assert apart <= tokens_per_s(estimator) <= (first.gpus + second.gpus) * seq / (3 * blocks + 6)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_no_plan_is_above_it(schedule: Literal["1f1b", "gpipe"]) -> None:
    setup = toy_setup(2)
    estimator = Estimator(setup.cluster, replace(setup.job, schedule=schedule))
    plans = every_plan(estimator, 100_000)
    links = open_links(estimator.cluster.size)
    fastest = min(estimator.iter_ns(plan, links) for plan in plans)
    reached = estimator.tokens_per_iteration / (fastest / 1e9)
    assert 0.3 * tokens_per_s(estimator) < reached <= tokens_per_s(estimator)
