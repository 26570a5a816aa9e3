"""Series of pods with anonymised times: `timestamp_anon,value,container_ip` in any order (Alibaba).

The file's name says what is measured: `*duty_cycle*` per cent, `*memory_used_bytes*` bytes (means over a
minute, hence with fractions: rounded). Times are seconds
since 1970 on a scaled clock: their step is 57 s for a true minute. They are kept as they stand.
"""

from collections.abc import Iterator
from pathlib import PurePath

import pyarrow as pa
import pyarrow.compute as pc

from ingest.parsing import cell_conversion as cells, csv_blocks as csvfile
from ingest.parsing.cell_conversion import Column
from ingest.parsing.dataset import DatasetOptions
from ingest.core.errors import InputError
from ingest.parsing.reader import Batch
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
    "duty_cycle": cells.number("util", "value", 0.01),  # per cent
    "memory_used_bytes": Column(
        "mem_used_bytes", "value", pa.float64(), _bytes, _byte, pa.int64(), "not a number"
    ),
}


class PodSeries:
    """GPU duty cycle and memory of pods."""

    name = "pod-series"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """The header has the three columns; the name says what is measured."""
        return set(csvfile.header(head)) == _HEADER and _measure(path.name) is not None

    def read(self, source: Source, options: DatasetOptions) -> Iterator[Batch]:
        """A row for each sample."""
        names, measure = csvfile.header(source.head), _measure(source.path.name)
        if measure is None or set(names) != _HEADER or len(names) != len(_HEADER):
            raise InputError(
                f"{source.shown}: not called *duty_cycle* or *memory_used_bytes*, or another header"
            )
        columns = [cells.epoch("ts", "timestamp_anon"), cells.text("host", "container_ip"), measure]
        yield from csvfile.side_by_side(source, cells.Typed(_TABLE, names, columns))

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """The clock."""
        return (
            "pod-series: times are kept on the files' anonymised clock, 57 s for a true minute (a day spans "
            "22.8 h); the host is the pod",
        )


def _measure(name: str) -> Column | None:
    return next((column for word, column in _MEASURES.items() if word in name), None)
