"""Builds a `WanTrace` from measurements in the lake and states its modelling steps."""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import numpy as np

from ingest.core.errors import UsageError
from ingest.lake import lake
from twin.settings.wan_links import SourceSettings, WanSettings
from twin.traces import link_samples
from twin.traces.link_samples import LinkSamples, Pair
from twin.traces.relative_variation import varied
from twin.traces.wan_trace import LinkSeries, Times, Values, WanTrace, trace


def load(
    store: Path,
    spec: WanSettings,
    domains: Sequence[str],
    train_share: float = 1.0,
    between: link_samples.Between = None,
) -> WanTrace:
    """Trace of the links between `domains`, from the data sets that `spec` names.

    Time 0 is the first sample of any link, the end is the last one's time. `train_share` is the part of the
    series from whose mean a composed set takes its relative variation. With `between` only samples of that
    time are taken; levels, caps and round trips of a recipe stay medians over their whole sets.

    Raises:
        NotFoundError: the lake lacks a data set.
        UsageError: a data set lacks a site, a link or a round-trip time, or does not vary in time.
    """
    found, borrowed = _series(store, spec, domains, train_share, between)
    start = min(int(link.times_ns[0]) for link in found.values())
    end = max(int(link.times_ns[-1]) for link in found.values())
    if start == end:
        raise UsageError(
            f"data set {spec.title!r} has one instant only, so its links do not vary; "
            "choose another with --dataset (see `twin traces`)"
        )
    caps = _caps(store, spec, domains)
    rtts = link_samples.grid(store, spec.rtt, spec, domains, "rtt_s") if spec.rtt else {}
    links, capacity = {}, np.full((len(domains),) * 2, np.inf)
    for i, j in list(found):
        link = found.pop((i, j))  # one copy of a trace at a time
        capacity[i, j] = caps.get((i, j), spec.cap_bps)
        bandwidth = np.minimum(link.single_bps * spec.streams, capacity[i, j])
        round_trip = rtts.get((i, j), rtts.get((j, i)))
        rtt_s = link.rtt_s if round_trip is None else np.full(len(bandwidth), round_trip)
        latency = _latency(rtt_s, spec, domains[i], domains[j])
        links[i, j] = LinkSeries(_stretched(link.times_ns - start, spec.stretch), bandwidth, latency)
    end_ns = int(_stretched(np.array([end - start]), spec.stretch)[0])
    return trace(tuple(domains), links, end_ns, start, note(store, spec, domains, borrowed), capacity)


def note(store: Path, spec: WanSettings, domains: Sequence[str], borrowed: int = 0) -> str:
    """Modelling steps in words, with data set and digest of each; printed with every result."""
    steps = [
        f"available bandwidth = min({spec.cap_bps / 1e9:g} Gb/s, {_rate(store, spec, domains)})",
        "one-way latency = half the measured round trip",
        "a sample holds until the next",
    ]
    if spec.variation is not None:
        own = f", borrowed and rotated in time by {borrowed} links" if borrowed else ""
        steps.append(f"relative to the mean of its link over the training share{own}")
    if spec.cap is not None:
        steps.append(f"no more than the median that {_cited(store, spec.cap)} measured on the link")
    if spec.rtt is not None:
        steps.append(f"round trips are medians of {_cited(store, spec.rtt)}")
    if spec.stretch != 1:
        steps.append(f"time axis stretched {spec.stretch:g}-fold: the spacing of samples is an assumption")
    return "; ".join(steps)


def _rate(store: Path, spec: WanSettings, domains: Sequence[str]) -> str:
    """Source of the bandwidth of a link, in words."""
    if spec.level is not None and spec.variation is not None:
        level = _taken(store, spec.level, spec, domains, "median")
        return f"{level} x relative variation of {_cited(store, spec.variation)}"
    base = _base(spec)
    computed = lake.datasets(store)[base.dataset].meta.get("derived")
    if computed and link_samples.forms(store, base, spec, _sites(base, domains)) == {"available"}:
        return f"{_cited(store, base)}: {computed}"
    taken = _taken(store, base, spec, domains, "measured")
    return f"{taken}: {computed}" if computed else taken


def _taken(store: Path, source: SourceSettings, spec: WanSettings, domains: Sequence[str], how: str) -> str:
    """Use of a source in words: rates of single streams are multiplied, available ones are not."""
    cited = _cited(store, source)
    words = {
        "available": f"{how} available rate of {cited}",
        "single": f"{spec.streams} streams x {how} single-stream rate of {cited}",
    }
    found = link_samples.forms(store, source, spec, _sites(source, domains))
    return ", elsewhere ".join(words[form] for form in sorted(found))


def _sites(source: SourceSettings, domains: Sequence[str]) -> list[str]:
    """Names of the domains in a source."""
    return [source.sites.get(name, name) for name in domains]


def _cited(store: Path, source: SourceSettings) -> str:
    """Name, file and digest of a data set."""
    file = f"/{source.file}" if source.file else ""
    return f"{source.dataset}{file} ({lake.digest(store, source.dataset)[:12]})"


def _base(spec: WanSettings) -> SourceSettings:
    """Data set of a spec without a recipe."""
    assert spec.dataset is not None, "a spec names a data set, or a level and a variation"
    return SourceSettings(dataset=spec.dataset, sites=spec.sites)


def _series(
    store: Path, spec: WanSettings, domains: Sequence[str], train_share: float, between: link_samples.Between
) -> tuple[dict[Pair, LinkSamples], int]:
    """Single-stream rates and round trips of every pair, and how many pairs borrow their variation."""
    if spec.level is not None and spec.variation is not None:
        return _composed(store, spec, spec.level, spec.variation, domains, train_share, between)
    base = _base(spec)
    sites = _sites(base, domains)
    found = link_samples.series(store, base, spec, sites, between)
    least = f" of {spec.min_duration_s:g} s or longer" if spec.min_duration_s else ""
    for i, j in permutations(range(len(sites)), 2):
        if (sites[i], sites[j]) not in found:
            what = f"bandwidth sample{least} from {sites[i]!r} to {sites[j]!r}"
            raise link_samples.explain(store, base, sites, what)
    pairs = permutations(range(len(sites)), 2)
    return {(i, j): found[sites[i], sites[j]] for i, j in pairs}, 0


def _composed(
    store: Path,
    spec: WanSettings,
    level: SourceSettings,
    variation: SourceSettings,
    domains: Sequence[str],
    train_share: float,
    between: link_samples.Between,
) -> tuple[dict[Pair, LinkSamples], int]:
    """Series of level times relative variation, and the number of pairs that borrow theirs."""
    levels = _complete(store, level, domains, link_samples.grid(store, level, spec, domains, "single_bps"))
    links = link_samples.series(store, variation, spec, None, between)
    if not links:
        raise link_samples.explain(store, variation, [], "bandwidth sample")
    return varied(levels, links, _sites(variation, domains), train_share)


def _caps(store: Path, spec: WanSettings, domains: Sequence[str]) -> dict[Pair, float]:
    """Lower of the common cap and that of the link, for links with a cap of their own."""
    if spec.cap is None:
        return {}
    own = link_samples.grid(store, spec.cap, spec, domains, "bandwidth_bps")
    return {pair: min(rate, spec.cap_bps) for pair, rate in _complete(store, spec.cap, domains, own).items()}


def _complete(
    store: Path, source: SourceSettings, domains: Sequence[str], found: dict[Pair, float]
) -> dict[Pair, float]:
    """`found`, if it has every pair of domains; an error otherwise."""
    sites = _sites(source, domains)
    for i, j in permutations(range(len(sites)), 2):
        if (i, j) not in found:
            raise link_samples.explain(store, source, sites, f"bandwidth from {sites[i]!r} to {sites[j]!r}")
    return found


def _stretched(times_ns: Times, factor: float) -> Times:
    return times_ns if factor == 1 else np.rint(times_ns * factor).astype(np.int64)


def _latency(rtt_s: Values, spec: WanSettings, src: str, dst: str) -> Values:
    """One-way latency per sample; a missing round trip is that before it, or else the first one after it."""
    known = np.flatnonzero(np.isfinite(rtt_s))
    if len(known) == 0:
        declared = spec.rtt_s.get(f"{src} > {dst}", spec.rtt_s.get(f"{dst} > {src}", spec.default_rtt_s))
        if declared is None:
            name = spec.rtt.dataset if spec.rtt else spec.title
            raise UsageError(
                f"data set {name!r} has no round-trip time from {src!r} to {dst!r}: "
                f"declare `wan.rtt_s: {{{src} > {dst}: SECONDS}}` or `wan.default_rtt_s` in the scenario"
            )
        return np.full(len(rtt_s), declared / 2)
    last = np.maximum(np.searchsorted(known, np.arange(len(rtt_s)), side="right") - 1, 0)
    return rtt_s[known[last]] / 2
