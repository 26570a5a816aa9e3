"""`sla-morl`: SLA-MORL-style elastic allocation; one node more or less at a time, by a small actor-critic.

Re-implementation after the abstract of SLA-MORL (recipe 10): 21 state numbers, 9 actions = {-1, 0, +1} x
{-1, 0, +1}, and a reward that weighs time, money and service level, its weights re-scaled in every step by
how badly each of them misses its target, and normalised. Adapted: its two axes, GPUs and CPUs, are nodes of
the job's home domain and nodes elsewhere (`policy.allocation`); targets are those of the static plan; the
third objective is utilisation. Parallelism over the nodes is Megatron's rule: no cut points. Where the paper
starts from logs of past runs, this agent trains at its first decision on the past as the filter sums it
up, links around their forecast with its deviation: first by imitating the best single step, then by policy
gradient (`train`), with the run's generator. Afterwards it acts greedily.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.kit.actor_critic import ActorCritic, Batch
from policy.planners.node_allocation import ACTIONS, Allocation, Allocator
from policy.kit.even_stages import Closest
from policy.kit.planner_base import Planner
from policy.core.protocol import Context
from policy.baselines.static import base_plan
from twin.core.domain import LinkState, Matrix
from twin.estimate.estimator import Estimate, Estimator
from twin.core.plan import Plan
from twin.core.view import View

Float = NDArray[np.float64]
STATE_NUMBERS, HIDDEN = 21, 24
EPISODES, STEPS, DISCOUNT = 16, 10, 0.9
IMITATED, IMITATION_UPDATES = 40, 150
PERSISTENCE = 0.9
"""How much of a link's deviation lasts to the next step of an episode."""
RATE = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What the agent looks at: its allocation and plan under some links, weights and its last action."""

    allocation: Allocation
    plan: Plan
    links: LinkState
    now: Estimate
    weights: Float  # (3,) time, utilisation, cost: re-scaled
    last: tuple[int, int]


class Market:
    """The job in front of an allocator: what steps bring, and what the agent is shown."""

    def __init__(self, context: Context, view: View) -> None:
        self.estimator: Estimator = context.estimator
        self._period_s, self._restart_s = context.period_s, context.restart_s
        self._given = np.array(context.weights)
        self._slowdown = view.slowdown
        self.links, self.deviation = view.forecast.links(), view.forecast.sd_log[-1]
        self.allocator = Allocator(self.estimator, view.free_gpus, self.links.bandwidth_bps)
        base = base_plan(self.estimator, view)
        self._target = None if base is None else self.estimator.iteration(base, self.links, view.slowdown)

    def scene(self, allocation: Allocation, links: LinkState, last: tuple[int, int]) -> Scene:
        """The present under an allocation that has a plan."""
        plan = self.allocator.plan(allocation)
        assert plan is not None
        now = self.estimator.iteration(plan, links, self._slowdown)
        severity = np.maximum(0.0, -self.slack(now))
        weights = self._given * (1.0 + severity)
        return Scene(allocation, plan, links, now, weights / weights.sum(), last)

    def slack(self, now: Estimate) -> Float:
        """How far time, utilisation and money are on the right side of their targets (3,), in [-3, 3]."""
        if self._target is None or self._target.iter_s == float("inf"):
            return np.zeros(3)
        target = self._target
        time = 1.0 - now.iter_s / target.iter_s if now.iter_s < float("inf") else -3.0
        spent = (now.usd + now.gpu_usd) / max(target.usd + target.gpu_usd, 1e-12)
        money = 1.0 - spent if np.isfinite(spent) else -3.0
        slack = np.array([time, now.utilisation - target.utilisation, money], dtype=np.float64)
        return slack.clip(-3.0, 3.0)

    def reward(self, before: Scene, after: Scene) -> float:
        """Weighted slacks of a period after the step, the pause of the move taken off the time."""
        move_s = self.estimator.move(before.plan, after.plan, before.links).seconds
        pause_s = move_s - self.estimator.restart_s + self._restart_s if move_s > 0 else 0.0
        lost = min(1.0, pause_s / self._period_s)
        return float(before.weights @ self.slack(after.now) - before.weights[0] * lost)

    def state(self, scene: Scene) -> Float:
        """The 21 numbers."""
        most, held = np.array(self.allocator.most), np.array(scene.allocation)
        home, now = self.allocator.home(scene.allocation), scene.now
        off = ~np.eye(len(held), dtype=np.bool_)
        rates = np.log10(np.maximum(scene.links.bandwidth_bps[off], 1.0)) - 9.0
        usual = np.log10(np.maximum(self.links.bandwidth_bps[off], 1.0)) - 9.0
        used = [
            scene.links.bandwidth_bps[p] for p in zip(scene.plan.order, scene.plan.order[1:], strict=False)
        ]
        finite = now.iter_s < float("inf")
        numbers = [
            held.sum() / most.sum(), (held > 0).mean(), held[home] / most[home],
            (held.sum() - held[home]) / max(1, most.sum() - most[home]),
            *self.slack(now), *scene.weights, *self._given,
            now.utilisation, now.exposed_comm_s / now.iter_s if finite else 1.0,
            now.bubble_s / now.iter_s if finite else 0.0,
            np.log10(max(min(used), 1.0)) - 9.0 if used else 0.0, rates.mean(), (rates - usual).mean(),
            float(scene.last[0]), float(scene.last[1]),
        ]  # fmt: skip
        return np.array(numbers, dtype=np.float64)

    def outcome(self, scene: Scene, action: int, links: LinkState) -> tuple[Scene, float]:
        """The next scene after an open action, and its reward."""
        allocation = self.allocator.after(scene.allocation, ACTIONS[action])
        assert allocation is not None
        after = self.scene(allocation, links, ACTIONS[action])
        return after, self.reward(scene, after)

    def shaken(self, deviation: Matrix) -> LinkState:
        """The forecast's links with a relative deviation in logarithms."""
        return LinkState(self.links.bandwidth_bps * np.exp(deviation), self.links.latency_s)


class SlaMorl(Planner):
    """Nodes up or down by a trained actor; trained once, at the first decision."""

    name = "sla-morl"

    def reset(self, context: Context) -> None:
        """Start a run."""
        super().reset(context)
        self._agent: ActorCritic | None = None
        self._last = ACTIONS[0]

    def due(self, view: View) -> str:
        """At every trigger: the agent may hold."""
        return super().due(view) or f"trigger {view.trigger}"

    def plans(self, view: View) -> list[Plan]:
        """The plan after the action with the highest score; at the start that of the first allocation."""
        market = Market(self.context, view)
        first = market.allocator.first()
        if first is None:
            raise Closest(self.estimator).error("SLA-MORL", view.free_gpus)
        if self._agent is None:
            self._agent = train(market, first, self.context.rng)
        start = first if view.plan is None else market.allocator.of(view.plan)
        if view.plan is None or market.allocator.plan(start) is None:
            self._last = ACTIONS[0]
            return [market.scene(first, market.links, self._last).plan]
        scene = market.scene(start, market.links, self._last)
        mask = market.allocator.mask(start)
        scores, _ = self._agent.scores(market.state(scene)[None], mask[None])
        action = int(np.argmax(scores[0]))
        self._last = ACTIONS[action]
        chosen, _ = market.outcome(scene, action, market.links)
        return [chosen.plan]


def train(market: Market, first: Allocation, rng: np.random.Generator) -> ActorCritic:
    """The recorded training: imitation of the best single step, then advantage actor-critic.

    Links are those of the forecast, shaken by its deviation, which lasts by `PERSISTENCE` from step to step.
    """
    agent = ActorCritic(STATE_NUMBERS, len(ACTIONS), HIDDEN, rng)
    seen = _best_single_steps(market, first, rng)
    for _ in range(IMITATION_UPDATES):
        agent.update(seen, imitate=True, rate=RATE)
    for _ in range(EPISODES):
        agent.update(_episode(agent, market, first, rng), imitate=False, rate=RATE / 4)
    return agent


def _best_single_steps(market: Market, first: Allocation, rng: np.random.Generator) -> Batch:
    """Situations on a random walk, each with the action of the highest reward."""
    rows, allocation = [], first
    for _ in range(IMITATED):
        links = market.shaken(market.deviation * rng.standard_normal(market.deviation.shape))
        scene, mask = market.scene(allocation, links, ACTIONS[0]), market.allocator.mask(allocation)
        rewards = [market.outcome(scene, a, links)[1] if open_ else -np.inf for a, open_ in enumerate(mask)]
        rows.append((market.state(scene), mask, int(np.argmax(rewards)), max(rewards) / (1 - DISCOUNT)))
        step = market.allocator.after(allocation, ACTIONS[int(rng.choice(np.nonzero(mask)[0]))])
        assert step is not None
        allocation = step
    return _batch(rows)


def _episode(agent: ActorCritic, market: Market, first: Allocation, rng: np.random.Generator) -> Batch:
    """Steps of the present policy with their discounted returns; the last value goes on."""
    shape = market.deviation.shape
    deviation = market.deviation * rng.standard_normal(shape)
    scene, rows, rewards = market.scene(first, market.shaken(deviation), ACTIONS[0]), [], []
    for _ in range(STEPS):
        mask = market.allocator.mask(scene.allocation)
        scores, _ = agent.scores(market.state(scene)[None], mask[None])
        action = int(rng.choice(len(ACTIONS), p=scores[0]))
        fresh = market.deviation * rng.standard_normal(shape)
        deviation = PERSISTENCE * deviation + np.sqrt(1 - PERSISTENCE**2) * fresh
        rows.append((market.state(scene), mask, action))
        scene, reward = market.outcome(scene, action, market.shaken(deviation))
        rewards.append(reward)
    mask = market.allocator.mask(scene.allocation)
    value = float(agent.scores(market.state(scene)[None], mask[None])[1][0])
    returns = []
    for reward in reversed(rewards):
        value = reward + DISCOUNT * value
        returns.append(value)
    return _batch([(*row, total) for row, total in zip(rows, reversed(returns), strict=True)])


def _batch(rows: list[tuple[Float, NDArray[np.bool_], int, float]]) -> Batch:
    states, masks, actions, returns = zip(*rows, strict=True)
    return Batch(np.stack(states), np.stack(masks), np.array(actions), np.array(returns))
