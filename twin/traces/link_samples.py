"""Reads link samples from the lake: a series per link, or one figure per link; errors say what is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, permutations
from pathlib import Path
from typing import Literal

import numpy as np

from ingest.core.config import suggestion
from ingest.core.errors import NotFoundError, UsageError
from ingest.public import catalogue
from twin.settings.wan_links import SourceSettings, WanSettings
from twin.traces.wan_trace import Times, Values

Pair = tuple[int, int]
Between = tuple[int, int] | None
"""First and last time of samples, epoch ns, both included; None: samples of any time."""
Figure = Literal["rtt_s", "bandwidth_bps", "single_bps"]

_STREAMS = "CASE WHEN kind = 'available' THEN $streams ELSE coalesce(streams, $sample_streams) END"
"""Streams that share the bandwidth of a sample; an available rate is that of all streams of a transfer."""
_RATE = f"bandwidth_bps / {_STREAMS}"
OBTAINED = "coalesce(kind, '') IN ('', 'tcp', 'available', 'ping')"
"""Kinds that measure the throughput of a transfer; offered load, line rates and datagrams sent at a chosen
rate do not."""
_OF_LINKS = f"""dataset = $dataset AND src <> dst
      AND ($sites IS NULL OR (list_contains($sites, src) AND list_contains($sites, dst)))
      AND bandwidth_bps IS NOT NULL AND coalesce(duration_s, 'inf') >= $min_duration_s
      AND {OBTAINED} AND coalesce(source_file = $file, true)
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
      AND bandwidth_bps IS NOT NULL AND {OBTAINED} AND coalesce(source_file = $file, true)
"""
_FACTS = f"""
    SELECT src, dst, max(coalesce(duration_s, 'inf')), count(rtt_s) > 0 FROM link_samples
    WHERE dataset = $dataset AND src <> dst AND bandwidth_bps IS NOT NULL AND {OBTAINED}
    GROUP BY src, dst ORDER BY src, dst
"""
ROWS_AT_ONCE = 250_000
"""Rows grouped in memory at a time; three numbers are kept of each sample."""
_FIGURES: Mapping[Figure, str] = {"rtt_s": "rtt_s", "bandwidth_bps": "bandwidth_bps", "single_bps": _RATE}
_GRID = """
    SELECT src, dst, median({figure}) FROM link_samples
    WHERE dataset = $dataset AND list_contains($sites, src) AND list_contains($sites, dst) AND src <> dst
      AND {obtained} AND coalesce(source_file = $file, true)
    GROUP BY src, dst HAVING median({figure}) IS NOT NULL
"""


@dataclass(frozen=True, slots=True, eq=False)
class LinkSamples:
    """Samples of one link: epoch ns, b/s of a single stream, round trip in s (NaN where unknown)."""

    times_ns: Times
    single_bps: Values
    rtt_s: Values


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """Seconds of the longest measurement of a link in a data set, and whether it has round trips."""

    longest_s: float
    has_rtt: bool


def facts(store: Path, dataset: str) -> dict[tuple[str, str], LinkFacts]:
    """Facts of every link between nodes of a data set; none where the lake lacks it."""
    from ingest.lake import duckdb_views  # brings duckdb, needed here only

    with duckdb_views.connect(store) as connection:
        rows = connection.execute(_FACTS, {"dataset": dataset}).fetchall()
    return {(src, dst): LinkFacts(longest, bool(has_rtt)) for src, dst, longest, has_rtt in rows}


def series(
    store: Path,
    source: SourceSettings,
    spec: WanSettings,
    sites: Sequence[str] | None,
    between: Between = None,
) -> dict[tuple[str, str], LinkSamples]:
    """Samples of every link between `sites`, or of all links, sorted by link.

    Reads in parts, so that memory beyond the numbers themselves does not grow with the trace.
    """
    query = _query(store, source, spec, sites, between)
    sizes = query(_SIZES).fetchall()
    found: dict[tuple[str, str], LinkSamples] = {}
    for sources, targets in _parts(sizes):
        found |= _split(query(_SERIES, sources=sources, targets=targets).fetchnumpy())
    return {pair: found[pair] for pair in sorted(found)}


def forms(store: Path, source: SourceSettings, spec: WanSettings, sites: Sequence[str]) -> set[str]:
    """Kinds of the samples between `sites`: `available` rates, rates of `single` streams, or both."""
    return {form for (form,) in _query(store, source, spec, sites)(_FORMS).fetchall()}


def _parts(sizes: Sequence[tuple[str, str, int]]) -> list[tuple[list[str], list[str]]]:
    """Sources and targets of each part: as many whole sources as fit, or one with some of its targets."""
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


def _split(columns: Mapping[str, Values]) -> dict[tuple[str, str], LinkSamples]:
    """Series of each link, from rows ordered by link."""
    times = np.asarray(columns["ns"], np.int64)
    rate = np.asarray(columns["single_bps"], np.float64)
    rtt = np.ma.filled(np.ma.asarray(columns["rtt_s"], dtype=np.float64), np.nan)
    ends = [*zip(columns["src"].tolist(), columns["dst"].tolist(), strict=True)]
    edges = [0, *(n for n in range(1, len(ends)) if ends[n] != ends[n - 1]), len(ends)]
    return {ends[a]: LinkSamples(times[a:b], rate[a:b], rtt[a:b]) for a, b in pairwise(edges) if b > a}


def grid(
    store: Path, source: SourceSettings, spec: WanSettings, domains: Sequence[str], figure: Figure
) -> dict[Pair, float]:
    """Median of a figure for every pair of domains of which the data set has samples."""
    sites = [source.sites.get(name, name) for name in domains]
    text = _GRID.format(figure=_FIGURES[figure], obtained=OBTAINED)
    found = {(src, dst): value for src, dst, value in _query(store, source, spec, sites)(text).fetchall()}
    pairs = permutations(range(len(sites)), 2)
    return {(i, j): found[sites[i], sites[j]] for i, j in pairs if (sites[i], sites[j]) in found}


def explain(
    store: Path, source: SourceSettings, sites: Sequence[str], what: str
) -> NotFoundError | UsageError:
    """Error that says why a link has no sample and what to do; `what` names the sample in words."""
    from ingest.lake import duckdb_views  # brings duckdb, needed here only

    with duckdb_views.connect(store) as connection:
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
        return NotFoundError(f"the lake in {store} has no link samples of {name!r}: {_remedy(name)}{other}")
    known = [row[0] for row in found]
    unknown = [site for site in sites if site not in known]
    if unknown:
        return UsageError(
            f"data set {name!r} has no site {unknown[0]!r}{suggestion(unknown[0], known)}; "
            "name the site of each domain under `wan.sites`"
        )
    return UsageError(f"data set {name!r} has no {what}")


def _remedy(name: str) -> str:
    """Command that brings a data set into the lake."""
    if name.startswith("synthetic-"):
        return "run `twin ingest shipped`"
    origin = catalogue.origin_of(name)
    if origin is None:
        return f"run `twin ingest` on the folder of {name}"
    return f"run `twin fetch {origin}` and then `twin ingest` on its folder"


def _query(  # type: ignore[no-untyped-def]
    store: Path,
    source: SourceSettings,
    spec: WanSettings,
    sites: Sequence[str] | None,
    between: Between = None,
):
    """Function that runs a query with the parameters of a source and a spec, and with those passed to it."""
    from ingest.lake import duckdb_views  # brings duckdb, needed here only

    connection = duckdb_views.connect(store)
    common = {
        "dataset": source.dataset,
        "file": source.file,
        "sites": None if sites is None else list(sites),
        "streams": spec.streams,
        "sample_streams": spec.sample_streams,
        "min_duration_s": spec.min_duration_s,
        "first_ns": None if between is None else between[0],
        "last_ns": None if between is None else between[1],
    }

    def run(text: str, **own: list[str]):  # type: ignore[no-untyped-def]
        parameters = common | own
        return connection.execute(
            text, {name: value for name, value in parameters.items() if f"${name}" in text}
        )

    return run
