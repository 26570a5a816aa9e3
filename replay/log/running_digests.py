"""Running digests of a log, over rows as they are written and over tables as they are read."""

import hashlib
import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from replay.log.events import line

Row = tuple[int, int, str, int, str, str, str]
"""One event as stored, in the order of `segment.SCHEMA`."""


class Streams:
    """The two running SHA-256 digests of a log: canonical lines, and wall-clock texts."""

    def __init__(self) -> None:
        self._lines, self._walls = hashlib.sha256(), hashlib.sha256()

    def add(self, rows: Sequence[Row]) -> tuple[bytes, bytes]:
        """Adds the next events; returns what was digested: their canonical lines, their wall-clock texts."""
        lines = b"".join([line(*row[:6]) for row in rows])
        walls = "".join([f"{row[6]}\n" for row in rows]).encode()
        self._lines.update(lines)
        self._walls.update(walls)
        return lines, walls

    def add_table(self, table: pa.Table) -> None:
        """Adds the next events, as a table of `SCHEMA`."""
        self._lines.update(lines(table))
        self._walls.update(_joined([table.column("wall"), "\n"]))

    @property
    def stream(self) -> str:
        """Digest of the canonical lines so far."""
        return self._lines.hexdigest()

    @property
    def walls(self) -> str:
        """Digest of the wall-clock texts so far."""
        return self._walls.hexdigest()


def lines(table: pa.Table) -> memoryview:
    """Returns the canonical lines (`events.line`) of all rows, concatenated."""
    jobs = table.column("job").combine_chunks().dictionary_encode()
    quoted = [json.dumps(job, ensure_ascii=False) for job in jobs.dictionary.to_pylist()]
    job = pc.take(pa.array(quoted, pa.string()), jobs.indices)
    number = {name: pc.cast(table.column(name), pa.string()) for name in ("seq", "sim_ns", "version")}
    parts = ('{"job":', job, ',"payload":', table.column("payload"), ',"seq":', number["seq"])
    rest = (',"sim_ns":', number["sim_ns"], ',"type":"', table.column("type"), '","version":')
    return _joined([*parts, *rest, number["version"], "}\n"])


def _joined(parts: Sequence[pa.Array | str]) -> memoryview:
    """Concatenates the parts (columns, or texts equal in every row) row by row, as bytes."""
    columns = [
        pa.scalar(part, pa.large_string()) if isinstance(part, str) else pc.cast(part, pa.large_string())
        for part in parts
    ]
    joined = pc.binary_join_element_wise(*columns, pa.scalar("", pa.large_string()))
    chunks = joined.chunks if isinstance(joined, pa.ChunkedArray) else [joined]
    whole = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks or [pa.array([], pa.large_string())])
    if not len(whole):
        return memoryview(b"")
    _, offsets, data = whole.buffers()
    ends = memoryview(offsets).cast("q")
    return memoryview(data)[ends[whole.offset] : ends[whole.offset + len(whole)]]
