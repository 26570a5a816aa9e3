"""Upper agent, lower agents and the twin, in that order: the network proposes, the twin verifies.

A decision: (1) the upper agent answers hold or move and places share after share, the lower agents arrange
each share; once greedily (the network's own choice) and a few times by sampling. (2) With `verify`, all
proposals, the static plan and holding are scored over the forecast horizon, moving included, by
`policy.hippo.verify`; the best few are refined by single steps. (3) The best one wins if it beats holding
by the margin. Without `verify` the network's own choice stands: that is the pure policy, and the ablation
of steps 2 and 3.

The time limits of the two levels (1 s, 100 ms, 2 s in all) are enforced by the runner, which owns the
clock; here no clock is read, so that equal views give equal decisions. `Latency` measures the levels for
whoever wants to know.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from policy.hippo.config import CoordinatorConfig
from policy.hippo.decode import GREEDY, codes_of, sample
from policy.hippo.features import Features, Situation
from policy.hippo.lower import LowerAgent
from policy.hippo.problem import Codes, Problem, concatenate
from policy.hippo.refine import neighbours
from policy.hippo.timing import Timer
from policy.hippo.upper import UpperAgent
from policy.hippo.verify import Expected, expected
from policy.horizon import Horizon
from policy.objective import Objective

Float = NDArray[np.float64]
SEEDS = 2
"""Best plans whose neighbours are looked at in a narrow round."""
LEADERS = 5
"""In a wide round: the best plan of each of so many numbers of domains."""
TIMED, TIMED_NARROW = 8, 4
"""Plans of a round that are timed exactly, the best by the closed form: in a wide round so many of each
number of domains, in a narrow one so many in all."""


@dataclass
class Latency:
    """Wall seconds of the parts of the last decision; never part of what is decided or logged as an event."""

    clock: Callable[[], float]
    marks: dict[str, float] = field(default_factory=dict)

    def mark(self, name: str) -> None:
        """Note that part `name` ended now."""
        self.marks[name] = self.clock()


@dataclass(frozen=True, eq=False)
class Proposal:
    """What the network answered: its greedy choice first, then samples."""

    codes: Codes
    move: bool
    log_probability: float


@dataclass(frozen=True, eq=False)
class Verdict:
    """Scored plans, the best first. `hold` is the running plan's place, None where it cannot be held.

    `leaders` are the best plans of each number of domains.
    """

    codes: Codes
    expected: Expected
    values: Float
    hold: int | None
    leaders: Codes


class Coordinator:
    """Both levels and the verification for one problem."""

    def __init__(self, upper: UpperAgent, lower: LowerAgent, features: Features, config: CoordinatorConfig):
        self.upper, self.lower, self.features, self.config = upper, lower, features, config
        self.problem: Problem = features.problem
        self.timer: Timer = features.timer

    def propose(self, situation: Situation, rng: np.random.Generator) -> Proposal:
        """The network's answers; the first one is greedy."""
        count = self.config.proposals if self.config.verify else 1
        observation = self.features.observe(situation)
        uniform = rng.random((count, 2 + 3 * self.problem.k))
        uniform[0] = GREEDY
        same = torch.zeros(count, dtype=torch.int64)
        with torch.no_grad():
            state = self.upper.encode(observation).rows(same)
        sampled = sample(self.upper, self.lower, self.problem, observation.take(same), uniform, state)
        log_probability = float(sampled.log_prob[0] + sampled.lower_log_prob[0])
        actions = sampled.actions
        return Proposal(codes_of(actions, self.problem.k), bool(actions.go[0]), log_probability)

    def verify(
        self,
        situation: Situation,
        plans: Codes,
        horizon: Horizon,
        objective: Objective,
        restart_s: float,
        *,
        wide: bool,
    ) -> Verdict:
        """Score `plans` and the running one, refine the best, return the best few in order.

        `wide` refines the best plan of each number of domains, and for longer.
        """
        rounds = self.config.wide_rounds if wide else self.config.rounds
        running = situation.plan if situation.has_plan[0] else None
        may_hold = running is not None and bool(situation.may_hold[0])
        slowdown = situation.slowdown[0]

        def score(codes: Codes, rough: bool = False) -> tuple[Expected, Float]:
            found = expected(
                self.timer, codes, horizon, slowdown, running=running, restart_s=restart_s, rough=rough
            )
            return found, found.values(objective)

        pool = _unique(concatenate([running, plans]) if may_hold and running is not None else plans)
        if not wide and len(pool) > TIMED_NARROW:
            known = int(may_hold)  # the running plan stands first and stays
            rest = _promising(pool, score(pool, rough=True)[1], wide)
            pool = pool.take(np.concatenate([np.arange(known), rest[rest >= known]]))
        found, values = score(pool)
        before: list[int] = []
        for _ in range(rounds):
            best = _leaders(pool, values) if wide else np.argsort(-values, kind="stable")[:SEEDS]
            if best.tolist() == before:  # nobody was overtaken by a neighbour
                break
            before = best.tolist()
            fresh = _without(neighbours(self.problem, pool, best), pool)
            if len(fresh) == 0:
                break
            fresh = fresh.take(_promising(fresh, score(fresh, rough=True)[1], wide))
            more, worth = score(fresh)
            pool, values = concatenate([pool, fresh]), np.concatenate([values, worth])
            found = _joined(found, more)
        order = np.argsort(-values, kind="stable")[:16]
        if may_hold and 0 not in order:
            order = np.append(order[:-1], 0)
        place = np.flatnonzero(order == 0)
        hold = int(place[0]) if may_hold else None
        leaders = pool.take(_leaders(pool, values))
        return Verdict(pool.take(order), found.take(order), values[order], hold, leaders)


def _leaders(codes: Codes, values: Float) -> NDArray[np.int64]:
    """The best plan of each number of domains, at most `LEADERS`, the best first."""
    order = np.argsort(-values, kind="stable")
    _, first = np.unique(codes.count[order], return_index=True)
    return order[np.sort(first)[:LEADERS]]


def _promising(codes: Codes, values: Float, wide: bool) -> NDArray[np.int64]:
    """Which of the roughly valued plans to time exactly."""
    order = np.argsort(-values, kind="stable")
    if not wide:
        return order[:TIMED_NARROW]
    count = codes.count[order]
    kept = [order[count == n][:TIMED] for n in np.unique(count).tolist()]
    return np.concatenate(kept)


def _joined(a: Expected, b: Expected) -> Expected:
    return Expected(
        np.concatenate([a.iter_s, b.iter_s]),
        np.concatenate([a.utilisation, b.utilisation]),
        np.concatenate([a.usd, b.usd]),
    )


def _rows(codes: Codes) -> NDArray[np.int64]:
    return np.concatenate(
        [codes.knob[:, None], codes.count[:, None], codes.domain, codes.layers, codes.choice], axis=1
    )


def _unique(codes: Codes) -> Codes:
    """Without repetition, the first of each kept in place."""
    _, first = np.unique(_rows(codes), axis=0, return_index=True)
    return codes.take(np.sort(first))


def _without(codes: Codes, known: Codes) -> Codes:
    """Those not among `known`; both without repetition."""
    both = np.concatenate([_rows(known), _rows(codes)])
    _, first = np.unique(both, axis=0, return_index=True)
    return codes.take(np.sort(first[first >= len(known)]) - len(known))
