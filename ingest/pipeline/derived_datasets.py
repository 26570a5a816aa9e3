"""Data sets that are computed from another one in the lake, by a recipe in its `dataset.toml`.

```toml
[derive.geant-available]           # name of the new set
method = "available"               # the only one: what offered load leaves of the capacities
routing = "shortest"               # or "ecmp"
nodes = ["node-0", "node-4"]       # ends of the links of the new set; default all
```

`available` routes the `load` samples of every instant over the `capacity` samples and stores, for each
ordered pair of `nodes`, the rate that still fits (kind `available`). The recipe and what it takes for granted
are kept with the set; the identity of its source is the content it was computed from: it is renewed with it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.core.config import suggestion
from ingest.core.errors import InputError
from ingest.lake import duckdb_views, lake
from ingest.lake.schema import TS
from ingest.parsing.dataset import DatasetOptions, Routing
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source, from_bytes
from ingest.pipeline.routing import Routes, routes

_TABLE = "link_samples"
_WAYS: dict[Routing, str] = {
    "shortest": "one shortest path a pair",
    "ecmp": "all shortest paths of a pair, split evenly at every node (ECMP)",
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe by which one set is computed from another."""

    name: str
    origin: str
    routing: Routing
    nodes: tuple[str, ...]

    @property
    def statement(self) -> str:
        """The modelling step in words; printed and kept."""
        return (
            f"available bandwidth computed, not measured: the offered load of {self.origin} routed over "
            f"{_WAYS[self.routing]} by inverse capacity, what is left of the capacity of the tightest link; "
            "an overloaded link leaves 0"
        )

    def options(self, origin: DatasetOptions) -> DatasetOptions:
        """Options of the new set: licence and citation of the old one."""
        return DatasetOptions(
            name=self.name,
            title=f"available bandwidth, from {self.origin}",
            licence=origin.licence,
            citation=origin.citation,
            url=origin.url,
            synthetic=origin.synthetic,
            assumptions=(self.statement, *origin.assumptions),
            derived=self.statement,
        )

    def source(self, store: Path) -> Source:
        """Returns the source of the new set: identity of the old one, and the recipe."""
        body = [lake.digest(store, self.origin), self.routing, self.nodes]
        data = json.dumps(body).encode()
        return from_bytes(f"{self.origin}.available", f"{self.origin} -> {self.name}", data)


def recipes(options: DatasetOptions) -> list[Recipe]:
    """Returns the recipes in the options of a set, sorted by name."""
    return [
        Recipe(name, options.name, stated.routing, stated.nodes)
        for name, stated in sorted(options.derive.items())
    ]


class Available:
    """The reader of a recipe: it reads the lake."""

    name = "available"
    version = 1
    tables = (_TABLE,)

    def __init__(self, recipe: Recipe, store: Path):
        self._recipe, self._store = recipe, store

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if no file is in this format."""
        return False

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields one batch: a row for each instant and pair of nodes."""
        found = _network(self._store, self._recipe)
        times, offered = _offered(self._store, self._recipe.origin, found)
        available = found.available_bps(found.load_bps(offered))
        wanted = set(self._recipe.nodes) or {node for pair in found.pairs for node in pair}
        at = [n for n, (a, b) in enumerate(found.pairs) if a in wanted and b in wanted]
        yield _batch(times, [found.pairs[n] for n in at], available[:, at])

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ()


def _network(store: Path, recipe: Recipe) -> Routes:
    with duckdb_views.connect(store) as connection:
        rows = connection.execute(
            f"SELECT src, dst, max_by(bandwidth_bps, ts) FROM {_TABLE} "
            "WHERE dataset = ? AND kind = 'capacity' GROUP BY src, dst ORDER BY src, dst",
            [recipe.origin],
        ).fetchall()
    if not rows:
        raise InputError(f"{recipe.origin} has no capacities; ingest its topology too")
    found = routes({(src, dst): rate for src, dst, rate in rows}, recipe.routing)
    known = {node for pair in found.pairs for node in pair}
    for node in recipe.nodes:
        if node not in known:
            raise InputError(f"{recipe.origin} has no node {node!r}{suggestion(node, known)}")
    return found


def _offered(store: Path, origin: str, network: Routes) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Instants, and the load that each pair offers at each; what is not in the set is no load."""
    with duckdb_views.connect(store) as connection:
        rows = connection.execute(
            f"SELECT epoch_ns(ts) AS ns, src, dst, avg(bandwidth_bps) AS bps FROM {_TABLE} "
            "WHERE dataset = ? AND kind = 'load' AND src <> dst GROUP BY ts, src, dst ORDER BY ts, src, dst",
            [origin],
        ).fetchnumpy()
    if not len(rows["ns"]):
        raise InputError(f"{origin} has no offered load; ingest its traffic matrices too")
    at = {pair: n for n, pair in enumerate(network.pairs)}
    times, when = np.unique(np.asarray(rows["ns"], np.int64), return_inverse=True)
    try:
        pair = np.array([at[p] for p in zip(rows["src"], rows["dst"], strict=True)])
    except KeyError as error:
        raise InputError(f"{origin}: load between {error}, which are no nodes of its topology") from error
    offered = np.zeros((len(times), len(at)))
    offered[when, pair] = rows["bps"]
    return times, offered


def _batch(
    times: NDArray[np.int64], pairs: list[tuple[str, str]], available: NDArray[np.float64]
) -> RowBatch:
    count = available.size
    src, dst = (pa.array([pair[end] for pair in pairs] * len(times)).dictionary_encode() for end in (0, 1))
    columns = {
        "source_row": pa.array(np.arange(1, count + 1)),
        "ts": pa.array(np.repeat(times, len(pairs))).cast(TS),
        "src": src,
        "dst": dst,
        "bandwidth_bps": pa.array(available.ravel()),
        "kind": pa.repeat("available", count).dictionary_encode(),
    }
    return RowBatch(_TABLE, columns, count)
