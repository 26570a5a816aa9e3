"""Coordination of upper agent, lower agents and cost model: the network proposes, the cost model verifies.

A decision after an event: (1) the upper agent chooses hold or move, knob and shares, the lower agents tp and
pp of each share; once greedily and several times by sampling. (2) With `verify`, proposals, the static plan,
the plans of a search and the running plan are scored over the forecast horizon, migration included
(`policy.hippo.agent.plan_verification`), and the best are refined by local search. (3) The best plan is
chosen if it beats holding by the margin. At periodic triggers steps 2 and 3 score the plans known before,
without the network. Without `verify` the network's greedy choice is the decision (an ablation).

The deadline of a decision is the runner's (`control.deadline_s`); no clock is read here, so that equal views
give equal decisions. `benchmarks/policy/latency.py` measures both levels against 1 s and 100 ms.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from policy.control.horizon import Horizon
from policy.core.objective import Objective
from policy.hippo.agent.plan_verification import PlanEvaluator
from policy.hippo.agent.shortlist import Shortlist, distinct
from policy.hippo.decoding.sampling import GREEDY, codes_of, sample
from policy.hippo.networks.hippo_config import CoordinatorConfig
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.upper_agent import UpperAgent
from policy.hippo.tables.batch_timing import Timer
from policy.hippo.tables.features import Features, Situation
from policy.hippo.tables.observation import Observation
from policy.hippo.tables.planning_tables import Codes, PlanningTables, concatenate

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Proposal:
    """Proposals of the network: the greedy one first, then samples."""

    codes: Codes
    move: bool
    log_probability: float


class Coordinator:
    """Both levels and the verification for one cluster and job."""

    def __init__(self, upper: UpperAgent, lower: LowerAgent, features: Features, config: CoordinatorConfig):
        self.upper, self.lower, self.features, self.config = upper, lower, features, config
        self.problem: PlanningTables = features.problem
        self.timer: Timer = features.timer

    def prepare(self) -> None:
        """Samples once, so that no decision waits for compilation."""
        blank = Observation.blank(self.problem.k, torch.from_numpy(self.problem.knob_mask))
        uniform = np.full((1, 2 + 3 * self.problem.k), GREEDY)
        sample(self.upper, self.lower, self.problem, blank, uniform)

    def propose(self, situation: Situation, rng: np.random.Generator, count: int) -> Proposal:
        """Returns `count` proposals of the network; the first is greedy."""
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

    def evaluator(
        self, situation: Situation, horizon: Horizon, direct: Horizon, restart_s: float, *, relayed: bool
    ) -> PlanEvaluator:
        """Returns the evaluator of the plans of one decision."""
        running = situation.plan if situation.has_plan[0] else None
        return PlanEvaluator(self.timer, horizon, direct, relayed, situation.slowdown[0], running, restart_s)

    def refine(
        self, evaluator: PlanEvaluator, plans: Codes, objective: Objective, *, may_hold: bool, wide: bool
    ) -> Codes:
        """Returns the finalists of a local search around `plans` and the running one, for longer if `wide`.
        The running plan comes first where it `may_hold`.
        """
        running = evaluator.running if may_hold else None
        pool = concatenate([running, plans]) if running is not None else plans
        rounds = self.config.wide_rounds if wide else self.config.rounds
        finalists = Shortlist.of(evaluator, objective, pool).refine(rounds).finalists()
        pool = concatenate([running, finalists]) if running is not None else finalists
        return pool.take(distinct(pool))
