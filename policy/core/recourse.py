"""What plans bring over uncertain time to a controller that may leave them once things turn out badly.

A plan that suffers when one link drops is not as bad as the drop: the drop will be seen, and the job will go
over to another plan. So in every scenario the job stays on its plan, or goes over to one of the others when
the last slice of time begins, whichever is worth most (the second stage of a two-stage stochastic program):

    V(p) = mean over n of max( p to the end, max over q of p until s, then q from s + pause(p, q) on )

Without this, plans are chosen that hedge against everything that could happen in an hour and are best in
nothing that does. With leaving allowed earlier, whoever waits half a minute would know how the next hours
turn out, so that waiting always looks best and nothing is ever moved to: on the training window of quad-70b
`mpc` then needs 98.3 us a token, not 94.5.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from policy.core.objective import Objective

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Prospects:
    """P plans over S slices of time in N equally likely scenarios."""

    edges_s: Float  # (S + 1,) of the slices
    rates: Float  # (P, S, N) iterations per second
    pause_s: Float  # (P,) of going over to the plan now, infinite over a dead link
    moved_usd: Float  # (P,) egress of that move
    busy_s: Float  # (P,) compute seconds of an iteration, mean over the plan's domains
    usd: Float  # (P,) egress of an iteration

    def kept(self) -> Float:
        """Iterations, compute seconds and USD that each is expected to bring if it is kept, (P, 3)."""
        none = np.zeros((len(self.usd), 0))
        weights = np.array([1.0, 0.0, 0.0])
        return self._brought(np.zeros(0, np.int64), none, none, weights, np.ones(2))

    def brought(self, others: Int, between_s: Float, between_usd: Float, objective: Objective) -> Float:
        """As `kept`, but each may be left for one of the plans `others` (Q,) when the last slice begins: what
        that takes and costs is `between_s` and `between_usd` (P, Q).
        """
        base = objective.base
        relative = np.array([base.iter_s, base.usd if base.usd > 0 else 1.0])
        return self._brought(others, between_s, between_usd, np.array(objective.weights), relative)

    def leading(self, objective: Objective) -> Int:
        """The plans worth most in some scenario, (Q,) ascending: those that are worth going over to."""
        seconds = float(self.edges_s[-1])
        work = np.einsum("psn,s->pn", self.rates, np.diff(self.edges_s))
        time, utilisation, cost = objective.weights
        base = objective.base
        with np.errstate(divide="ignore"):
            slower = np.where(work > 0, seconds / work, np.inf) / base.iter_s
        usd = self.usd / base.usd if base.usd > 0 else self.usd
        worth = (utilisation * self.busy_s / seconds)[:, None] * work - (cost * usd)[:, None]
        worth = np.where(work > 0, worth - time * np.minimum(slower, 1e9), -np.inf)
        best: Int = np.unique(worth.argmax(axis=0))
        return best

    def _brought(
        self, others: Int, between_s: Float, between_usd: Float, weights: Float, base: Float
    ) -> Float:
        out = np.zeros((len(self.usd), 3))
        _brought(
            self.edges_s, self.rates, self.pause_s, self.moved_usd, self.busy_s, self.usd,
            others, between_s, between_usd, weights, base, out,
        )  # fmt: skip
        return out


@njit(cache=True)
def _worth(done, busy, usd, seconds, weights, base):  # type: ignore[no-untyped-def]
    """`Objective.value` but for a constant."""
    if done <= 0:
        return -np.inf
    return (
        weights[1] * busy / seconds
        - weights[0] * seconds / (done * base[0])
        - weights[2] * usd / (done * base[1])
    )


@njit(cache=True)
def _brought(  # type: ignore[no-untyped-def]
    edges_s, rates, pause_s, moved_usd, busy_s, usd, others, between_s, between_usd, weights, base, out
):
    last, scenarios, seconds = rates.shape[1] - 1, rates.shape[2], edges_s[-1]
    for p in range(len(rates)):
        for n in range(scenarios):
            done = 0.0  # before the last slice
            for s in range(last):
                done += rates[p, s, n] * (edges_s[s + 1] - max(edges_s[s], min(pause_s[p], edges_s[s + 1])))
            start = max(edges_s[last], min(pause_s[p], seconds))
            all_ = done + rates[p, last, n] * (seconds - start)
            best = (all_, busy_s[p] * all_, moved_usd[p] + usd[p] * all_)
            worth = _worth(best[0], best[1], best[2], seconds, weights, base)
            for x in range(len(others) if last else 0):
                q = others[x]
                rest = rates[q, last, n] * max(seconds - start - between_s[p, x], 0.0)
                spent = moved_usd[p] + usd[p] * done + between_usd[p, x] + usd[q] * rest
                path = (done + rest, busy_s[p] * done + busy_s[q] * rest, spent)
                found = _worth(path[0], path[1], path[2], seconds, weights, base)
                if found > worth:
                    best, worth = path, found
            for i in range(3):
                out[p, i] += best[i] / scenarios
