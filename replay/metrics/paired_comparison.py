"""Paired comparison of two policies on the same worlds: differences over worlds and over blocks of time.

Both are samples: other worlds have other noise and, for a learned policy, another training; another window
has other hours. Neighbouring blocks are correlated (by 0.6 to 0.7 on storm, where a congestion lasts longer
than a block), so that time is sampled in stretches of `STRETCH` blocks.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from replay.log.events import Event, Json
from replay.log.fold import Fold, fold
from twin.core.seeds import generator

BLOCKS = 24
"""Blocks of equal length that a window is cut into; one block is one paired observation."""
STRETCH = 6
"""Neighbouring blocks that are drawn together."""
RESAMPLES = 10_000
LEVEL = 0.95

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TimeBlocks:
    """Figures of a run in each block of its window; shapes (B,)."""

    tokens: Values
    compute_s: Values  # summed over domains
    active_s: Values  # wall seconds of domains in the plan
    usd: Values  # egress


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Mean paired difference (positive = the challenger is better) and its bootstrap interval."""

    kpi: str
    mean: float
    low: float
    high: float

    @property
    def better(self) -> bool:
        """True if the whole interval is above 0."""
        return self.low > 0

    @property
    def worse(self) -> bool:
        """True if the whole interval is below 0."""
        return self.high < 0

    @property
    def estimated(self) -> bool:
        """True if there is an interval: of a single value, or of equal ones, there is none to show."""
        return self.low < self.high

    def __str__(self) -> str:
        return f"{self.kpi} {self.mean:+.4g} [{self.low:+.4g}, {self.high:+.4g}]"


def blocks_of(events: Iterable[Event], end_ns: int, count: int = BLOCKS) -> TimeBlocks:
    """Spreads each event's figures evenly over the blocks that its interval touches."""
    return TimeBlocks(**fold(events, _BlockFold(end_ns, count)).sums)


class _BlockFold(Fold):
    """Sums the figures of `TimeBlocks`, block by block."""

    def __init__(self, end_ns: int, count: int) -> None:
        self.sums = {field.name: np.zeros(count) for field in fields(TimeBlocks)}
        self._edges = np.linspace(0, end_ns, count + 1)
        self._domains: dict[str, int] = {}  # number of domains in the plan of each job

    def _on_iteration_done(self, event: Event, done: Json) -> None:
        self._spread(
            done["start_ns"],
            sum(count * ns for count, ns in done["durations"]),
            tokens=done["tokens"],
            compute_s=sum(done["compute_ns"]) / NS_PER_S,
            active_s=sum(done["active_ns"]) / NS_PER_S,
            usd=done["egress_usd"],
        )

    def _on_plan_applied(self, event: Event, applied: Json) -> None:
        self._domains[event.job] = len(applied["plan"]["shares"])
        self._idle(event.job, applied["started_ns"], applied["pause_ns"], applied["egress_usd"])

    def _on_time_lost(self, event: Event, lost: Json) -> None:
        self._idle(event.job, lost["start_ns"], lost["lost_ns"], lost["egress_usd"])
        if part := lost.get("part_tokens"):
            self._spread(lost["start_ns"], lost["lost_ns"], tokens=part)

    def _on_state_copied(self, event: Event, copied: Json) -> None:
        self._spread(copied["start_ns"], copied["copied_ns"], usd=copied["egress_usd"])

    def _on_work_lost(self, event: Event, lost: Json) -> None:
        self._spread(event.sim_ns, 0, tokens=-lost["lost_tokens"])  # trained again later: not counted twice

    _on_gpu_failed = _on_work_lost

    def _idle(self, job: str, start_ns: int, length_ns: int, usd: float) -> None:
        active_s = self._domains.get(job, 0) * length_ns / NS_PER_S
        self._spread(start_ns, length_ns, active_s=active_s, usd=usd)

    def _spread(self, start_ns: int, length_ns: int, **amounts: float) -> None:
        ends = np.minimum(self._edges[1:], start_ns + length_ns)
        touched = np.clip(ends - np.maximum(self._edges[:-1], start_ns), 0, None)
        total = touched.sum()
        if total == 0:  # an instant: all of it belongs to one block
            block = int(np.searchsorted(self._edges, start_ns, side="right")) - 1
            touched[min(len(touched) - 1, block)] = total = 1.0
        for name, amount in amounts.items():
            self.sums[name] += amount * touched / total


def judge(champion: Sequence[TimeBlocks], challenger: Sequence[TimeBlocks]) -> tuple[PairedDifference, ...]:
    """Returns the differences in tokens, utilisation and egress per token; one `TimeBlocks` per world."""
    pairs = list(zip(champion, challenger, strict=True))
    scale = float(np.mean([a.tokens for a, _ in pairs])) or 1.0
    named = {
        "tokens": [(b.tokens - a.tokens) / scale for a, b in pairs],
        "utilisation": [_utilisation(b) - _utilisation(a) for a, b in pairs],
        "usd_per_token": [_share(a.usd, a.tokens) - _share(b.usd, b.tokens) for a, b in pairs],
    }
    return tuple(clustered(kpi, np.array(differences)) for kpi, differences in named.items())


def clustered(kpi: str, differences: Values, level: float = LEVEL) -> PairedDifference:
    """Returns the mean of paired differences (W, B) of worlds and blocks of time, with a t-interval.

    Its variance is that of means over worlds plus that of means over time, of circular stretches (Cameron,
    Gelbach, Miller, "Robust inference with multiway clustering", JBES 29, 2011, eq. 2.11, without
    subtracting what both share, which errs on the wide side); degrees of freedom after Satterthwaite, "An
    approximate distribution of estimates of variance components", Biometrics 2, 1946. For a single world the
    interval is over time alone.
    """
    worlds, blocks = differences.shape
    parts = [(_of_stretches(differences.mean(axis=0)), max(1, blocks // STRETCH) - 1)]
    if worlds > 1:
        parts.append((float(differences.mean(axis=1).var(ddof=1)) / worlds, worlds - 1))
    middle, variance = float(differences.mean()), sum(part for part, _ in parts)
    if variance == 0:
        return PairedDifference(kpi, middle, middle, middle)
    freedom = variance**2 / sum(part**2 / count for part, count in parts if count)
    half = _student(freedom, level) * variance**0.5
    return PairedDifference(kpi, middle, middle - half, middle + half)


def _of_stretches(values: Values) -> float:
    """Variance of the mean of a series (B,), from all circular stretches; as many as fit are independent."""
    count = max(1, len(values) // STRETCH)
    around = (np.arange(len(values))[:, None] + np.arange(min(STRETCH, len(values)))) % len(values)
    return float(values[around].mean(axis=1).var()) / max(1, count - 1)


def student(kpi: str, values: Values) -> PairedDifference:
    """Returns the mean of independent values (n,) with its t-interval; of one value, that value."""
    middle, count = float(values.mean()), len(values)
    half = 0.0
    if count > 1 and (deviation := float(values.std(ddof=1))):
        half = _student(count - 1, LEVEL) * deviation / count**0.5
    return PairedDifference(kpi, middle, middle - half, middle + half)


def bootstrap(kpi: str, values: Values, seed: int, statistic: Callable[[Values], Values]) -> PairedDifference:
    """Returns `statistic` (over the last axis) of independent values (n,) with its interval (`_ends`)."""
    rng = generator(seed, f"bootstrap/{kpi}")
    drawn = rng.integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(statistic(values[drawn]), _ends(len(values)))
    return PairedDifference(kpi, float(statistic(values)), float(low), float(high))


def ratio(kpi: str, part: Values, whole: Values, seed: int) -> PairedDifference:
    """Returns sum(part) / sum(whole) over blocks (B,) with its interval, by circular block bootstrap (Politis
    and Romano 1992) in stretches; infinite where a draw has sum(whole) = 0."""
    rng, count = generator(seed, f"bootstrap/{kpi}"), -(-len(part) // STRETCH)
    starts = rng.integers(len(part), size=(RESAMPLES, count, 1))
    drawn = ((starts + np.arange(STRETCH)) % len(part)).reshape(RESAMPLES, -1)[:, : len(part)]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.nan_to_num(part[drawn].sum(axis=1) / whole[drawn].sum(axis=1), nan=np.inf, posinf=np.inf)
        own = float(np.nan_to_num(part.sum() / whole.sum(), nan=np.inf, posinf=np.inf))
    # No interpolation between a number and infinity.
    low, high = np.quantile(shares, _ends(count), method="inverted_cdf")
    return PairedDifference(kpi, own, float(low), float(high))


def _ends(count: int) -> tuple[float, float]:
    """Quantiles of a bootstrap of `count` independent values that cover `LEVEL`: expanded percentiles, since
    those of few values are too narrow (of 5 they cover 83 %; Hesterberg, "What Teachers Should Know About the
    Bootstrap", The American Statistician 69, 2015, section 4.2)."""
    from scipy.special import ndtr  # slow to import

    if count < 2:
        return (0.0, 1.0)
    low = float(ndtr(-_student(count - 1, LEVEL) * (count / (count - 1)) ** 0.5))
    return (low, 1 - low)


def _student(freedom: float, level: float) -> float:
    """Half width of the interval of Student's t that covers `level`."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


def _utilisation(blocks: TimeBlocks) -> Values:
    return _share(blocks.compute_s, blocks.active_s)


def _share(part: Values, whole: Values) -> Values:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
