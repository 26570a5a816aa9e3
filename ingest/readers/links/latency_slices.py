"""Square matrices of RTTs in seconds, a file a time slice: `<name>_<t>` without extension, TAB-separated.

Entry (i, j) is the RTT from node i to node j; nodes have no names and become `node-1`, `node-2`, ... A row of
the lake is one cell (`source_row` = line x nodes + column, from 1). 0 off the diagonal means missing or below
the resolution: rejected. So is a diagonal entry that is not 0; one that is 0 is no measurement.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePath

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.core.units import to_ns
from ingest.lake.schema import TS
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import Reject, RowBatch
from ingest.parsing.source import BOM, Source

INTERVAL_S = 15.7
"""Assumed spacing of slices: three hours over the 688 slices of the Seattle set."""
_NAME = re.compile(r"\w*?_(\d{1,9})")
_LEAST = 3
"""Nodes that make a matrix worth the name."""
_NUMBER = re.compile(rb"[\d.eE+-]+")
_ZERO = "0: missing, or below the resolution"
_SELF = "from a node to itself"
Ends = tuple[pa.DictionaryArray, pa.DictionaryArray]


class LatencySlices:
    """Ordered slices of an RTT matrix."""

    name = "latency-slices"
    version = 1
    text_only = True
    tables = ("link_samples",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """True if the name ends in the number of a slice and the first line is numbers between TABs."""
        if not _NAME.fullmatch(path.name):
            return False
        first = head.removeprefix(BOM).split(b"\n", 1)[0].split()
        return len(first) >= _LEAST and b"\t" in head and all(_NUMBER.fullmatch(cell) for cell in first)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields one batch: the cells of the slice."""
        named = _NAME.fullmatch(source.path.name)
        if named is None:
            yield _unusable(source, "not called <name>_<number of the slice>")
            return
        lines = [line.split() for line in source.data().removeprefix(BOM).splitlines()]
        lines = [line for line in lines if line]
        nodes = len(lines[0]) if lines else 0
        if len(lines) != nodes or nodes < _LEAST or any(len(line) != nodes for line in lines):
            yield _unusable(source, f"{len(lines)} lines of {nodes} entries are no square matrix")
            return
        yield _slice([cell for line in lines for cell in line], nodes, _ts_ns(int(named[1]), options))

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            f"latency-slices: no time stamps; slice t begins {options.interval_s or INTERVAL_S:g} s "
            f"x (t - 1) after {options.start_or_default().isoformat()}",
            "latency-slices: an RTT of 0 is rejected as missing or below the resolution",
        )


def _unusable(source: Source, reason: str) -> RowBatch:
    shown = source.head[:80].decode("utf-8", "replace")
    return RowBatch("link_samples", {"source_row": []}, 1, (Reject(0, "", shown, reason),))


def _ts_ns(order: int, options: DatasetOptions) -> int:
    start_ns = to_ns(options.start_or_default().timestamp())
    return start_ns + to_ns((order - 1) * (options.interval_s or INTERVAL_S))


def _slice(texts: list[bytes], nodes: int, ts_ns: int) -> RowBatch:
    values, wrong = _values(texts)
    diagonal = np.zeros(nodes * nodes, bool)
    diagonal[:: nodes + 1] = True
    nothing = diagonal & (values == 0) & ~wrong
    faults = ((wrong, "not a number"), (diagonal & ~nothing, _SELF), (~diagonal & (values == 0), _ZERO))
    bad = np.zeros(len(values), bool)
    rejects = []
    for mask, reason in faults:
        for at in np.flatnonzero(mask & ~bad).tolist():
            rejects.append(Reject(at + 1, "rtt", texts[at].decode("utf-8", "replace"), reason))
        bad |= mask
    keep = np.flatnonzero(~(bad | nothing))
    src, dst = _ends(nodes)
    columns = {
        "source_row": pa.array(keep + 1),
        "ts": pa.array(np.full(len(keep), ts_ns, np.int64)).cast(TS),
        "src": src.take(pa.array(keep)),
        "dst": dst.take(pa.array(keep)),
        "rtt_s": pa.array(values[keep]),
        "kind": pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(keep), np.int32)), pa.array(["ping"])),
    }
    return RowBatch("link_samples", columns, len(keep) + len(rejects), rejects)


def _values(texts: list[bytes]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers, and which cells hold none."""
    try:
        if not any(b"_" in cell for cell in texts):  # numpy would read 1_000 as a number
            return np.array(texts).astype(np.float64), np.zeros(len(texts), bool)
    except ValueError:
        pass  # the cells at fault are found below
    made = [_number(cell) for cell in texts]
    wrong = np.array([value is None for value in made])
    return np.array([0.0 if value is None else value for value in made]), wrong


def _number(cell: bytes) -> float | None:
    try:
        return float(cell) if b"_" not in cell else None
    except ValueError:
        return None


@lru_cache(maxsize=4)
def _ends(nodes: int) -> Ends:
    """Source and destination of every cell, line by line."""
    names = pa.array([f"node-{at + 1}" for at in range(nodes)])
    every = np.arange(nodes, dtype=np.int32)
    return (
        pa.DictionaryArray.from_arrays(pa.array(np.repeat(every, nodes)), names),
        pa.DictionaryArray.from_arrays(pa.array(np.tile(every, nodes)), names),
    )
