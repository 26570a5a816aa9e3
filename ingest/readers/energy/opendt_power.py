"""Power of a data centre as OpenDT ships it: `consumption.parquet` with `host`, `power_draw`, `timestamp`.

A row is the power of all hosts together, watts; `timestamp` counts milliseconds from the start of the
recording, which the file does not state. `host` is the names of all hosts glued together.
"""

from collections.abc import Iterator
from pathlib import PurePath

from ingest.core.units import to_ns
from ingest.parsing import cell_conversion
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source
from ingest.readers.energy.opendt_tables import PARQUET, typed_rows

_TABLE = "host_samples"
SITE = "site"
"""Host of rows that hold the power of all hosts."""


class OpendtPower:
    """Measured power of a data centre."""

    name = "opendt-power"
    version = 1
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if it is a Parquet file called `consumption.parquet`; its columns stand at its end."""
        return path.name == "consumption.parquet" and head.startswith(PARQUET)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each sample."""
        start_ns = to_ns(options.start_or_default().timestamp())
        columns = [
            cell_conversion.epoch("ts", "timestamp", unit_s=1e-3, start_ns=start_ns),
            cell_conversion.number("power_w", "power_draw"),
        ]
        yield from typed_rows(source, options, _TABLE, columns, {"host": SITE})

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            f"opendt-power: milliseconds are taken to count from {options.start_or_default().isoformat()}",
            f"opendt-power: power of all hosts together, stored as host `{SITE}`",
        )
