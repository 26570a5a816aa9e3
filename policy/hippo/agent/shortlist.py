"""Local search over approximately timed plans, which keeps those worth exact timing."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from policy.core.objective import Objective
from policy.hippo.agent.local_search import neighbours
from policy.hippo.agent.plan_verification import PlanEvaluator
from policy.hippo.tables.planning_tables import Codes, concatenate

Int = NDArray[np.int64]
Float = NDArray[np.float64]

EXPANDED = 2
"""Best plans whose neighbours are evaluated in a round."""
KEPT_BY_VALUE = 6
"""Plans kept by their value."""
KEPT_BY_SIZE = 3
"""Numbers of domains of which the best plan is kept."""
KEPT_NEIGHBOURS = 24
"""Best neighbours that are kept in a round."""


@dataclass(frozen=True, eq=False)
class Shortlist:
    """P distinct plans with approximate values (P,) and iterations/s at the end of each scenario (P, N)."""

    evaluator: PlanEvaluator
    objective: Objective
    codes: Codes
    values: Float
    speed: Float

    @classmethod
    def of(cls, evaluator: PlanEvaluator, objective: Objective, codes: Codes) -> "Shortlist":
        """Evaluates the distinct plans of `codes`."""
        codes = codes.take(distinct(codes))
        found, speed = evaluator.approximate(codes)
        values = np.array([objective.value(outcome) for outcome in found])
        return cls(evaluator, objective, codes, values, speed)

    def refine(self, rounds: int) -> "Shortlist":
        """Returns the list after local search: `rounds` rounds, or until the best plans stay."""
        list_, before = self, b""
        for _ in range(rounds):
            seeds = list_.codes.take(list_._to_expand())
            known = keys(seeds).tobytes()
            if known == before:
                break
            list_, before = list_._grow(neighbours(self.evaluator.timer.problem, seeds)), known
        return list_

    def finalists(self) -> Codes:
        """Returns the best by value, the best of each number of domains, and the fastest of each scenario."""
        return self.codes.take(self._kept())

    def _grow(self, fresh: Codes) -> "Shortlist":
        fresh = fresh.take(self._unknown(fresh))
        worth = self.evaluator.approximate_values(fresh, self.objective)
        fresh = fresh.take(np.argsort(-worth, kind="stable")[:KEPT_NEIGHBOURS])
        more = self.of(self.evaluator, self.objective, fresh)
        both = replace(
            self,
            codes=concatenate([self.codes, more.codes]),
            values=np.concatenate([self.values, more.values]),
            speed=np.concatenate([self.speed, more.speed]),
        )
        kept = both._kept()
        return replace(both, codes=both.codes.take(kept), values=both.values[kept], speed=both.speed[kept])

    def _unknown(self, fresh: Codes) -> Int:
        """Indices of the plans of `fresh` that are not in the list."""
        return np.flatnonzero(~np.isin(keys(fresh), keys(self.codes)))

    def _to_expand(self) -> Int:
        return np.argsort(-self.values, kind="stable")[:EXPANDED]

    def _kept(self) -> Int:
        best = np.argsort(-self.values, kind="stable")[:KEPT_BY_VALUE]
        return np.unique(np.concatenate([best, leaders(self.codes, self.values), self.speed.argmax(axis=0)]))


def leaders(codes: Codes, values: Float) -> Int:
    """Returns the best plan of each number of domains, at most `KEPT_BY_SIZE`, the best first."""
    order = np.argsort(-values, kind="stable")
    _, first = np.unique(codes.count[order], return_index=True)
    return order[np.sort(first)[:KEPT_BY_SIZE]]


def keys(codes: Codes) -> NDArray[np.uint64]:
    """Returns a 64-bit hash of each plan, (P,)."""
    table = np.concatenate(
        [codes.knob[:, None], codes.count[:, None], codes.domain, codes.layers, codes.choice], axis=1
    )
    return table.astype(np.uint64) @ _odd_numbers(table.shape[1])


@lru_cache(maxsize=8)
def _odd_numbers(width: int) -> NDArray[np.uint64]:
    """Fixed random odd numbers, (width,)."""
    drawn = np.random.default_rng(0).integers(2**63, size=width, dtype=np.uint64)
    return drawn * np.uint64(2) + np.uint64(1)


def distinct(codes: Codes) -> Int:
    """Returns the indices of the first of equal plans, in order."""
    _, first = np.unique(keys(codes), return_index=True)
    return np.sort(first)
