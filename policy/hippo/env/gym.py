"""Gymnasium environments of one or many twins; Hi-PPO is trained in `PlanVectorEnv`.

    env = gymnasium.make("policy.hippo.gym:twin/Plan-v0", scenario="tri-7b", store=".twin")
    many = gymnasium.make_vec("policy.hippo.gym:twin/Plan-v0", num_envs=256, scenario="quad-70b")

STATE    what is known at a periodic trigger, the past only: per domain (`nodes`), per link
         (`edges`, with the Kalman forecasts), over all (`globals`, with the objective's weights), per
         (dp, micro-batch) (`knobs`) and the running plan; columns in `policy.hippo.tables.observation`.
ACTION   a row of integers: hold or move, knob, then domain, layers and (tp, pp) of each share from the last
         to the first. Every row means a legal plan, see `policy.hippo.decoding.action_encoding`.
REWARD   of one period: w1 R_eff + w2 R_util - w3 R_cost, migration included; see
`policy.hippo.env.vector_env`. INFO     components of the reward, values of the soft constraints, iterations
done.

Episodes are truncated, never terminated. The single environment waits for `reset`; the vector one resets in
the same step and leaves the last observations in `info["final_obs"]`. Links, forecasts and prices are those
of a trace window in the lake, or of a given `PreparedScenario`.
"""

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from policy.hippo.decoding import action_encoding
from policy.hippo.env.training_task import TrainingTask, prepare_task
from policy.hippo.env.vector_env import COMPONENTS, CONSTRAINTS, BatchedTwins, StepResult
from policy.hippo.networks.hippo_config import HiPpoConfig, RolloutConfig
from policy.hippo.tables.features import Features, Situation
from policy.hippo.tables.observation import EDGE, GLOBAL, KNOB, NODE, Observation
from policy.hippo.tables.planning_tables import PlanningTables
from twin.scenario import prepare
from twin.scenario.prepare import PreparedScenario

Array = NDArray[Any]
Observed = dict[str, Array]
MASKS = ("knob_mask", "may_hold")
BOUND = 1e6
"""Bound of the observation space: features are logarithms and shares, far below it."""


class PlanVectorEnv(VectorEnv[Observed, Array, Array]):
    """E twins of one cluster, stepped together; arrays have E rows."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 (Gymnasium's own)

    def __init__(self, twins: BatchedTwins):
        self.twins, self.num_envs = twins, twins.size
        self.single_observation_space = observation_space(twins.problem)
        self.single_action_space = spaces.MultiDiscrete(action_encoding.sizes(twins.problem.masks))
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """Starts all twins at random times of the trace."""
        super().reset(seed=seed)
        return observed(self.twins.features, self.twins.reset(self.np_random)), {}

    def step(self, actions: Array) -> tuple[Observed, Array, Array, Array, dict[str, Any]]:
        """Steps every twin by one period; truncated ones are reset."""
        step, info = _stepped(self.twins, actions)
        seen = step.after
        if step.truncated.any():
            ended = np.flatnonzero(step.truncated)
            info |= _final(observed(self.twins.features, seen.take(ended)), ended, self.num_envs)
            seen = self.twins.reset(self.np_random, step.truncated)
        terminated = np.zeros(self.num_envs, np.bool_)
        return observed(self.twins.features, seen), step.reward, terminated, step.truncated, info

    def action_masks(self) -> Array:
        """Returns for each entry of an action the values that some legal plan has, (E, sum of sizes)."""
        return action_encoding.entry_masks(self.twins.has_plan, self.twins.problem.masks)


class PlanEnv(gymnasium.Env[Observed, Array]):
    """One twin."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own)

    def __init__(self, twins: BatchedTwins):
        assert twins.size == 1
        self.twins = twins
        self.observation_space = observation_space(twins.problem)
        self.action_space = spaces.MultiDiscrete(action_encoding.sizes(twins.problem.masks))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """Starts at a random time of the trace."""
        super().reset(seed=seed)
        return _row(observed(self.twins.features, self.twins.reset(self.np_random)), 0), {}

    def step(self, action: Array) -> tuple[Observed, float, bool, bool, dict[str, Any]]:
        """Steps by one period."""
        step, info = _stepped(self.twins, np.asarray(action)[None])
        seen = _row(observed(self.twins.features, step.after), 0)
        one = {name: values[0] for name, values in info.items()}
        return seen, float(step.reward[0]), False, bool(step.truncated[0]), one

    def action_masks(self) -> Array:
        """Returns for each entry of an action the values that some legal plan has, (sum of sizes,)."""
        masks: Array = action_encoding.entry_masks(self.twins.has_plan, self.twins.problem.masks)[0]
        return masks


# -- observations


def observation_space(problem: PlanningTables) -> spaces.Space[Any]:
    """Returns the space of one twin: the arrays of `policy.hippo.tables.observation.Observation` without axis
    0."""
    k, c, n, q = problem.k, len(problem.knobs), problem.n, problem.tables.pp.shape[2]

    def real(*shape: int) -> spaces.Box:
        return spaces.Box(-BOUND, BOUND, shape, np.float32)

    def whole(top: int, *shape: int) -> spaces.Box:
        return spaces.Box(-1, top, shape, np.int64)

    return spaces.Dict(
        {
            "nodes": real(k, NODE),
            "edges": real(k, k, EDGE),
            "globals": real(GLOBAL),
            "knobs": real(c, KNOB),
            "knob_mask": spaces.MultiBinary(c),
            "may_hold": spaces.MultiBinary(1),
            "begin": whole(n, k),
            "end": whole(n, k),
            "pace": real(k),
            "current": whole(q, k),
            "current_knob": whole(c, 1),
        }
    )


def observed(features: Features, seen: Situation) -> Observed:
    """Returns observations as arrays of the observation space (B, ...)."""
    found = features.observe(seen)
    arrays = {name: getattr(found, name).numpy() for name in Observation.__dataclass_fields__}
    for name in MASKS:
        arrays[name] = arrays[name].astype(np.int8)  # a copy: the tables share it
    return {name: array if array.ndim > 1 else array[:, None] for name, array in arrays.items()}


def _row(seen: Observed, row: int) -> Observed:
    return {name: array[row] for name, array in seen.items()}


def _final(seen: Observed, ended: NDArray[np.int64], size: int) -> dict[str, Array]:
    """The last observations of the twins `ended`, in Gymnasium's form."""
    final, present = np.full(size, None, dtype=object), np.zeros(size, np.bool_)
    for row, twin in enumerate(ended.tolist()):
        final[twin] = _row(seen, row)
    present[ended] = True
    return {"final_obs": final, "_final_obs": present}


def _stepped(twins: BatchedTwins, rows: Array) -> tuple[StepResult, dict[str, Any]]:
    codes, go, meant = action_encoding.rows_to_plans(rows, twins.problem.masks)
    step = twins.step(codes, go)
    info = {"iterations": step.iterations, "meant": meant}
    info |= dict(zip(COMPONENTS, step.components.T, strict=True))
    return step, info | {f"limited_{n}": v for n, v in zip(CONSTRAINTS, step.limited.T, strict=True)}


# -- registration


def one(**where: Any) -> PlanEnv:
    """Returns the environment of `gymnasium.make`; keyword arguments as of `many`."""
    return PlanEnv(_twins(1, **where))


def many(num_envs: int = 1, **where: Any) -> PlanVectorEnv:
    """Returns the environment of `gymnasium.make_vec`.

    `scenario` names a scenario and `store` holds its traces (default: TWIN_STORE, else `.twin`), of which the
    training window is taken; or `setup` is a prepared scenario. `rollout` sets the length of episodes and
    weights.

    Raises:
        NotFoundError: the data set is not in the lake. InfeasibleError: the model does not fit.
    """
    return PlanVectorEnv(_twins(num_envs, **where))


def _twins(
    size: int,
    *,
    setup: PreparedScenario | None = None,
    scenario: str = "tri-7b",
    store: str | Path | None = None,
    dataset: str | None = None,
    rollout: RolloutConfig | None = None,
) -> BatchedTwins:
    folder = Path(store or os.environ.get("TWIN_STORE", ".twin"))
    setup = setup or prepare.prepare(prepare.load(scenario), folder, window="train", dataset=dataset)
    settings = (rollout or RolloutConfig()).model_copy(update={"environments": size})
    config = HiPpoConfig(rollout=settings)
    task: TrainingTask = prepare_task(setup, config)
    return task.twins(config)


PLAN = "twin/Plan-v0"
gymnasium.register(PLAN, entry_point=f"{__name__}:one", vector_entry_point=f"{__name__}:many")
