"""Profiles of Lucid: jobs alone on a GPU (`single_data.csv`) and pairs on one (`colocate_info.csv`).

The speed of a pair is relative to the job alone; that of a job alone is in steps or samples per second as the
authors count, so that both are kept as time without a unit (`time_norm`). Memory is that of the GPU, in MiB,
of a pair that of both (Hu et al., ASPLOS 2023).
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from ingest.core.errors import InputError
from ingest.core.units import MIB
from ingest.parsing import csv_blocks, text_lines
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, text
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import Source

_TABLE = "step_times"
_COLUMNS = ("job", "worker", "gpus", "time_norm", "kind", "peak_mem_bytes")
_ALONE = ["model", "dataset", "batchsize", "amp", "speed", "gpu_util", "gmem_util", "gmem", "label"]
_OF_ONE = ("model", "dataset", "gpu_num", "batchsize", "amp", "speed")
_PAIR = ["", *(f"{name}{k}" for k in (1, 2) for name in _OF_ONE), "gpu_util", "gmem_util", "gmem"]


class Lucid:
    """Relative speeds of jobs that share a GPU."""

    name = "lucid"
    version = 1
    text_only = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header is exactly that of one of the two tables."""
        return csv_blocks.header(head) in (_ALONE, _PAIR)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each job alone, two for each pair."""
        names = csv_blocks.header(source.head)
        if names not in (_ALONE, _PAIR):
            raise InputError(f"{source.shown}: not the header of a table of Lucid")
        rows = RowBuilder(_TABLE, _COLUMNS)
        for row, (_, content) in enumerate(text_lines.numbered(source)):
            if not row:
                continue
            for k in ("1", "2") if names == _PAIR else ("",):
                rows.take(row, "line", content, _row, names, content.split(","), k)
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("lucid: times have no unit; worker names the job that shares the GPU",)


def _row(names: list[str], cells: list[str], k: str) -> tuple[Any, ...]:
    if len(cells) != len(names):
        raise ValueError(f"expected {len(names)} cells, found {len(cells)}")
    held = dict(zip(names, cells, strict=True))
    speed = amount(held[f"speed{k}"])
    if speed == 0:
        raise ValueError("a speed of 0: it did not run")
    other = {"1": "2", "2": "1"}.get(k)
    beside = None if other is None else _said(held, other)
    kind = "shared" if beside else "alone"
    return _said(held, k), beside, 1, 1 / speed, kind, round(amount(held["gmem"]) * MIB)


def _said(held: Mapping[str, str], k: str) -> str:
    """A job in words."""
    precision = ", mixed precision" if held[f"amp{k}"] == "1" else ""
    return (
        f"{text(held[f'model{k}'])} on {held[f'dataset{k}']} (batch size {held[f'batchsize{k}']}{precision})"
    )
