"""Carbon intensity as OpenDT ships it: `carbon.parquet` with `timestamp` (UTC) and `carbon_intensity`, g/kWh.

The file names no zone: it is the name of the data set.
"""

from collections.abc import Iterator
from pathlib import PurePath

from ingest.parsing import cell_conversion
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source
from ingest.readers.energy.opendt_tables import PARQUET, typed_rows

_TABLE = "carbon_intensity"


class OpendtCarbon:
    """Carbon intensity of the grid of one data centre."""

    name = "opendt-carbon"
    version = 1
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if it is a Parquet file called `carbon.parquet`; its columns stand at its end."""
        return path.name == "carbon.parquet" and head.startswith(PARQUET)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each sample."""
        columns = [
            cell_conversion.instant("ts", "timestamp", sample="2022-01-01 00:00:00"),
            cell_conversion.number("direct_g_per_kwh", "carbon_intensity"),
        ]
        yield from typed_rows(source, options, _TABLE, columns, {"zone": options.name})

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            f"opendt-carbon: times are UTC; the zone is the data set, {options.name}; the intensity is taken "
            "for the direct one",
        )
