"""Rollouts in the Gymnasium environment for learning, and evaluation on the validation traces."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from policy.hippo.decoding import action_encoding
from policy.hippo.decoding.log_probability import teacher_forcing_batch
from policy.hippo.decoding.sampling import GREEDY, Actions, Choices, joined, sample
from policy.hippo.decoding.unmasked import UnmaskedChoices
from policy.hippo.env.gym import MASKS, Observed, PlanVectorEnv
from policy.hippo.env.training_task import TrainingTask
from policy.hippo.env.vector_env import COMPONENTS, CONSTRAINTS
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.upper_agent import Embedded, Encoded, UpperAgent
from policy.hippo.tables.features import Situation
from policy.hippo.tables.observation import Observation, stack
from policy.hippo.training.gae import advantages
from policy.hippo.training.learner import PpoLearner, Rollout

Float = NDArray[np.float64]
REWARD_SCALE = 0.1
"""Keeps discounted returns near 1, where value clipping by 0.2 is a sensible step."""
EVALUATION_PERIODS = 12
"""Periods of an evaluation episode, fewer in shorter traces."""
FIGURES = (*COMPONENTS, *(f"limited_{name}" for name in CONSTRAINTS), "meant")
"""What the learning curve shows of the environment's `info`."""
EarlyStop = Callable[[int], bool]
"""Whether to stop a rollout after the steps taken so far."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """A rollout to collect: `steps` decisions in each twin of task number `task`, from a reset."""

    task: int
    steps: int
    seed: tuple[int, str]  # of the generator, see `twin.core.seeds`


@dataclass(frozen=True, eq=False)
class _Transition:
    """One step of E twins; arrays (E,)."""

    observation: Observation
    actions: Actions
    log_prob: Float
    value: Float
    after: Float  # value of the next observation, before any reset
    reward: Float
    truncated: NDArray[np.bool_]
    figures: dict[str, Float]


def collect(
    learner: PpoLearner,
    task: TrainingTask,
    steps: int,
    rng: np.random.Generator,
    stop: EarlyStop = lambda steps: False,
) -> Rollout:
    """Collects `steps` decisions in each twin of the task; the lower agents learn at every step."""
    config = learner.config
    env, offered = PlanVectorEnv(task.twins(config)), offered_choices(task, config)
    observation = to_tensors(env.reset(seed=int(rng.integers(2**31)))[0])
    state = _encoded(learner.upper, observation)
    transitions: list[_Transition] = []
    lower = []
    while len(transitions) < steps and not stop(len(transitions)):
        uniform = rng.random((env.num_envs, 2 + 3 * task.problem.k))
        sampled = sample(learner.upper, learner.lower, offered, observation, uniform, state)
        action, value = sampled.actions, _value(learner.upper, state)
        rows = action_encoding.actions_to_rows(action, task.problem.masks)
        seen, reward, _, truncated, info = env.step(rows)
        later = to_tensors(seen)
        state = _encoded(learner.upper, later)
        after = _value(learner.upper, state)
        if truncated.any():
            after[truncated] = _final_value(learner.upper, info["final_obs"][truncated])
        lower.append(learner.learn_lower(task.problem, task.lower_reward, observation, action))
        limited = np.stack([info[f"limited_{name}"] for name in CONSTRAINTS], axis=1)
        figures = {name: info[name] for name in FIGURES}
        figures |= {"reward": reward, "moves": (action.go * (observation.current_knob >= 0)).numpy()}
        log_prob = sampled.log_prob + (0.0 if config.parts.hierarchy else sampled.lower_log_prob)
        shaped = REWARD_SCALE * (reward - limited @ learner.penalties)
        step = _Transition(observation, action, log_prob, value, after, shaped, truncated, figures)
        transitions.append(step)
        observation = later
    means = {name: float(np.mean([one.figures[name] for one in transitions])) for name in figures}
    means["lower_reward"] = float(np.mean(lower))
    return _rollout(offered, transitions, steps * env.num_envs, config, means)


def offered_choices(task: TrainingTask, config: HiPpoConfig) -> Choices:
    """Returns the choices of a task, without masks if the configuration says so."""
    return task.problem if config.parts.masks else UnmaskedChoices(task.problem)


def to_tensors(seen: Observed) -> Observation:
    """Converts observations of the environment to the networks' input."""
    flat = ("may_hold", "current_knob")
    arrays = {n: a.astype(np.bool_) if n in MASKS else a for n, a in seen.items()}
    return Observation(**{n: torch.from_numpy(a[:, 0] if n in flat else a) for n, a in arrays.items()})


def _final_value(upper: UpperAgent, ended: NDArray[np.object_]) -> Float:
    final = to_tensors({name: np.stack([one[name] for one in ended]) for name in ended[0]})
    with torch.no_grad():
        return _value(upper, upper.embed(final))


def _encoded(upper: UpperAgent, observation: Observation) -> Encoded:
    with torch.no_grad():  # the upper agent learns after the rollout
        return upper.encode(observation)


def _value(upper: UpperAgent, state: Embedded) -> Float:
    with torch.no_grad():
        return np.asarray(upper.value(state).numpy(), dtype=np.float64)


def _rollout(
    offered: Choices, steps: list[_Transition], planned: int, config: HiPpoConfig, means: dict[str, float]
) -> Rollout:
    def column(name: str) -> Float:
        return np.stack([getattr(step, name) for step in steps]).astype(np.float64)

    value = column("value")
    truncated = np.stack([step.truncated for step in steps])
    truncated[-1] = True  # the advantage must not reach into the next rollout
    advantage, target = advantages(
        column("reward"), value, column("after"), np.zeros_like(truncated), truncated,
        gamma=config.ppo.gamma, lam=config.ppo.gae_lambda,
    )  # fmt: skip
    flat = [torch.from_numpy(a.reshape(-1)).float() for a in (column("log_prob"), value, advantage, target)]
    observation = stack([step.observation for step in steps])
    actions = joined([step.actions for step in steps])
    whole = teacher_forcing_batch(offered, observation, actions)
    return Rollout(whole, flat[0], flat[1], flat[2], flat[3], planned, means)


@dataclass(frozen=True, eq=False)
class EvaluationRollout:
    """Results of E episodes of T periods on the validation trace."""

    reward: Float  # (T, E)
    moved: Float  # (T, E) 1 where the action was to leave a running plan
    components: Float  # (T, E, 3)

    def means(self) -> dict[str, float]:
        """Returns mean reward as `score`, share of moves, mean components."""
        parts = dict(zip(COMPONENTS, self.components.mean((0, 1)).tolist(), strict=True))
        return {"score": float(self.reward.mean()), "moves": float(self.moved.mean())} | parts


ActionFunction = Callable[[Situation], NDArray[np.int64]]
"""Rows of actions (E, 2 + 3 K) for a situation."""


def score(upper: UpperAgent, lower: LowerAgent, task: TrainingTask, config: HiPpoConfig) -> dict[str, float]:
    """Returns the means of the network's greedy actions on the validation trace."""
    return evaluate(task, config, greedy_actions(upper, lower, task, config)).means()


def greedy_actions(
    upper: UpperAgent, lower: LowerAgent, task: TrainingTask, config: HiPpoConfig
) -> ActionFunction:
    """Returns the network's most likely actions, without verification, as a function."""
    offered = offered_choices(task, config)

    def choose(seen: Situation) -> NDArray[np.int64]:
        uniform = np.full((len(seen.has_plan), 2 + 3 * task.problem.k), GREEDY)
        action = sample(upper, lower, offered, task.features.observe(seen), uniform).actions
        return action_encoding.actions_to_rows(action, task.problem.masks)

    return choose


def evaluate(
    task: TrainingTask,
    config: HiPpoConfig,
    choose: ActionFunction,
    weights: tuple[float, float, float] | None = None,
) -> EvaluationRollout:
    """Evaluates actions on the validation trace under the scenario's weights, or others.

    As many episodes as twins start evenly over every segment with nothing placed, and overlap in a short
    trace: mostly one plan is chosen an episode, so their number determines the variance of the mean. Links
    and their noise are equal for every seed of training, so that scores compare.
    """
    twins = task.twins(config, validate=True)
    segments = twins.trace.segments
    shortest = int(np.diff(segments).min())
    length = min(EVALUATION_PERIODS, shortest)
    count = max(1, min(twins.size // len(segments), shortest - length + 1))
    offsets = np.linspace(0, shortest - length, count).round().astype(np.int64)
    starts = (segments[:, :1] + offsets).reshape(-1)
    reward, moved, components = [], [], []
    seen = twins.begin(starts, weights or twins.weights)
    for _ in range(length):
        codes, go, _ = action_encoding.rows_to_plans(choose(seen), task.problem.masks)
        step = twins.step(codes, go)
        reward.append(step.reward)
        moved.append((go & seen.has_plan).astype(np.float64))
        components.append(step.components)
        seen = step.after
    return EvaluationRollout(np.stack(reward), np.stack(moved), np.stack(components))
