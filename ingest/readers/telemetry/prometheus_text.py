"""Prometheus' text format: scrapes of dcgm-exporter and of the node exporter, one or several in a file.

`name{label="value",...} value [ms since 1970]`; lines that begin with `#` are comments. When a series comes
again, the next scrape begins. Scrapes without time stamps are taken to be `interval_s` (15 s) apart from the
start of the data set. Metrics without a canonical column are passed over (see
`ingest.readers.telemetry.prometheus_samples`). `source_row` is the line of the row's first sample.
Definition: Prometheus, Exposition formats.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

from ingest.core.errors import InputError
from ingest.core.units import to_ns
from ingest.parsing import text_lines
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import number
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import FAULTS
from ingest.parsing.source import BOM, Source
from ingest.readers.telemetry.prometheus_samples import MOST_SERIES, Scrapes, instant_ns

INTERVAL_S = 15.0
"""Assumed spacing of scrapes that bear no time."""
_KNOWN = re.compile(rb"^(?:# (?:HELP|TYPE) )?(?:DCGM_FI_|node_|ipmi_)\w+(?:\{| )", re.MULTILINE)
SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+(\S+))?")
"""A line with a sample: metric, labels, value, time stamp."""
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_SECONDS_BELOW = 1e11
"""A smaller time stamp counts seconds, as OpenMetrics has it."""


class PrometheusText:
    """Scraped metrics as text."""

    name = "prometheus-text"
    version = 1
    tables = ("gpu_samples", "host_samples")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if some line is a metric of dcgm-exporter or the node exporter."""
        head = head.removeprefix(BOM)
        first = head.lstrip()[:1]
        return first not in (b"{", b"[", b"<", b'"') and bool(_KNOWN.search(head))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each GPU, and for each host, of a scrape."""
        scrapes, seen = Scrapes(), set[str]()
        start_ns = to_ns(options.start_or_default().timestamp())
        step_ns, count = to_ns(options.interval_s or INTERVAL_S), 0
        assumed: tuple[str, ...] = ()
        for line, text in text_lines.numbered(source):
            if text.startswith("#"):
                continue
            found = SAMPLE.fullmatch(text)
            if found is None:
                scrapes.reject(line, "line", text, "not a sample of a metric")
                continue
            series = f"{found[1]}{{{found[2]}}}"
            if series in seen:
                yield from _assuming(assumed, scrapes)
                seen.clear()
                count += 1
            if len(seen) >= MOST_SERIES:
                raise InputError(f"{source.shown}:{line}: more than {MOST_SERIES} series and none again")
            seen.add(series)
            try:
                if found[4] is None:
                    ts_ns, assumed = start_ns + count * step_ns, (_spacing(options),)
                else:
                    ts_ns = stamp_ns(found[4])
                scrapes.add(line, ts_ns, found[1], labels_of(found[2] or ""), found[3])
            except FAULTS as error:
                scrapes.reject(line, found[1], text, error)
        yield from _assuming(assumed, scrapes)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "prometheus-text: without FB_TOTAL the total memory is FB_USED + FB_FREE; network rates are the "
            "differences of counters, summed over devices without lo",
        )


def _assuming(assumed: tuple[str, ...], scrapes: Scrapes) -> Iterator[RowBatch]:
    return (replace(batch, assumed=assumed) for batch in scrapes.batches())


def _spacing(options: DatasetOptions) -> str:
    return (
        f"prometheus-text: scrapes without time stamps are {options.interval_s or INTERVAL_S:g} s apart "
        f"from {options.start_or_default().isoformat()}"
    )


def stamp_ns(cell: str) -> int:
    """Returns the instant of a time stamp, in milliseconds or, as OpenMetrics has it, in seconds.

    Raises:
        ValueError, OverflowError: it is no number, or far from today.
    """
    value = number(cell)
    return instant_ns(value if abs(value) < _SECONDS_BELOW else value / 1000)


def labels_of(text: str) -> dict[str, str]:
    """Returns the labels inside the braces.

    Raises:
        ValueError: they are not written as `name="value"`.
    """
    labels: dict[str, str] = {}
    at = 0
    while at < len(text.rstrip()):
        found = _LABEL.match(text, at)
        if found is None:
            raise ValueError(f"not a label: {text[at : at + 60]}")
        labels[found[1]] = re.sub(r"\\.", lambda e: _ESCAPES.get(e[0], e[0]), found[2])
        at = found.end()
    return labels
