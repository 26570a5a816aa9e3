"""JSON of traffic prices: `{zone: {zone: USD per GB}}`, every pair of some zones.

A row is a pair of two zones; traffic inside a zone is no link. There is no date in the file.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, text
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, from_document
from ingest.parsing.source import BOM, Source

_TABLE = "prices"
_START = re.compile(rb'\{\s*"[a-z0-9:-]{1,60}"\s*:\s*\{\s*"[a-z0-9:-]{1,60}"\s*:\s*[0-9.e-]+\s*[,}]')


class TrafficPrices:
    """Prices of traffic between zones."""

    name = "traffic-prices"
    version = 1
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """True if the name speaks of cost or price; the document begins with a pair of zones and a number."""
        named = path.suffix == ".json" and re.search(r"cost|price", path.stem.lower())
        return bool(named and _START.match(head.removeprefix(BOM).lstrip()))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each pair."""
        return from_document(source, _TABLE, lambda document: [_batch(document)])

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("traffic-prices: prices are US dollars for a decimal gigabyte",)


def _batch(document: dict[str, Any]) -> RowBatch:
    rows = RowBuilder(_TABLE, ("src", "dst", "usd_per_gb"))
    for src, prices in document.items():
        for dst, price in prices.items():
            if src != dst:
                rows.take(len(rows) + 1, f"{src} to {dst}", price, _price, src, dst, price)
    return rows.batch()


def _price(src: str, dst: str, price: Any) -> tuple[str, str, float]:
    return text(src), text(dst), amount(price)
