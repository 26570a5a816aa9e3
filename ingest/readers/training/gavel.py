"""Throughputs of Gavel: `{gpu: {"('model', gpus)": {"null": rate, "('other', gpus)": [rate, its]}}}`.

Rates are iterations per second of a job alone (`null`) or beside another one on the same GPUs; a row is the
time of one iteration. `_unconsolidated` after the GPU means that its GPUs lie on different nodes. A rate of
0 says that the pair did not run, and is rejected.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, from_document
from ingest.parsing.source import BOM, Source

_TABLE = "step_times"
_START = re.compile(rb"\{\s*\"[a-z0-9_]{1,40}\"\s*:\s*\{\s*\"\('[^']{1,200}', \d{1,4}\)\"\s*:\s*\{")
_JOB = re.compile(r"\('(.{1,200})', (\d{1,4})\)")
_SPREAD = "_unconsolidated"


class Gavel:
    """Iteration times of small DNNs, alone and in pairs."""

    name = "gavel"
    version = 1
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the document begins with a GPU and a job as a printed tuple."""
        return bool(_START.match(head.removeprefix(BOM).lstrip()))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each job and neighbour."""
        return from_document(source, _TABLE, lambda document: [_batch(document)])

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("gavel: worker names the job that shares the GPUs; `spread` means GPUs on different nodes",)


def _batch(document: dict[str, Any]) -> RowBatch:
    rows = RowBuilder(_TABLE, ("job", "gpus", "gpu_model", "kind", "worker", "time_s"))
    for gpu, jobs in document.items():
        for job, neighbours in jobs.items():
            for other, rates in neighbours.items():
                rows.take(len(rows) + 1, f"{gpu} {job} {other}", rates, _row, gpu, job, other, rates)
    return rows.batch()


def _row(gpu: str, job: str, other: str, rates: Any) -> tuple[Any, ...]:
    found, beside = _JOB.fullmatch(job), None if other == "null" else _JOB.fullmatch(other)
    if found is None or (beside is None and other != "null"):
        raise ValueError("a job is not written as ('model', gpus)")
    rate = amount(rates if beside is None else rates[0])
    if rate == 0:
        raise ValueError("0 iterations per second: it did not run")
    kind = ("shared" if beside else "alone") + (" spread" if gpu.endswith(_SPREAD) else "")
    neighbour = f"{beside[1]} on {beside[2]}" if beside else None
    return found[1], int(found[2]), gpu.removesuffix(_SPREAD), kind, neighbour, 1 / rate
