"""Whole iterations as Aceso reports them: `perf_model_(time|mem)_*.csv`, models in columns.

The line `actual` holds measured seconds or MiB of each model: its cells are the rows. The lines `predict` are
the authors' model, not measurements, and are no rows.
"""

from collections.abc import Iterator
from pathlib import PurePath

from ingest.core.errors import InputError
from ingest.core.units import MIB
from ingest.parsing import text_lines
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import BOM, Source

_TABLE = "step_times"


class AcesoResults:
    """Measured iterations and memory."""

    name = "aceso-results"
    version = 1
    text_only = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the name says time or memory; the second line is `actual`."""
        if not path.name.startswith(("perf_model_time", "perf_model_mem")):
            return False
        lines = head.removeprefix(BOM).split(b"\n")
        return lines[0].startswith(b"size,") and any(x.startswith(b"actual,") for x in lines[1:])

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each model."""
        lines = [(row, [c.strip() for c in line.split(",")]) for row, line in text_lines.numbered(source)]
        models = lines[0][1][1:] if lines else []
        memory = "_mem" in source.path.name
        measure = "peak_mem_bytes" if memory else "time_s"
        rows = RowBuilder(_TABLE, ("job", measure), kind="step", gpu_model=options.gpu_model)
        for row, cells in lines[1:]:
            if cells[0] != "actual":
                continue
            if len(cells) != len(models) + 1:
                raise InputError(f"{source.shown}:{row}: {len(cells) - 1} values for {len(models)} models")
            for model, cell in zip(models, cells[1:], strict=True):
                rows.take(len(rows) + 1, "actual", cell, _result, model, cell, memory)
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("aceso-results: actual times are seconds of an iteration, actual memory is MiB",)


def _result(model: str, cell: str, memory: bool) -> tuple[str, float | int]:
    return f"gpt_{model}", round(amount(cell) * MIB) if memory else amount(cell)
