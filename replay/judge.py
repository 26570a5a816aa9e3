"""Which of two policies is better on the same world: paired differences over blocks of time, bootstrapped."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.units import NS_PER_S
from replay.events import Event
from twin.seeds import generator

BLOCKS = 24
"""Blocks of equal length that a window is cut into; one block is one paired observation."""
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

    in_plan = 0
    for event in events:
        fields = event.payload
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
            in_plan = len(fields["plan"]["shares"])
            active_s = in_plan * fields["pause_ns"] / NS_PER_S
            spread(fields["started_ns"], fields["pause_ns"], active_s=active_s, usd=fields["egress_usd"])
        elif event.type == "time_lost":
            active_s = in_plan * fields["lost_ns"] / NS_PER_S
            spread(fields["start_ns"], fields["lost_ns"], active_s=active_s, usd=fields["egress_usd"])
    return Blocks(**sums)


def judge(champion: Sequence[Blocks], challenger: Sequence[Blocks], seed: int) -> tuple[Verdict, ...]:
    """Verdicts on tokens, utilisation and egress per token; one `Blocks` per world, in the same order.

    A block of time is one observation: its difference is averaged over worlds first, because worlds share
    their trace. Percentile bootstrap (Efron 1979) of the mean over blocks.
    """
    pairs = list(zip(champion, challenger, strict=True))
    tokens = np.mean([b.tokens - a.tokens for a, b in pairs], axis=0)
    scale = float(np.mean([a.tokens for a, _ in pairs])) or 1.0
    utilisation = np.mean([_utilisation(b) - _utilisation(a) for a, b in pairs], axis=0)
    price = np.mean([_share(a.usd, a.tokens) - _share(b.usd, b.tokens) for a, b in pairs], axis=0)
    named = {"tokens": tokens / scale, "utilisation": utilisation, "usd_per_token": price}
    return tuple(bootstrap(kpi, differences, seed) for kpi, differences in named.items())


def mean(values: Values) -> Values:
    """Mean over the last axis."""
    return np.asarray(values.mean(axis=-1))


def bootstrap(
    kpi: str, differences: Values, seed: int, statistic: Callable[[Values], Values] = mean
) -> Verdict:
    """`statistic` (over the last axis) of paired differences (B,), with its percentile interval."""
    rng = generator(seed, f"bootstrap/{kpi}")
    drawn = rng.integers(len(differences), size=(RESAMPLES, len(differences)))
    low, high = np.quantile(statistic(differences[drawn]), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Verdict(kpi, float(statistic(differences)), float(low), float(high))


def ratio(kpi: str, part: Values, whole: Values, seed: int) -> Verdict:
    """sum(part) / sum(whole) over blocks (B,) that are drawn together, with its percentile interval; infinite
    where a draw has nothing to divide by."""
    rng = generator(seed, f"bootstrap/{kpi}")
    drawn = rng.integers(len(part), size=(RESAMPLES, len(part)))
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.nan_to_num(part[drawn].sum(axis=1) / whole[drawn].sum(axis=1), nan=np.inf, posinf=np.inf)
        own = float(np.nan_to_num(part.sum() / whole.sum(), nan=np.inf, posinf=np.inf))
    # Without interpolation: between a number and infinity lies nothing.
    low, high = np.quantile(shares, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    return Verdict(kpi, own, float(low), float(high))


def _utilisation(blocks: Blocks) -> Values:
    return _share(blocks.compute_s, blocks.active_s)


def _share(part: Values, whole: Values) -> Values:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
