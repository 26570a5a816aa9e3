"""SLA-MORL on the queue: an actor-critic with two objectives whose weights follow their violations.

Mostafa, Mohan and Wang, "SLA-MORL: SLA-Aware Multi-Objective Reinforcement Learning for HPC Resource
Optimization" (arXiv:2508.03509), a re-implementation from its abstract, as `policy/planners/sla_morl.py` is.
Kept: the weighted reward, weights that grow with the severity of each violation and are normalised to 1,
targets from a run that was made before, an actor-critic begun at historical runs.

It is an adaptation. There the nine actions add or remove GPUs and CPUs of one job (nodes of one job in the
planner of that name); the jobs of these logs are rigid and no pool has CPUs of its own, so the action here is
the next job of the queue.
The cost of a rigid job, processor-seconds times a price, is the same in every order: that objective teaches
nothing and is left out. Time is the log bounded slowdown. The agreement (SLA) is that no slowdown exceeds
the 95th percentile under the heuristic on the windows of practice, a violation its log excess. Both targets
are the heuristic's sums on the same window.

Left open by the abstract: preference (here balanced), discount and advantages (here Hi-PPO's), gradient steps
(here as many a step as Hi-PPO's; each choice is learned from once, as it must in an on-policy actor-critic).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from policy.hippo.queue.network import log_probabilities
from policy.hippo.queue.ppo import ChoiceBatch, Ppo, PpoSettings, normalised
from policy.hippo.queue.rollout import QueueRollout, accrued, rewards, rollout
from policy.hippo.queue.windows import Window, log_slowdowns
from twin.queue.jobs import LATEST_NS, Float, Int
from twin.queue.metrics import TAU_S

BALANCED = (0.5, 0.5)
"""Weights of time and agreement before any violation."""
AGREED = 95
"""Percentile of the heuristic's slowdowns that is agreed on."""
MOST = 3.0
"""Largest severity that counts, as in `policy/planners/sla_morl.py`."""
PIECES = PpoSettings().passes
"""Parts of the choices of a window, one gradient step each: as many steps as Hi-PPO's passes take."""


class QueueSlaMorl(Ppo):
    """A scorer that improves in time and in agreements kept, by weights that adapt in each step."""

    def __init__(self, module: nn.Sequential, seed: int, windows: Sequence[Window]) -> None:
        super().__init__(module, seed)
        slowdowns = np.concatenate([log_slowdowns(one.part, one.start_ns) for one in windows])
        self.limit = float(np.percentile(slowdowns, AGREED))
        self.weights = np.array(BALANCED)

    def step(self, windows: Sequence[Any], random: np.random.Generator) -> None:
        """Plays windows, adapts the weights to what was violated, and learns."""
        chosen, scorer = random.integers(len(windows), size=self.settings.windows), self.scorer
        picked: list[Window] = [windows[at] for at in chosen]
        played = [rollout(one, scorer, int(random.integers(2**62)), self._objectives) for one in picked]
        targets = np.sum([self._targets(one) for one in picked], axis=0)
        gained = np.sum([one.reward.sum(axis=0) for one in played], axis=0)
        self.weights = adapted(gained / np.maximum(targets, 1e-9))
        batches = [self.batch(self._weighted(one)) for one in played if len(one.begin)]
        if batches:
            self.learn(batches)

    def learn(self, batches: list[ChoiceBatch]) -> None:
        """Takes a gradient step for each part of a window."""
        for whole in normalised(batches):
            for one in whole.pieces(PIECES):
                self.descend(self.optimiser, self.module, self._policy_loss(one))
                self.descend(self.critic_optimiser, self.critic, self.critic_loss(one))

    def _policy_loss(self, one: ChoiceBatch) -> Tensor:
        return -(log_probabilities(self.module(one.rows)[:, 0], one.begin) * one.gain).mean()

    def _weighted(self, one: QueueRollout) -> QueueRollout:
        return replace(one, reward=one.reward @ self.weights)

    def _objectives(self, window: Window, own_ns: Int, time_ns: Int) -> Float:
        """Returns rewards of time and agreement (k, 2), the heuristic's accrual minus the own one."""
        late = [excess(window, start_ns, time_ns, self.limit) for start_ns in (window.start_ns, own_ns)]
        return np.stack((rewards(window, own_ns, time_ns), late[0] - late[1]), axis=1)

    def _targets(self, window: Window) -> Float:
        """Returns the heuristic's sums of log slowdowns and of excesses (2,)."""
        slowdowns = log_slowdowns(window.part, window.start_ns)
        return np.array([slowdowns.sum(), np.maximum(slowdowns - self.limit, 0.0).sum()])


def adapted(slack: Float) -> Float:
    """Returns weights (objectives,) from slacks, each a share of its target and below 0 where it is violated:
    the balanced ones times 1 + severity, normalised to sum 1."""
    severity = np.clip(-slack, 0.0, MOST)
    weights = np.array(BALANCED) * (1.0 + severity)
    return np.asarray(weights / weights.sum())


def excess(window: Window, start_ns: Int, time_ns: Int, limit: float) -> Float:
    """Returns the log slowdown above a limit that a schedule accrues from each choice until the next (k,).

    A job exceeds it when it waits longer than e^limit of its run time (at least `TAU_S`), less one run. That
    is the slowdown above 1 of a job so long, submitted as much later as it is longer.
    """
    jobs = window.part.jobs
    agreed = (np.maximum(jobs.run_ns, TAU_S * 1e9) * np.exp(limit)).astype(np.int64)
    later = jobs.submit_ns + agreed - jobs.run_ns
    return np.diff(accrued(later, agreed, start_ns, np.append(time_ns, LATEST_NS)))
