"""Upper agent, lower agents and the twin, in that order: the network proposes, the twin verifies.

A decision after an event: (1) the upper agent answers hold or move and places share after share, the lower
agents arrange each share; once greedily (the network's own choice) and a few times by sampling. (2) With
`verify`, all proposals, the static plan, what a search found and holding are scored over the forecast
horizon, moving included, by `policy.hippo.verify`; the best few are refined by single steps. (3) The best
one wins if it beats holding by the margin. Between events steps 2 and 3 judge what is known already, and
the network is not asked. Without `verify` its own choice stands at every decision: that is the pure policy,
and the ablation of steps 2 and 3.

The time limit of a whole decision is the runner's, which owns the clock (`control.deadline_s`: the running
plan is kept where an answer is late); here no clock is read, so that equal views give equal decisions.
`benchmarks/latency.py` times both levels against their limits of 1 s and 100 ms.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from policy.hippo.networks.hippo_config import CoordinatorConfig
from policy.hippo.decoding.sampling import GREEDY, codes_of, sample
from policy.hippo.tables.features import Features, Situation
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.observation import Observation
from policy.hippo.tables.planning_tables import Codes, Problem, concatenate
from policy.hippo.agent.shortlist import Shortlist, distinct
from policy.hippo.tables.batch_timing import Timer
from policy.hippo.networks.upper_agent import UpperAgent
from policy.hippo.agent.plan_verification import Question
from policy.control.horizon import Horizon
from policy.core.objective import Objective, Outcome

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Proposal:
    """What the network answered: its greedy choice first, then samples."""

    codes: Codes
    move: bool
    log_probability: float


@dataclass(frozen=True, eq=False)
class Verdict:
    """The plans that were timed, with what each is expected to bring if it may be left later, and if it is
    kept. The running plan comes first where it may be held.
    """

    codes: Codes
    found: list[Outcome]
    kept: list[Outcome]


class Coordinator:
    """Both levels and the verification for one problem."""

    def __init__(self, upper: UpperAgent, lower: LowerAgent, features: Features, config: CoordinatorConfig):
        self.upper, self.lower, self.features, self.config = upper, lower, features, config
        self.problem: Problem = features.problem
        self.timer: Timer = features.timer

    def prepare(self) -> None:
        """Answer once for nothing: compiled code is there before the first decision waits for it."""
        blank = Observation.blank(self.problem.k, torch.from_numpy(self.problem.knob_mask))
        uniform = np.full((1, 2 + 3 * self.problem.k), GREEDY)
        sample(self.upper, self.lower, self.problem, blank, uniform)

    def propose(self, situation: Situation, rng: np.random.Generator, count: int) -> Proposal:
        """The network's `count` answers; the first one is greedy."""
        observation = self.features.observe(situation)
        uniform = rng.random((count, 2 + 3 * self.problem.k))
        uniform[0] = GREEDY
        with torch.inference_mode():
            state = self.upper.encode(observation)
            if count > 1:
                same = torch.zeros(count, dtype=torch.int64)
                observation, state = observation.take(same), state.rows(same)
            sampled = sample(self.upper, self.lower, self.problem, observation, uniform, state)
        log_probability = float(sampled.log_prob[0] + sampled.lower_log_prob[0])
        actions = sampled.actions
        return Proposal(codes_of(actions, self.problem.k), bool(actions.go[0]), log_probability)

    def question(self, situation: Situation, horizon: Horizon, restart_s: float) -> Question:
        """What will be asked of the plans of one decision."""
        running = situation.plan if situation.has_plan[0] else None
        return Question(self.timer, horizon, situation.slowdown[0], running, restart_s)

    def verify(
        self, question: Question, plans: Codes, objective: Objective, *, may_hold: bool, wide: bool
    ) -> Verdict:
        """Refine the best of `plans` and of the running one, score the best and the running one.

        `wide` refines for longer and times all exactly. The running plan comes first where it `may_hold`.
        """
        running = question.running if may_hold else None
        pool = concatenate([running, plans]) if running is not None else plans
        rounds = self.config.wide_rounds if wide else self.config.rounds
        finalists = Shortlist.of(question, objective, pool).refined(rounds).finalists()
        pool = concatenate([running, finalists]) if running is not None else finalists
        pool = pool.take(distinct(pool))
        return Verdict(pool, *question.compared(pool, objective, exact=wide))
