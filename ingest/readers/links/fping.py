"""Text of `fping` in its three machine-friendly forms: a row for each probe, or for each target.

* a probe a line (`-c`, `-l`): `host : [3], 64 bytes, 11.6 ms (11.7 avg, 0% loss)` or `... timed out ...`,
* a target a line with all its RTTs (`-C`): `host : 11.6 12.1 - 11.9`, in ms, `-` without answer,
* the summary: `host : xmt/rcv/%loss = 3/3/0%, min/avg/max = 11.6/11.7/11.9`.

`fping -D` puts the time before a line; without it probe n is taken to be `interval_s` (1 s) x n after the
start of the data set. fping does not print where it runs: the near end is what `[values]` says of `src`, else
the data set's name. `source_row` is the line.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath

from ingest.core.units import MS, to_ns
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import BOM, Source
from ingest.parsing.text_lines import numbered

INTERVAL_S = 1.0
"""Default interval between probes of a target of `fping -l`."""
_LINE = re.compile(r"(?:\[(?P<ts>\d+\.\d+)\] )?(?P<dst>\S+)\s+: (?P<rest>.*)")
_PROBE = re.compile(r"\[(?P<seq>\d+)\], (?:\d+ bytes, (?P<rtt>\S+) ms\b|timed out)")
_SUMMARY = re.compile(
    r"xmt/rcv/%loss = (?P<sent>\d+)/(?P<back>\d+)/\S+(?:, min/avg/max = [^/\s]+/(?P<rtt>[^/\s]+)/[^/\s]+)?"
)
_SERIES = re.compile(r"(?:-|\d[\d.]*)(?: (?:-|\d[\d.]*))*")
_COLUMNS = ("ts", "dst", "rtt_s", "loss")
_BATCH = 50_000
Row = tuple[int, str, float | None, float]


class Fping:
    """Output of `fping`."""

    name = "fping"
    version = 2
    tables = ("link_samples",)
    settings = ("values.src",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the first line has a target and one of the three forms."""
        first = head.removeprefix(BOM).lstrip().partition(b"\n")[0]
        lines = first.decode("utf-8", "replace").strip().splitlines()
        line = _LINE.fullmatch(lines[0].strip()) if lines else None
        return line is not None and any(
            form.match(line["rest"]) if form is not _SERIES else form.fullmatch(line["rest"])
            for form in (_PROBE, _SUMMARY, _SERIES)
        )

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each probe or target."""
        rows = RowBuilder("link_samples", _COLUMNS, src=_near(options), kind="ping")
        for line, content in numbered(source):
            found = _LINE.fullmatch(content)
            if found is None:
                rows.reject(line, "", content, "no target, or none of the forms of fping")
                continue
            _take(rows, line, found, options)
            if len(rows) >= _BATCH:
                yield rows.batch()
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            f"fping: probes without a time (fping -D) are taken to be {options.interval_s or INTERVAL_S:g} s "
            f"apart from {options.start_or_default().isoformat()}; the near end is {_near(options)}",
        )


def _near(options: DatasetOptions) -> str:
    """The site on which fping ran."""
    return str(options.values.get("src") or options.name)


def _take(rows: RowBuilder, line: int, found: re.Match[str], options: DatasetOptions) -> None:
    rest = found["rest"].strip()
    if probe := _PROBE.match(rest):
        rows.take(line, "rtt", rest, _probe, found, probe, options)
    elif summary := _SUMMARY.match(rest):
        rows.take(line, "rtt", rest, _summary, found, summary, options)
    elif _SERIES.fullmatch(rest):
        for seq, cell in enumerate(rest.split(" ")):
            rows.take(line, "rtt", cell, _one, found, seq, cell, options)
    else:
        rows.reject(line, "", rest, "none of the forms of fping")


def _probe(line: re.Match[str], probe: re.Match[str], options: DatasetOptions) -> Row:
    return _one(line, int(probe["seq"]), probe["rtt"] or "-", options)


def _one(line: re.Match[str], seq: int, cell: str, options: DatasetOptions) -> Row:
    if cell == "-":
        return _ts_ns(line, seq, options), line["dst"], None, 1.0
    return _ts_ns(line, seq, options), line["dst"], amount(cell) * MS, 0.0  # ms


def _summary(line: re.Match[str], summary: re.Match[str], options: DatasetOptions) -> Row:
    sent, back = int(summary["sent"]), int(summary["back"])
    if not 0 <= back <= sent or sent == 0:
        raise ValueError(f"{back} answers to {sent} probes")
    rtt_s = None if summary["rtt"] is None else amount(summary["rtt"]) * MS  # ms
    return _ts_ns(line, 0, options), line["dst"], rtt_s, 1 - back / sent


def _ts_ns(line: re.Match[str], seq: int, options: DatasetOptions) -> int:
    if line["ts"] is not None:
        return whole(round(float(line["ts"]) * 1e6) * 1000)
    start_ns = to_ns(options.start_or_default().timestamp())
    return whole(start_ns + to_ns(seq * (options.interval_s or INTERVAL_S)))
