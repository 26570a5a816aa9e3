"""Golden values of Megatron-LM's tests: loss, memory and iteration time of real runs, step by step.

A row is a step with a time or a memory; `"nan"` stands where a step was not timed (only every log interval
is), which is no measurement. Losses and gradient counts are not kept.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, folder, from_document
from ingest.parsing.source import Source

_TABLE = "step_times"
_TIME, _MEMORY = "iteration-time", "mem-max-allocated-bytes"
_NAME = re.compile(r"golden_values_.*?dgx_([a-z0-9]+)(?:_.*)?\.json")


class MegatronGolden:
    """Iteration time and peak memory."""

    name = "megatron-golden"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if it is named golden values and the first series has its steps."""
        named = path.name.startswith("golden_values") and path.suffix == ".json"
        return named and b'"start_step"' in head and b'"step_interval"' in head

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each step that was measured."""
        return from_document(source, _TABLE, lambda document: [_batch(document, source, options)])

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "megatron-golden: the job is the folder of the file, the GPU stands in the file's name",
            "megatron-golden: memory is the most one rank has allocated so far; steps that were not timed "
            "have memory only",
        )


def _batch(document: dict[str, Any], source: Source, options: DatasetOptions) -> RowBatch:
    named = _NAME.fullmatch(source.path.name)
    gpu = options.gpu_model or (named[1].upper() if named else None)
    job = folder(source, options) or source.path.stem
    rows = RowBuilder(_TABLE, ("step", "time_s", "peak_mem_bytes"), kind="step", gpu_model=gpu, job=job)
    times, memory = _series(document, _TIME), _series(document, _MEMORY)
    if not times and not memory:
        raise ValueError(f"neither {_TIME} nor {_MEMORY}")
    for step in sorted({*times, *memory}, key=whole):
        pair = times.get(step), memory.get(step)
        rows.take(whole(step), _TIME, pair, _step, step, *pair)
    return rows.batch()


def _series(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Values by step, without those that were not measured."""
    values = document.get(name, {}).get("values", {})
    return {step: value for step, value in values.items() if value != "nan"}


def _step(step: str, time_s: Any, peak: Any) -> tuple[int, float | None, int | None]:
    return whole(step), None if time_s is None else amount(time_s), None if peak is None else whole(peak)
