"""Job and node tables of the Philly cluster in the forms in which simulators use them.

Jobs (`timestamp,duration,num_gpus,gpu_time,cluster`): when a job was submitted, how many seconds it ran, on
how many GPUs, and its virtual cluster, which is kept as `user`. Start and end are unknown, only the run time.
Nodes (`time,active,total`): nodes in use each minute; idle nodes go to `availability`. Times bear no zone.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.errors import InputError
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_JOBS = frozenset({"timestamp", "duration", "num_gpus", "gpu_time", "cluster"})
_NODES = frozenset({"time", "active", "total"})


class Philly:
    """Jobs, and nodes in use."""

    name = "philly"
    version = 1
    text_only = True
    tables = ("jobs", "availability")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header is exactly that of one of the two tables."""
        names = csv_blocks.header(head)
        return set(names) in (_JOBS, _NODES) and len(set(names)) == len(names)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each job or minute."""
        names = csv_blocks.header(source.head)
        if set(names) not in (_JOBS, _NODES) or len(set(names)) != len(names):
            raise InputError(f"{source.shown}: not the header of a Philly job or node table")
        make = _jobs if set(names) == _JOBS else _nodes
        yield from csv_blocks.side_by_side(source, lambda block: make(source, block, names, options))

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        each = options.gpus_per_node
        counted = f"{each} GPUs" if each else "one unit of gpus_available (set gpus_per_node)"
        return (
            f"philly: times are {options.timezone}; the files bear no zone",
            f"philly: the node table counts nodes; an idle node is {counted}",
            "philly: jobs.user is the virtual cluster",
        )


def _jobs(source: Source, block: csv_blocks.Block, names: list[str], options: DatasetOptions) -> RowBatch:
    columns = [
        cell_conversion.instant("submit_ts", "timestamp", options.timezone, sample=""),
        cell_conversion.number("duration_s", "duration"),  # s
        cell_conversion.whole("gpus", "num_gpus"),
        cell_conversion.text("user", "cluster"),
    ]
    batch = cell_conversion.Typed("jobs", names, columns)(block)
    numbers = batch.columns["source_row"].cast(pa.string())
    return replace(
        batch,
        columns={**batch.columns, "job_id": pc.binary_join_element_wise(source.path.stem, numbers, "-")},
    )


def _nodes(source: Source, block: csv_blocks.Block, names: list[str], options: DatasetOptions) -> RowBatch:
    columns = [
        cell_conversion.instant("ts", "time", options.timezone, sample=""),
        cell_conversion.whole("gpus_available", "active"),
        cell_conversion.whole("_total", "total"),
    ]
    domain = source.path.stem.removesuffix("_node_sequence")
    batch = cell_conversion.Typed("availability", names, columns, {"domain": domain})(block)
    idle = pc.subtract(batch.columns["_total"], batch.columns["gpus_available"])
    available = pc.multiply(idle, options.gpus_per_node or 1)
    return replace(batch, columns={**batch.columns, "gpus_available": available})
