"""The split of a share over its stages, and that all who need it use the same one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twin.core.layer_split import stage_layers, stage_start, stage_start_compiled
from twin.core.plan import Plan, Share
from twin.core.schedules import default_chunks, way
from twin.costs import migration
from twin.costs.stage_costs import slots, stage_spans


@pytest.mark.parametrize(
    ("stages", "layers", "ends", "expected"),
    [
        (4, 98, (True, True), (25, 24, 24, 25)),  # GPT-3: 96 blocks over 4, as Megatron-LM splits them
        (4, 49, (True, False), (13, 12, 12, 12)),
        (4, 49, (False, True), (12, 12, 12, 13)),
        (4, 11, (False, False), (2, 3, 3, 3)),
        (1, 34, (True, True), (34,)),
        (4, 5, (True, True), (1, 1, 1, 2)),  # three blocks for four stages: the ends are dealt out too
        (1, 1, (True, False), (1,)),
    ],
)
def test_blocks_are_even_and_the_ends_come_on_top(
    stages: int, layers: int, ends: tuple[bool, bool], expected: tuple[int, ...]
) -> None:
    assert stage_layers(stages, layers, *ends) == expected


@given(st.integers(1, 16), st.integers(0, 100), st.booleans(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_every_stage_holds_something_and_blocks_differ_by_one(
    stages: int, more: int, embedding: bool, head: bool
) -> None:
    layers = stages + more
    counts = stage_layers(stages, layers, embedding, head)
    assert sum(counts) == layers and min(counts) >= 1
    blocks = list(counts)
    if layers - embedding - head >= stages:
        blocks[0] -= embedding
        blocks[-1] -= head
    assert blocks == sorted(blocks) and blocks[-1] - blocks[0] <= 1


@given(st.integers(1, 16), st.integers(0, 100), st.booleans(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_arrays_and_compiled_code_agree_with_single_numbers(
    stages: int, more: int, embedding: bool, head: bool
) -> None:
    layers, edges = stages + more, np.arange(stages + 1)
    expected = np.concatenate([[0], np.cumsum(stage_layers(stages, layers, embedding, head))]).tolist()
    ends = np.array([embedding]), np.array([head])
    assert stage_start(edges, stages, np.array([layers]), *ends).tolist() == expected
    assert [stage_start_compiled(j, stages, layers, embedding, head) for j in edges] == expected


def test_more_layers_never_empty_a_stage() -> None:
    """What the masks of hippo rest on: the largest share that fits can be found by bisection."""
    for stages in range(1, 9):
        for ends in ((False, False), (True, False), (False, True)):
            held = np.array([stage_layers(stages, n, *ends) for n in range(stages, 60)])
            assert (np.diff(held, axis=0) >= 0).all()


def test_bounds_of_chunks_follow_the_order_of_a_micro_batch() -> None:
    positions = slots((0, 1, 2), ((1, 2), (1, 1), (1, 1)))
    spans = stage_spans(np.array([[0, 14, 24, 34]]), positions, 34, 3, "interleaved")
    bounds = np.array([0, *(int(past[0]) for _, past in spans)])
    assert bounds[0] == 0 and bounds[-1] == 34
    # 13 blocks over six chunks of the first share: 2 each, 3 in the last one; the embedding joins the first
    assert np.diff(bounds).tolist() == [3, 2, 3, 3, 2, 2, 3, 3, 2, 3, 4, 4]


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_costs_and_moves_see_the_same_stages(data: st.DataObject) -> None:
    schedule = data.draw(st.sampled_from(("1f1b", "interleaved", "zb-v")))
    chunks = default_chunks(schedule)
    depths = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).filter(lambda d: sum(d) > 1))
    counts = [pp * chunks + data.draw(st.integers(0, 9)) + 2 for pp in depths]
    shares = tuple(
        Share(k, n, 1, pp, tuple(range(pp))) for k, (n, pp) in enumerate(zip(counts, depths, strict=True))
    )
    plan = Plan(shares, 1, 1, sum(depths), schedule, chunks=chunks)
    positions = slots(plan.order, [(1, pp) for pp in depths])
    spans = stage_spans(np.array([plan.cuts]), positions, sum(counts), chunks, plan.schedule)
    seen, met = [], 0
    for part in way(len(positions), chunks, schedule):
        start, past = (int(bound[0]) for bound in spans[part])
        assert start == met < past
        seen, met = [*seen, *[positions[part % len(positions)]] * (past - start)], past
    assert met == sum(counts)
    owned = [(domain, gpus[0]) for domain, _, gpus in migration.owners(plan)]
    assert owned == [(slot.domain, slot.inner) for slot in seen]
