"""CSV of the inter-cloud throughput test of DoiT: one iperf2 run and five pings for a pair of regions.

`bitrate_Bps` is no rate: the script that wrote it took the next-to-last field of iperf2's `-y C` line, which
is the bytes moved in a run of 10 s. `avgrtt` is ms. Regions become `cloud:region` in lower case. The file of
places beside it gives latitude and longitude of each region.
"""

from collections.abc import Iterator
from pathlib import PurePath

import pyarrow.compute as pc

from ingest.core.errors import InputError
from ingest.core.units import BITS_PER_BYTE, MS
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.csv_blocks import Texts
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

RUN_S = 10.0
"""Length of an iperf2 run that nobody set."""
_RESULTS = frozenset({"timestamp", "from_cloud", "from_region", "to_cloud", "to_region", "bitrate_Bps"})
_PLACES = frozenset({"cloud", "region", "latitude", "longitude"})


class Intercloud:
    """Results and places of the inter-cloud throughput test."""

    name = "intercloud"
    version = 1
    text_only = True
    tables = ("link_samples", "places")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header names clouds and regions, and bytes of a run or a place on Earth."""
        names = csv_blocks.header(head)
        return len(set(names)) == len(names) and (set(names) >= _RESULTS or set(names) >= _PLACES)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each run, or for each place."""
        names = csv_blocks.header(source.head)
        if not self.can_read(source.path, source.head):
            raise InputError(f"{source.shown}: the header must name clouds, regions and what is measured")
        read = _runs if set(names) >= _RESULTS else _places
        yield from csv_blocks.side_by_side(
            source, lambda block: read(csv_blocks.texts(block, names), options)
        )

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            f"intercloud: bitrate_Bps holds the bytes of a run of {RUN_S:g} s (iperf2's default): the rate "
            f"is 8 x value / {RUN_S:g} s; {options.streams or 1} TCP stream",
        )


def _runs(texts: Texts, options: DatasetOptions) -> RowBatch:
    columns = [
        cell_conversion.instant("ts", "timestamp"),
        cell_conversion.text("src", "src"),
        cell_conversion.text("dst", "dst"),
        cell_conversion.number("bandwidth_bps", "bitrate_Bps", BITS_PER_BYTE / RUN_S),  # bytes per run
    ]
    if "avgrtt" in texts.columns:
        columns.append(cell_conversion.number("rtt_s", "avgrtt", MS))  # ms
    ends = {"src": ("from_cloud", "from_region"), "dst": ("to_cloud", "to_region")}
    constants = {"kind": "tcp", "streams": options.streams or 1, "duration_s": RUN_S}
    return cell_conversion.from_texts("link_samples", _joined(texts, ends), columns, constants)


def _places(texts: Texts, options: DatasetOptions) -> RowBatch:
    columns = [
        cell_conversion.text("site", "site"),
        cell_conversion.number("latitude_deg", "latitude"),
        cell_conversion.number("longitude_deg", "longitude"),
    ]
    return cell_conversion.from_texts("places", _joined(texts, {"site": ("cloud", "region")}), columns)


def _joined(texts: Texts, ends: dict[str, tuple[str, str]]) -> Texts:
    """The columns and, under new names, `cloud:region`."""
    made = dict(texts.columns)
    for name, (cloud, region) in ends.items():
        made[name] = pc.binary_join_element_wise(pc.utf8_lower(made[cloud]), made[region], ":")
    return Texts(made, texts.rows, texts.rows_in, texts.rejects)
