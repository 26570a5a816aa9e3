"""What a policy would have earned, estimated from the courses of logged runs (`replay.offpolicy`).

With b the policy that was logged, p the one asked about and w_t = prod_{u<=t} p(a_u|s_u) / b(a_u|s_u):

* `model`: the direct method. p's own course through the logged views, paid by the twin's iteration-time
  model under the telemetry that followed: V = sum_t m_t(p). Biased as the model is.
* `is`: per-decision importance sampling (Precup, Sutton, Singh 2000): V = mean over runs of sum_t w_t r_t.
  Unbiased, of large variance; needs b > 0 wherever p > 0.
* `wis`: weighted: sum_t (sum_i w_it r_it) / (sum_i w_it). Biased by order 1/n, of far smaller variance.
* `dr`: doubly robust (Dudik et al. 2011; Jiang and Li 2016): V = model + mean_i sum_t w_it (r_it - m_it).
  Because only the plan depends on decisions, the recursion over values collapses to this control variate.
* `matched`: the same with w of a step 1 where the logged plans before and after it are p's own, averaged
  over such runs. It also uses what a log says after the two have parted and met again.

Where b is deterministic, p leaves it at some decision for good or for a while: `is` and `wis` say nothing
from there on (they are given as None), `dr` goes on with the model alone, `matched` where they meet again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.core.seeds import generator

Float = NDArray[np.float64]
RESAMPLES = 2000
ENOUGH = 5
"""Runs from which on an interval is given."""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """What estimation needs of one run; arrays over its T decisions."""

    reward: Float  # tokens logged
    model: Float  # tokens that the model gives the logged plans
    target: Float  # tokens that the model gives the course of the policy asked about
    ratio: Float  # p(a|s) / b(a|s) of the logged plans
    same: NDArray[np.bool_]  # the logged plans before and after are those of that course
    open: NDArray[np.bool_]  # b puts in force, with some probability, whatever p might here

    @property
    def weight(self) -> Float:
        """w_t."""
        return np.asarray(np.cumprod(self.ratio), dtype=np.float64)

    @property
    def covered(self) -> bool:
        """Nothing that p does on the way is impossible under b."""
        alive = np.concatenate([[1.0], self.weight[:-1]]) > 0
        return bool(np.all(self.open[alive]))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens of a run under the policy asked about; `tokens` is None where the logs cannot say."""

    method: str
    tokens: float | None
    low: float | None = None  # 95 % bootstrap over runs
    high: float | None = None


def interval(method: str, paths: Sequence[Course]) -> Estimate:
    """One estimate with its 95 % bootstrap interval over runs, from `ENOUGH` runs on."""
    value = METHODS[method](paths)
    if value is None or len(paths) < ENOUGH:
        return Estimate(method, value)
    rng = generator(0, f"offpolicy/{method}")
    samples = rng.integers(len(paths), size=(RESAMPLES, len(paths)))
    drawn = [METHODS[method]([paths[i] for i in sample]) for sample in samples]
    low, high = np.quantile([v for v in drawn if v is not None] or [value], [0.025, 0.975])
    return Estimate(method, value, float(low), float(high))


def direct(paths: Sequence[Course]) -> float | None:
    """The model's word alone."""
    return float(np.mean([one.target.sum() for one in paths]))


def importance(paths: Sequence[Course]) -> float | None:
    """Per-decision importance sampling; None where the logged policy never does what this one does."""
    if not all(one.covered for one in paths):
        return None
    return float(np.mean([one.weight @ one.reward for one in paths]))


def weighted(paths: Sequence[Course]) -> float | None:
    """The same with weights that sum to one at each decision; None where no path reaches the end."""
    if not all(one.covered for one in paths):
        return None
    total = 0.0
    for t in range(max(len(one.reward) for one in paths)):
        there = [one for one in paths if t < len(one.reward)]
        weights = np.array([one.weight[t] for one in there])
        if not weights.sum() > 0:
            return None
        share = len(there) / len(paths)
        total += share * float(weights @ [one.reward[t] for one in there]) / float(weights.sum())
    return total


def doubly_robust(paths: Sequence[Course]) -> float | None:
    """The model, put right by what the logs say of it."""
    return float(np.mean([one.target.sum() + one.weight @ (one.reward - one.model) for one in paths]))


def matched(paths: Sequence[Course]) -> float | None:
    """The model, put right wherever a log passes through the same plans."""
    total = float(np.mean([one.target.sum() for one in paths]))
    for t in range(max(len(one.reward) for one in paths)):
        there = [one for one in paths if t < len(one.reward)]
        errors = [one.reward[t] - one.model[t] for one in there if one.same[t]]
        if errors:
            total += float(np.mean(errors)) * len(there) / len(paths)
    return total


METHODS = {
    "model": direct,
    "is": importance,
    "wis": weighted,
    "dr": doubly_robust,
    "matched": matched,
}
"""Name -> estimate from paths."""
