from dataclasses import replace

import numpy as np
import pytest

from policy.planners.crosspipe import DEEPER, CrossPipe, link_class
from policy.planners.megatron import megatron_plan
from tests.support.cases import cluster, links, model
from tests.support.views import context, flat, view
from twin.core.job import JobSpec
from twin.estimation.estimator import Estimator


def small(batch: int = 64) -> Estimator:
    return Estimator(cluster(3, [4, 4, 4]), JobSpec(model(7), batch, (1, 2), zero=1, p2p="overlapped"))


def test_every_schedule_of_the_map_is_tried_and_the_fastest_runs() -> None:
    estimator = small()
    rng = np.random.default_rng(0)
    for _ in range(5):
        state = links(3, rng)
        policy = CrossPipe()
        policy.reset(context(estimator))
        ranked = policy.plans(view(estimator, state))
        mapped = megatron_plan(estimator, [0, 1, 2], (4, 4, 4))
        assert {p.shares for p in ranked if p.sync is None} == {mapped.shares}
        times = []
        for micro_batch in (1, 2):
            sub = replace(mapped, micro_batch=micro_batch, micro_batches=64 // (mapped.dp * micro_batch))
            times += [estimator.iter_ns(replace(sub, extra_warmup=extra), state) for extra in DEEPER]
        assert estimator.iter_ns(ranked[0], state) <= min(times)


def test_latency_is_hidden_by_storing_more() -> None:
    estimator = small(256)
    policy = CrossPipe()
    policy.reset(context(estimator))
    state = flat(3, 1e11, 0.2)
    far = policy.plans(view(estimator, state))[0]
    shallow = replace(far, schedule="1f1b", extra_warmup=0)
    assert estimator.iter_ns(far, state) < 0.9 * estimator.iter_ns(shallow, state)


def test_replicas_win_where_bandwidth_is_plenty_and_latency_long() -> None:
    estimator = Estimator(cluster(2, [4, 4]), JobSpec(model(7), 8, (1,), zero=1))
    policy = CrossPipe()
    policy.reset(context(estimator))
    assert policy.plans(view(estimator, flat(2, 1e13, 0.05)))[0].replicas == 2
    assert policy.plans(view(estimator, flat(2, 1e9, 0.001)))[0].replicas == 1


def test_replans_for_another_link_class_only() -> None:
    estimator = small()
    policy = CrossPipe()
    policy.reset(context(estimator))
    plan = policy.decide(view(estimator, flat(3, 4.0e9))).plan
    assert plan is not None
    same = policy.decide(view(estimator, flat(3, 4.4e9), plan=plan, trigger="change"))
    assert "nothing has happened" in same.reason
    other = policy.decide(view(estimator, flat(3, 1.1e9), plan=plan, trigger="change"))
    assert "changed class" in other.reason
    dead = flat(3, 4e9)
    dead.bandwidth_bps[0, 1] = 0.0
    assert link_class(plan, dead)[0] == -1
    assert link_class(plan, flat(3, 2.0**31)) == pytest.approx((31,) * 4)
