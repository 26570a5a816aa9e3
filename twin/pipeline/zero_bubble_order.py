"""Orders of the zero-bubble schedules: ZB-H1, and ZB-V with two chunks a stage in the shape of a V.

After Qi et al. 2023, "Zero Bubble Pipeline Parallelism". The backward is two operations: the input gradient,
which the stage before waits for, and the weight gradient, which no stage waits for and which therefore fills
what would be idle. Both end with a synchronous optimizer step: a stage updates when its own last weight
gradient is done and reduced, without the paper's validation after the fact.

ZB-H1 is 1F1B with S - 1 - i warm-up forwards in which stage i (from 0) runs the weight gradient of
micro-batch j after the input gradient of micro-batch j + i. So every stage stores min(m, S) micro-batches at
most, as the first of 1F1B. Without communication the bubble of equal stages is (S - 1) (F + B - W), where
B >= W and F >= W are the times of the input and weight gradient.

ZB-V ("Pipeline Parallelism with Controllable Memory", 2024): in every round a stage runs forward, input and
weight gradient of the one chunk and then of the other. In its warm-up it runs forwards of the first chunk,
then of both in turn, then the second chunk forward and backward; as the pipeline empties weight gradients
come last. With F = B = W and at least 2 S - 1 micro-batches nothing idles but the S - 1 slots of a chunk
before the last stage begins. It stores 2 S chunks at most, as much as the first stage of 1F1B. The order is
the one that `ScheduleZBVZeroBubble` of torch.distributed.pipelining documents.
"""

from collections.abc import Iterator

from twin.core.plan import Schedule

FORWARD, BACKWARD, WEIGHT = range(3)
Operation = tuple[int, int, int]
"""As in `twin.pipeline.operation_order`: (kind, chunk, micro-batch)."""


def order(schedule: Schedule, stages: int, micro_batches: int, stage: int) -> list[Operation]:
    """Operations of one stage of a zero-bubble schedule."""
    if schedule == "zb-h1":
        return list(_zb_h1(stages, micro_batches, stage))
    # The full pattern takes 2 S - 1 micro-batches; fewer run it with gaps, which no stage waits for.
    full = _zb_v(stages, max(micro_batches, 2 * stages - 1), stage)
    return [(kind, chunk, k) for kind, chunk, k in full if k < micro_batches]


def _zb_h1(stages: int, m: int, stage: int) -> Iterator[Operation]:
    warmup = min(m, stages - 1 - stage)
    yield from ((FORWARD, 0, k) for k in range(warmup))
    for j in range(m):
        if warmup + j < m:
            yield (FORWARD, 0, warmup + j)
        yield (BACKWARD, 0, j)
        if j >= stage:
            yield (WEIGHT, 0, j - stage)
    yield from ((WEIGHT, 0, k) for k in range(max(m - stage, 0), m))


def _zb_v(stages: int, m: int, stage: int) -> Iterator[Operation]:
    behind = stages - stage  # stages from this one to the turn
    done = [[0, 0] for _ in range(3)]

    def run(kind: int, chunk: int) -> Operation:
        k = done[kind][chunk]
        done[kind][chunk] += 1
        return kind, chunk, k

    def whole(chunk: int) -> Iterator[Operation]:
        yield run(BACKWARD, chunk)
        yield run(WEIGHT, chunk)

    yield from (run(FORWARD, 0) for _ in range(2 * behind - 1))
    for _ in range(stage):
        yield run(FORWARD, 1)
        yield run(FORWARD, 0)
    for _ in range(behind):
        yield run(FORWARD, 1)
        yield from whole(1)
    while done[FORWARD][1] < m:
        if done[FORWARD][0] < m:
            yield run(FORWARD, 0)
        yield from whole(0)
        yield run(FORWARD, 1)
        yield from whole(1)
    for _ in range(stage):
        yield run(BACKWARD, 0)
        yield run(BACKWARD, 1)
    for _ in range(behind):
        yield from whole(0)
    for chunk in (1, 0):
        while done[WEIGHT][chunk] < m:
            yield run(WEIGHT, chunk)


def delayed(micro_batches: int, stage: int) -> int:
    """Micro-batches that wait for their weight gradient on stage i (from 0), two chunks counted as one: the
    most of ZB-H1 at any time, and of ZB-V as the pipeline empties."""
    return min(stage, micro_batches)
