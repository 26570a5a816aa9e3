"""A network as node-link JSON (what networkx writes): directed links with a capacity in b/s.

A row of the lake is one link, kind `capacity`, dated to the start of the data set; an undirected graph gives
both directions. Nodes are called `node-<id>` when their ids are numbers, else by their id.
"""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.units import to_ns
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, text
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, from_document
from ingest.parsing.source import BOM, Source

_COLUMNS = ("src", "dst", "bandwidth_bps")


class Topology:
    """Capacities of the links of a network."""

    name = "topology"
    version = 1
    tables = ("link_samples",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if it is a JSON object of a graph, directed or not, with nodes and capacities."""
        start = head.removeprefix(BOM).lstrip()
        return start.startswith(b"{") and all(
            key in head for key in (b'"directed"', b'"nodes"', b'"capacity"', b'"source"')
        )

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each direction of each link."""
        yield from from_document(source, "link_samples", lambda graph: [_batch(graph, options)])

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "topology: capacities are taken to be b/s, valid from "
            f"{options.start_or_default().isoformat()}; nodes with a number are called node-<number>",
        )


def _batch(graph: Any, options: DatasetOptions) -> RowBatch:
    both_ways = graph["directed"] is False
    ts_ns = to_ns(options.start_or_default().timestamp())
    rows = RowBuilder("link_samples", _COLUMNS, ts=ts_ns, kind="capacity")
    links = graph["links"] if "links" in graph else graph["edges"]
    if not isinstance(links, list):
        raise TypeError("links are not a list")
    for row, link in enumerate(links, 1):
        rows.take(row, "links", link, _link, link, "source", "target")
        if both_ways:
            rows.take(row, "links", link, _link, link, "target", "source")
    return rows.batch()


def _link(link: dict[str, Any], src: str, dst: str) -> tuple[str, str, float]:
    return _name(link[src]), _name(link[dst]), amount(link["capacity"])  # b/s


def _name(node: Any) -> str:
    return f"node-{node}" if type(node) is int else text(node)
