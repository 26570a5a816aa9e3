"""Vidur's CSV profiles: collectives, and forward operators of a model against the tokens of a pass.

`<gpu>_<machine>/<op>.csv` has one row for a size; `<gpu>_<model>_mlp.csv` has one row for a number of tokens
and a column for each operator: every operator's cell is a row of the lake. Times are ms; the median is taken,
because means of short operations hold outliers.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np
import pyarrow as pa

from ingest.core.errors import InputError
from ingest.core.units import MS
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import folder
from ingest.parsing.source import Source

_MEDIAN = re.compile(r"time_stats\.([A-Za-z0-9_-]{1,60})\.median")
_NETWORK = {"num_workers", "size", "devices_per_node", "collective"}
_COMPUTE = {"num_tokens", "num_tensor_parallel_workers"}
_COMPUTE_NAME = re.compile(r"([^_]+)_(.+)_mlp\.csv")


class Vidur:
    """Collective and operator profiles."""

    name = "vidur"
    version = 1
    text_only = True
    by_name = True
    tables = ("collective_profiles", "layer_profiles")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header has medians of operations and what they were measured for."""
        return _known(csv_blocks.header(head))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each size, or for each operator and number of tokens."""
        names = csv_blocks.header(source.head)
        if len(set(names)) != len(names) or not _known(names):
            raise InputError(f"{source.shown}: not the header of a profile, or two columns of one name")
        for block in csv_blocks.blocks(source):
            if set(names) >= _NETWORK:
                yield _collectives(source, block, names, options)
            else:
                texts = csv_blocks.texts(block, names)
                for operation in _operations(names):
                    yield _operators(source, texts, operation, options)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "vidur: the median of the repetitions is taken",
            "vidur: the GPU is the beginning of the folder (a100_dgx) or of the file (a100_<model>_mlp.csv)",
            "vidur: operators are forward passes of inference kernels; seq is the number of tokens of a "
            "pass, micro_batch 1",
        )


def _known(names: Sequence[str]) -> bool:
    return bool(_operations(names)) and (set(names) >= _NETWORK or set(names) >= _COMPUTE)


def _operations(names: Sequence[str]) -> list[str]:
    return sorted(found[1] for found in map(_MEDIAN.fullmatch, names) if found)


def _collectives(
    source: Source, block: csv_blocks.Block, names: list[str], options: DatasetOptions
) -> RowBatch:
    operation = _operations(names)[0]
    columns = [
        cell_conversion.text("op", "collective"),
        cell_conversion.number("time_s", f"time_stats.{operation}.median", MS),
        cell_conversion.whole("bytes", "size"),
        cell_conversion.whole("ranks", "num_workers"),
        cell_conversion.whole("_each", "devices_per_node"),
    ]
    machine = folder(source, options)
    gpu = options.gpu_model or (machine.split("_")[0].upper() if machine else None)
    constants = {"gpu_model": gpu} if gpu else {}
    batch = cell_conversion.Typed("collective_profiles", names, columns, constants)(block)
    return replace(batch, columns={**batch.columns, "nodes": _nodes(batch)})


def _nodes(batch: RowBatch) -> pa.Array:
    """Nodes that hold the ranks, rounded up; null where the file does not say."""
    ranks, each = (np.asarray(batch.columns[n].fill_null(0)) for n in ("ranks", "_each"))
    unknown = (ranks <= 0) | (each <= 0)
    return pa.array(-(-ranks // np.where(unknown, 1, each)), pa.int64(), mask=unknown)


def _operators(source: Source, texts: csv_blocks.Texts, operation: str, options: DatasetOptions) -> RowBatch:
    named = _COMPUTE_NAME.fullmatch(source.path.name)
    columns = [
        cell_conversion.number("forward_s", f"time_stats.{operation}.median", MS),
        cell_conversion.whole("tp", "num_tensor_parallel_workers"),
        cell_conversion.whole("seq", "num_tokens"),
    ]
    gpu = options.gpu_model or (named[1].upper() if named else None)
    constants = {"layer": operation, "micro_batch": 1, "variant": "inference", "gpu_model": gpu}
    constants["model"] = named[2] if named else source.path.stem
    stated = {name: value for name, value in constants.items() if value is not None}
    return cell_conversion.from_texts("layer_profiles", texts, columns, stated)
