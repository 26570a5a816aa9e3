"""Jobs of a file in any format that the readers know, or of the lake, for the simulator of queues.

A log in the Standard Workload Format keeps all its fields (`swf_log.py`). The jobs of every other format
come as rows of the table `jobs`, which are laid into the same fields; what a file does not say is unknown.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from ingest.core.errors import InputError, NotFoundError, UsageError
from ingest.lake import validate
from ingest.parsing import dataset
from ingest.parsing.dataset import FILE_NAME, DatasetOptions
from ingest.parsing.reader import Reader, Reject, RowBatch
from ingest.parsing.source import Source
from ingest.readers import registry
from ingest.readers.clusters import job_rows, profiled_runs, swf_log
from ingest.readers.clusters.profiled_runs import RunProfiles
from ingest.readers.clusters.swf_log import SwfLog

_TABLE = "jobs"
_SQL = """
    SELECT source_row, job_id, epoch_ns(submit_ts) AS submit_ts, epoch_ns(start_ts) AS start_ts,
    epoch_ns(end_ts) AS end_ts, gpus, "user", priority, duration_s, gpus_requested, estimate_s,
    epoch_ns(deadline_ts) AS deadline_ts FROM jobs WHERE dataset = $dataset AND source_file = $file
    ORDER BY source_row
"""


@dataclass(frozen=True, slots=True)
class LakeJobs:
    """Jobs of the lake in `store`: NAME of a data set, or NAME/FILE of one with several files."""

    store: Path
    name: str


Filled = Callable[[pa.Table], pa.Table]
"""Returns rows of the table `jobs` with run times where they had none."""


def read(
    source: Path | LakeJobs, profiles: RunProfiles | None = None, fill: Filled | None = None
) -> SwfLog:  # fmt: skip
    """Returns the jobs of a file, compressed or not, or of the lake; with `profiles`, or `fill`, jobs of a
    file that have no run time get one.

    Raises:
        InputError: the file cannot be read, no reader knows it, or it holds no job.
        NotFoundError: the lake has no jobs of that data set. UsageError: it has those of several files.
    """
    if isinstance(source, LakeJobs):
        return _of_lake(source)
    opened = swf_log.opened(source)
    options = _options(source)
    reader, why = registry.find(opened.path, opened.head, options)
    if reader is None and swf_log.looks_like(opened):
        return swf_log.of_source(opened)
    if reader is None:
        raise InputError(f"{source}: {why}")
    if reader.name == "swf":
        return swf_log.of_source(opened)
    if _TABLE not in reader.tables:
        raise InputError(
            f"{source}: holds {' and '.join(reader.tables)} ({reader.name}), no jobs; name a job log"
        )
    if profiles is not None:
        fill = partial(profiled_runs.filled, path=source, profiles=profiles)
    return _of_reader(opened, reader, options, fill)


def _options(path: Path) -> DatasetOptions:
    """What is stated beside the file, if anything is."""
    stated = (path.parent / FILE_NAME).is_file()
    return dataset.options(path.parent) if stated else DatasetOptions(name="log")


def _of_reader(source: Source, reader: Reader, options: DatasetOptions, fill: Filled | None) -> SwfLog:
    """Returns the jobs that a reader of the lake finds in a file."""
    tables, rejects, rows_in = [], list[Reject](), 0
    for batch in reader.read(source, options):
        rows_in += batch.rows_in
        rejects += batch.rejects
        if batch.table == _TABLE:
            rows, faulty = _sound(batch)
            tables.append(job_rows.plain(rows if fill is None else fill(rows)))
            rejects += faulty
    if not tables or not sum(len(table) for table in tables):
        first = f"; row {rejects[0].row}: {rejects[0].reason}" if rejects else ""
        raise InputError(f"{source.shown}: no job among {rows_in:,} rows ({reader.name}){first}")
    return job_rows.log_of(source.path.name, pa.concat_tables(tables), rejects, rows_in)


def _sound(batch: RowBatch) -> tuple[pa.Table, list[Reject]]:
    """Rows without faults under the rules of the lake, and the others as rejects."""
    rows = validate.canonical(_TABLE, batch.columns)
    found: dict[int, Reject] = {}
    for column, mask, reason in validate.faults(_TABLE, rows):
        for at in _places(mask):
            value = rows.column(column)[at].as_py()
            row = rows.column("source_row")[at].as_py()
            found.setdefault(at, Reject(row, column, "" if value is None else str(value)[:80], reason))
    kept = pa.array([at not in found for at in range(len(rows))], pa.bool_())
    return rows.filter(kept), [found[at] for at in sorted(found)]


def _places(mask: pa.ChunkedArray) -> Iterator[int]:
    return (at for at, wrong in enumerate(mask.to_pylist()) if wrong)


def _of_lake(source: LakeJobs) -> SwfLog:
    """Returns the jobs that one file of a data set brought into the lake."""
    from ingest.lake import duckdb_views  # brings duckdb, needed here only

    with duckdb_views.connect(source.store) as connection:
        name, _, file = source.name.partition("/")
        found = connection.execute(
            "SELECT source_file, count(*) FROM jobs WHERE dataset = ? GROUP BY ALL ORDER BY ALL", [name]
        ).fetchall()
        files = [one for one, _ in found if not file or one == file]
        if not files:
            known = f"; its files with jobs: {_some([one for one, _ in found])}" if found else ""
            raise NotFoundError(
                f"the lake in {source.store} has no jobs of {source.name!r}{known}: "
                "run `twin ingest` on its folder, or look at `twin traces`"
            )
        if len(files) > 1:
            raise UsageError(
                f"{name} has the jobs of {len(files)} files, each a queue of its own: take {name}/FILE, "
                f"FILE one of {_some(files)}"
            )
        rows = connection.sql(_SQL, params={"dataset": name, "file": files[0]}).to_arrow_table()
    return job_rows.log_of(f"{name}/{files[0]}" if file else name, rows, [], len(rows))


def _some(files: list[str]) -> str:
    return ", ".join(files[:5]) + (", ..." if len(files) > 5 else "")
