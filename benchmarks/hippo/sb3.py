"""Our environment and our networks as stable-baselines3 takes them, for `benchmarks/hippo/training.py`."""

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from policy.hippo.decoding import action_encoding
from policy.hippo.decoding.log_probability import evaluate_actions, teacher_forcing_batch
from policy.hippo.decoding.sampling import forced_actions, sample
from policy.hippo.env.gym import PlanVectorEnv
from policy.hippo.env.training_task import TrainingTask
from policy.hippo.networks import checkpoint
from policy.hippo.networks.upper_agent import MASKED, Sizes, UpperAgent
from policy.hippo.training.rollout import to_tensors


class Wrapped(VecEnv):
    """Our vector environment as stable-baselines3 expects one."""

    def __init__(self, env: PlanVectorEnv):
        self.render_mode = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self.env = env

    def reset(self) -> Any:
        return self.env.reset(seed=0)[0]

    def step_async(self, actions: Any) -> None:
        self.given = actions

    def step_wait(self) -> Any:
        seen, reward, _, truncated, info = self.env.step(self.given)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for twin in np.flatnonzero(truncated):
            infos[twin] = {"terminal_observation": info["final_obs"][twin], "TimeLimit.truncated": True}
        return seen, reward.astype(np.float32), truncated, infos

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **named: Any) -> list[Any]:
        assert method_name == "action_masks"
        return list(self.env.action_masks())

    def has_attr(self, attr_name: str) -> bool:
        return attr_name == "action_masks"

    def close(self) -> None: ...
    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.env, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None: ...
    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class SameNetworks(ActorCriticPolicy):
    """Upper and lower agent behind stable-baselines3's interface; it keeps rows of actions, so masks and all
    else that follows from them are worked out again in every minibatch.
    """

    def __init__(self, observation_space: Any, action_space: Any, lr_schedule: Any, **given: Any):
        BasePolicy.__init__(self, observation_space, action_space)
        self.task: TrainingTask = given["task"]
        self.upper, self.lower = checkpoint.build(given["config"])
        if given["plain"]:
            self.upper.__class__ = Plain
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr_schedule(1), eps=1e-5)
        self.rng = np.random.default_rng(0)

    def _observation(self, seen: dict[str, torch.Tensor]) -> Any:
        return to_tensors({name: tensor.numpy() for name, tensor in seen.items()})

    def forward(self, obs: Any, deterministic: bool = False) -> Any:
        observation, problem = self._observation(obs), self.task.problem
        uniform = self.rng.random((len(observation), 2 + 3 * problem.k))
        state = self.upper.encode(observation)
        sampled = sample(self.upper, self.lower, problem, observation, uniform, state)
        rows = torch.from_numpy(action_encoding.actions_to_rows(sampled.actions, problem.masks))
        log_prob = torch.from_numpy(sampled.log_prob + sampled.lower_log_prob).float()
        return rows, self.upper.value(state).unsqueeze(-1), log_prob

    def predict_values(self, obs: Any) -> Any:
        return self.upper.value(self.upper.encode(self._observation(obs))).unsqueeze(-1)

    def evaluate_actions(self, obs: Any, actions: Any) -> Any:
        problem = self.task.problem
        codes, go, _ = action_encoding.rows_to_plans(actions.numpy(), problem.masks)
        answers = forced_actions(problem.masks, codes, go)
        judged = evaluate_actions(
            self.upper, self.lower, teacher_forcing_batch(problem, self._observation(obs), answers)
        )
        log_prob = judged.log_prob + judged.lower_log_prob
        return judged.value.unsqueeze(-1), log_prob, judged.entropy + judged.lower_entropy


class Plain(UpperAgent):
    """The same network in the form that one would write down first: every number of layers is scored, and
    what is not legal is masked.
    """

    def layer_logits(self, own: Any, sizes: Sizes) -> Any:
        n, count = sizes.n_layers, len(own)
        legal = sizes.share * n + sizes.layers
        features = torch.zeros(count * n, sizes.features.shape[1]).index_copy(0, legal, sizes.features)
        every = Sizes(torch.arange(count).repeat_interleave(n), torch.arange(n).repeat(count), features, n)
        logits = super().layer_logits(own, every)
        closed = torch.ones(count * n, dtype=torch.bool).index_fill(0, legal, False)
        return logits.masked_fill(closed.reshape(count, n), MASKED)
