"""Scrapes of dcgm-exporter as a long CSV: one row for each metric of a GPU, labels in columns of their own.

`timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,...,value,labels_raw`. All metrics of one GPU in
one scrape become one row; `source_row` is the first of them. Metrics without a canonical column are passed
over (see `ingest.readers.telemetry.prometheus_samples`).
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import PurePath
from typing import Any

from ingest.core.errors import InputError
from ingest.core.units import to_ns
from ingest.parsing import csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import text
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import FAULTS
from ingest.parsing.source import Source
from ingest.readers.telemetry.prometheus_samples import Scrapes, instant_ns

_NEEDED = ("timestamp", "metric_name", "gpu_id", "Hostname", "value")
_LABELS = {"gpu_id": "gpu", "uuid": "UUID", "modelName": "modelName", "Hostname": "Hostname"}
"""Column of the file and Prometheus' label."""
TOLERANCE_S = 5.0
"""Largest difference of the times of one GPU's metrics in one scrape."""


class DcgmLong:
    """DCGM metrics, one a row."""

    name = "dcgm-long"
    version = 1
    text_only = True
    tables = ("gpu_samples",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header names metric, GPU and value."""
        return set(csv_blocks.header(head)) >= set(_NEEDED)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each GPU and instant."""
        names = csv_blocks.header(source.head)
        if len(set(names)) != len(names) or not set(names) >= set(_NEEDED):
            raise InputError(f"{source.shown}: not the header of a long table of DCGM metrics")
        wanted = [name for name in (*_NEEDED, *_LABELS) if name in names]
        for block in csv_blocks.blocks(source):
            texts = csv_blocks.texts(block, names, list(dict.fromkeys(wanted)))
            scrapes = Scrapes(to_ns(TOLERANCE_S))
            for reject in texts.rejects:
                scrapes.reject(reject.row, reject.column, reject.raw, reject.reason)
            columns = {name: values.to_pylist() for name, values in texts.columns.items()}
            for at, row in enumerate(texts.rows.to_pylist()):
                _add(scrapes, row, {name: values[at] for name, values in columns.items()})
            yield from (batch for batch in scrapes.batches() if batch.table == "gpu_samples")

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "dcgm-long: without FB_TOTAL the total memory is FB_USED + FB_FREE",
            f"dcgm-long: metrics of a GPU within {TOLERANCE_S:g} s are one sample, dated to the first",
        )


def _add(scrapes: Scrapes, row: int, cells: dict[str, Any]) -> None:
    try:
        moment = datetime.fromisoformat(text(cells["timestamp"]))
        if moment.tzinfo is None:
            raise ValueError("a time without a zone")
        labels = {label: cells[name] for name, label in _LABELS.items() if cells.get(name)}
        scrapes.add(row, instant_ns(moment.timestamp()), text(cells["metric_name"]), labels, cells["value"])
    except FAULTS as error:
        scrapes.reject(row, str(cells["metric_name"]), str(cells["value"]), error)
