"""Output of nccl-tests, one or several runs, plain or inside other text.

A line of numbers gives two rows: out of place and in place (`variant`). Time is in us, `bandwidth_bps` is the
bus bandwidth (GB/s in the file; not known where it rounds to 0). The lines `Rank ... on <host> device ...`
before them state ranks, nodes and GPU; the program is named after the operation. `source_row` is the line.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath

from ingest.core.units import BITS_PER_BYTE, GB, US
from ingest.parsing import text_lines
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import Source

_TABLE = "collective_profiles"
_PROGRAM = re.compile(r"\b([a-z_]{4,20})_perf\b")
_RANK = re.compile(r"#?\s*Rank\s+\d+ .*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)")
_NUMBERS = re.compile(r"\d+\s+\d+\s+[a-z0-9_]+\s+[a-z]+\s+-?\d+\s+(\S.*)")
_OPS = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
_VARIANTS = ("out of place", "in place")
_FIELDS = 4
"""Time, algorithm bandwidth, bus bandwidth, wrong values - for each variant."""


class NcclTests:
    """Time of collectives against the message size."""

    name = "nccl-tests"
    version = 1
    text_only = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the head of the table is there, and the ranks."""
        return b"algbw" in head and b"busbw" in head and b"Rank " in head

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields two rows for each size."""
        names = ("op", "gpu_model", "nodes", "ranks", "variant", "bytes", "time_s", "bandwidth_bps")
        rows = RowBuilder(_TABLE, names)
        operation = _PROGRAM.search(source.path.stem)
        hosts: list[str] = []
        gpu, listed = options.gpu_model, False
        for row, line in text_lines.numbered(source):
            rank, program, numbers = _RANK.fullmatch(line), _PROGRAM.search(line), _NUMBERS.fullmatch(line)
            if program and not numbers:
                operation = program
            if rank:
                hosts = [*hosts, rank[1]] if listed else [rank[1]]
                gpu = options.gpu_model or rank[2] or None
            listed = bool(rank) or (listed and not numbers)
            if numbers:
                setting = operation, gpu, hosts
                for at in range(len(_VARIANTS)):
                    rows.take(row, _VARIANTS[at], line, _measured, line.split(), at, *setting)
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("nccl-tests: ranks and operation are those named last before a table",)


def _measured(
    cells: list[str], at: int, operation: re.Match[str] | None, gpu: str | None, hosts: list[str]
) -> tuple[object, ...]:
    if operation is None or not hosts:
        raise ValueError("the text names no program (all_reduce_perf, ...) or no ranks before this line")
    found = cells[5 + at * _FIELDS : 5 + (at + 1) * _FIELDS]
    if len(found) < _FIELDS - 1:
        raise ValueError("the line is cut")
    op = _OPS.get(operation[1], operation[1])
    rate = amount(found[2]) * GB * BITS_PER_BYTE  # GB/s
    size, time_s = whole(cells[0]), amount(found[0]) * US  # B, us
    return op, gpu, len(set(hosts)), len(hosts), _VARIANTS[at], size, time_s, rate or None
