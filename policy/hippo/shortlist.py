"""Plans known by a rough answer only: grown by neighbours, cut down to those worth an exact one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.hippo.problem import Codes, concatenate
from policy.hippo.refine import neighbours
from policy.hippo.verify import Question
from policy.objective import Objective

Int = NDArray[np.int64]
Float = NDArray[np.float64]

SEEDS = 2
"""Best plans whose neighbours are looked at in a narrow round."""
LEADERS = 5
"""In a wide round: the best plan of each of so many numbers of domains."""
EACH, FEW = 8, 6
"""Plans kept: in a wide round so many of each number of domains, in a narrow one so many in all."""


@dataclass(frozen=True, eq=False)
class Shortlist:
    """P different plans with their rough values (P,) and their speed at the end of each scenario (P, N)."""

    question: Question
    objective: Objective
    codes: Codes
    values: Float
    speed: Float
    wide: bool

    @classmethod
    def of(cls, question: Question, objective: Objective, codes: Codes, *, wide: bool) -> "Shortlist":
        """Look at `codes`, without repetition."""
        codes = codes.take(distinct(codes))
        found, speed = question.rough(codes)
        return cls(question, objective, codes, found.values(objective), speed, wide)

    def refined(self, rounds: int) -> "Shortlist":
        """Go on to neighbours of the best until nobody is overtaken, or for so many rounds."""
        list_, before = self, b""
        for _ in range(rounds):
            seeds = list_.codes.take(list_._seeds())
            if keys(seeds).tobytes() == before:
                break
            before = keys(seeds).tobytes()
            list_ = list_._grown(neighbours(self.question.timer.problem, seeds))
        return list_

    def finalists(self) -> Codes:
        """The best by value, and the fastest of each scenario: what to go over to when it comes about."""
        return self.codes.take(self._kept())

    def _grown(self, fresh: Codes) -> "Shortlist":
        new = self.of(self.question, self.objective, concatenate([self.codes, fresh]), wide=self.wide)
        kept = new._kept()
        codes, values, speed = new.codes.take(kept), new.values[kept], new.speed[kept]
        return Shortlist(self.question, self.objective, codes, values, speed, self.wide)

    def _seeds(self) -> Int:
        if self.wide:
            return leaders(self.codes, self.values)
        return np.argsort(-self.values, kind="stable")[:SEEDS]

    def _kept(self) -> Int:
        order = np.argsort(-self.values, kind="stable")
        if self.wide:
            count = self.codes.count[order]
            best = np.concatenate([order[count == n][:EACH] for n in np.unique(count).tolist()])
        else:
            best = order[:FEW]
        return np.unique(np.concatenate([best, self.speed.argmax(axis=0)]))


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
    odd = np.random.default_rng(0).integers(2**63, size=table.shape[1], dtype=np.uint64) * 2 + 1
    numbers: NDArray[np.uint64] = (table.astype(np.uint64) * odd).sum(axis=1)
    return numbers


def distinct(codes: Codes) -> Int:
    """The first of equal plans, in order."""
    _, first = np.unique(keys(codes), return_index=True)
    return np.sort(first)
