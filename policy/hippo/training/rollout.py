"""Rollouts: decisions in the Gymnasium environment, with all that learning from them needs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from policy.hippo.decoding import action_encoding as encoding
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.env.training_task import Course
from policy.hippo.decoding.sampling import GREEDY, Actions, Choices, joined, sample
from policy.hippo.env.vector_env import COMPONENTS, CONSTRAINTS
from policy.hippo.tables.features import Situation
from policy.hippo.decoding.unmasked import Free
from policy.hippo.training.gae import advantages
from policy.hippo.env.gym import MASKS, Observed, PlanVectorEnv
from policy.hippo.decoding.log_probability import case
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.observation import Observation, stack
from policy.hippo.training.learner import Practice, Rollout
from policy.hippo.networks.upper_agent import Encoded, UpperAgent

Float = NDArray[np.float64]
REWARD_SCALE = 0.1
"""Keeps discounted sums of rewards near 1, where clipping the value by 0.2 is a sensible step."""
WALK = 12
"""Periods of a validation episode, where the footage has as many."""
Enough = Callable[[int], bool]
"""Asked after each step, with the steps taken so far: whether to stop here."""


@dataclass(frozen=True, slots=True)
class Task:
    """A rollout to collect: `steps` decisions in each twin of a course, from fresh starts."""

    course: int
    steps: int
    seed: tuple[int, str]  # of the generator, see `twin.seeds`


@dataclass(frozen=True, eq=False)
class _Moment:
    """One step of all twins, arrays (E,)."""

    observation: Observation
    actions: Actions
    log_prob: Float
    value: Float
    after: Float  # value of what the step led to, before any reset
    reward: Float
    truncated: NDArray[np.bool_]
    told: dict[str, Float]


def collect(
    practice: Practice,
    course: Course,
    steps: int,
    rng: np.random.Generator,
    enough: Enough = lambda steps: False,
) -> Rollout:
    """`steps` decisions in each twin of the course; the lower agents learn at every one of them."""
    config = practice.config
    env, offered = PlanVectorEnv(course.twins(config)), choices(course, config)
    observation = tensors(env.reset(seed=int(rng.integers(2**31)))[0])
    state = _encoded(practice.upper, observation)
    moments: list[_Moment] = []
    lower = []
    while len(moments) < steps and not enough(len(moments)):
        uniform = rng.random((env.num_envs, 2 + 3 * course.problem.k))
        sampled = sample(practice.upper, practice.lower, offered, observation, uniform, state)
        action, value = sampled.actions, _value(practice.upper, state)
        seen, reward, _, truncated, info = env.step(encoding.rows(action, course.problem.masks))
        later = tensors(seen)
        state = _encoded(practice.upper, later)
        after = _value(practice.upper, state)
        if truncated.any():
            final = _final(info["final_obs"][truncated])
            after[truncated] = _value(practice.upper, _encoded(practice.upper, final))
        lower.append(practice.learn_lower(course.problem, course.lower_reward, observation, action))
        limited = np.stack([info[f"limited_{name}"] for name in CONSTRAINTS], axis=1)
        told = {name: info[name] for name in (*COMPONENTS, *(f"limited_{n}" for n in CONSTRAINTS), "meant")}
        told |= {"reward": reward, "moves": (action.go * (observation.current_knob >= 0)).numpy()}
        log_prob = sampled.log_prob + (0.0 if config.parts.hierarchy else sampled.lower_log_prob)
        worth = REWARD_SCALE * (reward - limited @ practice.penalties)
        moments.append(_Moment(observation, action, log_prob, value, after, worth, truncated, told))
        observation = later
    figures = {name: float(np.mean([moment.told[name] for moment in moments])) for name in moments[0].told}
    figures["lower_reward"] = float(np.mean(lower))
    return _rollout(offered, moments, steps * env.num_envs, config, figures)


def choices(course: Course, config: HiPpoConfig) -> Choices:
    """What the agents are offered on a course: what the masks allow, or anything at all."""
    return course.problem if config.parts.masks else Free(course.problem)


def tensors(seen: Observed) -> Observation:
    """Observations of the environment as the networks take them."""
    flat = ("may_hold", "current_knob")
    arrays = {n: a.astype(np.bool_) if n in MASKS else a for n, a in seen.items()}
    return Observation(**{n: torch.from_numpy(a[:, 0] if n in flat else a) for n, a in arrays.items()})


def _final(ended: NDArray[np.object_]) -> Observation:
    return tensors({name: np.stack([one[name] for one in ended]) for name in ended[0]})


def _encoded(upper: UpperAgent, observation: Observation) -> Encoded:
    with torch.no_grad():  # the upper agent does not learn until the rollout is over
        return upper.encode(observation)


def _value(upper: UpperAgent, state: Encoded) -> Float:
    with torch.no_grad():
        return np.asarray(upper.value(state).numpy(), dtype=np.float64)


def _rollout(
    offered: Choices, moments: list[_Moment], planned: int, config: HiPpoConfig, figures: dict[str, float]
) -> Rollout:
    def column(name: str) -> Float:
        return np.stack([getattr(moment, name) for moment in moments]).astype(np.float64)

    value = column("value")
    cut = np.stack([moment.truncated for moment in moments])
    cut[-1] = True  # the rollout ends here: nothing may leak from the next one
    advantage, target = advantages(
        column("reward"), value, column("after"), np.zeros_like(cut), cut,
        gamma=config.ppo.gamma, lam=config.ppo.gae_lambda,
    )  # fmt: skip
    flat = [torch.from_numpy(a.reshape(-1)).float() for a in (column("log_prob"), value, advantage, target)]
    observation = stack([moment.observation for moment in moments])
    answers = joined([moment.actions for moment in moments])
    whole = case(offered, observation, answers)
    return Rollout(whole, flat[0], flat[1], flat[2], flat[3], planned, figures)


@dataclass(frozen=True, eq=False)
class Played:
    """What a walk over the validation footage brought: T periods of E episodes."""

    reward: Float  # (T, E)
    moved: Float  # (T, E) 1 where a running plan was to be changed
    components: Float  # (T, E, 3)

    def means(self) -> dict[str, float]:
        """Mean reward as `score`, share of moves, mean components."""
        parts = dict(zip(COMPONENTS, self.components.mean((0, 1)).tolist(), strict=True))
        return {"score": float(self.reward.mean()), "moves": float(self.moved.mean())} | parts


Answer = Callable[[Situation], NDArray[np.int64]]
"""Rows of actions for what E controllers know."""


def score(upper: UpperAgent, lower: LowerAgent, course: Course, config: HiPpoConfig) -> dict[str, float]:
    """Means of the network's own greedy answers on the validation footage."""
    return played(course, config, greedy(upper, lower, course, config)).means()


def greedy(upper: UpperAgent, lower: LowerAgent, course: Course, config: HiPpoConfig) -> Answer:
    """The network alone, always its most likely answer."""
    offered = choices(course, config)

    def answer(seen: Situation) -> NDArray[np.int64]:
        uniform = np.full((len(seen.has_plan), 2 + 3 * course.problem.k), GREEDY)
        action = sample(upper, lower, offered, course.features.observe(seen), uniform).actions
        return encoding.rows(action, course.problem.masks)

    return answer


def played(
    course: Course, config: HiPpoConfig, answer: Answer, weights: tuple[float, float, float] | None = None
) -> Played:
    """Walks over the validation footage in one pass, under the scenario's weights or others.

    They start evenly over every segment, as many as there are twins, and overlap where the footage is short:
    a plan is chosen once a walk, so it is their number that makes the mean steady. Nothing is placed at a
    start.
    """
    twins = course.twins(config, validate=True)
    segments = twins.footage.segments
    shortest = int(np.diff(segments).min())
    length = min(WALK, shortest)
    count = max(1, min(twins.size // len(segments), shortest - length + 1))
    offsets = np.linspace(0, shortest - length, count).round().astype(np.int64)
    starts = (segments[:, :1] + offsets).reshape(-1)
    twins.size = len(starts)
    twins.reset(np.random.default_rng(0))
    twins.at[:] = starts
    twins.has_plan[:] = False
    twins.w[:] = weights or twins.weights
    reward, moved, components = [], [], []
    seen = twins.situation()
    for _ in range(length):
        codes, go, _ = encoding.read(answer(seen), course.problem.masks)
        step = twins.step(codes, go)
        reward.append(step.reward)
        moved.append((go & seen.has_plan).astype(np.float64))
        components.append(step.components)
        seen = step.after
    return Played(np.stack(reward), np.stack(moved), np.stack(components))
