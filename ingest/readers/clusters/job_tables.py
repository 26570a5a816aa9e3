"""Public job tables of GPU clusters: Helios of SenseTime, and the PAI task table of Alibaba.

Helios (`cluster_log.csv`): `job_id,user,gpu_num,...,state,submit_time,start_time,end_time,duration,...`;
times without a zone are in `timezone`, `duration` in seconds. PAI (cluster-trace-gpu-v2020,
`pai_task_table.csv`, no header): job_name, task_name, inst_num, status, start_time, end_time, plan_cpu,
plan_mem, plan_gpu (per cent of a GPU), gpu_type; seconds of an arbitrary clock, laid at the start of the
data set. A task is a job here, its start its submission; GPUs are rounded up. Definitions: Q. Hu et al.,
SC 2021; Q. Weng et al., NSDI 2022.
"""

import math
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.errors import InputError
from ingest.core.units import to_ns
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, text
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import Source
from ingest.parsing.text_lines import numbered

_HELIOS = {"job_id", "user", "gpu_num", "state", "submit_time", "start_time", "end_time", "duration"}
_PAI = "pai_task_table.csv"
_PAI_CELLS = 10
_COLUMNS = ("job_id", "submit_ts", "start_ts", "end_ts", "gpus", "status")
_FLUSH = 1 << 16


class JobTables:
    """Helios and PAI."""

    name = "job-tables"
    version = 1
    text_only = True
    tables = ("jobs",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True for the header of Helios, or the name and the cells of PAI."""
        names = csv_blocks.header(head)
        return set(names) >= _HELIOS or (path.name == _PAI and len(names) == _PAI_CELLS)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each job, or each task.

        Raises:
            InputError: it is neither table.
        """
        names = csv_blocks.header(source.head)
        if set(names) >= _HELIOS and len(set(names)) == len(names):
            yield from csv_blocks.side_by_side(source, cell_conversion.Typed("jobs", names, _helios(options)))
        elif source.path.name == _PAI:
            yield from _pai(source, options)
        else:
            raise InputError(f"{source.shown}: not the header of Helios' job table")

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            f"job-tables: times of Helios are {options.timezone}",
            "job-tables: seconds of PAI count from an instant that is not published, laid at "
            f"{options.start_or_default().isoformat()}; GPUs of a task are inst_num x plan_gpu, rounded up",
        )


def _helios(options: DatasetOptions) -> list[cell_conversion.ColumnMapping]:
    times = {"submit_ts": "submit_time", "start_ts": "start_time", "end_ts": "end_time"}
    return [
        cell_conversion.text("job_id", "job_id"),
        *(cell_conversion.instant(to, name, options.timezone, sample="") for to, name in times.items()),
        cell_conversion.whole("gpus", "gpu_num"),
        cell_conversion.text("user", "user"),
        cell_conversion.text("status", "state"),
        cell_conversion.number("duration_s", "duration"),  # s
    ]


def _pai(source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
    start_ns = to_ns(options.start_or_default().timestamp())
    rows = RowBuilder("jobs", _COLUMNS)
    for line, content in numbered(source):
        rows.take(line, "line", content, _task, content.split(","), start_ns)
        if len(rows) >= _FLUSH:
            yield rows.batch()
    yield rows.batch()


def _task(cells: list[str], start_ns: int) -> tuple[Any, ...]:
    if len(cells) != _PAI_CELLS:
        raise ValueError(f"expected {_PAI_CELLS} fields, found {len(cells)}")
    began, ended = (None if not cell else start_ns + to_ns(amount(cell)) for cell in cells[4:6])
    per_cent = amount(cells[8]) if cells[8] else 0.0
    gpus = math.ceil(amount(cells[2]) * per_cent / 100)
    return f"{text(cells[0])}/{text(cells[1])}", began, began, ended, gpus, cells[3] or None
