"""The gradient of a tied embedding: what it costs by hand, and that every engine charges the same."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from tests.support.plays import durations, hold, play
from tests.support.worlds import toy_setup
from twin.cases import table_reader
from twin.cases.answer import explain
from twin.cases.resolve import resolve
from twin.core.domain import LinkState
from twin.core.job import JobSpec
from twin.core.model_presets import preset
from twin.core.plan import Plan, Schedule
from twin.core.schedules import default_chunks
from twin.costs import tied_embeddings
from twin.estimation.estimator import DEAD, Estimator
from twin.estimation.link_state_times import States, iteration_ns

GPT = preset("gpt2-1.5b")  # fp16: 2 bytes a gradient
STEP = 50257 * 1600 * 2 // 2
BPS, LATENCY_S = 4e9, 0.02


def over(estimator: Estimator, order: tuple[int, ...], pp: int = 1) -> Plan:
    counts = {1: (50,), 2: (20, 30), 3: (20, 20, 10)}[len(order)]
    return estimator.make(order, counts, 1, ((1, pp),) * len(order), 1)


def untied(estimator: Estimator) -> Estimator:
    return Estimator(
        estimator.cluster, replace(estimator.job, model=replace(estimator.job.model, tied=False))
    )


def test_only_a_pipeline_of_a_tied_model_exchanges() -> None:
    assert tied_embeddings.step_bytes(JobSpec(GPT, 8), 2) == STEP
    assert tied_embeddings.step_bytes(JobSpec(replace(GPT, dtype="bf16"), 8), 2) == 2 * STEP
    assert tied_embeddings.step_bytes(JobSpec(GPT, 8), 1) == 0
    assert tied_embeddings.step_bytes(JobSpec(preset("llama2-7b"), 8), 4) == 0


def test_two_steps_between_two_domains_by_hand() -> None:
    setup = toy_setup(bps=BPS, latency_s=LATENCY_S, model="gpt2-1.5b")
    estimator, links = Estimator(setup.cluster, setup.job), setup.wan.at(0)
    plan = over(estimator, (0, 1))
    more_s = (estimator.iter_ns(plan, links) - untied(estimator).iter_ns(plan, links)) / 1e9
    assert more_s == pytest.approx(2 * (STEP * 8 / BPS + LATENCY_S), abs=1e-8)
    sent = estimator.wan_bytes(plan) - untied(estimator).wan_bytes(plan)
    assert sent[0, 1] == sent[1, 0] == 2 * STEP and sent.sum() == 4 * STEP


def test_inside_a_domain_the_fabric_carries_it() -> None:
    setup = toy_setup(model="gpt2-1.5b")
    estimator, links = Estimator(setup.cluster, setup.job), setup.wan.at(0)
    deep, alone = over(estimator, (0,), 4), over(estimator, (0,), 1)
    more_s = (estimator.iter_ns(deep, links) - untied(estimator).iter_ns(deep, links)) / 1e9
    assert 0 < more_s <= 2 * (STEP * 8 / 2.4e12 + 3e-6) + 1e-8
    assert estimator.iter_ns(alone, links) == untied(estimator).iter_ns(alone, links)


def test_a_dead_link_between_the_ends_stalls_a_pipeline_that_sends_nothing_else_over_it() -> None:
    setup = toy_setup(bps=BPS, model="gpt2-1.5b")
    estimator, links = Estimator(setup.cluster, setup.job), setup.wan.at(0)
    plan, bandwidth = over(estimator, (0, 1, 2)), links.bandwidth_bps.copy()
    bandwidth[2, 0] = 0.0
    cut = LinkState(bandwidth, links.latency_s)
    assert estimator.iter_ns(plan, cut) == DEAD > untied(estimator).iter_ns(plan, cut)
    assert iteration_ns(estimator, plan, States.of([links, cut])).tolist() == [
        estimator.iter_ns(plan, links), DEAD,
    ]  # fmt: skip
    relayed = replace(plan, routes=((2, 1, 0),))
    assert estimator.iter_ns(relayed, cut) < DEAD


@pytest.mark.parametrize("schedule", get_args(Schedule))
@pytest.mark.parametrize("order", [(0,), (1, 0), (2, 0, 1)])
def test_both_engines_take_the_same_nanoseconds(order: tuple[int, ...], schedule: Schedule) -> None:
    bps = np.array([[0, 2e9, 3e9], [5e9, 0, 7e9], [4e9, 6e9, 0]])
    setup = toy_setup(seconds=60, bps=bps, latency_s=0.02, model="gpt2-1.5b")
    job = replace(setup.job, global_batch=24, schedule=schedule, chunks=default_chunks(schedule))
    setup = replace(setup, job=job)
    estimator = setup.estimator()
    plan = over(estimator, order, 2)
    kernel, des = (play(setup, hold(plan), engine=engine) for engine in ("kernel", "des"))
    assert durations(kernel) == durations(des)
    assert set(durations(des)) == {estimator.iter_ns(plan, setup.wan.at(0))}


def test_a_link_that_changes_is_taken_at_its_new_rate() -> None:
    setup = toy_setup(
        seconds=120, bps=BPS, latency_s=LATENCY_S, model="gpt2-1.5b", steps={(0, 2): [(50, 1e9)]}
    )
    estimator = Estimator(setup.cluster, setup.job)
    plan = over(estimator, (0, 1, 2))  # only the exchange passes from the first to the last domain
    for engine in ("kernel", "des"):
        seen = durations(play(setup, hold(plan), engine=engine))
        assert seen[0] == estimator.iter_ns(plan, setup.wan.at(0))
        assert seen[-1] == estimator.iter_ns(plan, setup.wan.at(60 * 10**9)) > seen[0]


def test_estimate_sends_the_gradient_at_the_pace_of_measured_boundaries() -> None:
    row = {
        "layers": "12", "hidden": "1024", "heads": "16", "pp": "3", "micro_batches": "4",
        "boundary_transfer_s": "0.1;0.2", "boundary_latency_s": "0.01;0.03",
    }  # fmt: skip
    case = resolve(table_reader.parse(row))
    assert case.message_bytes is not None
    assert case.around == (case.message_bytes * 8 / 0.2, 0.03)
    timing = explain(case).timing
    step_s = (51200 * 1024 * 4 / 2) * 0.2 / case.message_bytes + 0.03
    assert (timing.tail[2, 0] - timing.tail[1, 0]) / 1e9 == pytest.approx(2 * step_s, rel=0.05)
