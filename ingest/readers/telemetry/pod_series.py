"""Series of pods with anonymised times: `timestamp_anon,value,container_ip` in any order (Alibaba).

The file's name says what is measured: `*duty_cycle*` per cent, `*memory_used_bytes*` bytes (means over a
minute, hence with fractions: rounded). Times are seconds
since 1970 on a scaled clock: their step is 57 s for a true minute. They are kept as they stand.
"""

from collections.abc import Iterator
from pathlib import PurePath

import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.errors import InputError
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.cell_conversion import ColumnMapping
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_TABLE = "gpu_samples"
_HEADER = {"timestamp_anon", "value", "container_ip"}


def _byte(cell: str) -> int:
    if not abs(float(cell)) < 2**63:
        raise ValueError(cell)
    return round(float(cell))


def _bytes(column: pa.Array) -> pa.Array:
    return pc.round(column.cast(pa.float64())).cast(pa.int64())


_MEASURES = {
    "duty_cycle": cell_conversion.number("util", "value", 0.01),  # per cent
    "memory_used_bytes": ColumnMapping(
        "mem_used_bytes", "value", pa.float64(), _bytes, _byte, pa.int64(), "not a number"
    ),
}


class PodSeries:
    """GPU duty cycle and memory of pods."""

    name = "pod-series"
    version = 1
    text_only = True
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header has the three columns; the name says what is measured."""
        return set(csv_blocks.header(head)) == _HEADER and _measure(path.name) is not None

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each sample."""
        names, measure = csv_blocks.header(source.head), _measure(source.path.name)
        if measure is None or set(names) != _HEADER or len(names) != len(_HEADER):
            raise InputError(
                f"{source.shown}: not called *duty_cycle* or *memory_used_bytes*, or another header"
            )
        columns = [
            cell_conversion.epoch("ts", "timestamp_anon"),
            cell_conversion.text("host", "container_ip"),
            measure,
        ]
        yield from csv_blocks.side_by_side(source, cell_conversion.Typed(_TABLE, names, columns))

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "pod-series: times are kept on the files' anonymised clock, 57 s for a true minute (a day spans "
            "22.8 h); the host is the pod",
        )


def _measure(name: str) -> ColumnMapping | None:
    return next((column for word, column in _MEASURES.items() if word in name), None)
