"""Text of `ping`, as Linux, BSD and macOS print it: a row for each answer, and for each probe without one.

`ping -D` puts the time before each line; without it probe n is taken to be `interval_s` (1 s) x n after the
start of the data set. The far end is the name that was pinged, the near end what `[values]` says of `src`,
else the `from` of the first line (`-I`), else the data set's name. A probe without answer has loss 1 and no
RTT. `source_row` is the line of the file.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath

from ingest.core.units import MS, US, to_ns
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import BOM, Source
from ingest.parsing.text_lines import numbered

INTERVAL_S = 1.0
"""Default interval between probes of `ping`."""
_BEGIN = re.compile(r"PING\s+(?P<dst>[^\s(:]+)(?:.*?\bfrom (?P<src>[^\s:]+))?")
_TIME = r"(?:\[(?P<ts>\d+\.\d+)\] )?"
_ANSWER = re.compile(
    _TIME + r"\d+ bytes from .*?\bicmp_seq[= ](?P<seq>\d+).*?\btime[=<](?P<rtt>\S+) ?(?P<unit>ms|us|s)\b"
)
_PROBE = re.compile(_TIME + r"\d+ bytes from ")
_SILENCE = re.compile(
    _TIME + r"(?:no answer yet for icmp_seq=|Request timeout for icmp_seq |From .*?\bicmp_seq=)(?P<seq>\d+)"
)
_UNITS_S = {"s": 1.0, "ms": MS, "us": US}
_COLUMNS = ("ts", "rtt_s", "loss")
_BATCH = 50_000


class Ping:
    """Output of `ping`."""

    name = "ping"
    version = 2
    text_only = True
    tables = ("link_samples",)
    settings = ("values.src",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the first line says what is pinged."""
        return head.removeprefix(BOM).lstrip().startswith(b"PING ")

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each probe; several runs in a file follow each other."""
        rows: RowBuilder | None = None
        for line, content in numbered(source):
            if begin := _BEGIN.match(content):
                if rows is not None:
                    yield rows.batch()
                src = str(options.values.get("src") or begin["src"] or options.name)
                rows = RowBuilder("link_samples", _COLUMNS, src=src, dst=begin["dst"], kind="ping")
            elif rows is not None:
                _take(rows, line, content, options)
                if len(rows) >= _BATCH:
                    yield rows.batch()
        if rows is not None:
            yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        near = f"{options.name} unless the text says from where"
        if "src" in options.values:
            near = str(options.values["src"])
        return (
            f"ping: probes without a time (ping -D) are {options.interval_s or INTERVAL_S:g} s "
            f"apart from {options.start_or_default().isoformat()}; the near end is {near}",
        )


def _take(rows: RowBuilder, line: int, content: str, options: DatasetOptions) -> None:
    """One line of the text; what is no probe is no row."""
    if answer := _ANSWER.match(content):
        rows.take(line, "time", content, _answered, answer, options)
    elif silence := _SILENCE.match(content):
        rows.take(line, "icmp_seq", content, lambda: (_ts_ns(silence, options), None, 1.0))
    elif _PROBE.match(content):
        rows.reject(line, "time", content, "an answer without sequence number or time")


def _answered(answer: re.Match[str], options: DatasetOptions) -> tuple[int, float, float]:
    # The stamp is printed when the answer is there, half a round trip or so after the probe was reflected.
    return _ts_ns(answer, options), amount(answer["rtt"]) * _UNITS_S[answer["unit"]], 0.0


def _ts_ns(probe: re.Match[str], options: DatasetOptions) -> int:
    if probe["ts"] is not None:
        return whole(round(float(probe["ts"]) * 1e6) * 1000)
    start_ns = to_ns(options.start_or_default().timestamp())
    return whole(start_ns + to_ns(int(probe["seq"]) * (options.interval_s or INTERVAL_S)))
