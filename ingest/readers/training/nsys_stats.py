"""Summaries of Nsight Systems: `nsys stats --format csv` of kernels, copies and NVTX ranges.

`Time (%),Total Time (ns),Instances,Avg (ns),...,Name` (a copy calls the last one Operation, a range
Range). A row is one kernel, copy or range: its mean time. `source_row` is the line behind the header.
Definition: NVIDIA, Nsight Systems user guide, statistical analysis.
"""

from collections.abc import Iterator
from pathlib import PurePath

from ingest.core.errors import InputError
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_NEEDED = ("Time (%)", "Total Time (ns)", "Avg (ns)")
_NAMES = ("Name", "Operation", "Range")


class NsysStats:
    """Mean times of operations."""

    name = "nsys-stats"
    version = 1
    by_name = True
    text_only = True
    tables = ("op_times",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True for the header of a summary with times in ns."""
        names = csv_blocks.header(head)
        return set(names) >= set(_NEEDED) and any(name in names for name in _NAMES)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each operation.

        Raises:
            InputError: it is no such summary.
        """
        names = csv_blocks.header(source.head)
        named = next((name for name in _NAMES if name in names), None)
        if named is None or not set(names) >= set(_NEEDED) or len(set(names)) != len(names):
            raise InputError(f"{source.shown}: not the header of a summary of nsys stats")
        columns = (
            cell_conversion.text("op", named),
            cell_conversion.number("time_s", "Avg (ns)", 1e-9),
        )
        typed = cell_conversion.Typed("op_times", names, columns, {"job": source.path.stem})
        yield from csv_blocks.side_by_side(source, typed)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("nsys-stats: the time of an operation is the mean over its instances",)
