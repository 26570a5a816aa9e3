"""Execution traces of MLCommons Chakra: `*.et`, one per rank, messages of Protocol Buffers behind lengths.

The first message is `GlobalMetadata`, each other one a `Node`. A node with a measured duration gives a row of
`op_times`, with `start_s` counted from the first such node of the file; nodes without one (metadata, or
operations that were never timed) give none. The rank is the last number in the file's name. `source_row` is
the number of the node. Definition: MLCommons Chakra, `schema/protobuf/et_def.proto`.
"""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import PurePath
from typing import Any

from ingest.core.errors import InputError
from ingest.core.units import US
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import text
from ingest.parsing.protobuf_wire import delimited, fields
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import Source

_TABLE = "op_times"
_VERSION = re.compile(rb".{1,3}\n.{0,2}\d{1,3}(?:\.\d{1,3}){0,2}", re.DOTALL)
_RANK = re.compile(r"(\d{1,6})(?!.*\d)")
_NAME, _START, _DURATION = 2, 6, 7
_LONGEST_S = 86_400.0
_FLUSH = 1 << 15


class Chakra:
    """Chakra execution traces."""

    name = "chakra"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True for a file `*.et` that begins with the version of the schema."""
        return path.suffix == ".et" and _VERSION.match(head) is not None

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each timed node.

        Raises:
            InputError: no node has a duration.
        """
        rank = _RANK.search(source.path.stem)
        worker = rank[1] if rank else None
        rows = RowBuilder(_TABLE, ("op", "start_s", "time_s"), job=source.path.stem, worker=worker)
        begun_us, timed = None, False
        for row, node in _nodes(source, rows):
            duration_us = node.get(_DURATION, 0)
            if duration_us == 0:
                continue
            timed, start_us = True, node.get(_START, 0)
            begun_us = start_us if begun_us is None else begun_us
            rows.take(row, "node", repr(node), _op, node.get(_NAME), start_us, begun_us, duration_us)
            if len(rows) >= _FLUSH:
                yield rows.batch()
        if not timed and not len(rows):
            raise InputError(
                f"{source.shown}: no node has a duration: link the trace with one of the profiler "
                "(chakra_trace_link), or give the profiler's own trace"
            )
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("chakra: start_s counts from the first timed node; nodes that were never timed have no row",)


def _nodes(source: Source, rows: RowBuilder) -> Iterator[tuple[int, dict[int, Any]]]:
    """Yields number and fields of each node; one that is damaged goes to the rejects, as does a cut end."""
    with source.open() as stream:
        messages = delimited(stream)
        for row in count():
            try:
                message = next(messages, None)
            except ValueError as error:
                rows.reject(row, "node", f"behind node {row - 1}", f"{error}; what follows cannot be found")
                return
            if message is None:
                return
            if not message:  # a node has a name; the zeros of a lost block are empty messages without end
                rows.reject(row, "node", f"behind node {row - 1}", "is empty; what follows cannot be found")
                return
            try:
                node: dict[int, Any] = dict(fields(message))
            except ValueError as error:
                rows.reject(row, "node", message[:40].hex(), error)
                continue
            if row:
                yield row, node


def _op(name: Any, start_us: Any, begun_us: Any, duration_us: Any) -> tuple[str, float, float]:
    if not isinstance(name, bytes) or not all(
        isinstance(us, int) for us in (start_us, begun_us, duration_us)
    ):
        raise ValueError("not a node: its name or its times are of another type")
    if duration_us * US > _LONGEST_S:
        raise ValueError(f"it takes {duration_us * US:.0f} s: not microseconds, or damaged")
    return text(name.decode())[:200], max(0.0, (start_us - begun_us) * US), duration_us * US
