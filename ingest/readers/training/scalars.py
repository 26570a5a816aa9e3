"""Step times from scalars of TensorBoard and Weights & Biases: the wall time between two logged steps.

TensorBoard's download is a CSV `Wall time,Step,Value`; the history of W&B is NDJSON or a CSV with `_step`
and `_timestamp`. A row is the mean time of the steps since the row before (`kind` step where that is one,
else block). The first row of a file has no time. A step that does not grow, as after a restart, is
rejected, and the next one counts from it. `source_row` is the line behind the header.
"""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.errors import InputError
from ingest.mapping import text_rows
from ingest.parsing import csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import number, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import Source

_TABLE = "step_times"
_PAIRS = (("Step", "Wall time"), ("_step", "_timestamp"))
_COLUMNS = ("step", "time_s", "kind", "steps")


class Scalars:
    """Logged scalars of a run."""

    name = "scalars"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True for the header of either CSV, or NDJSON with W&B's keys."""
        if text_rows.is_json(head):
            return b'"_step"' in head and b'"_timestamp"' in head and text_rows.by_line(head)
        names = set(csv_blocks.header(head))
        return any(names >= {*pair} for pair in _PAIRS)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each logged step but the first.

        Raises:
            InputError: it has neither pair of columns.
        """
        found = text_rows.frame(source, DatasetOptions(name=options.name))
        pair = next((pair for pair in _PAIRS if {*pair} <= {*found.names}), None)
        if pair is None:
            raise InputError(
                f"{source.shown}: no columns {' and '.join(_PAIRS[0])}, or {' and '.join(_PAIRS[1])}"
            )
        before: tuple[int, float] | None = None
        for block in found.blocks:
            rows = RowBuilder(_TABLE, _COLUMNS, job=source.path.stem, gpu_model=options.gpu_model)
            for reject in block.rejects:
                rows.reject(reject.row, reject.column, reject.raw, reject.reason)
            cells = zip(
                block.rows.to_pylist(), *(block.columns[name].to_pylist() for name in pair), strict=True
            )
            for row, step, at in cells:
                try:
                    here = whole(step), number(at)
                except ValueError as error:
                    rows.reject(row, pair[0], f"{step},{at}", error)
                    continue
                if before is not None:
                    rows.take(row, pair[0], f"{step},{at}", between, before, here)
                before = here
            yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "scalars: the time of a step is the wall time between two logged steps, whatever was done there",
        )


def between(before: tuple[int, float], here: tuple[int, float]) -> tuple[Any, ...]:
    """Returns step, mean time of the steps since `before`, kind and their number; both are step and second.

    Raises:
        ValueError: the step or the time does not grow.
    """
    steps, passed = here[0] - before[0], here[1] - before[1]
    if steps < 1 or not 0 < passed < float("inf"):
        raise ValueError(f"{steps} steps in {passed:g} s: a restart, or two series in one file")
    return here[0], passed / steps, "step" if steps == 1 else "block", steps
