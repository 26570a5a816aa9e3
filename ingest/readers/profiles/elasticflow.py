"""Throughputs of ElasticFlow: iterations per second by global batch size, on 1 to 64 GPUs.

`global_batch_size,1,2,4,...` in `<GPU>/<model>.csv`. An empty cell, `nan` or 0 was not measured or does not
fit, and is rejected. The table of the A100 was measured in nodes of 8, that of the T4 derived from profiles
of Pollux (Gu et al., ASPLOS 2023).
"""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.errors import InputError
from ingest.parsing import csv_blocks, text_lines
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, folder
from ingest.parsing.source import Source

_TABLE = "step_times"
_FIRST = "global_batch_size"


class ElasticFlow:
    """Iteration times of a model by batch size and GPUs."""

    name = "elasticflow"
    version = 1
    text_only = True
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header is a global batch size, then numbers of GPUs."""
        return _fits(csv_blocks.header(head))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each cell."""
        names = csv_blocks.header(source.head)
        if not _fits(names):
            raise InputError(f"{source.shown}: not throughputs by global batch size and GPUs")
        gpu_model = options.gpu_model or folder(source, options)
        rows = RowBuilder(_TABLE, ("job", "gpus", "time_s", "kind"), gpu_model=gpu_model)
        for row, (_, content) in enumerate(text_lines.numbered(source)):
            cells = content.split(",")
            if not row:
                continue
            for at, gpus in enumerate(names[1:], 1):
                rows.take(row, gpus, content, _row, source.path.stem, cells, at, int(gpus))
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("elasticflow: the model is the name of the file, the GPU gpu_model or its folder",)


def _fits(names: list[str]) -> bool:
    return names[:1] == [_FIRST] and len(names) > 1 and all(name.isdigit() for name in names[1:])


def _row(model: str, cells: list[str], at: int, gpus: int) -> tuple[Any, ...]:
    cell = cells[at].strip() if at < len(cells) else ""
    if cell in ("", "nan"):
        raise ValueError("not measured")
    rate = amount(cell)
    if rate == 0:
        raise ValueError("0 iterations per second: it did not run")
    return f"{model} (batch size {whole(cells[0])})", gpus, 1 / rate, "alone"
