"""Messages of a service's log that were set aside: which events are no part of the run.

A service logs a message before it works on it. If that breaks, the session appends `message_quarantined`.
From then on the message, with what had followed from it up to there, is passed over: when the run is computed
again at a restart or in an audit, and in every fold. The bytes stay, under the digests of the log.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

QUARANTINED = "message_quarantined"
Spans = tuple[range, ...]
"""Numbers of events that are no part of a run, in order, none overlapping."""


def spans_of(tables: Iterable[pa.Table]) -> Spans:
    """Returns the events that are set aside in a log of these tables; only a service sets any aside."""
    found: list[range] = []
    for number, table in enumerate(tables):
        if number == 0 and not _is_live(table):
            return ()
        for row in table.filter(pc.equal(table["type"], QUARANTINED)).to_pylist():
            found.append(range(json.loads(row["payload"])["first"], row["seq"]))
    return merged(found)


def merged(spans: Sequence[range]) -> Spans:
    """Returns the same numbers in spans that do not overlap."""
    joined: list[range] = []
    for span in sorted(filter(None, spans), key=lambda one: one.start):
        if joined and span.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, span.stop))
        else:
            joined.append(span)
    return tuple(joined)


def without(tables: Iterable[pa.Table], spans: Spans) -> Iterator[pa.Table]:
    """Yields the rows that are part of the run."""
    for table in tables:
        if spans and len(table):
            numbers = table["seq"]
            for span in spans:
                inside = pc.and_(pc.greater_equal(numbers, span.start), pc.less(numbers, span.stop))
                table = table.filter(pc.invert(inside))
                numbers = table["seq"]
        yield table


def _is_live(table: pa.Table) -> bool:
    """True if the log is of a service, by its first event."""
    if not len(table) or table["type"][0].as_py() != "run_started":
        return False
    return json.loads(table["payload"][0].as_py()).get("live") is not None
