"""Runs of perfSONAR's pScheduler as its archivers hand them on: one object, a list of them, or one a line.

An object has `test` (`type`, `spec`), `schedule` (`start`, `duration`) and `result`; definitions: the files
`spec-jsonschema.json` and `result-jsonschema.json` of each test in perfsonar/pscheduler. Read are
`throughput` (TCP: the summary of the run), `rtt` (mean and loss), `latency` and `latencybg` (mean of the
histogram, one way), and `trace` (round trip of the last hop, one row for each path). The ends are `source`,
or the first participant, and `dest`; with `reverse` the measured direction is the other one. `source_row` is
the position in the list or the line.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from ingest.core.units import MS, to_ns
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, text, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import FAULTS, RowBuilder, from_document
from ingest.parsing.source import BOM, Source
from ingest.parsing.text_lines import numbered

Document = dict[str, Any]
Values = dict[str, Any]
"""Columns of a row beside its time and its ends."""

_COLUMNS = (
    "ts", "src", "dst", "kind", "bandwidth_bps", "rtt_s", "one_way_s", "loss", "retransmits", "streams",
    "duration_s",
)  # fmt: skip
_KEYS = (b'"test"', b'"schedule"', b'"result"', b'"spec"')
_DURATION = re.compile(
    r"P(?:(?P<d>\d{1,6})D)?(?:T(?:(?P<h>\d{1,6})H)?(?:(?P<m>\d{1,6})M)?(?:(?P<s>\d{1,9}(?:\.\d{1,12})?)S)?)?"
)
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
BUCKET_S = MS
"""Default `bucket-width` of a latency test: keys of its histogram are milliseconds."""


def _throughput(spec: Document, result: Document) -> list[Values]:
    if spec.get("udp"):
        raise ValueError("a UDP test, whose rate is the one that was offered")
    whole_run = result["summary"]["summary"]
    start, end = (amount(whole_run.get(name, 0)) for name in ("start", "end"))
    resent = whole_run.get("retransmits")
    return [{
        "kind": "tcp", "bandwidth_bps": amount(whole_run["throughput-bits"]),
        "retransmits": None if resent is None else whole(resent), "streams": whole(spec.get("parallel", 1)),
        "duration_s": end - start or None,
    }]  # fmt: skip


def _rtt(spec: Document, result: Document) -> list[Values]:
    return [{"kind": "ping", "rtt_s": _mean_rtt(result), "loss": amount(result["loss"])}]


def _mean_rtt(result: Document) -> float | None:
    """Mean of the packets that came back, None without any."""
    if "mean" in result:
        return seconds(result["mean"])
    back = [seconds(trip["rtt"]) for trip in result["roundtrips"] if "rtt" in trip]
    return sum(back) / len(back) if back else None


def _latency(spec: Document, result: Document) -> list[Values]:
    sent, lost = whole(result["packets-sent"]), whole(result["packets-lost"])
    if not 0 <= lost <= sent or not sent:
        raise ValueError(f"{lost} of {sent} packets lost")
    bucket_s, counts = amount(spec.get("bucket-width", BUCKET_S)), result["histogram-latency"]
    # The clocks of the ends may differ by more than the delay: then the mean is below zero and no delay.
    pairs = [(float(key), whole(count)) for key, count in counts.items()]
    packets = sum(count for _, count in pairs)
    mean = sum(key * count for key, count in pairs) / packets if packets else None
    return [{
        "kind": "ping", "loss": lost / sent, "one_way_s": None if mean is None else amount(mean) * bucket_s,
    }]  # fmt: skip


def _trace(spec: Document, result: Document) -> list[Values]:
    paths = result["paths"]
    if not paths or any(not hops or "rtt" not in hops[-1] for hops in paths):
        raise ValueError("a path whose last hop did not answer")
    return [{"kind": "ping", "rtt_s": seconds(hops[-1]["rtt"])} for hops in paths]


TESTS: dict[str, Callable[[Document, Document], list[Values]]] = {
    "throughput": _throughput, "rtt": _rtt, "latency": _latency, "latencybg": _latency, "trace": _trace,
}  # fmt: skip


class PScheduler:
    """Runs of pScheduler."""

    name = "pscheduler"
    version = 1
    tables = ("link_samples",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the beginning is JSON with a test, and what else an archived run has."""
        start = head.removeprefix(BOM).lstrip()
        known = b'"test"' in head and any(b'"' + name.encode() + b'"' in head for name in TESTS)
        return start[:1] in (b"[", b"{") and known and sum(key in head for key in _KEYS) >= 3

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields the rows of each run."""
        if not _one_a_line(source):
            yield from from_document(source, "link_samples", _runs)
            return
        rows = RowBuilder("link_samples", _COLUMNS)
        for line, content in numbered(source):
            _take(rows, line, content, json.loads)
            if len(rows) >= 50_000:
                yield rows.batch()
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("pscheduler: times without a zone are UTC; of a histogram, the mean",)


def seconds(value: Any) -> float:
    """Returns the seconds of an ISO 8601 duration.

    Raises:
        ValueError: it is none.
    """
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None or not any(found.groups()):
        raise ValueError(f"{value!r} is not a duration")
    return sum(float(found[name]) * each for name, each in _SECONDS.items() if found[name])


def _one_a_line(source: Source) -> bool:
    """Tells whether the first line is an object of its own and another follows."""
    first, _, rest = source.head.removeprefix(BOM).lstrip().partition(b"\n")
    return first.rstrip().endswith(b"}") and rest.lstrip().startswith(b"{")


def _runs(document: Any) -> list[RowBatch]:
    rows = RowBuilder("link_samples", _COLUMNS)
    for row, run in enumerate(document if isinstance(document, list) else [document], 1):
        _take(rows, row, run, dict)
    return [rows.batch()]


def _take(rows: RowBuilder, row: int, given: Any, parsed: Callable[[Any], Document]) -> None:
    """Keeps the rows of one run, or rejects it."""
    try:
        made = _rows(parsed(given))
    except FAULTS as error:
        rows.reject(row, "run", given, error)
        return
    for values in made:
        rows.add(row, *values)


def _rows(run: Document) -> list[tuple[Any, ...]]:
    """Rows of one run in the order of the columns."""
    kind, spec, result = run["test"]["type"], run["test"]["spec"], run["result"]
    if kind not in TESTS:
        raise ValueError(f"a test of type {kind!r}; read are {', '.join(TESTS)}")
    if not result.get("succeeded"):
        raise ValueError(f"the run failed: {result.get('error') or 'no reason given'}")
    ends = [text(spec.get("source") or _first(run)), text(spec["dest"])]
    src, dst = reversed(ends) if spec.get("reverse") else ends
    ts_ns = _ts_ns(run["schedule"]["start"])
    filled = [{"ts": ts_ns, "src": src, "dst": dst, **values} for values in TESTS[kind](spec, result)]
    return [tuple(values.get(name) for name in _COLUMNS) for values in filled]


def _first(run: Document) -> Any:
    """Name of the first participant, which runs a test that names no source."""
    first = run["participants"][0]
    return first["host"] if isinstance(first, dict) else first


def _ts_ns(value: Any) -> int:
    moment = datetime.fromisoformat(text(value))
    return to_ns((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
