"""The state of a training on disk; a resumed training gives the weights of an uninterrupted one.

Random generators are named by (seed, phase, number), so the counts are their state.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core import durable, safe_json
from ingest.core.errors import DamageError, UsageError
from ingest.core.terminal import SENTENCE, clipped
from policy.hippo.networks import checkpoint
from policy.hippo.networks.checkpoint import Checkpoint
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.training.learner import PpoLearner
from twin.scenario.prepare import PreparedScenario

POINTER = "training.json"
STATES = ".training"


@dataclass(frozen=True, slots=True)
class LearningCurvePoint:
    """One point of the learning curve."""

    stage: str  # imitation, ppo
    update: int
    steps: int  # decisions taken so far
    metrics: dict[str, float]


@dataclass
class TrainingState:
    """Everything that resuming needs besides the agents."""

    imitated: int = 0
    iteration: int = 0
    steps: int = 0
    best: float = -np.inf
    best_upper: dict[str, Any] = field(default_factory=dict)
    best_lower: dict[str, Any] = field(default_factory=dict)
    curve: list[LearningCurvePoint] = field(default_factory=list)


def resume_key(
    setups: Sequence[PreparedScenario],
    validation: PreparedScenario | None,
    logged_runs: Sequence[str],
    learners: int,
) -> list[list[str]]:
    """Returns what a resumed training must have in common with the stopped one besides settings: windows of
    `setups` and of `validation`, digests of the runs with demonstrations, number of learners if there are
    several.

    Workers are no part of it: they do not change rollouts.
    """
    data = [[setup.scenario.name, setup.trace_digest, setup.window] for setup in setups]
    data += [["validation", validation.trace_digest]] if validation is not None else []
    data += [["lessons", digest] for digest in logged_runs]
    return data if learners == 1 else [*data, ["learners", str(learners)]]


def save(
    out: Path,
    config: HiPpoConfig,
    data: Any,
    learner: PpoLearner,
    state: TrainingState,
    provenance: dict[str, Any],
) -> None:
    """Writes the whole state into `out`, points to it, then deletes the previous state."""
    training = {
        "optimiser": learner.optimiser.state_dict(),
        "lower_optimiser": learner.lower_optimiser.state_dict(),
        "multipliers": learner.multipliers.values,
        "counts": [state.imitated, state.iteration, state.steps],
        "best": float(state.best),
        "best_upper": state.best_upper,
        "best_lower": state.best_lower,
        "curve": json.dumps([[u.stage, u.update, u.steps, u.metrics] for u in state.curve]),
    }
    weights = learner.upper.state_dict(), learner.lower.state_dict()
    before = _read_pointer(out)
    path = checkpoint.save(Checkpoint(config, *weights, provenance, training), out / STATES)
    pointer = {"state": path.name, "config": config.digest(), "data": data}
    durable.replace(out / POINTER, json.dumps(pointer, sort_keys=True).encode())
    if before is not None and before["state"] != path.name:
        durable.remove(out / STATES / before["state"])


def restore(out: Path, config: HiPpoConfig, data: Any, learner: PpoLearner) -> TrainingState:
    """Loads weights and optimisers of the training in `out` into `learner`; returns its state.

    Raises:
        UsageError: nothing to resume, or another configuration, other data, demonstrations or learners.
        DamageError: what is there is not what a training wrote.
    """
    pointer = _read_pointer(out)
    if pointer is None:
        raise UsageError(f"{out}: no training to resume here; start one without --resume")
    if pointer["config"] != config.digest() or pointer["data"] != data:
        raise UsageError(
            f"{out}: the training there was started with another configuration or other data, "
            "lessons or number of learners; resume it with those, or start a new one without --resume"
        )
    loaded = checkpoint.load(out / STATES / pointer["state"], config)
    learner.upper.load_state_dict(loaded.upper)
    learner.lower.load_state_dict(loaded.lower)
    try:
        return _resumed(loaded.training or {}, learner)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        state, why = out / STATES / pointer["state"], clipped(str(error), SENTENCE)
        raise DamageError(
            f"{state}: holds no training to go on with ({why}); start one without --resume"
        ) from error


def _resumed(kept: dict[str, Any], learner: PpoLearner) -> TrainingState:
    learner.optimiser.load_state_dict(kept["optimiser"])
    learner.lower_optimiser.load_state_dict(kept["lower_optimiser"])
    learner.multipliers.values = dict(kept["multipliers"])
    curve = [LearningCurvePoint(*point) for point in safe_json.parsed(kept["curve"])]
    imitated, iteration, steps = kept["counts"]
    best, upper, lower = kept["best"], kept["best_upper"], kept["best_lower"]
    return TrainingState(imitated, iteration, steps, best, upper, lower, curve)


def _read_pointer(out: Path) -> dict[str, Any] | None:
    path = out / POINTER
    if not path.exists():
        return None
    try:
        found = safe_json.parsed(path.read_bytes())
        if not checkpoint.NAME.fullmatch(found["state"]) or not {"config", "data"} <= set(found):
            raise ValueError("it names no state of a training")
    except (ValueError, KeyError, TypeError) as error:
        raise DamageError(
            f"{path}: damaged ({clipped(str(error), SENTENCE)}); delete it, and start without --resume"
        ) from error
    return dict(found)
