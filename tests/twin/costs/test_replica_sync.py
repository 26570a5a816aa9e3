"""Replicas: their time, bytes, memory and moves by hand; the same in the world; what rare exchanges cost."""

from dataclasses import replace

import numpy as np
import pytest

from ingest.core.errors import UsageError
from replay.store.decision_codec import plan_from_json
from tests.support.views import flat
from tests.support.worlds import toy_setup
from twin.core.facts import Trigger
from twin.core.plan import Plan, Sync, to_json
from twin.costs import replica_sync
from twin.costs.migration import move_bytes, needs_restart
from twin.estimation.estimator import DEAD, Estimator
from twin.estimation.link_state_times import States, iteration_ns
from twin.world.world import World

BPS, LATENCY_S = 2e9, 0.05


def made(size: int = 3, steps: int = 1, **world: object) -> tuple[Estimator, Plan]:
    """Llama-2 7B: a replica of dp 4 in each domain (96 sequences in all, 8 a replica and GPU)."""
    setup = toy_setup(size, job={"global_batch": 32 * size, "micro_batches": [1, 2], "zero": 1}, **world)  # type: ignore[arg-type]
    estimator = Estimator(setup.cluster, setup.job)
    one = estimator.make([0], [34], 4, [(1, 1)], 1)
    shares = tuple(replace(one.shares[0], domain=k) for k in range(size))
    return estimator, replace(one, shares=shares, micro_batches=8, sync=Sync(steps))


def test_time_is_the_slowest_replica_and_a_ring_all_reduce() -> None:
    estimator, plan = made()
    links = flat(3, BPS, LATENCY_S)
    links.bandwidth_bps[2, 0] = BPS / 2  # the slowest link of the ring 0 > 1 > 2 > 0
    links.bandwidth_bps[1, 0] = BPS / 9  # not of the ring
    alone = estimator.iter_ns(plan.replica(0), links)
    x = 4.0 * estimator.job.model.parameters
    ring_s = 2 * (3 - 1) * (x / 3 * 8 / (BPS / 2) + LATENCY_S)
    assert estimator.iter_ns(plan, links) == alone + round(ring_s * 1e9)
    slow = np.array([1.0, 1.7, 1.0])
    assert estimator.iter_ns(plan, links, slow) == estimator.iter_ns(plan.replica(1), links, slow) + round(
        ring_s * 1e9
    )
    rare = replace(plan, sync=Sync(500))
    assert estimator.iter_ns(rare, links) == alone + round(ring_s * 1e9 / 500)
    sent = estimator.wan_bytes(plan)
    assert sent[0, 1] == sent[1, 2] == sent[2, 0] == pytest.approx(4 / 3 * x)
    assert sent[1, 0] == sent[0, 2] == 0
    whole = estimator.iteration(plan, links)
    assert whole.iter_ns == estimator.iter_ns(plan, links)
    assert np.mean(whole.compute_s) + whole.bubble_s + whole.exposed_comm_s == pytest.approx(whole.iter_s)
    assert whole.binding == "exchange between replicas"
    links.bandwidth_bps[0, 1] = 0
    assert estimator.iter_ns(plan, links) == DEAD
    assert estimator.iteration(plan, links).utilisation == 0


def test_a_replica_alone_exchanges_nothing() -> None:
    estimator, plan = made(2, steps=500)
    links = flat(2)
    plan = replace(plan, shares=plan.shares[:1], micro_batches=16)
    assert estimator.iter_ns(plan, links) == estimator.iter_ns(plan.replica(0), links)
    assert not estimator.problems(plan)


def test_many_states_at_once_are_those_one_by_one() -> None:
    estimator, plan = made(steps=20)
    rng = np.random.default_rng(0)
    states = []
    for n in range(20):
        state = flat(3)
        state.bandwidth_bps[:] = rng.uniform(0 if n == 3 else 1e8, 1e10, (3, 3))
        state.latency_s[:] = rng.uniform(0.001, 0.1, (3, 3))
        if n == 3:
            state.bandwidth_bps[1, 2] = 0
        states.append(state)
    slow = np.array([1.0, 1.2, 1.1])
    found = iteration_ns(estimator, plan, States.of(states), slow)
    assert found.tolist() == [estimator.iter_ns(plan, state, slow) for state in states]
    assert found[3] == DEAD


def test_the_batch_is_divided_and_memory_is_each_replica_with_its_outer_state() -> None:
    estimator, plan = made(steps=100)
    assert not estimator.problems(plan)
    assert "replicas is 192" in estimator.problems(replace(plan, micro_batches=16))[0]
    peaks = estimator.peak_mem_bytes(plan)
    alone = estimator.peak_mem_bytes(plan.replica(0))[0]
    assert len(peaks) == 3
    assert peaks[0] - alone == pytest.approx(8 * estimator.job.model.parameters / 4, abs=1)
    assert estimator.peak_mem_bytes(replace(plan, sync=Sync(1)))[0] == alone
    with pytest.raises(ValueError, match="same layers"):
        replace(plan, shares=(replace(plan.shares[0], layers=33), *plan.shares[1:]))


def test_eta_is_one_when_synchronous_and_falls_with_replicas_and_h() -> None:
    billions = [7_000_000_000, 70_000_000_000]
    for n in billions:
        assert replica_sync.token_efficiency(n, 1, 8) == 1.0
        by_replicas = [replica_sync.token_efficiency(n, 100, r) for r in (2, 4, 8, 16)]
        by_steps = [replica_sync.token_efficiency(n, h, 4) for h in (30, 100, 500, 1000)]
        assert sorted(by_replicas, reverse=True) == by_replicas
        assert sorted(by_steps, reverse=True) == by_steps
        assert min(by_replicas + by_steps) > 0.4
        assert max(by_replicas + by_steps) <= 1.0


def test_eta_by_hand_for_the_published_point() -> None:
    """10 B, 4 replicas, H 30: +0.29 % of 18.129 N^-0.0953 = 2.020; 410.7 / (2e11)^0.28 = 0.2813 is data."""
    loss, data = 18.129 * 1e10**-0.0953, 410.7 / 2e11**0.28
    assert (loss, data) == (pytest.approx(2.020, abs=0.001), pytest.approx(0.2813, abs=0.0005))
    worth = replica_sync.token_efficiency(10**10, 30, 4)
    assert data * worth**-0.28 - data == pytest.approx(
        0.0029 * loss
    )  # as much loss as fewer tokens would give


def test_moves_copy_what_a_domain_lacks() -> None:
    estimator, plan = made()
    job, pipeline = estimator.job, estimator.make([0, 1], [10, 24], 4, [(1, 1), (1, 1)], 1)
    parameters = [layer.parameters for layer in job.model.layers()]
    moved = move_bytes(job, pipeline, plan, 3)
    assert moved[0, 1] == pytest.approx(14 * sum(parameters[:10]))
    assert moved[1, 0] == pytest.approx(14 * sum(parameters[10:]))
    assert moved[0, 2] == pytest.approx(14 * sum(parameters[:10]))
    assert moved[1, 2] == pytest.approx(14 * sum(parameters[10:]))
    assert not np.triu(move_bytes(job, plan, pipeline, 3), 1).any()  # everything is everywhere
    assert needs_restart(plan, pipeline)
    assert not needs_restart(plan, replace(plan, sync=Sync(50)))


def test_json_and_text_round_trip() -> None:
    _, plan = made(steps=50)
    assert plan_from_json(to_json(plan)) == plan
    assert "d0:34L(tp1,pp1) | d1:34L" in str(plan)
    assert "H50" in str(plan)
    assert "sync" not in to_json(plan.replica(0))


def test_the_world_runs_replicas_at_the_estimators_pace_and_counts_what_they_are_worth() -> None:
    steps = {(0, 1): [(100.0, BPS / 4), (200.0, 0.0), (240.0, BPS)]}
    job = {"global_batch": 96, "micro_batches": [1, 2], "zero": 1}
    estimator, plan = made(steps=4)
    world = World(toy_setup(3, bps=BPS, latency_s=LATENCY_S, steps=steps, job=job))
    done: list[dict[str, object]] = []
    stalled = 0
    for fact in world:
        if isinstance(fact, Trigger):
            world.apply(plan if fact.view.plan is None else None)
        if fact.type == "iteration_done":
            done.append(fact.payload)
            stalled += int(fact.payload["stalled_ns"])
    first = done[0]["durations"][0][1]  # type: ignore[index]
    assert first == estimator.iter_ns(plan, flat(3, BPS, LATENCY_S))
    count = sum(int(d["count"]) for d in done)  # type: ignore[call-overload]
    assert sum(int(d["tokens"]) for d in done) == count * estimator.tokens(plan)  # type: ignore[call-overload]
    assert 0 < estimator.tokens(plan) <= estimator.tokens_per_iteration
    assert stalled == 40e9
    links = flat(3, BPS, LATENCY_S)
    links.bandwidth_bps[0, 1] /= 4
    expected = 460e9 / first + 100e9 / estimator.iter_ns(plan, links)
    assert count == int(expected)


def test_the_event_engine_says_that_it_runs_no_replicas() -> None:
    _, plan = made()
    world = World(toy_setup(3, job={"global_batch": 96, "micro_batches": [1, 2], "zero": 1}), engine="des")
    with pytest.raises(UsageError, match="kernel engine"):
        for fact in world:
            if isinstance(fact, Trigger):
                world.apply(plan)
