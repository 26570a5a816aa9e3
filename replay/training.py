"""`twin train`: train the learned policy on the past of a scenario, log the curve, put the result to use."""

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Literal

from ingest.durable import Lock
from ingest.progress import SILENT, Progress
from replay import champion, runs
from replay.header import Header
from replay.log import RunWriter
from replay.runs import CHECKPOINTS
from twin import scenario as scenarios
from twin.scenario import Scenario

Json = dict[str, Any]

Algorithm = Literal["design", "tuned", "shipped", "toy"]
LOCK = "train.lock"


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A finished or interrupted training; `run_id` is None until it is finished."""

    run_id: str | None
    checkpoint: str
    path: Path
    score: float
    seconds: float
    updates: int
    finished: bool
    active: bool

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
        }


def train(
    store: Path,
    scenario: Scenario,
    *,
    dataset: str | None = None,
    algorithm: Algorithm = "tuned",
    seed: int | None = None,
    resume: bool = False,
    activate: bool = True,
    progress: Progress = SILENT,
) -> TrainingResult:
    """Train on the training window; with `activate`, runs of `hippo` use the result from then on.

    `algorithm` names a section of `configs/algo/hi_ppo.yaml`. Ctrl-C saves the state at the next step and
    returns with `finished` false; `resume` goes on from there to the same weights as an uninterrupted
    training. The curve of a finished training becomes the events of a run of its own.

    Raises:
        LockedError: a training of this store is under way.
        NotFoundError: the data set is not in the lake. UsageError: nothing to resume, or with other settings.
    """
    from policy.hippo import config, train  # imports torch

    setup = scenarios.prepare(scenario, store, window="train", dataset=dataset, seed=seed)
    settings = config.shipped(algorithm)
    with Lock(store / LOCK), interruption() as interrupted:
        done = train.train(
            setup, config=settings, out=store / CHECKPOINTS, resume=resume, progress=progress,
            stop=lambda: bool(interrupted),
        )  # fmt: skip
    run_id = None
    if done.finished:
        run_id = log_curve(store, Header(setup.header(), "train", "kernel", done.digest, False), done.curve)
        if activate:
            champion.promote(store, done.digest)
    return TrainingResult(
        run_id, done.digest, done.checkpoint_path, done.score, done.seconds,
        len(done.curve), done.finished, activate and done.finished,
    )  # fmt: skip


def log_curve(store: Path, header: Header, curve: Any) -> str:
    """Write a training curve as a run of its own: one `policy_updated` event a point."""
    run_id = runs.new_id(store, header.scenario().name, "train", header.seed, header.config_digest)
    with RunWriter.create(runs.folder(store, run_id)) as log:
        log.append(0, "run_started", header.payload())
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
