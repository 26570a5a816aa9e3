"""Pod tables of Alibaba's openb cluster: `name,...,num_gpu,gpu_milli,...`, times in seconds from a start.

A row is a pod. A pod with `gpu_milli` below 1000 shares its one GPU and counts as one. Pods that were never
scheduled have no start.
"""

from collections.abc import Iterator
from pathlib import PurePath

from ingest.core.errors import InputError
from ingest.core.units import to_ns
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_NEEDED = {"name", "num_gpu", "gpu_milli", "pod_phase", "creation_time", "deletion_time", "scheduled_time"}


class Openb:
    """Pods of a shared GPU cluster."""

    name = "openb"
    version = 1
    text_only = True
    tables = ("jobs",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header is that of a pod table with times."""
        return set(csv_blocks.header(head)) >= _NEEDED

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each pod."""
        names = csv_blocks.header(source.head)
        if len(set(names)) != len(names) or not set(names) >= _NEEDED:
            raise InputError(f"{source.shown}: not the header of a pod table with times")
        start_ns = to_ns(options.start_or_default().timestamp())
        columns = [
            cell_conversion.text("job_id", "name"),
            cell_conversion.epoch("submit_ts", "creation_time", start_ns=start_ns),
            cell_conversion.epoch("start_ts", "scheduled_time", start_ns=start_ns),
            cell_conversion.epoch("end_ts", "deletion_time", start_ns=start_ns),
            cell_conversion.whole("gpus", "num_gpu"),
            cell_conversion.text("status", "pod_phase"),
        ]
        columns += [cell_conversion.text("priority", "qos")] if "qos" in names else []
        yield from csv_blocks.side_by_side(source, cell_conversion.Typed("jobs", names, columns))

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            f"openb: seconds are taken to count from {options.start_or_default().isoformat()}",
            "openb: a pod that shares its GPU (gpu_milli below 1000) counts one; priority is the qos class",
        )
