"""Where a training stands, written so that a resumed training is the uninterrupted one, weight for weight.

Random numbers come from generators named by (seed, phase, number), so the numbers are their state.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core import durable
from ingest.core.errors import UsageError
from policy.hippo.networks import checkpoint as checkpoints
from policy.hippo.networks.checkpoint import Checkpoint
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.training.learner import Practice
from twin.scenario.prepare import Setup

POINTER = "training.json"
STATES = ".training"


@dataclass(frozen=True, slots=True)
class Update:
    """One point of the learning curve."""

    stage: str  # imitation, ppo
    update: int
    steps: int  # decisions practised so far
    metrics: dict[str, float]


@dataclass
class Standing:
    """Everything that going on needs besides the agents."""

    imitated: int = 0
    iteration: int = 0
    steps: int = 0
    best: float = -np.inf
    best_upper: dict[str, Any] = field(default_factory=dict)
    best_lower: dict[str, Any] = field(default_factory=dict)
    curve: list[Update] = field(default_factory=list)


def origin(
    setups: Sequence[Setup], validation: Setup | None, lessons: Sequence[str], learners: int
) -> list[list[str]]:
    """What a resumed training must have in common with the one that was stopped, settings aside: the windows
    of `setups` and of `validation`, the digests of the runs that taught it, and who learns along, where there
    are any.

    Workers are not part of it: however many collect rollouts, these are the same.
    """
    data = [[setup.scenario.name, setup.trace_digest, setup.window] for setup in setups]
    data += [["validation", validation.trace_digest]] if validation is not None else []
    data += [["lessons", digest] for digest in lessons]
    return data if learners == 1 else [*data, ["learners", str(learners)]]


def save(
    out: Path, config: HiPpoConfig, data: Any, practice: Practice, state: Standing, provenance: dict[str, Any]
) -> None:
    """Write the whole state into `out`, then point to it; the state before is deleted last."""
    training = {
        "optimiser": practice.optimiser.state_dict(),
        "lower_optimiser": practice.lower_optimiser.state_dict(),
        "multipliers": practice.multipliers.values,
        "counts": [state.imitated, state.iteration, state.steps],
        "best": float(state.best),
        "best_upper": state.best_upper,
        "best_lower": state.best_lower,
        "curve": json.dumps([[u.stage, u.update, u.steps, u.metrics] for u in state.curve]),
    }
    weights = practice.upper.state_dict(), practice.lower.state_dict()
    before = _pointed(out)
    path = checkpoints.save(Checkpoint(config, *weights, provenance, training), out / STATES)
    pointer = {"state": path.name, "config": config.digest(), "data": data}
    durable.replace(out / POINTER, json.dumps(pointer, sort_keys=True).encode())
    if before is not None and before["state"] != path.name:
        durable.remove(out / STATES / before["state"])


def restore(out: Path, config: HiPpoConfig, data: Any, practice: Practice) -> Standing:
    """Give `practice` the weights and optimisers of the training in `out`, and return where it stood.

    Raises:
        UsageError: nothing to resume, or made with another configuration, other data, lessons or learners.
    """
    pointer = _pointed(out)
    if pointer is None:
        raise UsageError(f"{out}: no training to resume here; start one without --resume")
    if pointer["config"] != config.digest() or pointer["data"] != data:
        raise UsageError(
            f"{out}: the training there was started with another configuration or other data, "
            "lessons or number of learners; resume it with those, or start a new one without --resume"
        )
    loaded = checkpoints.load(out / STATES / pointer["state"], config)
    assert loaded.training is not None
    kept = loaded.training
    practice.upper.load_state_dict(loaded.upper)
    practice.lower.load_state_dict(loaded.lower)
    practice.optimiser.load_state_dict(kept["optimiser"])
    practice.lower_optimiser.load_state_dict(kept["lower_optimiser"])
    practice.multipliers.values = dict(kept["multipliers"])
    curve = [Update(*point) for point in json.loads(kept["curve"])]
    imitated, iteration, steps = kept["counts"]
    best, upper, lower = kept["best"], kept["best_upper"], kept["best_lower"]
    return Standing(imitated, iteration, steps, best, upper, lower, curve)


def _pointed(out: Path) -> dict[str, Any] | None:
    path = out / POINTER
    return dict(json.loads(path.read_text())) if path.exists() else None
