"""Answers of Prometheus' HTTP API (`query`, `query_range`): metrics of dcgm-exporter and the node exporter.

`{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {labels}, "values": [[s, "v"],
...]}]}}`; a vector has `value` instead. Metrics without a canonical column are passed over (see
`ingest.readers.telemetry.prometheus_samples`). `source_row` counts the samples in the order of the file, from
1; a row bears that of its first. Definition: Prometheus, HTTP API v1.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import number
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import FAULTS, from_document
from ingest.parsing.source import BOM, Source
from ingest.readers.telemetry.prometheus_samples import Scrapes, instant_ns

_START = re.compile(
    rb'\{\s*"status"\s*:\s*"[a-z]+"\s*,\s*"data"\s*:\s*\{\s*"resultType"\s*:\s*"(?:matrix|vector)"'
)


class PrometheusJson:
    """Series as the HTTP API returns them."""

    name = "prometheus-json"
    version = 1
    tables = ("gpu_samples", "host_samples")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the document begins with the status and the type of a result."""
        return bool(_START.match(head.removeprefix(BOM).lstrip()))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each GPU, and for each host, at each instant."""
        return from_document(source, "gpu_samples", _batches)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "prometheus-json: without FB_TOTAL the total memory is FB_USED + FB_FREE; network rates are the "
            "differences of counters, summed over devices without lo",
        )


def _batches(document: dict[str, Any]) -> Iterator[RowBatch]:
    if document["status"] != "success":
        raise ValueError(f"the query failed: {document.get('error', document['status'])}")
    scrapes, row = Scrapes(), 0
    for series in document["data"]["result"]:
        labels = series["metric"]
        for sample in series["values"] if "values" in series else [series["value"]]:
            row += 1
            try:
                ts_ns = instant_ns(number(sample[0]))  # s
                scrapes.add(row, ts_ns, labels["__name__"], labels, sample[1])
            except FAULTS as error:
                scrapes.reject(row, "values", sample, error)
    yield from scrapes.batches()
