"""Measurements of the lake as a `WanTrace`: the stated steps between a sample and an available bandwidth."""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import numpy as np

from ingest.config import suggestion
from ingest.errors import NotFoundError, UsageError
from twin.settings import WanSettings
from twin.wan import LinkSeries, Values, WanTrace, trace

_SAMPLES = """
    SELECT epoch_ns(ts) AS ns, src, dst,
           avg(bandwidth_bps / coalesce(streams, $sample_streams)) AS single_bps, avg(rtt_s) AS rtt_s
    FROM link_samples
    WHERE dataset = $dataset AND src IN (SELECT unnest($sites)) AND dst IN (SELECT unnest($sites))
      AND src <> dst AND bandwidth_bps IS NOT NULL AND coalesce(duration_s, 'inf') >= $min_duration_s
    GROUP BY ts, src, dst
    ORDER BY src, dst, ns
"""


def load(store: Path, spec: WanSettings, domains: Sequence[str]) -> WanTrace:
    """Links between `domains` as measured in data set `spec.dataset` of the lake.

    Time 0 is the first sample of any link, the end is the last one's time.

    Raises:
        NotFoundError: the lake lacks the data set.
        UsageError: the data set lacks a site, a link or a round-trip time, or does not vary in time.
    """
    sites = [spec.sites.get(name, name) for name in domains]
    columns = _columns(store, spec, sites)
    found = {}
    for i, j in permutations(range(len(sites)), 2):
        rows = (columns["src"] == sites[i]) & (columns["dst"] == sites[j])
        if not rows.any():
            raise _explain(store, spec, sites, f"from {sites[i]!r} to {sites[j]!r}")
        bandwidth = np.minimum(columns["single_bps"][rows] * spec.streams, spec.cap_bps)
        found[i, j] = (
            columns["ns"][rows],
            bandwidth,
            _latency(columns["rtt_s"][rows], spec, domains[i], domains[j]),
        )
    start = int(columns["ns"].min())
    end = int(columns["ns"].max())
    if start == end:
        raise UsageError(
            f"data set {spec.dataset!r} has one instant only, so its links do not vary; "
            "choose another with --dataset (see `twin traces`)"
        )
    series = {pair: LinkSeries(times - start, *values) for pair, (times, *values) in found.items()}
    return trace(tuple(domains), series, end - start, start, note(spec))


def note(spec: WanSettings) -> str:
    """The modelling steps in words, printed with every result."""
    return (
        f"available bandwidth = min({spec.cap_bps / 1e9:g} Gb/s, {spec.streams} streams x measured "
        f"single-stream rate of {spec.dataset}); one-way latency = half the measured round trip; "
        "a sample holds until the next"
    )


def _columns(store: Path, spec: WanSettings, sites: list[str]) -> dict[str, Values]:
    from ingest import query  # brings duckdb, needed here only

    with query.connect(store) as connection:
        result = connection.execute(
            _SAMPLES,
            {
                "dataset": spec.dataset,
                "sites": sites,
                "sample_streams": spec.sample_streams,
                "min_duration_s": spec.min_duration_s,
            },
        )
        columns: dict[str, Values] = result.fetchnumpy()
    columns["rtt_s"] = np.ma.filled(np.ma.asarray(columns["rtt_s"], dtype=np.float64), np.nan)
    columns["single_bps"] = np.asarray(columns["single_bps"], dtype=np.float64)
    return columns


def _latency(rtt_s: Values, spec: WanSettings, src: str, dst: str) -> Values:
    """One-way latency per sample; a missing round trip takes the one before it (the first one after it)."""
    known = np.flatnonzero(np.isfinite(rtt_s))
    if len(known) == 0:
        declared = spec.rtt_s.get(f"{src} > {dst}", spec.rtt_s.get(f"{dst} > {src}", spec.default_rtt_s))
        if declared is None:
            raise UsageError(
                f"data set {spec.dataset!r} has no round-trip time from {src!r} to {dst!r}: "
                f"declare `wan.rtt_s: {{{src} > {dst}: SECONDS}}` or `wan.default_rtt_s` in the scenario"
            )
        return np.full(len(rtt_s), declared / 2)
    last = np.maximum(np.searchsorted(known, np.arange(len(rtt_s)), side="right") - 1, 0)
    return rtt_s[known[last]] / 2


def _explain(store: Path, spec: WanSettings, sites: list[str], link: str) -> NotFoundError | UsageError:
    """Why a link has no sample, and the way out."""
    from ingest import query  # brings duckdb, needed here only

    with query.connect(store) as connection:
        rows = connection.execute("SELECT DISTINCT dataset FROM link_samples ORDER BY 1").fetchall()
        names = [row[0] for row in rows]
        found = connection.execute(
            "SELECT DISTINCT unnest([src, dst]) FROM link_samples WHERE dataset = ?", [spec.dataset]
        ).fetchall()
    if spec.dataset not in names:
        shipped = spec.dataset.startswith("synthetic-")
        run = "run `twin ingest traces/`" if shipped else f"run `twin ingest` on the folder of {spec.dataset}"
        other = f" or choose one of: {', '.join(names)} with --dataset" if names else ""
        return NotFoundError(f"the lake in {store} has no link samples of {spec.dataset!r}: {run}{other}")
    known = [row[0] for row in found]
    unknown = [site for site in sites if site not in known]
    if unknown:
        return UsageError(
            f"data set {spec.dataset!r} has no site {unknown[0]!r}{suggestion(unknown[0], known)}; "
            "name the site of each domain under `wan.sites`"
        )
    least = f" of {spec.min_duration_s:g} s or longer" if spec.min_duration_s else ""
    return UsageError(f"data set {spec.dataset!r} has no bandwidth sample{least} {link}")
