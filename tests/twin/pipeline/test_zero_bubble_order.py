"""ZB-H1 and ZB-V: orders and times by hand, bubbles of the papers, memory that the orders need."""

import pytest

from twin.core.schedules import default_chunks
from twin.pipeline import kernel, operation_order
from twin.pipeline.operation_order import BACKWARD, FORWARD, WEIGHT
from twin.pipeline.pipeline import Pipeline
from twin.pipeline.reference_simulator import simulate

SHAPES = [(2, 3), (2, 4), (4, 7), (4, 16), (8, 32)]


def split(
    schedule: str, stages: int, m: int, tf: int = 1, td: int = 1, tw: int = 1, *, occupancy: int = 0,
    latency: int = 0, p2p: str = "overlapped",
) -> Pipeline:  # fmt: skip
    """Equal stages whose parts take `tf`, `td` and `tw` for forward, input and weight gradient."""
    chunks = default_chunks(schedule)
    parts, joints = stages * chunks, stages - 1
    return Pipeline.single(
        [tf] * parts, [td + tw] * parts, [occupancy] * joints, [latency] * joints, [occupancy] * joints,
        [latency] * joints, [0] * stages, micro_batches=m, schedule=schedule, chunks=chunks, p2p=p2p,
        tw=[tw] * parts,
    )  # fmt: skip


def total(pipeline: Pipeline) -> int:
    found = int(kernel.iteration_ns(pipeline)[0])
    assert found == simulate(pipeline).iteration_ns
    return found


def names(pipeline: Pipeline) -> list[str]:
    chunked = pipeline.chunks > 1
    return [
        " ".join(f"{'FBW'[kind]}{chunk if chunked else ''}{k}" for kind, chunk, k in row)
        for row in operation_order.operations(pipeline)
    ]


def test_zb_h1_of_two_stages_by_hand() -> None:
    one = split("zb-h1", 2, 2, 10, 12, 8)
    assert names(one) == ["F0 F1 B0 W0 B1 W1", "F0 B0 F1 B1 W0 W1"]
    # stage 1: F0 10-20, B0 20-32, F1 32-42, B1 42-54, W0, W1 to 70; stage 0: F0 0-10, F1 10-20, B0 32-44,
    # W0 44-52, B1 54-66, W1 66-74
    assert total(one) == 74


def test_zb_h1_of_two_stages_and_four_micro_batches_with_messages_by_hand() -> None:
    one = split("zb-h1", 2, 4, 10, 10, 10, occupancy=3, latency=4)
    assert names(one) == ["F0 F1 B0 W0 F2 B1 W1 F3 B2 W2 B3 W3", "F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3"]
    # stage 0: F0 0-10, F1 10-20; stage 1: F0 17-27, B0 27-37 (back 44), F1 37-47, B1 47-57 (64), W0 57-67;
    # stage 0: B0 44-54, W0 54-64, F2 64-74 (there 81), B1 74-84, W1 84-94, F3 94-104 (111)
    # stage 1: F2 81-91, B2 91-101 (108), W1 101-111, F3 111-121, B3 121-131 (138), W2, W3 to 151
    # stage 0: B2 108-118, W2 118-128, B3 138-148, W3 148-158
    assert total(one) == 158


def test_zb_v_of_two_stages_by_hand() -> None:
    one = split("zb-v", 2, 2)
    # the full pattern takes 3 micro-batches; here the third is left out
    assert names(one) == [
        "F00 F01 F10 B10 W10 F11 B11 W11 B00 W00 B01 W01",
        "F00 F10 F01 F11 B10 W10 B00 W00 B11 W11 B01 W01",
    ]
    # stage 0: F00 0-1, F01 1-2; stage 1: F00 1-2, F10 2-3, F01 3-4, F11 4-5; stage 0: F10 3-4, B10 4-5,
    # W10 5-6, F11 6-7, B11 7-8, W11 8-9; stage 1: B10 5-6, W10 6-7, B00 7-8, W00 8-9, B11 9-10, W11 10-11,
    # B01 11-12, W01 12-13; stage 0: B00 9-10, W00 10-11, B01 12-13, W01 13-14
    assert total(one) == 14


@pytest.mark.parametrize(("stages", "m"), [(2, 2), (2, 4), (4, 4), (4, 16), (8, 8), (8, 32)])
@pytest.mark.parametrize("times", [(1, 1, 1), (10, 12, 8), (7, 9, 6), (10, 10, 5)])
def test_the_bubble_of_zb_h1_is_that_of_the_paper(stages: int, m: int, times: tuple[int, int, int]) -> None:
    # Qi et al. 2023, table 1: (p - 1) (T_F + T_B - T_W)
    tf, td, tw = times
    assert total(split("zb-h1", stages, m, *times)) == m * sum(times) + (stages - 1) * (tf + td - tw)


@pytest.mark.parametrize(("stages", "m"), SHAPES)
def test_zb_v_leaves_nothing_idle_but_the_way_to_the_last_stage(stages: int, m: int) -> None:
    pipeline = split("zb-v", stages, m, 5, 5, 5)
    assert total(pipeline) == int(pipeline.busy_ns[0, 0]) + (stages - 1) * 5
    # S - 1 halves of a stage, where ZB-H1 has S - 1 whole ones and 1F1B (S - 1) (F + B + W)
    whole = [total(split("zb-h1", stages, m, 10, 10, 10)), (m + stages - 1) * 30]
    assert total(pipeline) < whole[0] < whole[1]


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-v"])
@pytest.mark.parametrize(("stages", "m"), [(1, 1), (1, 5), (4, 2), (8, 3), *SHAPES])
def test_every_operation_runs_once_and_as_much_is_stored_as_in_1f1b(
    schedule: str, stages: int, m: int
) -> None:
    chunks = default_chunks(schedule)
    for row in operation_order.operations(split(schedule, stages, m)):
        every = [(kind, chunk, k) for kind in range(3) for chunk in range(chunks) for k in range(m)]
        assert sorted(row) == every
        stored = most = 0
        for kind, chunk, k in row:
            stored += {FORWARD: 1, BACKWARD: 0, WEIGHT: -1}[kind]
            most = max(most, stored)
            if kind == WEIGHT:
                assert row.index((BACKWARD, chunk, k)) < row.index((WEIGHT, chunk, k))
        assert most <= chunks * min(stages, m)
        if m >= 2 * stages - 1:
            assert most == chunks * stages


def test_the_stage_with_the_head_holds_one_set_of_logits_in_zb_v() -> None:
    first = operation_order.operations(split("zb-v", 4, 16))[0]
    held = [kind for kind, chunk, _ in first if chunk == 1]
    assert held == [FORWARD, BACKWARD, WEIGHT] * 16


@pytest.mark.parametrize("p2p", ["blocking", "overlapped", "rendezvous"])
def test_the_last_stage_of_zb_v_turns_round_without_a_message(p2p: str) -> None:
    one = split("zb-v", 1, 3, 10, 10, 10, p2p=p2p)
    assert total(one) == 3 * 2 * 30


def test_zb_v_sends_forwards_of_its_second_chunk_upstream() -> None:
    # stage 0: F00 0-1, down until 101; stage 1: F00, F10 to 103, up until 110; stage 0: F10, B10 to 112, down
    # until 212; stage 1: B10, W10, B00 to 215, up until 222; stage 0: B00, W00 to 224
    one = Pipeline.single(
        [1] * 4, [2] * 4, [100], [0], [7], [0], [0, 0], micro_batches=1, schedule="zb-v", chunks=2,
        p2p="overlapped", tw=[1] * 4,
    )  # fmt: skip
    assert names(one) == ["F00 F10 B10 W10 B00 W00"] * 2
    assert total(one) == 224
