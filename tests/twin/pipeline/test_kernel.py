import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twin.pipeline.kernel import LANES, iteration_ns
from twin.pipeline.operation_order import operations
from twin.pipeline.pipeline import Pipeline, warmup_depths
from twin.pipeline.reference_simulator import simulate

EXAMPLES = int(os.environ.get("TWIN_FUZZ", "300"))
"""Pipelines of the longest comparison; `make fuzz` tries 1,000."""


def single(
    stages: int, m: int, *, tf: int = 1, tb: int = 2, occupancy: int = 0, latency: int = 0, **how
) -> Pipeline:
    inner = stages - 1
    return Pipeline.single(
        [tf] * stages, [tb] * stages, [occupancy] * inner, [latency] * inner, [occupancy] * inner,
        [latency] * inner, [0] * stages, micro_batches=m, **how,
    )  # fmt: skip


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    stages = draw(st.integers(1, 16))
    m = draw(st.integers(1, 128) if stages <= 4 else st.integers(1, 24))
    # small ranges make ties and saturated links common, large ones check the width of the numbers
    top = draw(st.sampled_from((3, 50, 10**12)))
    times = st.integers(0, top)
    boundary = st.lists(times, min_size=stages - 1, max_size=stages - 1)
    stage = st.lists(times, min_size=stages, max_size=stages)
    deeper = draw(st.sampled_from((0, 3)))
    extra = sorted(draw(st.lists(st.integers(0, deeper), min_size=stages, max_size=stages)), reverse=True)
    return Pipeline.single(
        draw(stage), draw(stage), draw(boundary), draw(boundary), draw(boundary), draw(boundary), draw(stage),
        micro_batches=m,
        schedule=draw(st.sampled_from(("gpipe", "1f1b"))),
        p2p=draw(st.sampled_from(("blocking", "overlapped", "rendezvous"))),
        warmup=warmup_depths(stages, m, extra),
    )  # fmt: skip


@given(pipelines())
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_kernel_equals_the_event_simulation_exactly(pipeline: Pipeline) -> None:
    assert iteration_ns(pipeline)[0] == simulate(pipeline).iteration_ns


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("p2p", ["blocking", "overlapped", "rendezvous"])
def test_the_largest_shape_equals_the_event_simulation(schedule: str, p2p: str) -> None:
    rng = np.random.default_rng(5)
    rows = [rng.integers(1, 10**9, n).tolist() for n in (16, 16, 15, 15, 15, 15, 16)]
    pipeline = Pipeline.single(*rows, micro_batches=128, schedule=schedule, p2p=p2p)
    assert iteration_ns(pipeline)[0] == simulate(pipeline).iteration_ns


@pytest.mark.parametrize("plans", [1, LANES - 1, LANES, 3 * LANES + 5])
def test_a_batch_gives_every_plan_its_own_time(plans: int) -> None:
    rng = np.random.default_rng(plans)
    stage = [rng.integers(1, 1000, (3, plans)) for _ in range(3)]
    boundary = [rng.integers(1, 1000, (2, width)) for width in (1, plans, 1, plans)]
    batch = Pipeline(*stage[:2], *boundary, stage[2], warmup_depths(3, 5), 5, "1f1b", "overlapped")
    alone = [int(iteration_ns(batch.column(p))[0]) for p in range(plans)]
    assert iteration_ns(batch).tolist() == alone


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "m"), [(1, 1), (1, 7), (4, 4), (4, 16), (8, 3)])
def test_equal_stages_without_delays_take_m_plus_s_minus_1_slots(schedule: str, stages: int, m: int) -> None:
    pipeline = single(stages, m, schedule=schedule)
    assert iteration_ns(pipeline)[0] == (m + stages - 1) * 3


def test_two_stages_by_hand() -> None:
    # overlapped: F0 ends 10, arrives 10+3+4=17, stage 1 does F 17-27, B 27-47, gradient back at 54
    one = single(2, 1, tf=10, tb=20, occupancy=3, latency=4, p2p="overlapped")
    assert iteration_ns(one)[0] == 74
    # two micro-batches, 1F1B: stage 0 F0 0-10, F1 10-20 (arrives 27), stage 1 F0 17-27, B0 27-47, F1 47-57,
    # B1 57-77, stage 0 B0 54-74, B1 starts when its gradient arrives at 84: 104
    two = single(2, 2, tf=10, tb=20, occupancy=3, latency=4, p2p="overlapped")
    assert iteration_ns(two)[0] == 104
    # blocking: stage 0 is held until 17, F1 17-27 arrives 34; stage 1 B0 27-47 is held until 54, F1 54-64,
    # B1 64-84, gradient back at 91, B1 91-111
    held = single(2, 2, tf=10, tb=20, occupancy=3, latency=4, p2p="blocking")
    assert iteration_ns(held)[0] == 111


def test_rendezvous_of_two_stages_by_hand() -> None:
    # F0 0-10, its receiver waits since 0: 3 on the wire and 4 under way, stage 1 F0 17-27, B0 27-47; stage 0
    # F1 10-20, which waits for its receiver until 47: stage 1 F1 54-64, B1 64-84; stage 0 waits for B0 since
    # 20: 47 + 7 = 54, B0 54-74, then for B1: 84 + 7 = 91, B1 91-111
    pipeline = single(2, 2, tf=10, tb=20, occupancy=3, latency=4, p2p="rendezvous")
    assert iteration_ns(pipeline)[0] == simulate(pipeline).iteration_ns == 111


def test_under_rendezvous_a_late_receiver_pays_for_the_message_that_has_long_been_sent() -> None:
    # stage 1 computes 100 a micro-batch; overlapped, all messages but the first arrive meanwhile
    def total(p2p: str) -> int:
        return int(
            iteration_ns(
                Pipeline.single(
                    [1, 40], [1, 60], [5], [2], [0], [0], [0, 0], micro_batches=4, schedule="gpipe", p2p=p2p
                )
            )[0]
        )

    assert total("overlapped") == 1 + 7 + 4 * 40 + 4 * 60 + 1
    assert total("rendezvous") == 1 + 4 * (7 + 40) + 4 * 60 + 1


def test_received_messages_are_parts_of_operations() -> None:
    one = single(3, 4, tf=10, tb=20, occupancy=3, latency=4, p2p="rendezvous")
    folded = one.received()
    assert folded.tf[:, 0].tolist() == [10, 17, 17] and folded.tb[:, 0].tolist() == [27, 27, 20]
    assert iteration_ns(folded)[0] == iteration_ns(one)[0]


def test_tail_counts_from_the_stage_that_ends_last() -> None:
    pipeline = Pipeline.single([1, 1], [1, 1], [0], [0], [0], [0], [0, 100], micro_batches=1)
    assert iteration_ns(pipeline)[0] == 3 + 100  # stage 1 ends at 3, stage 0 at 4


def test_a_slow_link_paces_the_pipeline() -> None:
    pipeline = single(2, 50, occupancy=1000, latency=5, p2p="overlapped")
    longer = single(2, 51, occupancy=1000, latency=5, p2p="overlapped")
    assert iteration_ns(longer)[0] - iteration_ns(pipeline)[0] >= 1000


def test_the_same_extra_depth_everywhere_leaves_the_pace_alone_but_depth_at_the_slow_link_does_not() -> None:
    def pace(extra: list[int]) -> int:
        ends = [
            int(
                iteration_ns(single(4, m, latency=40, p2p="overlapped", warmup=warmup_depths(4, m, extra)))[0]
            )
            for m in (400, 412)
        ]
        return ends[1] - ends[0]

    assert pace([3, 3, 3, 3]) == pace([0, 0, 0, 0])
    assert pace([9, 6, 3, 0]) < pace([0, 0, 0, 0])


def test_order_of_operations() -> None:
    kinds = [[kind for kind, _, _ in row] for row in operations(single(2, 2))]
    assert kinds == [[0, 0, 1, 1], [0, 1, 0, 1]]
    assert [kind for kind, _, _ in operations(single(2, 2, schedule="gpipe"))[1]] == [0, 0, 1, 1]
