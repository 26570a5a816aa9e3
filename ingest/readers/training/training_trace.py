"""Training traces of ByteDance: `trace-<job>.parquet`, every operation of sampled steps of a pipelined job.

A row is an operation (`op_times`, `source_row` = position in the file); each step is one row more
(`step_times`, `source_row` = number of its first operation): from its first start to its last end over all
ranks. -1 stands for "not applicable". Times are float32 seconds, good to 10 microseconds.
"""

from collections.abc import Iterator
from pathlib import PurePath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.errors import InputError
from ingest.parsing import parquet_input
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_NEEDED = {"dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "mb_id"}
_NEVER = np.iinfo(np.int64).min
Span = tuple[float, float, int]
"""First start, last end, number of the first operation."""


class TrainingTrace:
    """Operations and steps of a job."""

    name = "training-trace"
    version = 1
    by_name = True
    tables = ("op_times", "step_times")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if it is a Parquet file called `trace-*.parquet`; its columns stand at its end."""
        return (
            path.name.startswith("trace-")
            and path.suffix == ".parquet"
            and head.startswith(parquet_input.MAGIC)
        )

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields operations as they come, the steps at the end."""
        job = source.path.stem.removeprefix("trace-")
        steps: dict[int, Span] = {}
        missing = _NEEDED - set(parquet_input.schema(source).names)
        if missing:
            raise InputError(f"{source.shown}: no columns {', '.join(sorted(missing))}")
        row = 1
        try:
            for rows in parquet_input.batches(source, sorted(_NEEDED)):
                yield _operations(rows, row, job)
                _extend(steps, rows, row)
                row += len(rows)
        except pa.ArrowException as error:  # a column of another type
            raise InputError(f"{source.shown}: not a trace of operations: {error}") from error
        yield _steps(steps, job)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "training-trace: the time of a step runs from its first start to its last end over all ranks",
            "training-trace: a recv includes waiting for the peer, a short send is only the enqueue; one "
            "rank of each tensor group is recorded",
        )


def _column(rows: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    values = rows.column(rows.schema.get_field_index(name))
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(kind)


def _applicable(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(values, -1), None, values)


def _operations(rows: pa.RecordBatch, first: int, job: str) -> RowBatch:
    count = len(rows)
    columns = {
        "source_row": pa.array(np.arange(first, first + count)),
        "job": pa.repeat(job, count),
        "op": _column(rows, "optype", pa.string()),
        "worker": _column(rows, "rank", pa.string()),
        "dp_rank": _applicable(_column(rows, "dp_rank", pa.int64())),
        "stage": _applicable(_column(rows, "stage", pa.int64())),
        "step": _column(rows, "step", pa.int64()),
        "micro_batch_id": _applicable(_column(rows, "mb_id", pa.int64())),
        "start_s": _column(rows, "start_ts", pa.float64()),
        "time_s": _column(rows, "duration", pa.float64()),
    }
    return RowBatch("op_times", columns, count)


def _extend(steps: dict[int, Span], rows: pa.RecordBatch, first: int) -> None:
    """Widen the span of every step by these operations; those without finite times do not count."""
    step = np.asarray(_column(rows, "step", pa.int64()).fill_null(_NEVER))
    start, time = (
        np.asarray(_column(rows, name, pa.float64()).fill_null(np.nan)) for name in ("start_ts", "duration")
    )
    good = np.isfinite(start) & np.isfinite(time) & (start >= 0) & (time >= 0) & (step != _NEVER)
    order = np.flatnonzero(good)[np.argsort(step[good], kind="stable")]
    if not len(order):
        return
    heads = np.flatnonzero(np.diff(step[order], prepend=step[order[0]] - 1))
    begins = np.minimum.reduceat(start[order], heads)
    ends = np.maximum.reduceat((start + time)[order], heads)
    for head, begin, end in zip(order[heads], begins, ends, strict=True):
        old = steps.get(int(step[head]), (begin, end, first + int(head)))
        steps[int(step[head])] = min(old[0], begin), max(old[1], end), old[2]


def _steps(steps: dict[int, Span], job: str) -> RowBatch:
    ordered = sorted(steps.items())
    columns = {
        "source_row": [span[2] for _, span in ordered],
        "job": [job] * len(ordered),
        "step": [step for step, _ in ordered],
        "time_s": [float(span[1] - span[0]) for _, span in ordered],
        "kind": ["step"] * len(ordered),
    }
    return RowBatch("step_times", columns, len(ordered))
