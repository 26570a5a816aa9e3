"""A policy against another one in the same worlds: wins, mean reductions and their intervals."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay.bench.cells import RunOutcome
from replay.metrics.paired_comparison import PairedDifference, TimeBlocks, bootstrap, judge, student

Json = dict[str, Any]
Values = NDArray[np.float64]
SEED = 0
"""Seed of the bootstrap: the same runs give the same intervals."""


@dataclass(frozen=True, slots=True)
class Versus:
    """A policy against `base`, world by world. Reductions are 1 - time per token / that of the base.

    `mean` and `middle` (interquartile mean) have their intervals from the worlds alone. `over_time` is the
    difference in tokens with an interval over both, worlds and the hours of the window
    (`replay.metrics.paired_comparison.clustered`), and it decides whether a difference counts.
    """

    base: str
    worlds: int
    wins: int
    losses: int
    ties: int  # exactly as many tokens
    mean: PairedDifference | None
    middle: PairedDifference | None
    over_time: PairedDifference

    @property
    def verdict(self) -> str:
        """`better` or `worse` where the interval over worlds and time excludes zero, else `equal`."""
        return "better" if self.over_time.better else "worse" if self.over_time.worse else "equal"

    def to_json(self) -> Json:
        """Returns all fields by name, and the verdict."""
        return {**asdict(self), "verdict": self.verdict}


def interquartile(values: Values) -> Values:
    """Interquartile mean over the last axis; values on the quartiles count in part."""
    n = values.shape[-1]
    edges = np.arange(n + 1) / n
    inside = np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25)
    return np.asarray(np.sort(values, axis=-1) @ (np.clip(inside, 0, None) / 0.5))


def versus(name: str, own: Sequence[RunOutcome | None], base: Sequence[RunOutcome | None]) -> Versus | None:
    """Compares outcomes world by world; None where no world has both."""
    pairs = [(a, b) for a, b in zip(own, base, strict=True) if a and b and a.kpis and b.kpis]
    if not pairs:
        return None
    gained = [tokens(a) - tokens(b) for a, b in pairs]
    reductions = np.array([1 - time_per_token(a) / time_per_token(b) for a, b in pairs])
    known = bool(np.isfinite(reductions).all())  # infinite where a run trained nothing
    return Versus(
        name, len(pairs), sum(g > 0 for g in gained), sum(g < 0 for g in gained), sum(g == 0 for g in gained),
        student("reduction", reductions) if known else None,
        bootstrap("reduction", reductions, SEED, interquartile) if known else None,
        judge([_blocks(b) for _, b in pairs], [_blocks(a) for a, _ in pairs])[0],
    )  # fmt: skip


def tokens(outcome: RunOutcome) -> float:
    """Returns the tokens that a run trained, with those of the iteration under way at its end."""
    assert outcome.kpis is not None
    return outcome.kpis.progress_tokens


def time_per_token(outcome: RunOutcome) -> float:
    """Returns seconds per token, infinite where nothing was trained."""
    assert outcome.kpis is not None
    return math.inf if outcome.kpis.time_per_token_s is None else outcome.kpis.time_per_token_s


def average(values: Sequence[float | None]) -> float | None:
    """Returns the mean; None without values, or where one is missing or infinite."""
    if not values or any(value is None or not math.isfinite(value) for value in values):
        return None
    return float(np.mean([value for value in values if value is not None]))


def _blocks(outcome: RunOutcome) -> TimeBlocks:
    assert outcome.blocks is not None
    return outcome.blocks
