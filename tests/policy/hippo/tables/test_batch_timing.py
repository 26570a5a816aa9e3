"""Tabulated plans cost what the Estimator says, and every legal one passes its checks."""

from dataclasses import replace

import numpy as np
import pytest

from ingest.core.errors import UsageError
from policy.hippo.tables.batch_timing import Timer
from policy.hippo.tables.planning_tables import PlanningTables
from tests.support.hippo_tables import setup, walk
from tests.support.worlds import toy_setup
from twin.core.adapters import Adapters
from twin.core.domain import LinkState
from twin.core.model_presets import preset
from twin.core.plan import Schedule
from twin.core.schedules import default_chunks
from twin.estimation.estimator import DEAD, Estimator


@pytest.mark.parametrize(
    ("kind", "gpus"), [("7b", 4), ("7b-zero0", 4), ("7b-sp", 4), ("7b-cp", 4), ("gpt2", 4), ("70b", 16)]
)
def test_times_and_moves_are_the_estimators(kind: str, gpus: int) -> None:
    made = setup(kind, gpus)
    estimator = Estimator(made.cluster, made.job)
    problem = PlanningTables(estimator)
    timer, rng = Timer(problem), np.random.default_rng(5)
    codes = walk(problem, rng, 60)
    slowdown = np.array([1.0, 1.3, 1.0])
    bandwidth = rng.uniform(1e9, 5e9, (60, 2, 3, 3))
    latency = rng.uniform(0.01, 0.1, (60, 2, 3, 3))
    bandwidth[0, 0] = 0.0
    rows = timer.rows(codes, slowdown)
    ns = timer.iter_ns(rows, bandwidth, latency)
    old = codes.take(np.roll(np.arange(60), 1))
    pause, usd = timer.moves(old, codes, bandwidth[:, 1], latency[:, 1])
    prices = np.array(made.cluster.usd_per_gb)
    for p in range(60):
        plan = problem.plan(codes, p)
        assert estimator.problems(plan) == ()
        encoded = problem.encode(plan)
        assert encoded is not None and encoded.key(0) == codes.key(p)
        for s in range(2):
            exact = estimator.iter_ns(plan, LinkState(bandwidth[p, s], latency[p, s]), slowdown)
            if exact == DEAD:
                assert ns[p, s] == DEAD
            else:
                assert abs(int(ns[p, s]) - exact) <= 1e-9 * exact
        links = LinkState(bandwidth[p, 1], latency[p, 1])
        estimate = estimator.iteration(plan, links, slowdown)
        assert rows.busy_s[p] == pytest.approx(np.mean(estimate.compute_s), rel=1e-9)
        assert problem.usd(codes.take([p]))[0] == pytest.approx(estimate.usd)
        move = estimator.move(problem.plan(old, p), plan, links)
        expected = move.seconds - estimator.restart_s if move.seconds else -1.0
        assert pause[p] == pytest.approx(expected, rel=1e-9)
        off = move.bytes * ~np.eye(3, dtype=np.bool_)
        assert usd[p] == pytest.approx((off * prices).sum() / 1e9)


def test_times_and_moves_are_the_estimators_where_domains_may_send_and_receive_little() -> None:
    made = setup("7b")
    limits = ({"egress_bps": 8e8}, {"ingress_bps": 6e8}, {})
    domains = tuple(replace(d, **at) for d, at in zip(made.cluster.domains, limits, strict=True))
    estimator = Estimator(replace(made.cluster, domains=domains), made.job)
    problem, rng = PlanningTables(estimator), np.random.default_rng(7)
    codes = walk(problem, rng, 60)
    old = codes.take(np.roll(np.arange(60), 1))
    bandwidth, latency = rng.uniform(5e8, 5e9, (60, 3, 3)), rng.uniform(0.01, 0.1, (60, 3, 3))
    pause, _ = Timer(problem).moves(old, codes, bandwidth, latency)
    free, _ = Timer(PlanningTables(Estimator(made.cluster, made.job))).moves(old, codes, bandwidth, latency)
    timer = Timer(problem)
    ns = timer.iter_ns(timer.rows(codes, np.ones(3)), bandwidth[:, None], latency[:, None])[:, 0]
    for p in range(60):
        links = LinkState(bandwidth[p], latency[p])
        assert ns[p] == pytest.approx(estimator.iter_ns(problem.plan(codes, p), links), rel=1e-9)
        move = estimator.move(problem.plan(old, p), problem.plan(codes, p), links)
        expected = move.seconds - estimator.restart_s if move.seconds else -1.0
        assert pause[p] == pytest.approx(expected, rel=1e-9)
    assert np.sum(pause > free + 1) > 10


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_memory_masks_are_the_estimators_on_all_small_plans(schedule: Schedule) -> None:
    made = setup("70b", 16)
    estimator = Estimator(made.cluster, replace(made.job, schedule=schedule))
    problem = PlanningTables(estimator)
    rng = np.random.default_rng(0)
    knob = int(np.flatnonzero(problem.knob_mask)[0])
    inner = problem.choices[knob][problem.class_of[2]]
    legal_seen = illegal_seen = 0
    for _ in range(300):
        k, q = int(rng.integers(3)), int(rng.integers(len(inner)))
        layers = int(rng.integers(1, problem.n))
        pair = problem.choices[knob][problem.class_of[k]]
        other = int((k + 1) % 3)
        mate = problem.choices[knob][problem.class_of[other]]
        if q >= len(pair) or layers < pair[q][1] or problem.n - layers < mate[0][1]:
            continue
        counts, size = (problem.n - layers, layers), problem.knobs[knob]
        plan = estimator.make((other, k), counts, size.dp, (mate[0], pair[q]), size.micro_batch)
        used = np.zeros((1, 3), np.bool_)
        last = (
            np.array([knob]),
            used,
            np.array([problem.n]),
            np.array([0]),
            np.array([k]),
            np.array([layers]),
        )
        step = problem.masks.choices(*last)[0, q]
        used[0, k] = True
        first = (
            np.array([knob]),
            used,
            np.array([counts[0]]),
            np.array([pair[q][1]]),
            np.array([other]),
            np.array([counts[0]]),
        )
        ours = bool(problem.masks.choices(*first)[0, 0])
        truth = not estimator.problems(plan)
        if truth:
            assert step and ours
            legal_seen += 1
        else:
            assert not (step and ours)
            illegal_seen += 1
    assert legal_seen > 10 and illegal_seen > 10


@pytest.mark.parametrize("p2p", ["blocking", "overlapped", "rendezvous"])
def test_the_closed_form_finds_the_plans_that_are_fast(p2p: str) -> None:
    made = setup("70b", 16)
    problem = PlanningTables(Estimator(made.cluster, replace(made.job, p2p=p2p)))
    timer, rng = Timer(problem), np.random.default_rng(1)
    codes = walk(problem, rng, 100)
    rows = timer.rows(codes, np.ones(3))
    links = rng.uniform(1e9, 6e9, (100, 3, 3, 3)), rng.uniform(0.01, 0.1, (100, 3, 3, 3))
    links[0][5, 0] = 0.0
    true, rough = timer.iter_ns(rows, *links), timer.closed_form_ns(rows, *links)
    assert ((true == DEAD) == (rough == DEAD)).all()
    for state in range(1, 3):
        best = np.argsort(true[:, state])[:5]
        assert np.isin(best[:1], np.argsort(rough[:, state])[:8]).all()
        assert rough[best, state] == pytest.approx(true[best, state], rel=0.25)


@pytest.mark.parametrize("schedule", ["interleaved", "crosspipe", "zb-h1", "zb-v"])
def test_schedules_that_the_tables_do_not_know_are_refused(schedule: Schedule) -> None:
    made = toy_setup(3)
    job = replace(made.job, schedule=schedule, chunks=default_chunks(schedule))
    with pytest.raises(UsageError, match=f"not {schedule}: change job.schedule"):
        PlanningTables(Estimator(made.cluster, job))


def test_experts_and_adapters_are_refused() -> None:
    made = toy_setup(3)
    mixture = replace(made.job, model=preset("mixtral-8x7b"))
    with pytest.raises(UsageError, match="no tables for the experts of mixtral-8x7b: take another policy"):
        PlanningTables(Estimator(made.cluster, mixture))
    adapted = replace(made.job, model=replace(made.job.model, adapters=Adapters(8)))
    with pytest.raises(UsageError, match="no tables for LoRA: take another policy"):
        PlanningTables(Estimator(made.cluster, adapted))
