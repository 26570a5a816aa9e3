"""perfSONAR measurements as its archive esmond gives them: a JSON list of `{"ts": ..., "val": ...}`.

The list does not say what it holds; the name does, as `esmond-ps-get-bulk` writes it:
`<source>_<destination>_<event type>_<from>_<to>.json`. Read are `throughput` (b/s), `histogram-rtt` (RTT in
ms to count; the mean is stored), `histogram-owdelay` (delay of one direction alike) and `packet-loss-rate`
(share). `ts` is seconds since 1970, or an ISO 8601
text in UTC. `source_row` is the position in the list.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from ingest.core.units import MS, to_ns
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, number, whole
from ingest.parsing.reader import RowBatch, rejected_file
from ingest.parsing.row_builder import RowBuilder, from_document
from ingest.parsing.source import BOM, Source

Values = tuple[float | None, float | None, float | None, float | None]
"""bandwidth_bps, rtt_s, loss, one_way_s."""


def _throughput(value: Any) -> Values:
    return amount(value), None, None, None  # b/s


def _histogram(value: Any) -> Values:
    return None, _mean_s(value), None, None


def _delays(value: Any) -> Values:
    return None, None, None, _mean_s(value)


def _mean_s(value: Any) -> float:
    counts = [(amount(delay), whole(count)) for delay, count in value.items()]
    total = sum(count for _, count in counts)
    if total < 1 or any(count < 0 for _, count in counts):
        raise ValueError("a histogram without counts")
    return sum(delay * count for delay, count in counts) / total * MS  # ms


def _loss(value: Any) -> Values:
    return None, None, amount(value), None


_EVENTS: dict[str, tuple[str, Callable[[Any], Values]]] = {
    "throughput": ("tcp", _throughput),
    "histogram-rtt": ("ping", _histogram),
    "histogram-owdelay": ("ping", _delays),
    "packet-loss-rate": ("ping", _loss),
    "packet-loss-rate-bidir": ("ping", _loss),
}
_NAME = re.compile(rf"(?P<src>[^_]+)_(?P<dst>[^_]+)_(?P<event>{'|'.join(_EVENTS)})(?:_[^_]+)*\.json")
_COLUMNS = ("ts", "bandwidth_bps", "rtt_s", "loss", "one_way_s")


class Esmond:
    """Series of a perfSONAR archive."""

    name = "esmond"
    version = 1
    by_name = True
    tables = ("link_samples",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the name has both ends and a known event type, and the list instants and values."""
        start = head.removeprefix(BOM).lstrip()
        return bool(_NAME.fullmatch(path.name)) and start[:1] == b"[" and b'"ts"' in head and b'"val"' in head

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each entry of the list."""
        named = _NAME.fullmatch(source.path.name)
        if named is None:
            reason = "not called <source>_<destination>_<event type>_<from>_<to>.json"
            yield rejected_file("link_samples", "path", source.name, reason)
            return
        yield from from_document(source, "link_samples", lambda series: [_batch(series, named, options)])

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("esmond: ends and quantity are taken from the file's name; of a histogram, the mean",)


def _batch(series: Any, named: re.Match[str], options: DatasetOptions) -> RowBatch:
    kind, values = _EVENTS[named["event"]]
    streams = options.streams if kind == "tcp" else None
    rows = RowBuilder(
        "link_samples", _COLUMNS, src=named["src"], dst=named["dst"], kind=kind, streams=streams
    )
    if not isinstance(series, list):
        raise TypeError("not a list")
    for row, entry in enumerate(series, 1):
        rows.take(row, "val", entry, _row, entry, values)
    return rows.batch()


def _row(entry: dict[str, Any], values: Callable[[Any], Values]) -> tuple[Any, ...]:
    return _ts_ns(entry["ts"]), *values(entry["val"])


def _ts_ns(value: Any) -> int:
    if not isinstance(value, str):
        return whole(to_ns(number(value)))
    moment = datetime.fromisoformat(value)
    return to_ns((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
