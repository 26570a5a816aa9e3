"""Plans known by a rough answer only: grown by neighbours, cut down to those worth an exact one."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from policy.hippo.tables.planning_tables import Codes, concatenate
from policy.hippo.agent.local_search import neighbours
from policy.hippo.agent.plan_verification import Question
from policy.core.objective import Objective

Int = NDArray[np.int64]
Float = NDArray[np.float64]

SEEDS = 2
"""Best plans whose neighbours are looked at in a round."""
FEW = 6
"""Plans kept by their value."""
LEADERS = 3
"""The best plan of each of so many numbers of domains is kept."""
FRESH = 24
"""Neighbours that survive a glance."""


@dataclass(frozen=True, eq=False)
class Shortlist:
    """P different plans with their rough values (P,) and their speed at the end of each scenario (P, N)."""

    question: Question
    objective: Objective
    codes: Codes
    values: Float
    speed: Float

    @classmethod
    def of(cls, question: Question, objective: Objective, codes: Codes) -> "Shortlist":
        """Look at `codes`, without repetition."""
        codes = codes.take(distinct(codes))
        found, speed = question.rough(codes)
        values = np.array([objective.value(outcome) for outcome in found])
        return cls(question, objective, codes, values, speed)

    def refined(self, rounds: int) -> "Shortlist":
        """Go on to neighbours of the best until nobody is overtaken, or for so many rounds."""
        list_, before = self, b""
        for _ in range(rounds):
            seeds = list_.codes.take(list_._seeds())
            known = keys(seeds).tobytes()
            if known == before:
                break
            list_, before = list_._grown(neighbours(self.question.timer.problem, seeds)), known
        return list_

    def finalists(self) -> Codes:
        """The best by value, the best of each number of domains, and the fastest of each scenario: what to go
        over to when it comes about.
        """
        return self.codes.take(self._kept())

    def _grown(self, fresh: Codes) -> "Shortlist":
        fresh = fresh.take(self._new(fresh))
        speed = self.question.glance(fresh)
        fresh = fresh.take(np.argsort(-speed, kind="stable")[:FRESH])
        more = self.of(self.question, self.objective, fresh)
        both = replace(
            self,
            codes=concatenate([self.codes, more.codes]),
            values=np.concatenate([self.values, more.values]),
            speed=np.concatenate([self.speed, more.speed]),
        )
        kept = both._kept()
        return replace(both, codes=both.codes.take(kept), values=both.values[kept], speed=both.speed[kept])

    def _new(self, fresh: Codes) -> Int:
        """Which of `fresh` are not known."""
        return np.flatnonzero(~np.isin(keys(fresh), keys(self.codes)))

    def _seeds(self) -> Int:
        return np.argsort(-self.values, kind="stable")[:SEEDS]

    def _kept(self) -> Int:
        best = np.argsort(-self.values, kind="stable")[:FEW]
        return np.unique(np.concatenate([best, leaders(self.codes, self.values), self.speed.argmax(axis=0)]))


def leaders(codes: Codes, values: Float) -> Int:
    """The best plan of each number of domains, at most `LEADERS`, the best first."""
    order = np.argsort(-values, kind="stable")
    _, first = np.unique(codes.count[order], return_index=True)
    return order[np.sort(first)[:LEADERS]]


def keys(codes: Codes) -> NDArray[np.uint64]:
    """One number for each plan, equal for equal plans; different ones share one about never (64 bits)."""
    table = np.concatenate(
        [codes.knob[:, None], codes.count[:, None], codes.domain, codes.layers, codes.choice], axis=1
    )
    return table.astype(np.uint64) @ _odd(table.shape[1])


@lru_cache(maxsize=8)
def _odd(width: int) -> NDArray[np.uint64]:
    """Random odd numbers, always the same ones."""
    drawn = np.random.default_rng(0).integers(2**63, size=width, dtype=np.uint64)
    return drawn * np.uint64(2) + np.uint64(1)


def distinct(codes: Codes) -> Int:
    """The first of equal plans, in order."""
    _, first = np.unique(keys(codes), return_index=True)
    return np.sort(first)
