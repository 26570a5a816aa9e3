"""What a policy's runs in several worlds amount to, beside those of another policy in the same worlds."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay.bench.cells import Outcome
from replay.metrics.paired_comparison import Blocks, Verdict, bootstrap, judge, student

Json = dict[str, Any]
Values = NDArray[np.float64]
SEED = 0
"""Of the bootstrap: the same runs give the same intervals."""


@dataclass(frozen=True, slots=True)
class Versus:
    """A policy against `base`, world by world. Reductions are 1 - time per token / that of the base.

    `mean` and `middle` (interquartile mean) have their intervals from the worlds alone. `over_time` is the
    difference in tokens with an interval over both, worlds and the hours of the window
    (`replay.judge.clustered`), and it decides whether a difference counts.
    """

    base: str
    worlds: int
    wins: int
    losses: int
    ties: int  # exactly as many tokens
    mean: Verdict | None
    middle: Verdict | None
    over_time: Verdict

    @property
    def verdict(self) -> str:
        """`better`, `worse` or `equal`: whether the interval over worlds and time leaves out zero."""
        return "better" if self.over_time.better else "worse" if self.over_time.worse else "equal"

    def to_json(self) -> Json:
        """All fields by name, and the verdict."""
        return {**asdict(self), "verdict": self.verdict}


def interquartile(values: Values) -> Values:
    """Mean of the middle half over the last axis; values on the quartiles count in part."""
    n = values.shape[-1]
    edges = np.arange(n + 1) / n
    inside = np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25)
    return np.asarray(np.sort(values, axis=-1) @ (np.clip(inside, 0, None) / 0.5))


def versus(name: str, own: Sequence[Outcome | None], base: Sequence[Outcome | None]) -> Versus | None:
    """Compare outcomes of the same worlds, one after the other; None where no world has both."""
    pairs = [(a, b) for a, b in zip(own, base, strict=True) if a and b and a.kpis and b.kpis]
    if not pairs:
        return None
    gained = [tokens(a) - tokens(b) for a, b in pairs]
    reductions = np.array([1 - time_per_token(a) / time_per_token(b) for a, b in pairs])
    known = bool(np.isfinite(reductions).all())  # not where somebody trained nothing
    return Versus(
        name, len(pairs), sum(g > 0 for g in gained), sum(g < 0 for g in gained), sum(g == 0 for g in gained),
        student("reduction", reductions) if known else None,
        bootstrap("reduction", reductions, SEED, interquartile) if known else None,
        judge([_blocks(b) for _, b in pairs], [_blocks(a) for a, _ in pairs])[0],
    )  # fmt: skip


def tokens(outcome: Outcome) -> int:
    """Tokens that a run trained."""
    assert outcome.kpis is not None
    return outcome.kpis.tokens


def time_per_token(outcome: Outcome) -> float:
    """Seconds per token, infinite where nothing was trained."""
    assert outcome.kpis is not None
    return math.inf if outcome.kpis.time_per_token_s is None else outcome.kpis.time_per_token_s


def average(values: Sequence[float | None]) -> float | None:
    """Mean; None where there is none or a value is missing or infinite."""
    if not values or any(value is None or not math.isfinite(value) for value in values):
        return None
    return float(np.mean([value for value in values if value is not None]))


def _blocks(outcome: Outcome) -> Blocks:
    assert outcome.blocks is not None
    return outcome.blocks
