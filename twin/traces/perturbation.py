"""Changes a trace: seeded noise and random regimes, declared outages, links altered by a factor."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S, to_ns
from twin.core.seeds import generator
from twin.settings.disturbances import LinkChange, Noise, Outage, Perturbation, Regime
from twin.traces.wan_trace import LinkSeries, Times, Values, WanTrace

_DAY_S = 86_400.0
MOST_STEPS = 50_000_000
"""Drawn changes of all links together: half a minute, and 140 links for four months at the usual 30 s."""


def perturb(wan: WanTrace, perturbation: Perturbation, seed: int) -> WanTrace:
    """`wan` with noise and random regimes on every link, drawn by one generator a link.

    The same seed gives the same change; that of a link does not depend on the number of links. No link rises
    above its capacity, where that is known.

    Raises:
        UsageError: there would be too many changes to draw.
    """
    if perturbation.noise is None and not perturbation.regimes:
        return wan
    _check_steps(wan, perturbation)
    series = {}
    for (i, j), link in wan.series.items():
        rng = generator(seed, f"perturb:{wan.names[i]}>{wan.names[j]}")
        if perturbation.noise is not None:
            link = _scaled(link, *ou_factor(perturbation.noise, wan.end_ns, rng))
        for regime in perturbation.regimes:
            link = _scaled(link, *_regime_factor(regime, wan.end_ns, rng))
        if wan.capacity_bps is not None:
            link = replace(link, bandwidth_bps=np.minimum(link.bandwidth_bps, wan.capacity_bps[i, j]))
        series[i, j] = link
    return wan.with_series(series, _note(perturbation, seed))


def _check_steps(wan: WanTrace, perturbation: Perturbation) -> None:
    noise, end_s = perturbation.noise, wan.end_ns / NS_PER_S
    changes = {} if noise is None else {"noise: a greater step_s": end_s / noise.step_s}
    for index, regime in enumerate(perturbation.regimes):
        changes[f"regimes.{index}: fewer per_day"] = regime.per_day * end_s / _DAY_S
    for what, each in changes.items():
        if each * len(wan.series) > MOST_STEPS:
            raise UsageError(
                f"perturbation.{what} is needed: {len(wan.series):,} links over {end_s:,.0f} s would change "
                f"{each * len(wan.series):,.0f} times, more than {MOST_STEPS:,}"
            )


def cut(wan: WanTrace, outages: Sequence[Outage]) -> WanTrace:
    """`wan` with bandwidth 0 from `at_s` for `for_s`; outages past the end do not happen."""
    if not outages:
        return wan
    series = dict(wan.series)
    for outage in outages:
        i, j = wan.names.index(outage.src), wan.names.index(outage.dst)
        start, end = to_ns(outage.at_s), to_ns(outage.at_s + outage.for_s)
        times = np.unique(np.array([0, start, end]))
        factor = np.where((times >= start) & (times < end), 0.0, 1.0)
        for pair in [(i, j), (j, i)] if outage.both_ways else [(i, j)]:
            series[pair] = _scaled(series[pair], times, factor)
    inside = sum(to_ns(outage.at_s) < wan.end_ns for outage in outages)
    late = f", {len(outages) - inside} more after the end: nothing changes" if inside < len(outages) else ""
    return wan.with_series(series, f"{inside} declared outages{late}")


def altered(wan: WanTrace, changes: Sequence[LinkChange]) -> WanTrace:
    """`wan` with bandwidths and latencies multiplied by factors; several changes of a link multiply.

    A factor above 1 raises the capacity of the link too.

    Raises:
        UsageError: factors that multiply beyond any number.
    """
    if not changes:
        return wan
    series = dict(wan.series)
    capacity = None if wan.capacity_bps is None else wan.capacity_bps.copy()
    for change in changes:
        start = to_ns(change.at_s or 0)
        end = wan.end_ns if change.for_s is None else start + to_ns(change.for_s)
        times = np.unique(np.array([0, start, end]))
        inside = (times >= start) & (times < end)
        for i, j in _pairs(wan.names, change):
            link = _scaled(series[i, j], times, np.where(inside, change.bandwidth_factor, 1.0))
            series[i, j] = _delayed(link, times, np.where(inside, change.latency_factor, 1.0))
            if capacity is not None:
                capacity[i, j] *= max(1.0, change.bandwidth_factor)
    if not all(
        np.isfinite(link.bandwidth_bps).all() and np.isfinite(link.latency_s).all()
        for link in series.values()
    ):
        raise UsageError("link_changes: their factors together make a link infinite; write smaller ones")
    changed = wan.with_series(series, "; ".join(describe_change(change, wan.end_ns) for change in changes))
    return replace(changed, capacity_bps=capacity)


def _pairs(names: Sequence[str], change: LinkChange) -> list[tuple[int, int]]:
    """Directed links that a change names."""
    ends = {(change.src, change.dst)} | ({(change.dst, change.src)} if change.both_ways else set())
    domains = range(len(names))
    return [
        (i, j)
        for i in domains
        for j in domains
        if i != j and any(src in (names[i], "*") and dst in (names[j], "*") for src, dst in ends)
    ]


def describe_change(change: LinkChange, end_ns: int | None = None) -> str:
    """Change in words: "what if a > b: bandwidth x 0.5 from 3600 s"; says if it begins after the end."""
    factors = [("bandwidth", change.bandwidth_factor), ("latency", change.latency_factor)]
    what = ", ".join(f"{name} x {factor:g}" for name, factor in factors if factor != 1) or "unchanged"
    arrow = "<>" if change.both_ways else ">"
    when = "" if change.at_s is None else f" from {change.at_s:g} s"
    when += "" if change.for_s is None else f" for {change.for_s:g} s"
    late = end_ns is not None and to_ns(change.at_s or 0) >= end_ns
    when += f", after the end at {end_ns / NS_PER_S:g} s: nothing changes" if late and end_ns else ""
    return f"what if {change.src} {arrow} {change.dst}: {what}{when}"


def ou_factor(noise: Noise, end_ns: int, rng: np.random.Generator) -> tuple[Times, Values]:
    """Step function 1 + eps(t), eps a stationary OU process (exact discretisation) clipped to +-`clip`.

    Returns: times_ns from 0 in steps of `step_s`, and the factor at each.
    """
    times = np.arange(0, end_ns, to_ns(noise.step_s), dtype=np.int64)
    a = np.exp(-noise.step_s / noise.tau_s)
    shocks = rng.standard_normal(len(times)) * noise.sd
    eps = np.empty(len(times))
    eps[0] = shocks[0]
    for k in range(1, len(times)):
        eps[k] = a * eps[k - 1] + np.sqrt(1 - a * a) * shocks[k]
    return times, 1 + np.clip(eps, -noise.clip, noise.clip)


def _regime_factor(regime: Regime, end_ns: int, rng: np.random.Generator) -> tuple[Times, Values]:
    """Step function: `regime.factor` inside intervals that arrive as a Poisson process, 1 outside."""
    times, factor = [0], [1.0]
    now_s, end_s = 0.0, end_ns / NS_PER_S
    while regime.per_day > 0:
        now_s += rng.exponential(_DAY_S / regime.per_day)
        length_s = rng.exponential(regime.mean_s)
        if now_s >= end_s:
            break
        times += [to_ns(now_s), to_ns(now_s + length_s)]
        factor += [regime.factor, 1.0]
        now_s += length_s
    times_ns = np.array(times, dtype=np.int64)
    keep = np.append(np.diff(times_ns) > 0, True)  # of equal times the last one counts
    return times_ns[keep], np.array(factor)[keep]


def _scaled(link: LinkSeries, times_ns: Times, factor: Values) -> LinkSeries:
    """`link` with its bandwidth multiplied by a step function that starts at time 0."""
    own = np.maximum(link.times_ns, 0)
    times = np.unique(np.concatenate([np.zeros(1, np.int64), own, times_ns]))
    base = np.maximum(np.searchsorted(link.times_ns, times, side="right") - 1, 0)
    scale = factor[np.maximum(np.searchsorted(times_ns, times, side="right") - 1, 0)]
    return LinkSeries(times, link.bandwidth_bps[base] * scale, link.latency_s[base])


def _delayed(link: LinkSeries, times_ns: Times, factor: Values) -> LinkSeries:
    """`link` with its latency multiplied by a step function, whose times are among those of its samples."""
    scale = factor[np.searchsorted(times_ns, link.times_ns, side="right") - 1]
    return LinkSeries(link.times_ns, link.bandwidth_bps, link.latency_s * scale)


def _note(perturbation: Perturbation, seed: int) -> str:
    parts = []
    if perturbation.noise is not None:
        noise = perturbation.noise
        parts.append(
            f"bandwidth x (1 + OU), deviation {noise.sd:g}, correlation time {noise.tau_s:g} s, clipped to "
            f"+-{noise.clip:g}"
        )
    parts += [
        f"{r.per_day:g} regimes a day and link of mean {r.mean_s:g} s at x {r.factor:g}"
        for r in perturbation.regimes
    ]
    return ", ".join(parts) + f" (seed {seed})"
