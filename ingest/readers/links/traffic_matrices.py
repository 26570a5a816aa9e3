"""Traffic matrices, one a line: n x n numbers in b/s, row-major, source first (`.hist` of FIGRET).

A row of the lake is one ordered pair of nodes at one instant, kind `load`: traffic that is offered, not what
is left (`source_row` = line x pairs + pair, from 1). Zeros are loads. Nodes are nameless and become `node-0`,
`node-1`, ... as in the topology beside them. Traffic from a node to itself crosses no link: rejected unless
it is 0.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import isqrt
from pathlib import PurePath

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.core.units import to_ns
from ingest.lake.schema import TS
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import Reject, RowBatch
from ingest.parsing.source import BOM, Source
from ingest.parsing.text_lines import numbered

INTERVAL_S = 900.0
"""Spacing of matrices: SNMP and NetFlow figures come a quarter of an hour apart."""
_TABLE = "link_samples"
_LEAST = 4
"""Entries of the smallest matrix, 2 x 2."""
_LINES = 256
"""Matrices of a batch at most..."""
_VALUES = 1 << 20
"""...and from how many entries together a batch is full: matrices may be large."""
_SELF = "from a node to itself"


class TrafficMatrices:
    """Offered load between all pairs of nodes."""

    name = "traffic-matrices"
    version = 1
    text_only = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the extension is `.hist` and the file begins with numbers between blanks."""
        return path.suffix == ".hist" and all(
            _is_number(cell) for cell in head.removeprefix(BOM).split()[:_LEAST]
        )

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each pair of each line."""
        nodes: int | None = None
        lines: list[tuple[int, NDArray[np.float64]]] = []
        rejects: list[Reject] = []
        order = 0
        for line, content in numbered(source):
            cells = content.split()
            order += 1
            try:
                values = _matrix(cells, nodes)
            except ValueError as error:
                rejects.append(Reject(line, "", content[:200], str(error)))
                continue
            nodes = isqrt(len(cells))
            lines.append((order - 1, values))
            if len(lines) >= _LINES or len(lines) * len(cells) >= _VALUES:
                yield _batch(lines, nodes, rejects, options)
                lines, rejects = [], []
        yield _batch(lines, nodes or 0, rejects, options)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "traffic-matrices: numbers are taken to be b/s (their size and that of the capacities say so); "
            "nodes are called node-0, node-1, ... in the order of the matrix",
            f"traffic-matrices: no time stamps; line n begins {options.interval_s or INTERVAL_S:g} s "
            f"x (n - 1) after {options.start_or_default().isoformat()}",
        )


def _is_number(cell: bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return b"_" not in cell


def _matrix(cells: list[str], nodes: int | None) -> NDArray[np.float64]:
    """One line as numbers; raises ValueError if it is no square matrix of the size of those before."""
    size = isqrt(len(cells))
    if size * size != len(cells) or len(cells) < _LEAST:
        raise ValueError(f"{len(cells)} numbers are no square matrix")
    if nodes not in (None, size):
        raise ValueError(f"a matrix of {size} nodes among matrices of {nodes}")
    if any("_" in cell for cell in cells):  # numpy would read 1_000 as a number
        raise ValueError("not numbers")
    return np.array([float(cell) for cell in cells])  # not by NumPy: as wide as the longest cell for all


def _batch(
    lines: list[tuple[int, NDArray[np.float64]]],
    nodes: int,
    rejects: list[Reject],
    options: DatasetOptions,
) -> RowBatch:
    if not lines:
        return RowBatch(_TABLE, {"source_row": []}, len(rejects), tuple(rejects))
    values = np.stack([value for _, value in lines])
    orders = np.array([order for order, _ in lines], np.int64)
    src, dst, pairs = _pairs(nodes)
    selves = values[:, :: nodes + 1]
    faulty = list(rejects)
    for at, node in np.argwhere(selves != 0).tolist():
        faulty.append(Reject(int(orders[at]) + 1, f"node-{node}", str(selves[at, node]), _SELF))
    count = len(pairs)
    step_ns = to_ns(options.interval_s or INTERVAL_S)
    times = to_ns(options.start_or_default().timestamp()) + orders * step_ns
    rows = np.repeat(orders * count, count) + np.tile(np.arange(1, count + 1), len(lines))
    columns = {
        "source_row": pa.array(rows),
        "ts": pa.array(np.repeat(times, count)).cast(TS),
        "src": pa.concat_arrays([src] * len(lines)),
        "dst": pa.concat_arrays([dst] * len(lines)),
        "bandwidth_bps": pa.array(values[:, pairs].ravel()),  # b/s
        "kind": pa.repeat("load", count * len(lines)).dictionary_encode(),
        "duration_s": pa.repeat(options.interval_s or INTERVAL_S, count * len(lines)),
    }
    return RowBatch(_TABLE, columns, count * len(lines) + len(faulty), tuple(faulty))


@lru_cache(maxsize=4)
def _pairs(nodes: int) -> tuple[pa.DictionaryArray, pa.DictionaryArray, NDArray[np.int64]]:
    """Source and destination of every ordered pair, and where it stands in the matrix."""
    names = pa.array([f"node-{node}" for node in range(nodes)])
    at = np.flatnonzero(~np.eye(nodes, dtype=bool).ravel())
    src, dst = (at // nodes).astype(np.int32), (at % nodes).astype(np.int32)
    return (
        pa.DictionaryArray.from_arrays(pa.array(src), names),
        pa.DictionaryArray.from_arrays(pa.array(dst), names),
        at,
    )
