"""Interleaved and CrossPipe plans through the estimator, both engines and `twin estimate`."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from ingest.core.errors import DamageError, InfeasibleError, UsageError
from replay.store.decision_codec import plan_from_json
from tests.support.plays import durations, hold, play
from tests.support.worlds import toy_setup
from twin.cases import table_reader
from twin.cases.answer import answer, explain
from twin.cases.column_definitions import BadCellError
from twin.cases.resolve import resolve
from twin.core.plan import Plan, to_json
from twin.core.schedules import SPLIT
from twin.costs import memory, migration
from twin.estimation.estimator import Estimator
from twin.pipeline import critical_cycle, operation_order
from twin.scenario.prepare import PreparedScenario

Mode = Literal["blocking", "overlapped", "rendezvous"]


def estimator_of(setup: PreparedScenario, schedule: str, chunks: int = 1) -> Estimator:
    return Estimator(setup.cluster, replace(setup.job, schedule=schedule, chunks=chunks))


def over(estimator: Estimator, order: tuple[int, ...], inner: tuple[int, int] = (1, 2)) -> Plan:
    counts = {1: (34,), 2: (17, 17), 3: (12, 12, 10)}[len(order)]
    return estimator.make(order, counts, 1, (inner,) * len(order), 1)


@pytest.mark.parametrize("p2p", ["blocking", "overlapped", "rendezvous"])
@pytest.mark.parametrize("order", [(0,), (1, 0), (0, 1)])
@pytest.mark.parametrize(
    ("schedule", "chunks"),
    [("1f1b", 1), ("interleaved", 2), ("interleaved", 3), ("crosspipe", 1), ("zb-h1", 1), ("zb-v", 2)],
)
def test_both_engines_run_every_schedule_in_the_same_nanoseconds(
    schedule: str, chunks: int, order: tuple[int, ...], p2p: Mode
) -> None:
    setup = toy_setup(seconds=60, bps=4e9, latency_s=0.02)
    estimator = estimator_of(setup, schedule, chunks)
    plan = replace(over(estimator, order), p2p=p2p)
    assert not estimator.problems(plan)
    kernel, des = (play(setup, hold(plan), engine=engine) for engine in ("kernel", "des"))
    assert durations(kernel) == durations(des)
    assert set(durations(des)) == {estimator.iter_ns(plan, setup.wan.at(0))}


def test_chunks_shorten_the_bubble_and_hold_more_activations() -> None:
    setup = toy_setup()
    links = setup.wan.at(0)
    plain, parts = (estimator_of(setup, *how) for how in (("1f1b", 1), ("interleaved", 2)))
    one, two = over(plain, (0,), (1, 4)), over(parts, (0,), (1, 4))
    whole, split = plain.iteration(one, links), parts.iteration(two, links)
    assert split.bubble_s < whole.bubble_s and split.iter_ns < whole.iter_ns
    # stage 0 of 4 holds 4 of m = 16 micro-batches in 1F1B; here 2 (4 - 1) + 4 + 1 = 11 halves
    assert memory.in_flight(2 * 3 + 4, 32, "interleaved") == 11
    assert split.peak_mem_bytes[0] > whole.peak_mem_bytes[0]


@pytest.mark.parametrize(
    ("schedule", "chunks", "most"),
    [("1f1b", 1, 1), ("interleaved", 2, 1), ("gpipe", 1, 32), ("crosspipe", 1, 4), ("zb-h1", 1, 4)],
)
def test_logits_are_held_from_the_last_forward_to_the_end_of_its_backward(
    schedule: str, chunks: int, most: int
) -> None:
    setup = toy_setup()
    estimator = estimator_of(setup, schedule, chunks)
    plan = over(estimator, (0,), (1, 4))
    pipeline = estimator.pipeline(plan, setup.wan.at(0))
    assert pipeline is not None
    done = operation_order.WEIGHT if schedule in SPLIT else operation_order.BACKWARD
    steps = [
        (kind == operation_order.FORWARD) - (kind == done)
        for kind, chunk, _ in operation_order.operations(pipeline)[-1]
        if chunk == chunks - 1
    ]
    assert 0 < max(np.cumsum(steps)) <= most
    peaks = []
    for how in ((schedule, chunks), ("1f1b", 1)):
        for vocab in (32_000, 64_000):  # what a larger vocabulary adds, states aside, is logits
            job = replace(setup.job, model=replace(setup.job.model, vocab=vocab))
            one = estimator_of(replace(setup, job=job), *how)
            peaks.append(one.peak_mem_bytes(over(one, (0,), (1, 4)))[-1])
    more = peaks[1] - peaks[0] - (peaks[3] - peaks[2])
    assert more == pytest.approx((most - 1) * 5 * setup.job.model.seq * 32_000, abs=4)


def test_wan_bytes_count_every_pass_and_the_way_back() -> None:
    estimator = estimator_of(toy_setup(), "interleaved", 3)
    plan = over(estimator, (0, 1))
    sent, message = estimator.wan_bytes(plan), estimator.job.message_bytes(1) * plan.micro_batches
    # over two domains: 3 passes there and 2 on the way back, each with its gradient in the other direction
    assert sent[0, 1] == sent[1, 0] == 5 * message


def test_layers_of_chunks_move_and_a_change_of_chunks_restarts() -> None:
    setup = toy_setup()
    two, three = (over(estimator_of(setup, "interleaved", v), (0, 1)) for v in (2, 3))
    plain = over(estimator_of(setup, "1f1b"), (0, 1))
    homes = [domain for domain, _, _ in migration.owners(two)]
    assert len(homes) == 34 and homes.count(0) == 17 and homes != sorted(homes)
    assert migration.needs_restart(two, three) and migration.needs_restart(plain, two)
    assert migration.move_bytes(setup.job, plain, two, 3)[0, 1] > 0


def test_plans_with_chunks_are_json_and_check_themselves() -> None:
    plan = over(estimator_of(toy_setup(), "interleaved", 2), (0, 1))
    assert plan_from_json(to_json(plan)) == plan and "interleaved v2" in str(plan)
    assert "chunks" not in to_json(replace(plan, schedule="1f1b", chunks=1))
    for wrong in ({"micro_batches": 3}, {"chunks": 1}, {"chunks": 20}):
        with pytest.raises(ValueError, match=r"chunks|interleaved"):
            replace(plan, **wrong)


def test_plans_with_sequence_parallelism_are_json_and_restart_the_job() -> None:
    setup = toy_setup(3)
    plain, spread = (
        over(Estimator(setup.cluster, replace(setup.job, sequence_parallel=split)), (0, 1), (2, 2))
        for split in (False, True)
    )
    assert "sequence_parallel" not in to_json(plain) and to_json(spread)["sequence_parallel"] is True
    assert plan_from_json(to_json(spread)) == spread and str(spread) == f"{plain} sp"
    assert migration.needs_restart(plain, spread) and not migration.needs_restart(spread, spread)
    with pytest.raises(DamageError, match="neither true nor false"):
        plan_from_json({**to_json(spread), "sequence_parallel": 1})


def test_what_cannot_run_interleaved_is_infeasible_not_wrong() -> None:
    setup = toy_setup()
    estimator = estimator_of(setup, "interleaved", 2)
    with pytest.raises(InfeasibleError, match="multiple"):
        estimator.make((0, 1, 2), (12, 12, 10), 1, ((1, 1),) * 3, 1)
    links = setup.wan.at(0)
    cuts = np.array([[0, 17, 34], [0, 1, 34]])
    times = estimator.iter_ns_cuts((0, 1), cuts, 1, ((1, 1), (1, 1)), 1, links)
    plan = estimator.make((0, 1), (17, 17), 1, ((1, 1), (1, 1)), 1)
    assert times.tolist() == [estimator.iter_ns(plan, links), np.iinfo(np.int64).max]
    with pytest.raises(UsageError, match="chunks"):
        replace(setup.job, chunks=2)


ROW = {
    "layers": "32", "hidden": "4096", "tp": "8", "pp": "4", "micro_batch": "1", "global_batch": "16",
    "recompute": "none",
}  # fmt: skip


def ask(**cells: str):  # type: ignore[no-untyped-def]
    return answer(resolve(table_reader.parse({**ROW, **cells})))


def test_estimate_takes_the_new_schedules() -> None:
    times = {name: ask(schedule=name).iter_s for name in ("1f1b", "interleaved", "crosspipe")}
    assert times["interleaved"] < times["1f1b"] and times["crosspipe"] < times["1f1b"]
    assert ask(chunks="2") == ask(schedule="interleaved")
    assert ask(schedule="interleaved").binding.startswith("busiest: stage")


def test_estimate_with_measured_stage_times_and_chunks() -> None:
    # 4 stages of 1 s forward and 2 s backward, m = 16 in 4 chunks: 16 * 3 + 3 * 3 / 4
    measured = {"stage_forward_s": "1", "stage_backward_s": "2", "micro_batches": "16", "pp": "4"}
    assert answer(resolve(table_reader.parse({**measured, "chunks": "4"}))).iter_s == pytest.approx(50.25)
    split = explain(resolve(table_reader.parse({**measured, "schedule": "crosspipe"})))
    assert split.timing.tw is not None and split.timing.tw[:, 0].tolist() == [10**9] * 4
    assert split.answer.iter_s < 57.0


def test_estimate_with_measured_stage_times_and_zero_bubbles() -> None:
    # F = B = W = 1 s, m = 16, S = 4: 48 s of work, then 3 (F + B - W) of ZB-H1 and 3 F of ZB-V's half stages
    measured = {"stage_forward_s": "1", "stage_backward_s": "2", "micro_batches": "16", "pp": "4"}
    for schedule, seconds in (("1f1b", 57.0), ("zb-h1", 51.0), ("zb-v", 49.5)):
        cells = {**measured, "schedule": schedule}
        assert answer(resolve(table_reader.parse(cells))).iter_s == pytest.approx(seconds)


def test_a_v_crosses_every_boundary_twice_each_way_and_ties_its_embedding_at_home() -> None:
    wide = {"wan_bps": "5e9", "wan_latency_s": "0.02", "p2p": "rendezvous"}
    case = resolve(table_reader.parse({**ROW, **wide}))
    assert case.message_bytes is not None
    found = ask(schedule="zb-v", **wide)
    assert found.wan_bytes == 2 * 2 * case.message_bytes * case.dp * case.micro_batches
    assert "link" in found.binding


def test_zero_bubbles_store_as_much_as_the_first_stage_of_1f1b_and_inputs_that_wait_for_weights() -> None:
    setup = toy_setup()
    selective = replace(setup.job, recompute="selective")
    peaks = {}
    for job in (selective, setup.job):
        for schedule, chunks in (("1f1b", 1), ("zb-h1", 1), ("zb-v", 2)):
            estimator = estimator_of(replace(setup, job=job), schedule, chunks)
            peaks[job.recompute, schedule] = estimator.peak_mem_bytes(over(estimator, (0,), (1, 4)))
    first = {key: peak[1] for key, peak in peaks.items()}  # a stage without embedding and head
    block = memory.block_activation_bytes(setup.job.model, 1, "selective", False)
    # stage 1 of 4 holds three micro-batches of eight blocks in 1F1B, four in ZB-H1
    assert first["selective", "zb-h1"] - first["selective", "1f1b"] == pytest.approx(8 * block, abs=2)
    assert first["selective", "zb-v"] == first["selective", "zb-h1"]
    kept = memory.block_activation_bytes(setup.job.model, 1, "full", False)
    # with full recompute one of the four keeps the inputs of its products instead of the blocks' inputs
    assert first["full", "zb-h1"] - first["full", "1f1b"] == pytest.approx(8 * block, abs=2)
    assert kept < block


def test_a_change_of_schedule_restarts_only_where_layers_move() -> None:
    setup = toy_setup()
    half, whole = (over(estimator_of(setup, *how), (0, 1)) for how in (("interleaved", 2), ("1f1b", 1)))
    vee = over(estimator_of(setup, "zb-v", 2), (0, 1))
    assert not migration.needs_restart(whole, replace(whole, schedule="zb-h1", p2p="rendezvous"))
    assert migration.needs_restart(whole, vee) and migration.needs_restart(half, vee)
    homes = [domain for domain, _, _ in migration.owners(vee)]
    assert homes[0] == homes[-1] == 0 and homes[17] == 1


def test_estimate_charges_the_way_back_over_the_wide_area() -> None:
    wide = {"wan_bps": "5e9", "wan_latency_s": "0.02"}
    plain, parts = ask(**wide), ask(chunks="2", p2p="blocking", **wide)
    case = resolve(table_reader.parse({**ROW, **wide}))
    assert case.message_bytes is not None and plain.wan_bytes is not None and parts.wan_bytes is not None
    once = 2 * case.message_bytes * case.dp * case.micro_batches  # the tied embedding's exchange stays one
    assert parts.wan_bytes - plain.wan_bytes == 2 * once < plain.wan_bytes * 2
    timing = explain(resolve(table_reader.parse({**ROW, **wide, "chunks": "2"}))).timing
    assert timing.shared == 1 and timing.of[3, 0] == timing.of[1, 0] > timing.of[0, 0]
    assert critical_cycle.binding(timing).kind.startswith("busiest link")


@pytest.mark.parametrize(
    ("cells", "column"),
    [
        ({"schedule": "interleaved", "chunks": "1"}, "chunks"),
        ({"schedule": "1f1b", "chunks": "2"}, "chunks"),
        ({"chunks": "2", "global_batch": "18"}, "schedule"),
        ({"chunks": "9"}, "chunks"),
        ({"chunks": "2", "pp": "1"}, "schedule"),
    ],
)
def test_estimate_says_what_is_wrong_with_chunks(cells: dict[str, str], column: str) -> None:
    with pytest.raises(BadCellError) as caught:
        ask(**cells)
    assert caught.value.column == column


@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("interleaved", 2)])
def test_zero_3_waits_for_its_gathers_in_every_chunk(schedule: str, chunks: int) -> None:
    def costs(zero: int):  # type: ignore[no-untyped-def]
        setup = toy_setup()
        slow = replace(setup.cluster.domains[0], intra_node_bps=1e9, inter_node_bps=1e9)
        cluster = replace(setup.cluster, domains=(slow, *setup.cluster.domains[1:]))
        estimator = Estimator(cluster, replace(setup.job, schedule=schedule, chunks=chunks, zero=zero))
        return estimator.stage_costs(estimator.make((0,), (34,), 2, ((1, 2),), 1))

    one, three = costs(1), costs(3)
    assert (three.forward_s > one.forward_s).all() and (three.backward_s > one.backward_s).all()
    assert three.forward_s.shape == (2 * chunks, 1)
