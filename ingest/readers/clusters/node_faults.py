"""InfiniteHBD's fault trace: a JSON list of `fault_start` and `fault_end` of nodes, in days from a start.

A row is a fault: its start, and the end of the same kind on the same node that follows. A fault that does not
end is still open; an end without a start is rejected. `source_row` is the position of the start, from 1.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.units import to_ns
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, text, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import FAULTS, RowBuilder, from_document
from ingest.parsing.source import BOM, Source

_TABLE = "faults"
_START = re.compile(rb'\[\s*\{\s*"node_id"\s*:\s*"[^"]{1,200}"\s*,\s*"event_time"\s*:')
_DAY_S = 86_400.0
Event = tuple[str, str, int]
"""Node, kind, instant in ns."""


class NodeFaults:
    """Faults of nodes and their repair."""

    name = "node-faults"
    version = 1
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the document begins with a node and a time."""
        return bool(_START.match(head.removeprefix(BOM).lstrip()))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each fault."""
        start_ns = to_ns(options.start_or_default().timestamp())
        return from_document(source, _TABLE, lambda document: [_batch(document, start_ns)])

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            f"node-faults: days are taken to count from {options.start_or_default().isoformat()}",
            "node-faults: nodes without a fault do not appear; kind is level, class and description",
        )


def _batch(events: list[Any], start_ns: int) -> RowBatch:
    rows = RowBuilder(_TABLE, ("host", "kind", "ts", "repaired_ts"))
    begun: defaultdict[tuple[str, str], deque[tuple[int, int]]] = defaultdict(deque)
    for row, event in enumerate(events, 1):
        try:
            host, kind, at_ns = _event(event, start_ns)
            if event["event_type"] == "fault_start":
                begun[host, kind].append((row, at_ns))
            elif begun[host, kind]:
                first, since_ns = begun[host, kind].popleft()
                rows.add(first, host, kind, since_ns, at_ns)
            else:
                raise ValueError("an end of a fault that has not started")
        except FAULTS as error:
            rows.reject(row, "event", event, error)
    for (host, kind), still_open in begun.items():
        for row, at_ns in still_open:
            rows.add(row, host, kind, at_ns, None)
    return rows.batch()


def _event(event: dict[str, Any], start_ns: int) -> Event:
    if event["event_type"] not in ("fault_start", "fault_end"):
        raise ValueError(f"{event['event_type']!r} is neither fault_start nor fault_end")
    what = event["fault_type"]
    kind = ": ".join(text(what[name]) for name in ("Level", "Class", "Desc"))
    return text(event["node_id"]), kind, whole(start_ns + to_ns(amount(event["event_time"]) * _DAY_S))
