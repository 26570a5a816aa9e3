"""Tasks of a data centre as OpenDT ships them: `tasks.parquet` with submission, duration and CPU cores.

A row is a task, which starts when it is submitted. The cores become `gpus`, as processors do in other logs.
"""

from collections.abc import Iterator
from pathlib import PurePath

from ingest.parsing import cell_conversion
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source
from ingest.readers.energy.opendt_tables import PARQUET, typed_rows

_TABLE = "jobs"


class OpendtTasks:
    """Tasks of a data centre."""

    name = "opendt-tasks"
    version = 1
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if it is a Parquet file called `tasks.parquet`; its columns stand at its end."""
        return path.name == "tasks.parquet" and head.startswith(PARQUET)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each task."""
        columns = [
            cell_conversion.text("job_id", "id"),
            cell_conversion.instant("submit_ts", "submission_time", sample="2022-01-01 00:00:00"),
            cell_conversion.number("duration_s", "duration", 1e-3),
            cell_conversion.whole("gpus", "cpu_count"),
        ]
        yield from typed_rows(source, options, _TABLE, columns)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("opendt-tasks: times are UTC; a CPU core is taken for a GPU",)
