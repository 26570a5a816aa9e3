"""CSV of `nvidia-smi --query-gpu=... --format=csv`, with or without units, and tables derived from it.

Cells begin with a blank and may carry a unit (`45 %`, `397.30 W`) or say that there is no value (`[N/A]`).
Times without a zone are in `timezone` of dataset.toml.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.errors import InputError
from ingest.core.units import MIB
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.cell_conversion import ColumnMapping
from ingest.parsing.csv_blocks import Texts
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_TABLE = "gpu_samples"
_NO_VALUE = r"^\[.*\]$|^N/A$"
"""[N/A], [Not Supported], [Unknown Error], ..."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A canonical column: its names in such files, unit in the cells, and factor to our unit."""

    target: str
    names: tuple[str, ...]
    unit: str = ""
    factor: float = 1.0


_NUMBERS = (
    _Field("util", ("utilization.gpu", "utilization_gpu_percent"), "%", 0.01),
    _Field("mem_used_bytes", ("memory.used", "memory_used_mib"), "MiB", MIB),
    _Field("mem_total_bytes", ("memory.total", "memory_total_mib"), "MiB", MIB),
    _Field("power_w", ("power.draw", "power.draw.average", "power.draw.instant", "power_w"), "W"),
    _Field("temp_c", ("temperature.gpu", "temperature_c"), "C"),
    _Field("sm_clock_mhz", ("clocks.sm", "clocks.current.sm"), "MHz"),
)
_NAMES = (
    _Field("gpu", ("index", "gpu_index", "uuid", "gpu_uuid")),
    _Field("gpu_model", ("name", "gpu_name")),
    _Field("host", ("host", "hostname")),
)
_BYTES = ("mem_used_bytes", "mem_total_bytes")


class NvidiaSmi:
    """Samples of nvidia-smi."""

    name = "nvidia-smi"
    version = 1
    text_only = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """True if the header has a time, a GPU, and something that is measured, under nvidia-smi's names."""
        found = _found(csv_blocks.header(head))
        return "ts" in found and "gpu" in found and any(field.target in found for field in _NUMBERS)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each GPU and tick."""
        names = csv_blocks.header(source.head)
        found = _found(names)
        if len(set(names)) != len(names) or "ts" not in found:
            raise InputError(f"{source.shown}: the header must have a timestamp and name each column once")
        columns = _columns(found, options)
        constants = {} if "host" in found else {"host": options.name}
        yield from csv_blocks.side_by_side(
            source,
            lambda block: cell_conversion.from_texts(
                _TABLE, _plain(csv_blocks.texts(block, names), found), columns, constants
            ),
        )

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "nvidia-smi: where the file names no host, the data set's name stands for it",
            f"nvidia-smi: times without a zone are {options.timezone}",
        )


def _found(names: list[str]) -> dict[str, str]:
    """Canonical column to the name in this header; a unit in brackets is no part of the name."""
    bare = {re.sub(r"\s*\[.*\]$", "", name).lower(): name for name in reversed(names)}
    found = {"ts": bare["timestamp"]} if "timestamp" in bare else {}
    for field in (*_NUMBERS, *_NAMES):
        name = next((bare[n] for n in field.names if n in bare), None)
        if name is not None:
            found[field.target] = name
    return found


def _plain(texts: Texts, found: dict[str, str]) -> Texts:
    """Cells without blanks, units and words for 'no value'; times with dashes."""
    made = dict(texts.columns)
    made[found["ts"]] = pc.replace_substring(made[found["ts"]], "/", "-")
    for field in _NUMBERS:
        if field.target in found:
            cell = pc.utf8_trim_whitespace(made[found[field.target]])
            none = pc.fill_null(pc.match_substring_regex(cell, _NO_VALUE), False)
            plain = pc.replace_substring_regex(cell, rf"\s*{field.unit}$", "")
            made[found[field.target]] = pc.if_else(none, pa.scalar(None, pa.string()), plain)
    return Texts(made, texts.rows, texts.rows_in, texts.rejects)


def _columns(found: dict[str, str], options: DatasetOptions) -> list[ColumnMapping]:
    columns = [cell_conversion.instant("ts", found["ts"], options.timezone)]
    columns += [
        cell_conversion.text(field.target, found[field.target]) for field in _NAMES if field.target in found
    ]
    for field in _NUMBERS:
        if field.target in found:
            make = cell_conversion.whole if field.target in _BYTES else cell_conversion.number
            columns.append(make(field.target, found[field.target], field.factor))
    return columns
