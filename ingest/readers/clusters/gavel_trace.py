"""Job lists of Gavel: ten cells a line between tabs, no header.

Job type (as in Gavel's throughputs), command, folder, name of the steps argument, whether it needs the data
folder, total steps, GPUs, priority weight, service level (-1: none), arrival in seconds. No run time: it is
steps over the throughput on the GPUs that the job gets (Narayanan et al., OSDI 2020).
"""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.units import to_ns
from ingest.parsing import text_lines
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, text, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import Source

_TABLE = "jobs"
_CELLS = 10
_COLUMNS = ("job_id", "submit_ts", "gpus", "model", "priority", "steps")


class GavelTrace:
    """Jobs of Gavel's experiments."""

    name = "gavel-trace"
    version = 1
    text_only = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True for a `.trace` whose first line has ten cells, steps and GPUs in their places."""
        cells = head.partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r").split("\t")
        return path.suffix == ".trace" and len(cells) == _CELLS and cells[5].isdigit() and cells[6].isdigit()

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each job."""
        rows = RowBuilder(_TABLE, _COLUMNS)
        start_ns = to_ns(options.start_or_default().timestamp())
        for line, content in text_lines.numbered(source):
            name = f"{source.path.stem}-{line}"
            rows.take(line, "line", content, _job, name, content.split("\t"), start_ns)
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            f"gavel-trace: seconds count from {options.start_or_default().isoformat()}",
            "gavel-trace: jobs are named by file and line; priority is the weight",
        )


def _job(name: str, cells: list[str], start_ns: int) -> tuple[Any, ...]:
    if len(cells) != _CELLS:
        raise ValueError(f"expected {_CELLS} cells, found {len(cells)}")
    arrival = start_ns + to_ns(amount(cells[9]))
    return name, arrival, whole(cells[6]), text(cells[0]), text(cells[7]), whole(cells[5])
