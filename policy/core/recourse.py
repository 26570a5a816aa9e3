"""Value of plans under uncertain links for a controller that may change plans later (recourse).

A plan that suffers when a link degrades loses less than that, since the controller will observe it and change
plans. So in every scenario the job keeps its plan, or changes to another one when the last slice of time
begins, whichever is worth more (the second stage of a two-stage stochastic program):

    V(p) = mean over n of max( p to the end, max over q of p until s, then q from s + pause(p, q) on )

Without recourse the plans chosen hedge against everything that could happen in an hour and are best in no
scenario that does. If changing earlier were allowed, waiting for half a minute would reveal the next hours,
so that waiting would always look best: on the training window of quad-70b `mpc` then needs 98.3 us a token
instead of 94.5.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from policy.core.objective import Objective

Float = NDArray[np.float64]
Int = NDArray[np.int64]


class TwoStageProgram(NamedTuple):
    """P plans over S slices of time in N equally likely scenarios."""

    edges_s: Float  # (S + 1,) of the slices
    rates: Float  # (P, S, N) iterations per second
    pause_s: Float  # (P,) of migrating to the plan now, infinite over a dead link
    moved_usd: Float  # (P,) egress of that migration
    busy_s: Float  # (P,) compute seconds of an iteration, mean over the plan's domains
    usd: Float  # (P,) egress of an iteration

    def without_recourse(self) -> Float:
        """Returns expected iterations, compute seconds and USD of each plan if it is kept, (P, 3)."""
        none = np.zeros((len(self.usd), 0))
        weights = np.array([1.0, 0.0, 0.0])
        return self._expected(np.zeros(0, np.int64), none, none, weights, np.ones(2))

    def with_recourse(self, others: Int, between_s: Float, between_usd: Float, objective: Objective) -> Float:
        """Returns the same (P, 3) if each plan may be left for one of the plans `others` (Q,) when the last
        slice begins; that takes `between_s` and costs `between_usd` (P, Q).
        """
        base = objective.base
        relative = np.array([base.iter_s, base.usd if base.usd > 0 else 1.0])
        return self._expected(others, between_s, between_usd, np.array(objective.weights), relative)

    def best_somewhere(self, objective: Objective) -> Int:
        """Returns the plans worth most in some scenario, (Q,) ascending: the candidates of the second
        stage."""
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

    def _expected(
        self, others: Int, between_s: Float, between_usd: Float, weights: Float, base: Float
    ) -> Float:
        out = np.zeros((len(self.usd), 3))
        between = (np.ascontiguousarray(between_s), np.ascontiguousarray(between_usd))
        program = self._replace(
            rates=np.ascontiguousarray(self.rates)
        )  # of other layouts: compiled once more
        _fill_expected(program, others, *between, weights, base, out)
        return out


@njit(inner=True, cache=True)
def _worth(done, busy, usd, seconds, weights, base):  # type: ignore[no-untyped-def]
    """Returns `Objective.value` up to a constant."""
    if done <= 0:
        return -np.inf
    return (
        weights[1] * busy / seconds
        - weights[0] * seconds / (done * base[0])
        - weights[2] * usd / (done * base[1])
    )


@njit(cache=True)
def _fill_expected(program, others, between_s, between_usd, weights, base, out):  # type: ignore[no-untyped-def]
    """Fills `out` (P, 3) with the expected iterations, compute seconds and USD."""
    edges_s, rates, pause_s, moved_usd, busy_s, usd = program
    last, scenarios, seconds = rates.shape[1] - 1, rates.shape[2], edges_s[-1]
    for p in range(len(rates)):
        for n in range(scenarios):
            done = 0.0  # before the last slice
            for s in range(last):
                done += rates[p, s, n] * (edges_s[s + 1] - max(edges_s[s], min(pause_s[p], edges_s[s + 1])))
            start = max(edges_s[last], min(pause_s[p], seconds))
            kept = done + rates[p, last, n] * (seconds - start)
            best = (kept, busy_s[p] * kept, moved_usd[p] + usd[p] * kept)
            worth = _worth(best[0], best[1], best[2], seconds, weights, base)
            for x in range(len(others) if last else 0):
                q = others[x]
                rest = rates[q, last, n] * max(seconds - start - between_s[p, x], 0.0)
                spent = moved_usd[p] + usd[p] * done + between_usd[p, x] + usd[q] * rest
                changed = (done + rest, busy_s[p] * done + busy_s[q] * rest, spent)
                found = _worth(changed[0], changed[1], changed[2], seconds, weights, base)
                if found > worth:
                    best, worth = changed, found
            for i in range(3):
                out[p, i] += best[i] / scenarios
