"""`twin train`: train the learned policy on the past of a scenario, log the curve, put the result to use."""

import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, Literal

from ingest.core.durable import Lock
from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import to_ns
from replay.store import checkpoint_registry as champion, run_index as runs
from replay.store.run_header import Header, opening
from replay.log.run_log import RunWriter
from replay.store.run_index import CHECKPOINTS
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import Scenario, Setup

if TYPE_CHECKING:
    from policy.hippo.networks.hippo_config import HiPpoConfig
    from policy.hippo.training.train import TrainResult

Json = dict[str, Any]

Algorithm = Literal["design", "tuned", "shipped", "toy"]
LOCK = "train.lock"


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A finished or interrupted training; `run_id` is None until it is finished, and for a learner that
    trained along with the first one, which alone writes."""

    run_id: str | None
    checkpoint: str  # "" of a learner that trained along
    path: Path
    score: float
    seconds: float
    updates: int
    finished: bool
    active: bool
    replaced: str | None = None  # the checkpoint that was in use until this one became active

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
    """Who collects rollouts and who learns: at most one of the three is not 0."""

    workers: int = 0  # processes on this machine that collect rollouts; the result is the same
    ray: int = 0  # the same over Ray, on as many machines as its cluster has
    distributed: int = 0  # learners that share gradients; more of them see more, so the result is another

    def __post_init__(self) -> None:
        if sum(size > 0 for size in (self.workers, self.ray, self.distributed)) > 1:
            raise UsageError("take one of --workers, --ray and --distributed")


def train(
    store: Path,
    scenario: Scenario,
    *,
    dataset: str | None = None,
    algorithm: Algorithm = "tuned",
    settings: Path | None = None,
    seed: int | None = None,
    resume: bool = False,
    activate: bool = True,
    team: Team | None = None,
    lessons: Sequence[str] = (),
    tell: Callable[[Any], None] = lambda update: None,
    progress: Progress = SILENT,
) -> TrainingResult:
    """Train on the training window, select on the validation window (`selecting`); with `activate`, runs of
    `hippo` use the result from then on.

    `algorithm` names a section of `configs/algo/hi_ppo.yaml`; values of the YAML file `settings` take the
    place of those. Ctrl-C saves the state at the next step and returns with `finished` false; `resume` goes
    on from there to the same weights as an uninterrupted training. The curve of a finished training becomes
    the events of a run of its own; `tell` hears of every update at once. `lessons` are finished runs whose
    decisions the warm start follows, too.

    Raises:
        LockedError: a training of this store is under way.
        NotFoundError: the data set is not in the lake. UsageError: nothing to resume, or with other settings;
        `settings` does not fit.
    """
    from policy.hippo.networks import hippo_config as config
    from policy.hippo.training import launch  # imports torch

    team = team or Team()
    setup = scenarios.prepare(scenario, store, window="train", dataset=dataset, seed=seed)
    chosen = config.shipped(algorithm)
    if settings is not None:
        chosen = config.changed(chosen, settings)
    first = launch.rank_of() == 0 or not team.distributed
    with ExitStack() as stack:
        if first:  # the other learners of this machine write nothing
            stack.enter_context(Lock(store / LOCK))
        interrupted = stack.enter_context(interruption())
        validation = selecting(store, scenario, dataset, seed)
        done = _trained(
            stack,
            store,
            setup,
            validation,
            chosen,
            team,
            lessons,
            tell,
            resume,
            progress,
            lambda: bool(interrupted),
        )
    run_id = replaced = None
    if done.finished and first:
        run_id = log_curve(store, Header(setup.header(), "train", "kernel", done.digest, False), done.curve)
        if activate:
            champion.promote(store, done.digest)
            replaced = champion.replaced(store)
    return TrainingResult(
        run_id, done.digest, done.checkpoint_path, done.score, done.seconds,
        len(done.curve), done.finished, activate and run_id is not None, replaced,
    )  # fmt: skip


def _trained(
    stack: ExitStack,
    store: Path,
    setup: Setup,
    validation: Setup | None,
    settings: "HiPpoConfig",
    team: Team,
    lessons: Sequence[str],
    tell: Callable[[Any], None],
    resume: bool,
    progress: Progress,
    stop: Callable[[], bool],
) -> "TrainResult":
    """The training itself, in the company asked for."""
    from policy.hippo.training import launch, train
    from policy.hippo.training.rollout_workers import Here, Processes
    from policy.hippo.training.ray_workers import RayCrew
    from replay.offpolicy.demonstrations import digests, logged

    out = store / CHECKPOINTS
    crew: Any = Here
    if team.workers:
        crew = partial(Processes, team.workers)
    elif team.ray:
        crew = partial(RayCrew, team.ray)
    peers = None
    if team.distributed:
        peers = stack.enter_context(launch.learners(team.distributed, setup, settings, out, validation))
    company = train.Company(crew, peers, logged(store, lessons, setup), digests(store, lessons), tell)
    return train.train(
        setup, config=settings, out=out, resume=resume, progress=progress, stop=stop, validation=validation,
        company=company,
    )  # fmt: skip


def selecting(
    store: Path, scenario: Scenario, dataset: str | None = None, seed: int | None = None
) -> Setup | None:
    """The validation window, for choosing between iterations; None if it is too short for a walk over it, so
    that the end of the training window has to do.

    Raises:
        NotFoundError: the data set is not in the lake.
    """
    from policy.hippo.training.rollout import WALK  # imports torch

    setup = scenarios.prepare(scenario, store, window="validate", dataset=dataset, seed=seed)
    return setup if setup.wan.end_ns >= WALK * to_ns(scenario.control.period_s) else None


def log_curve(store: Path, header: Header, curve: Any) -> str:
    """Write a training curve as a run of its own: one `policy_updated` event a point."""
    run_id = runs.new_id(store, header.scenario().name, "train", header.seed, header.config_digest)
    with RunWriter.create(runs.folder(store, run_id)) as log:
        log.append(0, "run_started", header.payload(), wall=opening())
        for point in curve:
            metrics = {name: value for name, value in point.metrics.items() if math.isfinite(value)}
            update = {"stage": point.stage, "update": point.update, "steps": point.steps, "metrics": metrics}
            log.append(0, "policy_updated", update)
        log.finish({"updates": len(curve)})
    return run_id


@contextmanager
def interruption() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM fill the list instead of ending the process; a second one ends it at once."""
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
