import pytest

from twin.pipeline.other_estimators import (
    ALTERNATIVES,
    additive_ns,
    cycle_ns,
    kernel_ns,
    sailor_bytes,
    sailor_ns,
)
from twin.pipeline.pipeline import Pipeline


def pipeline(stages: int, link: int = 0, latency: int = 0, tail: int = 0, m: int = 8) -> Pipeline:
    gaps = stages - 1
    return Pipeline.single(
        [2] * stages, [4] * stages, [link] * gaps, [latency] * gaps, [link] * gaps, [latency] * gaps,
        [tail] * stages, micro_batches=m,
    )  # fmt: skip


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_all_agree_on_equal_stages_without_delays(name: str) -> None:
    assert ALTERNATIVES[name](pipeline(4, tail=5), 0) == (8 + 3) * 6 + 5


def test_sailor_by_hand() -> None:
    """Two stages: the first sends its activation, 3, the last its gradient twice, 6: 7 (6+6) + 9 + 12 + 5."""
    assert sailor_ns(pipeline(2, 2, 1, tail=5)) == 7 * 12 + 9 + 12 + 5
    # Four stages: 3 x 2 (first, doubled), 6, 6, 6 (last: gradient twice); the slowest is 6 + 6.
    assert sailor_ns(pipeline(4, 2, 1)) == 7 * 12 + 24 + 24
    assert sailor_bytes(10, 100, 2, 4, 1) == 240 + 100 * 2 * 4 * 3


def test_additive_by_hand() -> None:
    """15 micro-batches of the slowest stage, 6 each, and 3 boundaries of 10 both ways."""
    assert additive_ns(pipeline(4, 3, 7, m=12)) == 15 * 6 + 3 * 2 * 10


def test_latency_separates_them() -> None:
    """The additive form pays a boundary once; the pipeline pays it at every turn."""
    slow = pipeline(2, 0, 100)
    assert additive_ns(slow) < kernel_ns(slow)
    assert cycle_ns(slow) >= kernel_ns(slow) * 0.9
