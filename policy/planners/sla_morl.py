"""`sla-morl`: SLA-MORL-style elastic allocation; nodes added or removed one at a time by a small
actor-critic.

Re-implementation after the abstract of SLA-MORL: 21 state features, 9 actions = {-1, 0, +1} x {-1, 0, +1},
and a reward that weighs time, money and service level; in every step each weight is scaled by how far its
target is missed, then all are normalised. Adapted: its two axes, GPUs and CPUs, are nodes of the job's home
domain and nodes elsewhere (`policy.planners.node_allocation`); targets are those of the static plan; the
third objective is utilisation. Parallelism over the nodes is Megatron's rule. Where the paper starts from
logs of past runs, this agent trains at its first decision on links drawn around the forecast with its
deviation: first by imitation of the best single step, then by policy gradient (`train`), with the run's
generator. Afterwards it acts greedily.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.core.protocol import Context
from policy.core.reference_plan import base_plan
from policy.kit.actor_critic import ActorCritic, TransitionBatch
from policy.kit.even_stages import ClosestFit
from policy.kit.planner_base import Planner
from policy.planners.node_allocation import ACTIONS, Allocation, Allocator
from twin.core.domain import LinkState, Matrix
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator, IterationEstimate

Float = NDArray[np.float64]
STATE_FEATURES, HIDDEN = 21, 24
EPISODES, STEPS, DISCOUNT = 16, 10, 0.9
IMITATED, IMITATION_UPDATES = 40, 150
PERSISTENCE = 0.9
"""Autocorrelation of a link's deviation from one step of an episode to the next."""
RATE = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class AllocationState:
    """The state of the agent: allocation and plan under some links, weights and its last action."""

    allocation: Allocation
    plan: Plan
    links: LinkState
    now: IterationEstimate
    weights: Float  # (3,) time, utilisation, cost, scaled and normalised
    last: tuple[int, int]


class AllocationEnv:
    """The environment of the agent: states, rewards and features."""

    def __init__(self, context: Context, view: View) -> None:
        self.estimator: Estimator = context.estimator
        self._period_s, self._restart_s = context.period_s, context.restart_s
        self._weights = np.array(context.weights)
        self._slowdown = view.slowdown
        self.links, self.deviation = view.forecast.links(), view.forecast.sd_log[-1]
        self.allocator = Allocator(self.estimator, view.free_gpus, self.links.bandwidth_bps)
        base = base_plan(self.estimator, view)
        self._target = None if base is None else self.estimator.iteration(base, self.links, view.slowdown)

    def state(self, allocation: Allocation, links: LinkState, last: tuple[int, int]) -> AllocationState:
        """Returns the state under an allocation that has a plan."""
        plan = self.allocator.plan(allocation)
        assert plan is not None
        now = self.estimator.iteration(plan, links, self._slowdown)
        severity = np.maximum(0.0, -self.slack(now))
        weights = self._weights * (1.0 + severity)
        return AllocationState(allocation, plan, links, now, weights / weights.sum(), last)

    def slack(self, now: IterationEstimate) -> Float:
        """Returns by how much time, utilisation and money are better than their targets (3,), in [-3, 3]."""
        if self._target is None or self._target.iter_s == float("inf"):
            return np.zeros(3)
        target = self._target
        time = 1.0 - now.iter_s / target.iter_s if now.iter_s < float("inf") else -3.0
        spent = (now.usd + now.gpu_usd) / max(target.usd + target.gpu_usd, 1e-12)
        money = 1.0 - spent if np.isfinite(spent) else -3.0
        slack = np.array([time, now.utilisation - target.utilisation, money], dtype=np.float64)
        return slack.clip(-3.0, 3.0)

    def reward(self, before: AllocationState, after: AllocationState) -> float:
        """Returns the weighted slacks of a period after the step, less the pause of the migration."""
        move_s = self.estimator.move(before.plan, after.plan, before.links).seconds
        pause_s = move_s - self.estimator.restart_s + self._restart_s if move_s > 0 else 0.0
        lost = min(1.0, pause_s / self._period_s)
        return float(before.weights @ self.slack(after.now) - before.weights[0] * lost)

    def features(self, state: AllocationState) -> Float:
        """Returns the 21 features."""
        most, held = np.array(self.allocator.most), np.array(state.allocation)
        home, now = self.allocator.home(state.allocation), state.now
        off = ~np.eye(len(held), dtype=np.bool_)
        rates = np.log10(np.maximum(state.links.bandwidth_bps[off], 1.0)) - 9.0
        usual = np.log10(np.maximum(self.links.bandwidth_bps[off], 1.0)) - 9.0
        used = [
            state.links.bandwidth_bps[p] for p in zip(state.plan.order, state.plan.order[1:], strict=False)
        ]
        finite = now.iter_s < float("inf")
        numbers = [
            held.sum() / most.sum(), (held > 0).mean(), held[home] / most[home],
            (held.sum() - held[home]) / max(1, most.sum() - most[home]),
            *self.slack(now), *state.weights, *self._weights,
            now.utilisation, now.exposed_comm_s / now.iter_s if finite else 1.0,
            now.bubble_s / now.iter_s if finite else 0.0,
            np.log10(max(min(used), 1.0)) - 9.0 if used else 0.0, rates.mean(), (rates - usual).mean(),
            float(state.last[0]), float(state.last[1]),
        ]  # fmt: skip
        return np.array(numbers, dtype=np.float64)

    def step(self, state: AllocationState, action: int, links: LinkState) -> tuple[AllocationState, float]:
        """Returns the state after a legal action, and its reward."""
        allocation = self.allocator.after(state.allocation, ACTIONS[action])
        assert allocation is not None
        after = self.state(allocation, links, ACTIONS[action])
        return after, self.reward(state, after)

    def perturbed(self, deviation: Matrix) -> LinkState:
        """Returns the links of the forecast with deviations of their log bandwidth."""
        return LinkState(self.links.bandwidth_bps * np.exp(deviation), self.links.latency_s)


class SlaMorl(Planner):
    """Adds or removes nodes by a trained actor; trained once, at the first decision."""

    name = "sla-morl"

    def reset(self, context: Context) -> None:
        """Starts a run."""
        super().reset(context)
        self._agent: ActorCritic | None = None
        self._last = ACTIONS[0]

    def due(self, view: View) -> str:
        """Returns a reason at every trigger; the agent may hold."""
        return super().due(view) or f"trigger {view.trigger}"

    def plans(self, view: View) -> list[Plan]:
        """Returns the plan after the most probable action; at the start that of the initial allocation."""
        env = AllocationEnv(self.context, view)
        first = env.allocator.initial()
        if first is None:
            raise ClosestFit(self.estimator).error("SLA-MORL", view.free_gpus)
        if self._agent is None:
            self._agent = train(env, first, self.context.rng)
        start = first if view.plan is None else env.allocator.allocation_of(view.plan)
        if view.plan is None or env.allocator.plan(start) is None:
            self._last = ACTIONS[0]
            return [env.state(first, env.links, self._last).plan]
        state = env.state(start, env.links, self._last)
        mask = env.allocator.mask(start)
        probabilities, _ = self._agent.predict(env.features(state)[None], mask[None])
        action = int(np.argmax(probabilities[0]))
        self._last = ACTIONS[action]
        chosen, _ = env.step(state, action, env.links)
        return [chosen.plan]


def train(env: AllocationEnv, first: Allocation, rng: np.random.Generator) -> ActorCritic:
    """Returns an agent trained by imitation of the best single step, then as an advantage actor-critic.

    Links are those of the forecast with random deviations, autocorrelated by `PERSISTENCE`.
    """
    agent = ActorCritic(STATE_FEATURES, len(ACTIONS), HIDDEN, rng)
    demonstrations = _best_single_steps(env, first, rng)
    for _ in range(IMITATION_UPDATES):
        agent.update(demonstrations, imitate=True, rate=RATE)
    for _ in range(EPISODES):
        agent.update(_episode(agent, env, first, rng), imitate=False, rate=RATE / 4)
    return agent


def _best_single_steps(env: AllocationEnv, first: Allocation, rng: np.random.Generator) -> TransitionBatch:
    """Returns states on a random walk, each with the action of the highest reward."""
    rows, allocation = [], first
    for _ in range(IMITATED):
        links = env.perturbed(env.deviation * rng.standard_normal(env.deviation.shape))
        state, mask = env.state(allocation, links, ACTIONS[0]), env.allocator.mask(allocation)
        rewards = [env.step(state, a, links)[1] if open_ else -np.inf for a, open_ in enumerate(mask)]
        rows.append((env.features(state), mask, int(np.argmax(rewards)), max(rewards) / (1 - DISCOUNT)))
        step = env.allocator.after(allocation, ACTIONS[int(rng.choice(np.nonzero(mask)[0]))])
        assert step is not None
        allocation = step
    return _batch(rows)


def _episode(
    agent: ActorCritic, env: AllocationEnv, first: Allocation, rng: np.random.Generator
) -> TransitionBatch:
    """Returns steps of the present policy with discounted returns, bootstrapped from the last value."""
    shape = env.deviation.shape
    deviation = env.deviation * rng.standard_normal(shape)
    state, rows, rewards = env.state(first, env.perturbed(deviation), ACTIONS[0]), [], []
    for _ in range(STEPS):
        mask = env.allocator.mask(state.allocation)
        probabilities, _ = agent.predict(env.features(state)[None], mask[None])
        action = int(rng.choice(len(ACTIONS), p=probabilities[0]))
        fresh = env.deviation * rng.standard_normal(shape)
        deviation = PERSISTENCE * deviation + np.sqrt(1 - PERSISTENCE**2) * fresh
        rows.append((env.features(state), mask, action))
        state, reward = env.step(state, action, env.perturbed(deviation))
        rewards.append(reward)
    mask = env.allocator.mask(state.allocation)
    value = float(agent.predict(env.features(state)[None], mask[None])[1][0])
    returns = []
    for reward in reversed(rewards):
        value = reward + DISCOUNT * value
        returns.append(value)
    return _batch([(*row, total) for row, total in zip(rows, reversed(returns), strict=True)])


def _batch(rows: list[tuple[Float, NDArray[np.bool_], int, float]]) -> TransitionBatch:
    states, masks, actions, returns = zip(*rows, strict=True)
    return TransitionBatch(np.stack(states), np.stack(masks), np.array(actions), np.array(returns))
