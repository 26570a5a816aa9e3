"""Collectives and point-to-point rates as Aceso profiles them.

`prim_<model>_<op>_<N>gpus.csv` has `data_size(MB),time(ms)`; `p2p_intra_node.csv` and `p2p_inter_node.csv`
have sizes in the first line and rates in the second. The profilers count MB as MiB and GB/s as GiB/s. Where
a collective failed they wrote a time of 1,000 s or more: no measurement.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath

import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.errors import InputError
from ingest.core.units import BITS_PER_BYTE, GIB, MIB, MS
from ingest.parsing import cell_conversion, csv_blocks, text_lines
from ingest.parsing.cell_conversion import ColumnMapping
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, folder
from ingest.parsing.source import Source

_TABLE = "collective_profiles"
_PRIMITIVE = re.compile(r"prim_.{1,80}?_(all_gather|all_reduce|all_to_all|reduce_scatter)_(\d{1,5})gpus\.csv")
_P2P = re.compile(r"p2p_(intra|inter)_node\.csv")
_HEADER = ["data_size(MB)", "time(ms)"]
_FAILED_MS = 1e6


def _measured(cell: str) -> float:
    time_ms = float(cell)
    if time_ms >= _FAILED_MS:
        raise ValueError(cell)
    return time_ms * MS


def _all_measured(column: pa.Array) -> pa.Array:
    times_ms = column.cast(pa.float64())
    if pc.any(pc.greater_equal(times_ms, _FAILED_MS)).as_py():
        raise pa.ArrowInvalid("some collectives failed")
    return pc.multiply(times_ms, MS)


_COLUMNS = (
    cell_conversion.whole("bytes", _HEADER[0], MIB),
    ColumnMapping(
        "time_s", _HEADER[1], pa.float64(), _all_measured, _measured, pa.float64(),
        "no time, or one that stands for a failed measurement",
    ),
)  # fmt: skip


class AcesoCollectives:
    """Collectives inside a node, and rates between two GPUs."""

    name = "aceso-collectives"
    version = 1
    text_only = True
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the name has operation and GPUs."""
        if _P2P.fullmatch(path.name):
            first = csv_blocks.header(head)
            return bool(first) and all(cell.replace(".", "", 1).isdigit() for cell in first)
        return bool(_PRIMITIVE.fullmatch(path.name)) and csv_blocks.header(head) == _HEADER

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each size."""
        gpu = options.gpu_model or folder(source, options)
        pair, primitive = _P2P.fullmatch(source.path.name), _PRIMITIVE.fullmatch(source.path.name)
        if pair is not None:
            yield _rates(source, 1 if pair[1] == "intra" else 2, gpu)
        elif primitive is not None and csv_blocks.header(source.head) == _HEADER:
            constants = {"op": primitive[1], "ranks": int(primitive[2]), "nodes": 1, "gpu_model": gpu}
            stated = {name: value for name, value in constants.items() if value is not None}
            yield from csv_blocks.side_by_side(
                source, cell_conversion.Typed(_TABLE, _HEADER, _COLUMNS, stated)
            )
        else:
            raise InputError(f"{source.shown}: neither a collective nor a p2p profile of Aceso")

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "aceso-collectives: MB are MiB and GB/s are GiB/s, as in the profiler's code; the collectives "
            "ran inside one node",
            "aceso-collectives: bytes is what each rank sends: its part of an all_gather, else the whole",
        )


def _rates(source: Source, nodes: int, gpu: str | None) -> RowBatch:
    lines = [line.split(",") for _, line in text_lines.numbered(source)]
    if len(lines) != 2 or len(lines[0]) != len(lines[1]):
        raise InputError(f"{source.shown}: must be a line of sizes and a line of as many rates")
    rows = RowBuilder(
        _TABLE, ("bytes", "time_s", "bandwidth_bps"), op="send_recv", gpu_model=gpu, nodes=nodes, ranks=2
    )
    for at, pair in enumerate(zip(*lines, strict=True), 1):
        rows.take(at, "rate", pair[1], _rate, *pair)
    return rows.batch()


def _rate(size_mib: str, rate_gib_s: str) -> tuple[int, float, float]:
    size, rate = amount(size_mib) * MIB, amount(rate_gib_s) * GIB
    if rate == 0:
        raise ValueError("a rate of 0")
    return round(size), size / rate, rate * BITS_PER_BYTE
