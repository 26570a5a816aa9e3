"""Electricity Maps' hourly CSV: carbon intensity of a grid zone, direct and over the life cycle.

A row is an hour, which begins at `Datetime (UTC)`; the zone is its `Zone Id`. Rows without a direct intensity
are rejected by the rules of the table.
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from ingest.core.errors import InputError
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_TABLE = "carbon_intensity"
_TIME, _ZONE = "datetime (utc)", "zone id"
_DIRECT, _LIFE_CYCLE = "carbon intensity gco₂eq/kwh (direct)", "carbon intensity gco₂eq/kwh (lca)"
_OTHER_LIFE_CYCLE = "carbon intensity gco₂eq/kwh (life cycle)"
"""How later exports call it."""


class ElectricityMaps:
    """Carbon intensity by hour and zone."""

    name = "electricity-maps"
    version = 1
    text_only = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header has a UTC time, a zone and the direct intensity."""
        return {_TIME, _ZONE, _DIRECT} <= _lower(csv_blocks.header(head)).keys()

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each hour."""
        names = csv_blocks.header(source.head)
        called = _lower(names)
        if len(called) != len(names) or not {_TIME, _ZONE, _DIRECT} <= called.keys():
            raise InputError(f"{source.shown}: not the header of Electricity Maps' hourly export")
        columns = [
            cell_conversion.instant("ts", called[_TIME], sample="2024-01-01 00:00:00"),
            cell_conversion.text("zone", called[_ZONE]),
            cell_conversion.number("direct_g_per_kwh", called[_DIRECT]),
        ]
        for name in (_LIFE_CYCLE, _OTHER_LIFE_CYCLE):
            if name in called:
                columns.append(cell_conversion.number("life_cycle_g_per_kwh", called[name]))
                break
        yield from csv_blocks.side_by_side(source, cell_conversion.Typed(_TABLE, names, columns))

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("electricity-maps: an intensity holds from its time for an hour; grams of CO2 equivalent",)


def _lower(names: Sequence[str]) -> dict[str, str]:
    """Names of the header by their lower case."""
    return {name.lower(): name for name in names}
