"""Settings and plans that the supervisor of a lab gives its workers: JSON files, each written whole."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ingest.core import durable


@dataclass(frozen=True, slots=True)
class StageTask:
    """Work of a site under a plan: `first` to `last` of the layers (exclusive), seconds of the lab."""

    site: int
    first: int
    last: int
    forward_s: float
    backward_s: float
    tail_s: float


@dataclass(frozen=True, slots=True)
class Instruction:
    """A plan as workers run it from the begin of step `at_step` on.

    `stages` in pipeline order; without any the training ends. `layer_bytes` is what a layer's state weighs
    when it moves, `restart_s` how long every site waits after a move. `extra_warmup` deepens 1F1B by so many
    micro-batches for each link still ahead; `routes` are the relays of the network, which workers do not see.
    """

    at_step: int
    stages: tuple[StageTask, ...]
    schedule: str
    micro_batches: int
    layer_bytes: tuple[int, ...]
    restart_s: float
    extra_warmup: int = 0
    routes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """Settings of a worker: sizes of the model, batch, seed."""

    layers: int
    hidden: int
    sequence: int
    vocabulary: int
    micro_batch: int
    seed: int
    sites: int
    learning_rate: float


def write_job(folder: Path, job: Job) -> None:
    """Writes the settings of the workers."""
    durable.replace(folder / "job.json", json.dumps(asdict(job)).encode())


def read_job(folder: Path) -> Job:
    """Returns the settings of the workers."""
    return Job(**json.loads((folder / "job.json").read_text()))


def write_instruction(folder: Path, number: int, instruction: Instruction) -> None:
    """Writes instruction `number`, 0 being the first plan."""
    durable.replace(folder / f"plan-{number}.json", json.dumps(asdict(instruction)).encode())


def read_instruction(folder: Path, number: int) -> Instruction | None:
    """Returns instruction `number`, None where there is none yet."""
    path = folder / f"plan-{number}.json"
    if not path.exists():
        return None
    fields: dict[str, Any] = json.loads(path.read_text())
    stages = tuple(StageTask(**stage) for stage in fields.pop("stages"))
    layer_bytes = tuple(fields.pop("layer_bytes"))
    routes = tuple(tuple(route) for route in fields.pop("routes"))
    return Instruction(stages=stages, layer_bytes=layer_bytes, routes=routes, **fields)
