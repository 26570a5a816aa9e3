"""Weights of the objective that follow the state of the network.

The dynamic adjustment of the design, which sets the weights "from the present state of the network":

    w_i(t) = w_i (1 + g (f_i(t) - mean_i) / sd_i),    then divided by their sum.

f_i are the figures of the running plan's placement, all to be small: f_1 seconds per iteration under the
links of the moment, f_2 the idle share of its domains, f_3 egress per iteration; mean_i and sd_i are theirs
over samples of the past before the run, late ones more (`policy.control.long_run`). So where links are worse
than they mostly were speed gains weight, where they are better money does. Egress depends on no link: its own
factor stays 1.

Added to the design: deviations are cut at `MOST`, since an outage is infinitely slow; with g at most 0.3 no
weight turns negative. At the start nothing runs, and where nothing is known of the past there is no mean: the
weights are those of the scenario then.
"""

import numpy as np
from numpy.typing import NDArray

from policy.control.horizon import per_iteration
from policy.control.long_run import PastPlans
from policy.control.plan_rates import PlanRates
from policy.core.protocol import Context, Decision
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.link_state_times import States

Float = NDArray[np.float64]
Weights = tuple[float, float, float]

MOST = 3.0
"""Standard deviations that count, at most."""


class AdaptiveWeights:
    """The weights in force at each decision of a run."""

    def __init__(self, context: Context, past: PastPlans, rates: PlanRates) -> None:
        self._context, self._past, self._rates = context, past, rates

    def at(self, view: View) -> Weights:
        """Returns the weights for a decision, of sum 1."""
        gain, fixed = self._context.adaptive, self._context.weights
        if gain == 0.0 or view.plan is None:
            return fixed
        past = self._past.rates_in_each(view.plan)
        if past is None:
            return fixed
        now = self._rates(view.plan, States.of([view.forecast.links()]), view.slowdown)
        before = figures(self._rates, view.plan, past, None)
        present = figures(self._rates, view.plan, now, view.slowdown)[0]
        return adapted(fixed, gain, present, before)

    def record(self, decision: Decision, weights: Weights) -> Decision:
        """Returns the decision with the weights in force, where they adapt."""
        if self._context.adaptive == 0.0:
            return decision
        return decision.with_extra(weights=[float(weight) for weight in weights])


def figures(rates: PlanRates, plan: Plan, rate: Float, slowdown: Float | None) -> Float:
    """Returns seconds per iteration, idle share and egress USD of a plan at T rates, (T, 3)."""
    busy_s, usd = per_iteration(rates.estimator, plan, slowdown)
    with np.errstate(divide="ignore"):
        return np.stack([1.0 / rate, 1.0 - busy_s * rate, np.full_like(rate, usd)], axis=1)


def adapted(weights: Weights, gain: float, now: Float, past: Float) -> Weights:
    """Returns the weights by the formula above for figures `now` (3,) and of the `past` (T, 3), of which
    states in which nothing runs are left out."""
    known = past[np.isfinite(past[:, 0])]
    if len(known) < 2:
        return weights
    mean, deviation = known.mean(axis=0), known.std(axis=0)
    varies = deviation > 1e-9 * np.abs(mean)
    distance = np.where(varies, (now - mean) / np.where(varies, deviation, 1.0), 0.0)
    factor = 1.0 + gain * np.clip(distance, -MOST, MOST)
    found = np.array(weights) * factor
    speed, utilisation, money = (found / found.sum()).tolist()
    return (speed, utilisation, money)
