"""`twin train`: trains the learned policy on a scenario, logs the curve, activates the checkpoint."""

import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, Literal

from ingest.core.durable import DISK, Lock
from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import to_ns
from replay.log.run_log import RunWriter
from replay.store import checkpoint_registry, run_index
from replay.store.run_header import Header, opening
from replay.store.run_index import CHECKPOINTS
from twin.scenario import prepare
from twin.scenario.prepare import PreparedScenario, Scenario

if TYPE_CHECKING:
    from policy.hippo.networks.hippo_config import HiPpoConfig
    from policy.hippo.training.train import TrainResult

Json = dict[str, Any]

Algorithm = Literal["own", "tuned", "design", "shipped", "toy"]
SCRATCH = "scratch"
"""In place of a checkpoint to begin with: new weights."""
LOCK = "train.lock"


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A finished or interrupted training; `run_id` is None until it is finished, and for the further learners
    of a distributed training, of which only the first writes."""

    run_id: str | None
    checkpoint: str  # "" of a further learner
    path: Path
    score: float
    seconds: float
    updates: int
    finished: bool
    active: bool
    replaced: str | None = None  # checkpoint in use before this one became active

    def to_json(self) -> Json:
        """The object of `twin train --json`."""
        return {
            "schema": "twin.train/1",
            "run": self.run_id,
            "checkpoint": self.checkpoint,
            "path": str(self.path),
            "score": self.score if math.isfinite(self.score) else None,
            "seconds": self.seconds,
            "updates": self.updates,
            "finished": self.finished,
            "active": self.active,
            "replaced": self.replaced,
        }


@dataclass(frozen=True, slots=True)
class Team:
    """Processes that collect rollouts or learn: at most one of the three is not 0."""

    workers: int = 0  # processes on this machine that collect rollouts; the result is the same
    ray: int = 0  # the same over a Ray cluster
    distributed: int = 0  # learners that share gradients; their number changes the result

    def __post_init__(self) -> None:
        if sum(size > 0 for size in (self.workers, self.ray, self.distributed)) > 1:
            raise UsageError("take one of --workers, --ray and --distributed")


def train(
    store: Path,
    scenario: Scenario,
    *,
    dataset: str | None = None,
    algorithm: Algorithm = "own",
    settings: Path | None = None,
    start: str | None = None,
    seed: int | None = None,
    resume: bool = False,
    activate: bool = True,
    team: Team | None = None,
    demonstrations: Sequence[str] = (),
    tell: Callable[[Any], None] = lambda update: None,
    progress: Progress = SILENT,
) -> TrainingResult:
    """Trains on the training window, selects on the validation window; with `activate`, runs of `hippo` use
    the result from then on.

    `algorithm` names a section of `configs/algo/hi_ppo.yaml`; values of the YAML file `settings` replace
    those. `start` is the digest of a checkpoint whose weights it begins with, or `SCRATCH`; without it `own`
    begins with those that ship, and the other sections with new ones. Ctrl-C saves the state at the next step
    and returns with `finished` false; `resume` goes on from there to the same weights as an uninterrupted
    training. The curve of a finished training becomes
    the events of a run of its own; `tell` is called with every update. `demonstrations` are finished runs
    whose decisions the warm start imitates, too.

    Raises:
        LockedError: a training of this store is under way.
        NotFoundError: the data set is not in the lake. UsageError: nothing to resume, or with other settings;
        `settings` does not fit, or the weights of `start` are of another architecture.
    """
    from policy.hippo.networks import hippo_config
    from policy.hippo.training import launch  # imports torch

    team = team or Team()
    setup = prepare.prepare(scenario, store, window="train", dataset=dataset, seed=seed)
    chosen = hippo_config.shipped(algorithm)
    if settings is not None:
        chosen = hippo_config.changed(chosen, settings)
    begin = begins_with(store, algorithm, start)
    first = launch.rank_of() == 0 or not team.distributed
    with ExitStack() as stack:
        if first:  # the other learners write nothing
            stack.enter_context(Lock(store / LOCK))
            DISK.foretell(
                (store / CHECKPOINTS, f"weights of a training of {chosen.iterations:,} iterations"),
                (run_index.folder(store, "NEW").parent, "log of its curve"),
            )
        interrupted = stack.enter_context(interruption())
        validation = validation_window(store, scenario, dataset, seed)
        done = _trained(
            stack, store, setup, validation, chosen, begin, team, demonstrations, tell, resume, progress,
            lambda: bool(interrupted),
        )  # fmt: skip
    run_id = replaced = None
    if done.finished and first:
        checkpoint_registry.keep(store, done.digest)
        header = Header(setup.header(), "train", "kernel", done.digest, False)
        parent = None if begin is None else checkpoint_registry.verified(begin)
        run_id = log_curve(store, header, done.curve, parent)
        if activate:
            checkpoint_registry.promote(store, done.digest)
            replaced = checkpoint_registry.replaced(store)
    return TrainingResult(
        run_id, done.digest, done.checkpoint_path, done.score, done.seconds,
        len(done.curve), done.finished, activate and run_id is not None, replaced,
    )  # fmt: skip


def _trained(
    stack: ExitStack,
    store: Path,
    setup: PreparedScenario,
    validation: PreparedScenario | None,
    settings: "HiPpoConfig",
    begin: Path | None,
    team: Team,
    demonstrations: Sequence[str],
    tell: Callable[[Any], None],
    resume: bool,
    progress: Progress,
    stop: Callable[[], bool],
) -> "TrainResult":
    """Trains with the workers and learners of `team`."""
    from policy.hippo.training import launch, train
    from policy.hippo.training.ray_workers import RayWorkers
    from policy.hippo.training.rollout_workers import InProcessWorkers, ProcessWorkers
    from replay.offpolicy.demonstrations import digests, logged

    out = store / CHECKPOINTS
    workers: Any = InProcessWorkers
    if team.workers:
        workers = partial(ProcessWorkers, team.workers)
    elif team.ray:
        workers = partial(RayWorkers, team.ray)
    learners = None
    if team.distributed:
        learners = stack.enter_context(launch.learners(team.distributed, setup, settings, out, validation))
    backend = train.TrainingBackend(
        workers, learners, logged(store, demonstrations, setup), digests(store, demonstrations), tell
    )
    return train.train(
        setup, config=settings, out=out, start=begin, resume=resume, progress=progress, stop=stop,
        validation=validation, backend=backend,
    )  # fmt: skip


def begins_with(store: Path, algorithm: Algorithm, start: str | None) -> Path | None:
    """Returns the checkpoint whose weights a training begins with; None: new weights.

    Raises:
        NotFoundError: the store does not hold it.
    """
    if start is not None:
        return None if start == SCRATCH else checkpoint_registry.path_of(store, start)
    return checkpoint_registry.that_ships(store) if algorithm == "own" else None


def validation_window(
    store: Path, scenario: Scenario, dataset: str | None = None, seed: int | None = None
) -> PreparedScenario | None:
    """Prepares the validation window, on which checkpoints are selected; None if it is too short for a
    rollout, so that the end of the training window is used.

    Raises:
        NotFoundError: the data set is not in the lake.
    """
    from policy.hippo.training.rollout import EVALUATION_PERIODS  # imports torch

    setup = prepare.prepare(scenario, store, window="validate", dataset=dataset, seed=seed)
    return setup if setup.wan.end_ns >= EVALUATION_PERIODS * to_ns(scenario.control.period_s) else None


def log_curve(store: Path, header: Header, curve: Any, parent: str | None = None) -> str:
    """Writes a training curve as a run of its own: one `policy_updated` event a point; `parent` is the
    checkpoint that the training began with."""
    run_id = run_index.new_id(store, header.scenario().name, "train", header.seed, header.config_digest)
    with RunWriter.create(run_index.folder(store, run_id)) as log:
        log.append(0, "run_started", header.payload(), wall=opening())
        for point in curve:
            metrics = {name: value for name, value in point.metrics.items() if math.isfinite(value)}
            update = {"stage": point.stage, "update": point.update, "steps": point.steps, "metrics": metrics}
            log.append(0, "policy_updated", update)
        log.finish({"updates": len(curve), "parent": parent})
    return run_id


@contextmanager
def interruption() -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM in a list instead of ending the process; a second one ends it at once."""
    received: list[int] = []
    if current_thread() is not main_thread():
        yield received
        return
    wanted = (signal.SIGINT, signal.SIGTERM)

    def remember(number: int, _: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = [signal.signal(number, remember) for number in wanted]
    try:
        yield received
    finally:
        for number, handler in zip(wanted, before, strict=True):
            signal.signal(number, handler)
