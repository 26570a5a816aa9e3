"""Which of two policies is better on the same worlds: paired differences over worlds and over blocks of time.

Both are samples: other worlds would have other weather and, of a learned policy, another training; another
window would have other hours. Neighbouring blocks are alike (a congestion lasts longer than one: on storm
their differences correlate by 0.6 to 0.7), so that time counts by the stretch of `STRETCH` blocks.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from replay.log.events import Event
from twin.core.seeds import generator

BLOCKS = 24
"""Blocks of equal length that a window is cut into; one block is one paired observation."""
STRETCH = 6
"""Neighbouring blocks that are drawn together; a window is so many fewer independent observations."""
RESAMPLES = 10_000
LEVEL = 0.95

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Blocks:
    """What a run did in each block of its window; shapes (B,)."""

    tokens: Values
    compute_s: Values  # summed over domains
    active_s: Values  # wall seconds of domains in the plan
    usd: Values  # egress


@dataclass(frozen=True, slots=True)
class Verdict:
    """Mean paired difference (positive = the challenger is better) and its bootstrap interval."""

    kpi: str
    mean: float
    low: float
    high: float

    @property
    def better(self) -> bool:
        """The whole interval says better."""
        return self.low > 0

    @property
    def worse(self) -> bool:
        """The whole interval says worse."""
        return self.high < 0

    def __str__(self) -> str:
        return f"{self.kpi} {self.mean:+.4g} [{self.low:+.4g}, {self.high:+.4g}]"


def blocks_of(events: Iterable[Event], end_ns: int, count: int = BLOCKS) -> Blocks:
    """Spread each event's figures evenly over the blocks that its interval touches."""
    edges = np.linspace(0, end_ns, count + 1)
    sums = {name: np.zeros(count) for name in ("tokens", "compute_s", "active_s", "usd")}

    def spread(start_ns: int, length_ns: int, **amounts: float) -> None:
        end = np.minimum(edges[1:], start_ns + length_ns)
        touched = np.clip(end - np.maximum(edges[:-1], start_ns), 0, None)
        total = touched.sum()
        if total == 0:  # an instant: all of it belongs to one block
            touched[min(count - 1, int(np.searchsorted(edges, start_ns, side="right")) - 1)] = total = 1.0
        for name, amount in amounts.items():
            sums[name] += amount * touched / total

    in_plan: dict[str, int] = {}  # domains, of each job
    for event in events:
        fields, job = event.payload, event.job
        if event.type == "iteration_done":
            spread(
                fields["start_ns"],
                sum(n * ns for n, ns in fields["durations"]),
                tokens=fields["tokens"],
                compute_s=sum(fields["compute_ns"]) / NS_PER_S,
                active_s=sum(fields["active_ns"]) / NS_PER_S,
                usd=fields["egress_usd"],
            )
        elif event.type == "plan_applied":
            in_plan[job] = len(fields["plan"]["shares"])
            active_s = in_plan[job] * fields["pause_ns"] / NS_PER_S
            spread(fields["started_ns"], fields["pause_ns"], active_s=active_s, usd=fields["egress_usd"])
        elif event.type == "time_lost":
            active_s = in_plan.get(job, 0) * fields["lost_ns"] / NS_PER_S
            spread(fields["start_ns"], fields["lost_ns"], active_s=active_s, usd=fields["egress_usd"])
        elif event.type == "state_copied":
            spread(fields["start_ns"], fields["copied_ns"], usd=fields["egress_usd"])
        elif event.type in ("gpu_failed", "work_lost"):  # trained again later: not counted twice
            spread(event.sim_ns, 0, tokens=-fields["lost_tokens"])
    return Blocks(**sums)


def judge(champion: Sequence[Blocks], challenger: Sequence[Blocks]) -> tuple[Verdict, ...]:
    """Verdicts on tokens, utilisation and egress per token; one `Blocks` per world, in the same order."""
    pairs = list(zip(champion, challenger, strict=True))
    scale = float(np.mean([a.tokens for a, _ in pairs])) or 1.0
    named = {
        "tokens": [(b.tokens - a.tokens) / scale for a, b in pairs],
        "utilisation": [_utilisation(b) - _utilisation(a) for a, b in pairs],
        "usd_per_token": [_share(a.usd, a.tokens) - _share(b.usd, b.tokens) for a, b in pairs],
    }
    return tuple(clustered(kpi, np.array(differences)) for kpi, differences in named.items())


def clustered(kpi: str, differences: Values, level: float = LEVEL) -> Verdict:
    """Mean of paired differences (W, B) of worlds and blocks of time, with a t-interval.

    Its variance is that of means over worlds plus that of means over time, of circular stretches (Cameron,
    Gelbach, Miller, "Robust inference with multiway clustering", JBES 29, 2011, eq. 2.11, without taking off
    what both share, which errs on the wide side); degrees of freedom after Satterthwaite, "An approximate
    distribution of estimates of variance components", Biometrics 2, 1946. A single world says nothing of
    others: then the interval is over time alone.
    """
    worlds, blocks = differences.shape
    parts = [(_of_stretches(differences.mean(axis=0)), max(1, blocks // STRETCH) - 1)]
    if worlds > 1:
        parts.append((float(differences.mean(axis=1).var(ddof=1)) / worlds, worlds - 1))
    middle, variance = float(differences.mean()), sum(part for part, _ in parts)
    if variance == 0:
        return Verdict(kpi, middle, middle, middle)
    freedom = variance**2 / sum(part**2 / count for part, count in parts if count)
    half = _student(freedom, level) * variance**0.5
    return Verdict(kpi, middle, middle - half, middle + half)


def _of_stretches(values: Values) -> float:
    """Variance of the mean of a series (B,): of all circular stretches, as many as fit being independent."""
    count = max(1, len(values) // STRETCH)
    around = (np.arange(len(values))[:, None] + np.arange(min(STRETCH, len(values)))) % len(values)
    return float(values[around].mean(axis=1).var()) / max(1, count - 1)


def student(kpi: str, values: Values) -> Verdict:
    """Mean of independent values (n,) with its t-interval; of one value both ends are it."""
    middle, count = float(values.mean()), len(values)
    half = 0.0
    if count > 1 and (deviation := float(values.std(ddof=1))):
        half = _student(count - 1, LEVEL) * deviation / count**0.5
    return Verdict(kpi, middle, middle - half, middle + half)


def bootstrap(kpi: str, values: Values, seed: int, statistic: Callable[[Values], Values]) -> Verdict:
    """`statistic` (over the last axis) of independent values (n,), with its interval (`_ends`)."""
    rng = generator(seed, f"bootstrap/{kpi}")
    drawn = rng.integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(statistic(values[drawn]), _ends(len(values)))
    return Verdict(kpi, float(statistic(values)), float(low), float(high))


def ratio(kpi: str, part: Values, whole: Values, seed: int) -> Verdict:
    """sum(part) / sum(whole) over blocks (B,) that are drawn together, stretch by stretch (circular block
    bootstrap, Politis and Romano 1992), with its interval; infinite where a draw has nothing to divide by."""
    rng, count = generator(seed, f"bootstrap/{kpi}"), -(-len(part) // STRETCH)
    starts = rng.integers(len(part), size=(RESAMPLES, count, 1))
    drawn = ((starts + np.arange(STRETCH)) % len(part)).reshape(RESAMPLES, -1)[:, : len(part)]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.nan_to_num(part[drawn].sum(axis=1) / whole[drawn].sum(axis=1), nan=np.inf, posinf=np.inf)
        own = float(np.nan_to_num(part.sum() / whole.sum(), nan=np.inf, posinf=np.inf))
    # Without interpolation: between a number and infinity lies nothing.
    low, high = np.quantile(shares, _ends(count), method="inverted_cdf")
    return Verdict(kpi, own, float(low), float(high))


def _ends(count: int) -> tuple[float, float]:
    """Quantiles of a bootstrap of `count` independent values that hold `LEVEL`: percentiles, expanded, for
    those of few values are too narrow (of 5 they hold 83 %; Hesterberg, "What teachers should know about the
    bootstrap", The American Statistician 69, 2015, section 4.2)."""
    from scipy.special import ndtr  # slow to import

    if count < 2:
        return (0.0, 1.0)
    low = float(ndtr(-_student(count - 1, LEVEL) * (count / (count - 1)) ** 0.5))
    return (low, 1 - low)


def _student(freedom: float, level: float) -> float:
    """Deviations of Student's t that hold `level`."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


def _utilisation(blocks: Blocks) -> Values:
    return _share(blocks.compute_s, blocks.active_s)


def _share(part: Values, whole: Values) -> Values:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
