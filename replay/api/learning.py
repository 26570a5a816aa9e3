"""Training Hi-PPO and its Gymnasium environment from Python."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from replay.api.running import scenario_of, store_of
from replay.api.store import PathLike, Store
from replay.training import train as training_run
from replay.training.train import Algorithm, TrainingResult
from twin.scenario.prepare import Scenario, prepare

if TYPE_CHECKING:
    import gymnasium


def train(
    scenario: str | Scenario = "tri-7b",
    *,
    store: Store | PathLike | None = None,
    dataset: str | None = None,
    algorithm: Algorithm = "own",
    settings: PathLike | None = None,
    start: str | None = None,
    seed: int | None = None,
    resume: bool = False,
    activate: bool = True,
) -> TrainingResult:
    """Train Hi-PPO on the training window; with `activate` later runs of `hippo` use the checkpoint.

    `algorithm` names a section of `configs/algo/hi_ppo.yaml`, `settings` a YAML file whose values replace
    some of them. `start` is the digest of a checkpoint to begin with, or "scratch"; `own` begins with the
    weights that ship. Takes minutes; `toy` ends in seconds. Ctrl-C saves, `resume` goes on.

    Raises:
        LockedError: a training of this store is under way. NotFoundError: the lake lacks the data set.
        UsageError: `settings` does not fit, or there is nothing to resume.
    """
    return training_run.train(
        store_of(store).path, scenario_of(scenario), dataset=dataset, algorithm=algorithm,
        settings=None if settings is None else Path(settings), start=start, seed=seed, resume=resume,
        activate=activate,
    )  # fmt: skip


def environment(
    scenario: str | Scenario = "tri-7b",
    *,
    store: Store | PathLike | None = None,
    dataset: str | None = None,
    num_envs: int | None = None,
    **options: Any,
) -> "gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any]":
    """The Gymnasium environment that Hi-PPO trains in, over the training window of the scenario.

    One environment, or with `num_envs` a vector of them. Observation, action and reward are described in
    `policy.hippo.env.gym`.

    Raises:
        NotFoundError: the lake lacks the data set. InfeasibleError: the model does not fit.
    """
    from policy.hippo.env.gym import many, one

    setup = prepare(scenario_of(scenario), store_of(store).path, window="train", dataset=dataset)
    return one(setup=setup, **options) if num_envs is None else many(num_envs, setup=setup, **options)
