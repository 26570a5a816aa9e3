"""Layer profiles in the JSON of the planner Metis: `MODEL/GPU/mbs<B>_tmp<T>.json`, one file for a setting.

Forward and backward of a layer stand as one sum in ms; memory in MiB. A row is one layer.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.units import MIB, MS
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, text, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, folder, from_document
from ingest.parsing.source import Source

_TABLE = "layer_profiles"
_NAME = re.compile(r"mbs(\d{1,6})_tmp(\d{1,4})\.json")


class MetisProfile:
    """Layer profiles of Metis."""

    name = "metis-profile"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the name has micro-batch and tp, and the document begins with the model."""
        return bool(_NAME.fullmatch(path.name)) and b'"model"' in head and b'"model_name"' in head

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each layer."""
        return from_document(source, _TABLE, lambda document: [_batch(document, source, options)])

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "metis-profile: the GPU is the folder of the file; forward and backward of a layer are one sum",
            "metis-profile: peak_bytes is the file's total memory of a layer, MB read as MiB",
        )


def _batch(document: dict[str, Any], source: Source, options: DatasetOptions) -> RowBatch:
    named = _NAME.fullmatch(source.path.name)
    if named is None:
        raise ValueError("the file is not called mbs<B>_tmp<T>.json")
    parameters = document["model"]["parameters"]["parameters_per_layer_bytes"]
    times = document["execution_time"]["layer_compute_total_ms"]
    memory = document["execution_memory"]["layer_memory_total_mb"]
    if not len(times) == len(parameters) == len(memory):
        raise ValueError(f"{len(times)} times for {len(parameters)} layers: which is whose is not known")
    rows = RowBuilder(
        _TABLE,
        ("layer", "forward_backward_s", "param_bytes", "peak_bytes"),
        model=text(document["model"]["model_name"]),
        gpu_model=options.gpu_model or folder(source, options),
        micro_batch=whole(named[1]),
        tp=whole(named[2]),
    )
    for layer, measured in enumerate(zip(times, parameters, memory, strict=True)):
        rows.take(layer + 1, "layer", measured, _layer, layer, *measured)
    return rows.batch()


def _layer(layer: int, time_ms: Any, parameters: Any, memory_mib: Any) -> tuple[Any, ...]:
    return str(layer), amount(time_ms) * MS, whole(parameters), round(amount(memory_mib) * MIB)
