"""MLPerf training logs: lines `:::MLLOG {...}`, some with a rank and a colon before; other lines are text.

* `power_reading`: watts of a node at `time_ms` (`host_samples`; the file's name is the host).
* `block_start`, `block_stop`: the mean time of the steps between them (`step_times`, kind `block`).
  `epoch_count` counts tokens: the steps are epoch_count / sequence length / global batch. Later rounds say
  `samples_count` in both: the steps are the samples between them / global batch.
* `tracked_stats` with `train_step_timing in s`: kind `smoothed`, because the logger smooths it.

`:::SYSJSON` names the GPUs. `source_row` is the line, blank ones counted.
"""

import json
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.units import MS
from ingest.parsing import text_lines
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import FAULTS, RowBuilder
from ingest.parsing.source import Source

_LINE = re.compile(r"(?:\d{1,6}:\s*)?:::(MLLOG|SYSJSON) (\{.*)")
_FLUSH = 1 << 16
_NS_PER_MS = 1_000_000
_STEP_TIME = "train_step_timing in s"
_SHAPE = ("global_batch_size", "max_sequence_length")


class MlLog:
    """Power readings and step times of MLPerf."""

    name = "mllog"
    version = 2
    by_name = True
    tables = ("host_samples", "step_times")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if some line at its beginning is marked as MLPerf's."""
        return any(mark in head for mark in (b":::MLLOG {", b":::SYSJSON {", b":::DLPAL "))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each power reading, block and logged step."""
        log = _Log(source, options)
        for row, line in text_lines.numbered(source):
            found = _LINE.match(line)
            if found:
                log.line(row, found[1], found[2])
            if len(log.power) + len(log.steps) >= _FLUSH:
                yield from log.batches()
        log.end()
        yield from log.batches()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "mllog: the host of a power reading is the file's name; power is of the whole node, at the wall",
            "mllog: the time of a block is divided by its steps; epoch_count counts tokens",
            "mllog: step times in tracked_stats are smoothed by the logger: take blocks for their variance",
        )


class _Log:
    """State of a log up to the present line."""

    def __init__(self, source: Source, options: DatasetOptions):
        self.power = RowBuilder("host_samples", ("ts", "power_w"), host=source.path.stem)
        names = ("step", "time_s", "kind", "steps", "gpu_model", "gpus")
        self.steps = RowBuilder("step_times", names, job=source.path.stem)
        self._gpus: tuple[str | None, int | None] = (options.gpu_model, None)
        self._shape: dict[str, int] = {}
        self._block: tuple[int, str, dict[str, Any]] | None = None

    def batches(self) -> Iterator[RowBatch]:
        """Returns the rows since the last call."""
        yield self.power.batch()
        yield self.steps.batch()

    def line(self, row: int, mark: str, said: str) -> None:
        """Reads one marked line."""
        try:
            event = json.loads(said)
            if mark == "SYSJSON":
                self._system(event)
            else:
                self._event(row, said, event)
        except (*FAULTS, RecursionError) as error:
            self.steps.reject(row, mark, said, f"not an MLPerf record: {error!r}")

    def end(self) -> None:
        """Ends the log: a block that has not stopped was not measured."""
        if self._block is not None:
            self.steps.reject(self._block[0], "block_start", self._block[1], "the block never stops")
            self._block = None

    def _system(self, system: dict[str, Any]) -> None:
        nodes, each = whole(system["number_of_nodes"]), whole(system["accelerators_per_node"])
        self._gpus = (self._gpus[0] or system["accelerator_model_name"], nodes * each)

    def _event(self, row: int, said: str, event: dict[str, Any]) -> None:
        key, value = event["key"], event["value"]
        if key == "power_reading":
            self.power.take(row, key, said, _reading, event["time_ms"], value)
        elif key in _SHAPE:
            self._shape[key] = whole(value)
        elif key == "tracked_stats" and isinstance(value, dict) and _STEP_TIME in value:
            self.steps.take(row, key, said, self._smoothed, value[_STEP_TIME], event["metadata"])
        elif key == "block_start":
            self.end()
            self._block = row, said, event
        elif key == "block_stop":
            begun, self._block = self._block, None
            self.steps.take(row, key, said, self._measured, begun, event)

    def _smoothed(self, time_s: Any, metadata: dict[str, Any]) -> tuple[Any, ...]:
        return self._count(metadata["step"]), amount(time_s), "smoothed", None, *self._gpus

    def _measured(
        self, begun: tuple[int, str, dict[str, Any]] | None, stop: dict[str, Any]
    ) -> tuple[Any, ...]:
        if begun is None:
            raise ValueError("the block never starts")
        start = begun[2]
        if "samples_count" in start["metadata"]:
            return self._counted(start, stop)
        steps = self._count(start["metadata"]["epoch_count"])
        if not steps:
            raise ValueError("a block without steps")
        time_s = amount(stop["time_ms"]) - amount(start["time_ms"])  # ms
        first = self._count(start["metadata"]["first_epoch_num"]) + 1
        return first, time_s * MS / steps, "block", steps, *self._gpus

    def _counted(self, start: dict[str, Any], stop: dict[str, Any]) -> tuple[Any, ...]:
        """The row of a block that says how many samples were seen before and after it."""
        batch = self._shape.get(_SHAPE[0])
        if not batch:
            raise ValueError(f"the log has not said {_SHAPE[0]}")
        before, after = (whole(event["metadata"]["samples_count"]) for event in (start, stop))
        steps, rest = divmod(after - before, batch)
        if steps < 1 or rest:
            raise ValueError(f"{after - before} samples are no whole number of steps of {batch}")
        time_s = (amount(stop["time_ms"]) - amount(start["time_ms"])) * MS / steps
        return before // batch + 1, time_s, "block", steps, *self._gpus

    def _count(self, tokens: Any) -> int:
        """Steps that process so many tokens."""
        missing = [name for name in _SHAPE if not self._shape.get(name)]
        if missing:
            raise ValueError(f"the log has not said {' and '.join(missing)}")
        steps, rest = divmod(whole(tokens), self._shape[_SHAPE[0]] * self._shape[_SHAPE[1]])
        if rest:
            raise ValueError(f"{tokens} tokens are no whole number of steps")
        return steps


def _reading(time_ms: Any, watts: Any) -> tuple[int, float]:
    return whole(whole(time_ms) * _NS_PER_MS), amount(watts)  # ms, W
