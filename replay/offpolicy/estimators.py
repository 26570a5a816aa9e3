"""Off-policy estimators of the tokens of a policy, over trajectories (`replay.offpolicy.evaluation`).

With behaviour policy b (logged), target policy p and w_t = prod_{u<=t} p(a_u|s_u) / b(a_u|s_u):

* `model`: the direct method. p's own plans on the logged views, with tokens from the twin's iteration-time
  model under the telemetry that followed: V = sum_t m_t(p). Has the bias of the model.
* `is`: per-decision importance sampling (Precup, Sutton, Singh 2000): V = mean over runs of sum_t w_t r_t.
  Unbiased, of large variance; needs b > 0 wherever p > 0.
* `wis`: weighted: sum_t (sum_i w_it r_it) / (sum_i w_it). Biased by order 1/n, of far smaller variance.
* `dr`: doubly robust (Dudik et al. 2011; Jiang and Li 2016): V = model + mean_i sum_t w_it (r_it - m_it).
  Because only the plan depends on decisions, the recursion over values collapses to this control variate.
* `matched`: the same with w of a step 1 where the logged plans before and after it are p's own, averaged
  over such runs. It also uses the log after the two have diverged and agree again.

Where b is deterministic and p diverges at some decision, `is` and `wis` do not apply from there on (None),
`dr` continues with the model alone, and `matched` uses the log again where the plans agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.core.seeds import generator

Float = NDArray[np.float64]
RESAMPLES = 2000
ENOUGH = 5
"""Least number of runs for an interval."""


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """One run for estimation; arrays over its T decisions."""

    reward: Float  # tokens logged
    model: Float  # modelled tokens of the logged plans
    target: Float  # modelled tokens of the plans of p
    ratio: Float  # p(a|s) / b(a|s) of the logged plans
    same: NDArray[np.bool_]  # the logged plans before and after are those of p
    open: NDArray[np.bool_]  # b has positive probability for every plan for which p has

    @property
    def weight(self) -> Float:
        """Cumulative importance weights w_t."""
        return np.asarray(np.cumprod(self.ratio), dtype=np.float64)

    @property
    def covered(self) -> bool:
        """True if every action of p has positive probability under b while w_t > 0."""
        alive = np.concatenate([[1.0], self.weight[:-1]]) > 0
        return bool(np.all(self.open[alive]))


@dataclass(frozen=True, slots=True)
class OffPolicyEstimate:
    """Tokens of a run under the target policy; None where the estimator does not apply."""

    method: str
    tokens: float | None
    low: float | None = None  # 95 % bootstrap over runs
    high: float | None = None


def interval(method: str, paths: Sequence[Trajectory]) -> OffPolicyEstimate:
    """Returns one estimate with its 95 % bootstrap interval over runs, from `ENOUGH` runs on."""
    value = METHODS[method](paths)
    if value is None or len(paths) < ENOUGH:
        return OffPolicyEstimate(method, value)
    rng = generator(0, f"offpolicy/{method}")
    samples = rng.integers(len(paths), size=(RESAMPLES, len(paths)))
    drawn = [METHODS[method]([paths[i] for i in sample]) for sample in samples]
    low, high = np.quantile([v for v in drawn if v is not None] or [value], [0.025, 0.975])
    return OffPolicyEstimate(method, value, float(low), float(high))


def direct(paths: Sequence[Trajectory]) -> float | None:
    """Direct method: the model alone."""
    return float(np.mean([one.target.sum() for one in paths]))


def importance(paths: Sequence[Trajectory]) -> float | None:
    """Per-decision importance sampling; None where b does not cover p."""
    if not all(one.covered for one in paths):
        return None
    return float(np.mean([one.weight @ one.reward for one in paths]))


def weighted(paths: Sequence[Trajectory]) -> float | None:
    """Weighted importance sampling, normalised at each decision; None where no trajectory has weight left."""
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


def doubly_robust(paths: Sequence[Trajectory]) -> float | None:
    """Doubly robust: the model, corrected by its weighted errors on the logs."""
    return float(np.mean([one.target.sum() + one.weight @ (one.reward - one.model) for one in paths]))


def matched(paths: Sequence[Trajectory]) -> float | None:
    """The model, corrected by its errors wherever a log has the plans of p."""
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
"""Name -> estimator over trajectories."""
