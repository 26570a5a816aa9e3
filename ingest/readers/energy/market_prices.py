"""CSV of electricity prices by hour: `Datetime (UTC),Datetime (Local),Price (USD/MWh)`, one file a zone.

A row is an hour, which begins at `Datetime (UTC)`; the zone is the beginning of the file's name, as in
`DE-LU_electricity_prices_2024.csv`. Prices can be negative.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath

from ingest.core.errors import InputError
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_TABLE = "electricity_prices"
_TIME, _PRICE = "Datetime (UTC)", "Price (USD/MWh)"
_NAME = re.compile(r"([A-Za-z0-9-]{1,40})_electricity_prices")


class MarketPrices:
    """Electricity prices by hour and zone."""

    name = "market-prices"
    version = 1
    by_name = True
    text_only = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header has a UTC time and a price in USD/MWh."""
        return {_TIME, _PRICE} <= set(csv_blocks.header(head))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each hour."""
        names = csv_blocks.header(source.head)
        if len(set(names)) != len(names) or not {_TIME, _PRICE} <= set(names):
            raise InputError(f"{source.shown}: not the header of hourly prices in USD/MWh")
        named = _NAME.match(source.path.name)
        zone = named[1] if named else source.path.name.split(".")[0]
        columns = [
            cell_conversion.instant("ts", _TIME, sample="2024-01-01 00:00:00+00:00"),
            cell_conversion.number("usd_per_mwh", _PRICE),
        ]
        typed = cell_conversion.Typed(_TABLE, names, columns, {"zone": zone})
        yield from csv_blocks.side_by_side(source, typed)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "market-prices: a price holds from its time for an hour; the zone is the file's name up to "
            "`_electricity_prices`",
        )
