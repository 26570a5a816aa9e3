"""JSON of traffic prices: `{zone: {zone: USD per GB}}`, every pair of some zones.

A row is a pair of two zones; traffic inside a zone is no link. There is no date in the file.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import Batch
from ingest.parsing.row_builder import Rows, from_document
from ingest.parsing.source import BOM, Source
from ingest.parsing.json_values import amount, text

_TABLE = "prices"
_START = re.compile(rb'\{\s*"[a-z0-9:-]{1,60}"\s*:\s*\{\s*"[a-z0-9:-]{1,60}"\s*:\s*[0-9.e-]+\s*[,}]')


class TrafficPrices:
    """What traffic between zones costs."""

    name = "traffic-prices"
    version = 1
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """The name speaks of cost or price; the document begins with a pair of zones and a number."""
        named = path.suffix == ".json" and re.search(r"cost|price", path.stem.lower())
        return bool(named and _START.match(head.removeprefix(BOM).lstrip()))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[Batch]:
        """A row for each pair."""
        return from_document(source, _TABLE, lambda document: [_batch(document)])

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """The unit."""
        return ("traffic-prices: prices are US dollars for a decimal gigabyte",)


def _batch(document: dict[str, Any]) -> Batch:
    rows = Rows(_TABLE, ("src", "dst", "usd_per_gb"))
    for src, prices in document.items():
        for dst, price in prices.items():
            if src != dst:
                rows.take(len(rows) + 1, f"{src} to {dst}", price, _price, src, dst, price)
    return rows.batch()


def _price(src: str, dst: str, price: Any) -> tuple[str, str, float]:
    return text(src), text(dst), amount(price)
