import numpy as np
import pytest

from twin.costs.gradient_reduction import BUCKETS, exposed_s


def one(*seconds: float) -> list[np.ndarray]:
    return [np.array([value]) for value in seconds]


def test_without_chunks_what_exceeds_the_last_backward_remains() -> None:
    assert exposed_s(one(5.0), one(2.0), 4, None) == 3.0
    assert exposed_s(one(1.0), one(2.0), 4, None) == 1.0 / BUCKETS
    assert exposed_s(one(1.0), one(2.0), 4, np.array([0.02])) == 0.02


def test_chunks_overlap_with_the_micro_batches_of_those_that_follow() -> None:
    # the second chunk's collective starts 4 stages x 1 s before the end and takes 3 s, then the first's
    assert exposed_s(one(3.0, 3.0), one(1.0, 1.0), 4, None) == max(3 - 1, 3 / BUCKETS, 6 - 4)
    # 8 + 3 s from 4 s before the end on: 7 s remain
    assert exposed_s(one(3.0, 8.0), one(1.0, 1.0), 4, None) == 7.0
    # three chunks: all 9 s start 8 s before the end
    assert exposed_s(one(1.0, 1.0, 7.0), one(1.0, 1.0, 1.0), 4, None) == 1.0


@pytest.mark.parametrize("chunks", [1, 2, 6])
def test_never_more_than_the_collective(chunks: int) -> None:
    each, beside = one(*[2.0 / chunks] * chunks), one(*[0.1 / chunks] * chunks)
    assert 0 < exposed_s(each, beside, 8, None)[0] <= 2.0
