"""Schedules with an explicit order: interleaved and CrossPipe, and the general kernel against the others."""

import os
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twin.core.schedules import SPLIT, default_chunks
from twin.pipeline import fixed_order_kernel, kernel, operation_order
from twin.pipeline.pipeline import Pipeline, boundary_count, warmup_depths
from twin.pipeline.reference_simulator import simulate

EXAMPLES = int(os.environ.get("TWIN_FUZZ", "300"))
"""Pipelines of the longest comparison; `make fuzz` tries 1,000."""


@st.composite
def pipelines(draw: st.DrawFn, *schedules: str) -> Pipeline:
    schedule = draw(st.sampled_from(schedules))
    stages = draw(st.integers(1, 16))
    chunks = {"interleaved": draw(st.integers(2, 3)), "zb-v": 2}.get(schedule, 1)
    most = 128 if stages <= 2 else 24
    m = (
        draw(st.integers(1, most // stages)) * stages
        if schedule == "interleaved" and stages <= most
        else draw(st.integers(1, most))
    )
    top = draw(st.sampled_from((3, 50, 10**12)))
    joints = boundary_count(stages, chunks, schedule)

    def row(n: int) -> list[int]:
        return draw(st.lists(st.integers(0, top), min_size=n, max_size=n))

    tb = row(stages * chunks)
    extra = draw(st.integers(0, 3))
    return Pipeline.single(
        row(stages * chunks), tb, row(joints), row(joints), row(joints), row(joints), row(stages),
        micro_batches=m,
        schedule=schedule,
        p2p=draw(st.sampled_from(("blocking", "overlapped", "rendezvous"))),
        warmup=warmup_depths(stages, m, extra),
        chunks=chunks,
        shared=draw(st.integers(-1, stages - 2)) if schedule == "interleaved" and stages > 1 else -1,
        tw=[draw(st.integers(0, t)) for t in tb] if schedule in SPLIT else None,
    )  # fmt: skip


@given(pipelines("interleaved", "crosspipe", "zb-h1", "zb-v"))
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_kernel_of_orders_equals_the_event_simulation_exactly(pipeline: Pipeline) -> None:
    assert kernel.iteration_ns(pipeline)[0] == simulate(pipeline).iteration_ns


@given(pipelines("gpipe", "1f1b"))
@settings(max_examples=200, deadline=None)
def test_the_kernel_of_orders_equals_the_recurrences(pipeline: Pipeline) -> None:
    assert fixed_order_kernel.iteration_ns(pipeline)[0] == kernel.iteration_ns(pipeline)[0]


@pytest.mark.parametrize("p2p", ["blocking", "overlapped", "rendezvous"])
@pytest.mark.parametrize("schedule", ["interleaved", "crosspipe", "zb-h1", "zb-v"])
def test_the_largest_shape_equals_the_event_simulation(schedule: str, p2p: str) -> None:
    rng = np.random.default_rng(5)
    chunks = default_chunks(schedule)
    joints = boundary_count(16, chunks, schedule)
    sizes = (16 * chunks, 16 * chunks, joints, joints, joints, joints, 16)
    rows = [rng.integers(1, 10**9, n).tolist() for n in sizes]
    pipeline = Pipeline.single(
        *rows, micro_batches=128, schedule=schedule, p2p=p2p, chunks=chunks,
        shared=7 if schedule == "interleaved" else -1,
        tw=[t // 2 for t in rows[1]] if schedule in SPLIT else None,
    )  # fmt: skip
    assert kernel.iteration_ns(pipeline)[0] == simulate(pipeline).iteration_ns


def interleaved(stages: int, chunks: int, m: int, tf: int = 1, tb: int = 2, **how) -> Pipeline:
    joints = boundary_count(stages, chunks)
    occupancy, latency = how.pop("occupancy", 0), how.pop("latency", 0)
    return Pipeline.single(
        [tf] * (stages * chunks), [tb] * (stages * chunks), [occupancy] * joints, [latency] * joints,
        [occupancy] * joints, [latency] * joints, [0] * stages, micro_batches=m, schedule="interleaved",
        chunks=chunks, **how,
    )  # fmt: skip


@pytest.mark.parametrize("p2p", ["blocking", "overlapped"])
@pytest.mark.parametrize(("stages", "chunks", "m"), [(1, 2, 3), (2, 2, 2), (4, 2, 8), (4, 3, 16), (8, 5, 64)])
def test_without_communication_the_bubble_is_s_minus_1_over_v_m(
    stages: int, chunks: int, m: int, p2p: str
) -> None:
    # Narayanan et al., SC 2021, section 2.2.2: bubble / ideal = (S - 1) / (v m)
    pipeline = interleaved(stages, chunks, m, p2p=p2p)
    ideal = m * chunks * 3
    assert kernel.iteration_ns(pipeline)[0] == ideal + (stages - 1) * 3
    assert pipeline.busy_ns[:, 0].tolist() == [ideal] * stages


def test_interleaved_order_of_two_stages_by_hand() -> None:
    first, last = operation_order.operations(interleaved(2, 2, 4))
    names = [f"{'FBW'[kind]}{chunk}{k}" for kind, chunk, k in first]
    # warm-up 2 (2 - 0 - 1) + (2 - 1) 2 = 4 forwards; forwards F00 F01 F10 F11 F02 F03 F12 F13
    assert names[:8] == ["F00", "F01", "F10", "F11", "F02", "B10", "F03", "B11"]
    assert names[8:] == ["F12", "B00", "F13", "B01", "B12", "B13", "B02", "B03"]
    assert ["FBW"[kind] for kind, _, _ in last][:5] == ["F", "F", "F", "B", "F"]


def test_interleaved_two_stages_by_hand() -> None:
    # forward 10 and backward 20 a chunk, every message 3 on the wire and 4 under way, m = 2, overlapped.
    # stage 0: F00 0-10 (there 17), F01 10-20 (27); stage 1: F00 17-27 (round to stage 0 at 34), F01 27-37
    # (44); stage 0: F10 34-44 (51), F11 44-54 (61); stage 1: F10 51-61, then B10 61-81 (88), F11 81-91,
    # B11 91-111 (118); stage 0: B10 88-108 (round to stage 1 at 115), B11 118-138 (145)
    # stage 1: B00 115-135 (142), B01 145-165 (172); stage 0: B00 142-162, B01 172-192
    pipeline = interleaved(2, 2, 2, 10, 20, occupancy=3, latency=4, p2p="overlapped")
    assert kernel.iteration_ns(pipeline)[0] == simulate(pipeline).iteration_ns == 192


def test_the_way_back_to_the_first_stage_costs_what_it_costs() -> None:
    quick = interleaved(4, 2, 8, p2p="overlapped")
    slow = replace(quick, lf=np.array([[0], [0], [0], [500]]))
    # chunk 1 begins where the first group of S micro-batches has come round
    assert kernel.iteration_ns(slow)[0] > kernel.iteration_ns(quick)[0] + 500


def test_stages_that_share_a_link_wait_for_each_other() -> None:
    own = interleaved(4, 2, 8, occupancy=7, p2p="overlapped")
    assert kernel.iteration_ns(replace(own, shared=1))[0] > kernel.iteration_ns(own)[0]


def latent(m: int, latency: int, extra: int = 0, stages: int = 4, **how) -> Pipeline:
    inner = stages - 1
    return Pipeline.single(
        [10] * stages, [20] * stages, [1] * inner, [latency] * inner, [1] * inner, [latency] * inner,
        [0] * stages, micro_batches=m, p2p=how.pop("p2p", "overlapped"),
        warmup=warmup_depths(stages, m, extra), schedule=how.pop("schedule", "crosspipe"), tw=[10] * stages,
    )  # fmt: skip


@given(pipelines("crosspipe"))
@settings(max_examples=200, deadline=None)
def test_crosspipe_runs_everything_once_within_its_budget(pipeline: Pipeline) -> None:
    m = pipeline.micro_batches
    most = int(pipeline.warmup[0]) + 1
    for row in operation_order.operations(pipeline):
        assert sorted(row) == [(kind, 0, k) for kind in range(3) for k in range(m)]
        stored = 0
        for kind, _, _ in row:
            stored += {operation_order.FORWARD: 1, operation_order.BACKWARD: 0, operation_order.WEIGHT: -1}[
                kind
            ]
            assert stored <= most


def test_crosspipe_of_two_stages_by_hand() -> None:
    # two stages, F 10, D 10, W 10, a message takes 1 + 0, two activations may be stored, m = 2:
    # stage 0 F0 0-10, F1 10-20; stage 1 F0 11-21, F1 is there at 21 as D0 is ready: D0 21-31 in turn, F1
    # 31-41, D1 41-51, W0, W1 to 71; stage 0 D0 32-42, nothing is ready: W0 42-52, D1 52-62, W1 62-72
    one = latent(2, 0, stages=2)
    names = ["".join(f"{'FDW'[kind]}{k}" for kind, _, k in row) for row in operation_order.operations(one)]
    assert names == ["F0F1D0W0D1W1", "F0D0F1D1W0W1"]
    assert kernel.iteration_ns(one)[0] == simulate(one).iteration_ns == 72


def test_weight_gradients_fill_what_1f1b_leaves_idle() -> None:
    for latency in (0, 5, 20, 40):
        split, whole = latent(32, latency), latent(32, latency, schedule="1f1b")
        assert kernel.iteration_ns(split)[0] < kernel.iteration_ns(whole)[0]


def test_a_larger_budget_hides_more_latency() -> None:
    times = [int(kernel.iteration_ns(latent(64, 60, extra))[0]) for extra in (0, 4, 12)]
    assert all(less < more for more, less in pairwise(times))


def test_a_given_order_stays_when_durations_change() -> None:
    one = latent(8, 10)
    kept = replace(one, order=operation_order.of(one), lf=one.lf * 9)
    assert operation_order.operations(kept) == operation_order.operations(one)
    assert kernel.iteration_ns(kept)[0] == simulate(kept).iteration_ns
