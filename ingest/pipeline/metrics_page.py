"""Pages of metrics as text that the reader `prometheus-text` takes: every sample bears its instant and host.

A page in Prometheus' text format, or the answer of a Prometheus server's `query`, tells of now: the time of
the read is its samples' where it says none. A rate needs the counters of the page before, hence each text
begins with them, at their own instants. An answer of `query_range` has all its instants and goes to the
reader `prometheus-json` as it came.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ingest.core import safe_json
from ingest.core.errors import InputError
from ingest.core.units import NS_PER_S
from ingest.parsing.http_page import HttpAddress
from ingest.parsing.json_values import number
from ingest.parsing.row_builder import FAULTS
from ingest.parsing.source import Source, from_bytes, piece_name
from ingest.readers.telemetry.prometheus_json import PrometheusJson
from ingest.readers.telemetry.prometheus_samples import GPU_METRICS, HOST_COUNTERS, HOST_GAUGES, instant_ns
from ingest.readers.telemetry.prometheus_text import SAMPLE, labels_of, stamp_ns

ACCEPT = "text/plain;version=0.0.4, application/json;q=0.5"
_KNOWN = frozenset({*GPU_METRICS, *HOST_COUNTERS, *HOST_GAUGES})
_MS = NS_PER_S // 1000
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class _Sample(NamedTuple):
    """One sample; `stamp_ms` since 1970, None: the page does not say."""

    metric: str
    labels: dict[str, str]
    value: str
    stamp_ms: int | None


class ScrapedTarget:
    """One address, and what its last page had.

    once: True once an answer of `query_range` came: asked again, it would be the same.
    """

    def __init__(self, url: str) -> None:
        self.address = HttpAddress(url, "--scrape")
        self.once = False
        self._counters: list[str] = []
        self._last_ms = 0
        self._stamps: dict[tuple[str, str], int] = {}

    def source(self, now_ns: int) -> Source | None:
        """Returns the page read at `now_ns` as a source for the lake; None: nothing in it is new.

        Raises:
            InputError: it does not come within the bounds, is none of metrics, or has none that is known.
        """
        data, shown = self.address.page(ACCEPT), self.address.shown
        if PrometheusJson().can_read(PurePosixPath(), data[:4096]):
            kind, series = _result(data, shown)
            if kind == "matrix":
                self.once = True
                return from_bytes(self.address.name, shown, data)
            samples = list(_of_vector(series, shown))
        else:
            samples = list(_of_text(data.decode("utf-8", "replace"), shown))
        if not samples:
            raise InputError(
                f"{shown}: none of its metrics has a column in the lake; these do: DCGM_FI_* of "
                "dcgm-exporter, node_network_*_bytes_total, ipmi_dcmi_power_consumption_watts"
            )
        return self._as_text(samples, now_ns // _MS)

    def _as_text(self, samples: list[_Sample], now_ms: int) -> Source | None:
        now_ms = max(now_ms, self._last_ms + 1)  # a clock set back: the order of the reads stays
        counters: list[str] = []
        others: list[str] = []
        for one in samples:
            named = {"instance": self.address.parts.netloc, **one.labels}
            series = ",".join(f'{name}="{text.translate(_ESCAPED)}"' for name, text in named.items())
            if one.stamp_ms is not None:
                before, self._stamps[one.metric, series] = (
                    self._stamps.get((one.metric, series)),
                    one.stamp_ms,
                )
                if before == one.stamp_ms:  # an old sample that is shown again
                    continue
            at_ms = now_ms if one.stamp_ms is None else one.stamp_ms
            line = f"{one.metric}{{{series}}} {one.value} {at_ms}\n"
            (counters if one.metric in HOST_COUNTERS else others).append(line)
        if not counters and not others:
            return None
        # New counters come before all else: where a series repeats, the reader takes a new scrape to begin.
        data = "".join([*self._counters, *counters, *others]).encode()
        name = piece_name(self.address.name, self._last_ms, now_ms)
        self._counters, self._last_ms = counters or self._counters, now_ms
        return from_bytes(name, self.address.shown, data)


def _of_text(text: str, shown: str) -> Iterator[_Sample]:
    for count, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        found = SAMPLE.fullmatch(line)
        if found is None:
            raise InputError(f"{shown}: line {count} is not a sample of a metric; is it a page of metrics?")
        if found[1] in _KNOWN:
            try:
                stamp = None if found[4] is None else stamp_ns(found[4]) // _MS
                yield _Sample(found[1], labels_of(found[2] or ""), found[3], stamp)
            except FAULTS as error:
                raise InputError(f"{shown}: line {count}: {error}") from error


def _of_vector(result: list[Any], shown: str) -> Iterator[_Sample]:
    """The samples of a `query`: Prometheus stamps all with the instant of the question."""
    try:
        for series in result:
            labels = dict(series["metric"])
            at_s, value = series["value"]
            if labels.get("__name__") in _KNOWN:
                metric = labels.pop("__name__")
                named = {str(name): str(text) for name, text in labels.items()}
                yield _Sample(metric, named, repr(number(value)), instant_ns(number(at_s)) // _MS)
    except FAULTS as error:
        raise InputError(f"{shown}: not an answer of a Prometheus server ({error})") from error


def _result(data: bytes, shown: str) -> tuple[str, list[Any]]:
    """Type and series of an answer of a Prometheus server."""
    try:
        found = safe_json.parsed(data)["data"]
        return found["resultType"], list(found["result"])
    except FAULTS as error:
        raise InputError(f"{shown}: not an answer of a Prometheus server ({error})") from error
