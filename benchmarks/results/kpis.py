"""Every figure that was asked for, on every set of links: reached, with its interval over worlds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.results.tables import Figure, Result, asked, fine, ms, reach, signed, table
from replay.bench.result import Json, regret
from replay.metrics.formatting import percent
from replay.metrics.paired_comparison import PairedDifference, student

Values = Sequence[float]
POLICY = "hippo"
NOISE_LEVEL = 0.3
NO_SLOWER = 1e-9
"""Times of two runs that differ by less than this share are the same."""


@dataclass(frozen=True)
class Kpi:
    """A figure with the value asked for and the aim; `of` returns a value for each world that has one."""

    name: str
    asked: str
    aimed: str
    of: Callable[[Result], Values]
    form: Callable[[float], str]
    holds: Callable[[float], bool] | None = None


def kpis(results: Sequence[Result]) -> str:
    """Returns a row a KPI and set of links: those asked for, and all that have noise, fronts or load."""
    rows: list[tuple[str, ...]] = []
    for kpi in KPIS:
        words = (kpi.name, kpi.asked, kpi.aimed)
        for result, values in _found(kpi, results):
            rows.append((*words, result.title, *_cells(kpi, values)))
            words = ("", "", "")
    return table(("KPI", "asked", "aimed at", "links", "reached", "95 %", "worlds", "met"), rows)


def summary(results: Sequence[Result]) -> str:
    """Returns a row for every KPI with a target: least and greatest mean over its sets of links, and on how
    many of them it is met."""
    rows = []
    for kpi in KPIS:
        if kpi.holds is not None:
            means = [float(np.mean(values)) for _, values in _found(kpi, results)]
            ends = list(dict.fromkeys(kpi.form(end) for end in (min(means), max(means)))) if means else ["-"]
            held = f"{sum(map(kpi.holds, means))} of {len(means)}" if means else "-"
            rows.append((kpi.name, kpi.asked, kpi.aimed, " to ".join(ends), held))
    return table(("KPI", "asked", "aimed at", "hippo reached", "met on"), rows)


def _found(kpi: Kpi, results: Sequence[Result]) -> Iterator[tuple[Result, Values]]:
    """Yields the values of a KPI on every set of links that has any: of those asked for, or of all."""
    for result in results if kpi in ELSEWHERE else asked(results):
        values = [value for value in kpi.of(result) if np.isfinite(value)]
        if values:
            yield result, values


def _cells(kpi: Kpi, values: Values) -> tuple[str, str, str, str]:
    """Returns the mean, its interval where there are several worlds, their number, and whether it is met."""
    found: PairedDifference = student(kpi.name, np.array(values))
    ends = f"{kpi.form(found.low)} to {kpi.form(found.high)}" if len(values) > 1 else "-"
    met = "" if kpi.holds is None else "yes" if kpi.holds(found.mean) else "no"
    return kpi.form(found.mean), ends, str(len(values)), met


def _against(base: str, figure: Figure) -> Callable[[Result], Values]:
    """Relative change against another policy, a world each."""

    def values(result: Result) -> list[float]:
        if base not in result.bench.policies:
            return []
        pairs = zip(result.bench.of(POLICY), result.bench.of(base), strict=True)
        return [
            own / other - 1
            for a, b in pairs
            if a.kpis and b.kpis and (own := figure(a.kpis)) is not None and (other := figure(b.kpis))
        ]

    return values


def _own(figure: Figure) -> Callable[[Result], Values]:
    """A figure of the policy itself, a world each."""

    def values(result: Result) -> list[float]:
        found = [figure(outcome.kpis) for outcome in result.bench.of(POLICY) if outcome.kpis]
        return [value for value in found if value is not None]

    return values


def _regret(result: Result) -> list[float]:
    """Against the clairvoyant bound, which may change plans."""
    pairs = zip(result.bench.of(POLICY), result.bench.worlds, strict=True)
    return [value for own, played in pairs if (value := regret(own, played.bound)) is not None]


def _regret_kept(result: Result) -> list[float]:
    """Against the best plan never left, its knobs turned too; below 0 where the policy trains more."""
    pairs = zip(result.bench.of(POLICY), result.bench.worlds, strict=True)
    return [
        value
        for own, played in pairs
        if own.kpis
        and played.bound
        and (value := played.bound.regret_kept(own.kpis.progress_tokens)) is not None
    ]


def _possible(result: Result) -> list[float]:
    """Utilisation as a share of that of the bound's path."""
    pairs = zip(result.bench.of(POLICY), result.bench.worlds, strict=True)
    return [
        own.kpis.utilisation / played.bound.utilisation
        for own, played in pairs
        if own.kpis and own.kpis.utilisation is not None and played.bound and played.bound.utilisation
    ]


def _reached(what: str) -> Callable[[Result], Values]:
    """Coverage or hypervolume of the policy's front, first world."""

    def values(result: Result) -> list[float]:
        found = reach(result, POLICY, what)
        return [] if found is None else [found]

    return values


def _cheaper(result: Result) -> list[float]:
    """Egress per token against `static` of the policy's cheapest run over the grid of weights that is no
    slower than `static`, first world."""
    front = result.bench.front
    if front is None:
        return []

    def of(policy: str) -> Iterator[Json]:
        return (point for point in front.points if point["policy"] == policy)

    base = next(of("static"), None)
    if base is None or not base["usd_per_token"]:
        return []
    limit_s = base["time_per_token_s"] * (1 + NO_SLOWER)
    usd = [point["usd_per_token"] for point in of(POLICY) if point["time_per_token_s"] <= limit_s]
    return [min(usd) / base["usd_per_token"] - 1] if usd else []


def _lost(result: Result) -> list[float]:
    """Time per token lost at +-30 %, a seed each."""
    return [own for own, _ in _losses(result)]


def _worst(result: Result) -> list[float]:
    """Largest loss of a seed."""
    return [max(_lost(result))] if _lost(result) else []


def _beyond(result: Result) -> list[float]:
    """Loss of a seed, less that of its bound."""
    return [own - bound for own, bound in _losses(result) if bound is not None]


def _losses(result: Result) -> Iterator[tuple[float, float | None]]:
    """Yields, for every seed with noise, the shares of time per token that policy and bound lost."""
    bench = result.bench
    plain = {played.world.seed: played for played in bench.worlds}
    for noised in bench.noisy.get(NOISE_LEVEL, ()):
        before = plain[noised.world.seed]
        (own,), (then,) = bench.of(POLICY, [before]), bench.of(POLICY, [noised])
        if own.kpis and then.kpis and own.kpis.progress_tokens and then.kpis.progress_tokens:
            best, left = before.bound, noised.bound
            lost = best.tokens / left.tokens - 1 if best and left and left.tokens else None
            yield own.kpis.progress_tokens / then.kpis.progress_tokens - 1, lost


def _stability(load: float) -> Callable[[Result], Values]:
    """Stability at a load, a world each."""

    def values(result: Result) -> list[float]:
        bench = result.bench
        worlds = bench.loads.get(load, bench.worlds if load == 1 and bench.loads else ())
        return [o.kpis.load_stability for o in bench.of(POLICY, worlds) if o.kpis]

    return values


FRONTS = (
    Kpi("Pareto coverage", ">= 85 %", ">= 97 %", _reached("coverage"), percent, lambda v: v >= 0.85),
    Kpi("hypervolume", "", ">= 0.98", _reached("volume"), "{:.3f}".format, lambda v: v >= 0.98),
    Kpi("egress per token vs static, no slower, on the front", "-30 %", "-30 %", _cheaper, signed,
        lambda v: v <= -0.3),
)  # fmt: skip
NOISE = (
    Kpi("time lost to +-30 % WAN", "< 10 %", "", _lost, signed, lambda v: v < 0.1),
    Kpi("the same, worst seed", "< 10 %", "", _worst, signed, lambda v: v < 0.1),
    Kpi("beyond what the bound loses", "", "< 3 %", _beyond, signed, lambda v: v < 0.03),
)
LOAD = tuple(
    Kpi(f"stability at load x {load:g}", ">= 99 %", ">= 99.9 %", _stability(load), fine, lambda v: v >= 0.99)
    for load in (0.8, 1.0, 1.2)
)
SPEED = (
    Kpi("time per token vs static", "-25 %", "-25 %", _against("static", lambda k: k.time_per_token_s),
        signed, lambda v: v <= -0.25),
    Kpi("the same vs single", "-25 %", "", _against("single", lambda k: k.time_per_token_s), signed,
        lambda v: v <= -0.25),
    Kpi("the same vs mpc", "", "never worse", _against("mpc", lambda k: k.time_per_token_s), signed),
    Kpi("regret to the bound", "", "<= 2 %", _regret, percent, lambda v: v <= 0.02),
    Kpi("regret to the best kept plan", "", "", _regret_kept, signed),
    Kpi("utilisation vs static", "+35 %", "+35 %", _against("static", lambda k: k.utilisation), signed,
        lambda v: v >= 0.35),
    Kpi("share of the possible: of the utilisation of the bound's path", "", "", _possible, percent),
    Kpi("egress per token vs static, when asked for speed", "-30 %", "-30 %",
        _against("static", lambda k: k.usd_per_token), signed, lambda v: v <= -0.3),
    Kpi("95th-percentile bandwidth out of domains vs static", "", "",
        _against("static", lambda k: k.wan_p95_bps), signed),
    Kpi("decision p99, with what a process compiles first", "<= 1 s", "", _own(lambda k: k.decision_p99_s),
        ms, lambda v: v <= 1.0),
    Kpi("coordination, slowest", "<= 2 s", "<= 50 ms", _own(lambda k: k.coordination_max_s), ms,
        lambda v: v <= 2.0),
    Kpi("plans that the referee refused", "", "0", _own(lambda k: float(k.fallbacks)), "{:.0f}".format,
        lambda v: v == 0),
)  # fmt: skip
KPIS = (*SPEED, *FRONTS, *NOISE, *LOAD)
ELSEWHERE = (*FRONTS, *NOISE, *LOAD)
"""KPIs over all sets of links that have them."""
