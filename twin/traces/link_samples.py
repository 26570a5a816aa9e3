"""Link samples of the lake: the series of every link, or one figure a link; what is missing is explained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, permutations
from pathlib import Path
from typing import Literal

import numpy as np

from ingest.public import catalogue
from ingest.core.config import suggestion
from ingest.core.errors import NotFoundError, UsageError
from twin.traces.wan_trace import Times, Values
from twin.settings.wan_links import SourceSettings, WanSettings

Pair = tuple[int, int]
Between = tuple[int, int] | None
"""The first and the last moment of samples, epoch ns, both included; None: of any time."""
Figure = Literal["rtt_s", "bandwidth_bps", "single_bps"]

_STREAMS = "CASE WHEN kind = 'available' THEN $streams ELSE coalesce(streams, $sample_streams) END"
"""What a sample is shared among: a rate that is available is there for all streams of a transfer."""
_RATE = f"bandwidth_bps / {_STREAMS}"
_OBTAINED = "coalesce(kind, '') IN ('', 'tcp', 'available', 'ping')"
"""Offered load, line rates and datagrams sent at a chosen rate are no measurement of what a transfer gets."""
_OF_LINKS = f"""dataset = $dataset AND src <> dst
      AND ($sites IS NULL OR (list_contains($sites, src) AND list_contains($sites, dst)))
      AND bandwidth_bps IS NOT NULL AND coalesce(duration_s, 'inf') >= $min_duration_s
      AND {_OBTAINED} AND coalesce(source_file = $file, true)
      AND coalesce(epoch_ns(ts) BETWEEN $first_ns AND $last_ns, true)"""
_SERIES = f"""
    SELECT epoch_ns(ts) AS ns, src, dst, avg({_RATE}) AS single_bps, avg(rtt_s) AS rtt_s
    FROM link_samples
    WHERE {_OF_LINKS} AND list_contains($sources, src) AND list_contains($targets, dst)
    GROUP BY ts, src, dst
    ORDER BY src, dst, ns
"""
_SIZES = f"SELECT src, dst, count(*) FROM link_samples WHERE {_OF_LINKS} GROUP BY src, dst ORDER BY src, dst"
_FORMS = f"""
    SELECT DISTINCT CASE WHEN kind = 'available' THEN 'available' ELSE 'single' END
    FROM link_samples
    WHERE dataset = $dataset AND list_contains($sites, src) AND list_contains($sites, dst) AND src <> dst
      AND bandwidth_bps IS NOT NULL AND {_OBTAINED} AND coalesce(source_file = $file, true)
"""
ROWS_AT_ONCE = 250_000
"""Names and groups of so many rows are in memory together; what stays of a sample is three numbers."""
_FIGURES: Mapping[Figure, str] = {"rtt_s": "rtt_s", "bandwidth_bps": "bandwidth_bps", "single_bps": _RATE}
_GRID = """
    SELECT src, dst, median({figure}) FROM link_samples
    WHERE dataset = $dataset AND list_contains($sites, src) AND list_contains($sites, dst) AND src <> dst
      AND {obtained} AND coalesce(source_file = $file, true)
    GROUP BY src, dst HAVING median({figure}) IS NOT NULL
"""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Samples of one link: epoch ns, b/s of a single stream, round trip in s (NaN where unknown)."""

    times_ns: Times
    single_bps: Values
    rtt_s: Values


def series(
    store: Path,
    source: SourceSettings,
    spec: WanSettings,
    sites: Sequence[str] | None,
    between: Between = None,
) -> dict[tuple[str, str], Series]:
    """The samples of every link between `sites`, or of all links; sorted by link.

    Read in parts, so that memory beyond the numbers themselves does not grow with the trace.
    """
    ask = _asking(store, source, spec, sites, between)
    sizes = ask(_SIZES).fetchall()
    found: dict[tuple[str, str], Series] = {}
    for sources, targets in _parts(sizes):
        found |= _split(ask(_SERIES, sources=sources, targets=targets).fetchnumpy())
    return {pair: found[pair] for pair in sorted(found)}


def forms(store: Path, source: SourceSettings, spec: WanSettings, sites: Sequence[str]) -> set[str]:
    """What the samples between `sites` are: `available` rates, rates of `single` streams, or both."""
    return {form for (form,) in _asking(store, source, spec, sites)(_FORMS).fetchall()}


def _parts(sizes: Sequence[tuple[str, str, int]]) -> list[tuple[list[str], list[str]]]:
    """Sources x targets of each part: as many whole sources as fit, or one with some of its targets."""
    parts: list[tuple[list[str], list[str]]] = []
    room = 0
    for source, rows in groupby(sizes, key=lambda row: row[0]):
        links = [(target, count) for _, target, count in rows]
        whole = sum(count for _, count in links)
        if whole <= room:
            parts[-1][0].append(source)
            parts[-1][1].extend(target for target, _ in links)
            room -= whole
            continue
        parts.append(([source], []))
        room, alone = ROWS_AT_ONCE, True
        for target, count in links:
            if count > room and parts[-1][1]:
                parts.append(([source], []))
                room, alone = ROWS_AT_ONCE, False
            parts[-1][1].append(target)
            room -= count
        room = room if alone else 0
    return parts


def _split(columns: Mapping[str, Values]) -> dict[tuple[str, str], Series]:
    """The series of each link, of rows in the order of links."""
    times = np.asarray(columns["ns"], np.int64)
    rate = np.asarray(columns["single_bps"], np.float64)
    rtt = np.ma.filled(np.ma.asarray(columns["rtt_s"], dtype=np.float64), np.nan)
    ends = [*zip(columns["src"].tolist(), columns["dst"].tolist(), strict=True)]
    edges = [0, *(n for n in range(1, len(ends)) if ends[n] != ends[n - 1]), len(ends)]
    return {ends[a]: Series(times[a:b], rate[a:b], rtt[a:b]) for a, b in pairwise(edges) if b > a}


def grid(
    store: Path, source: SourceSettings, spec: WanSettings, domains: Sequence[str], figure: Figure
) -> dict[Pair, float]:
    """The median of a figure for every pair of domains that the set knows."""
    sites = [source.sites.get(name, name) for name in domains]
    text = _GRID.format(figure=_FIGURES[figure], obtained=_OBTAINED)
    found = {(src, dst): value for src, dst, value in _asking(store, source, spec, sites)(text).fetchall()}
    pairs = permutations(range(len(sites)), 2)
    return {(i, j): found[sites[i], sites[j]] for i, j in pairs if (sites[i], sites[j]) in found}


def explain(
    store: Path, source: SourceSettings, sites: Sequence[str], what: str
) -> NotFoundError | UsageError:
    """Why a link has no sample, and the way out; `what` says which sample, in words."""
    from ingest.lake import lake_sql as query  # brings duckdb, needed here only

    with query.connect(store) as connection:
        rows = connection.execute("SELECT DISTINCT dataset FROM link_samples ORDER BY 1").fetchall()
        names = [row[0] for row in rows]
        found = connection.execute(
            "SELECT DISTINCT unnest([src, dst]) FROM link_samples WHERE dataset = ? "
            "AND coalesce(source_file = ?, true)",
            [source.dataset, source.file],
        ).fetchall()
    name = source.dataset
    if name not in names:
        other = f", or choose one of: {', '.join(names)} with --dataset" if names else ""
        return NotFoundError(f"the lake in {store} has no link samples of {name!r}: {_way_to(name)}{other}")
    known = [row[0] for row in found]
    unknown = [site for site in sites if site not in known]
    if unknown:
        return UsageError(
            f"data set {name!r} has no site {unknown[0]!r}{suggestion(unknown[0], known)}; "
            "name the site of each domain under `wan.sites`"
        )
    return UsageError(f"data set {name!r} has no {what}")


def _way_to(name: str) -> str:
    """What brings a data set into the lake."""
    if name.startswith("synthetic-"):
        return "run `twin ingest traces/`"
    origin = catalogue.origin_of(name)
    if origin is None:
        return f"run `twin ingest` on the folder of {name}"
    return f"run `twin fetch {origin}` and then `twin ingest` on its folder"


def _asking(  # type: ignore[no-untyped-def]
    store: Path,
    source: SourceSettings,
    spec: WanSettings,
    sites: Sequence[str] | None,
    between: Between = None,
):
    """What runs a query with the figures of a source and a spec, and with those that it is given."""
    from ingest.lake import lake_sql as query  # brings duckdb, needed here only

    connection = query.connect(store)
    usual = {
        "dataset": source.dataset,
        "file": source.file,
        "sites": None if sites is None else list(sites),
        "streams": spec.streams,
        "sample_streams": spec.sample_streams,
        "min_duration_s": spec.min_duration_s,
        "first_ns": None if between is None else between[0],
        "last_ns": None if between is None else between[1],
    }

    def ask(text: str, **given: list[str]):  # type: ignore[no-untyped-def]
        every = usual | given
        return connection.execute(text, {name: every[name] for name in every if f"${name}" in text})

    return ask
