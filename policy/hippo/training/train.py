"""Training: imitation of demonstrations, then PPO in many twins, then selection by validation.

Every random number comes from a generator named by (seed, phase, number), and the state is saved between
steps, so a resumed training gives the weights of an uninterrupted one. Rollout workers
(`policy.hippo.training.rollout_workers`) do not change the result; several learners
(`policy.hippo.training.gradient_sharing`) do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from ingest.core.errors import InfeasibleError
from ingest.core.progress import SILENT, Progress
from policy.hippo.env.training_task import TrainingTask, prepare_task, random_task
from policy.hippo.env.vector_env import CONSTRAINTS
from policy.hippo.networks import checkpoint
from policy.hippo.networks.checkpoint import Checkpoint
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.training import state as training_state
from policy.hippo.training.imitation import LoggedDemonstration
from policy.hippo.training.learner import LearnerGroup, PpoLearner, SingleLearner
from policy.hippo.training.rollout import RolloutRequest, score
from policy.hippo.training.rollout_workers import InProcessWorkers, RolloutWorkers
from policy.hippo.training.state import LearningCurvePoint, TrainingState
from policy.hippo.training.warm_start import collect_demonstrations, imitation_step
from twin.core.seeds import generator
from twin.scenario.prepare import PreparedScenario

REPORT_EVERY = 50
"""Imitation steps between two points of the curve, and between two checks of `stop`."""
VALIDATION_TASKS = 8
"""Tasks that selection validates on, the user's first."""
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The selected checkpoint and its learning curve. `finished` is False after a stop.

    Only the first of several learners writes: the others' digest is empty.
    """

    checkpoint_path: Path
    digest: str
    curve: tuple[LearningCurvePoint, ...]
    seconds: float
    score: float
    finished: bool


@dataclass(frozen=True, slots=True)
class TrainingBackend:
    """Rollout workers, learner group, logged demonstrations with the digests of their runs, and a function
    called with every point of the curve."""

    make_workers: Callable[[HiPpoConfig, Sequence[TrainingTask]], RolloutWorkers] = InProcessWorkers
    group: LearnerGroup | None = None
    logged: Sequence[LoggedDemonstration] = ()
    logged_runs: Sequence[str] = ()
    on_update: Callable[[LearningCurvePoint], None] = lambda update: None


def train(
    setup: PreparedScenario,
    *,
    config: HiPpoConfig,
    out: Path,
    resume: bool = False,
    progress: Progress = SILENT,
    stop: Stop = lambda: False,
    validation: PreparedScenario | None = None,
    others: Sequence[PreparedScenario] = (),
    start: Path | None = None,
    backend: TrainingBackend | None = None,
) -> TrainResult:
    """Trains on the window of `setup` (and of `others`, and on random clusters if configured).

    Checkpoints go to `out`: the selected one as `<digest>/hippo-<digest>.pt`, the state for `resume` beside.
    `stop` is called between steps; once True, the state is saved and the best so far returned. `start` is a
    checkpoint with initial weights. `validation` is the window for selection; without it the end of the
    window of `setup` is held out.

    Raises:
        UsageError: nothing to resume, or another configuration, other data, demonstrations or learners.
        InfeasibleError: the model or the static plan does not fit.
    """
    torch.set_num_threads(1)  # threads are slower for small tensors, and reorder sums
    began = perf_counter()
    training = _Training(setup, config, out, progress, stop, validation, others, backend or TrainingBackend())
    try:
        if start is not None:
            training.begin_with(start, load=not resume)
        if resume:
            training.restore()
        finished = training.run()
    finally:
        training.workers.close()
    path = training.publish() if training.first else out
    digest = checkpoint.digest(path) if training.first else ""
    state, seconds = training.state, perf_counter() - began
    return TrainResult(path, digest, tuple(state.curve), seconds, state.best, finished)


class _Training:
    """One training run; `run` is its loop."""

    def __init__(
        self,
        setup: PreparedScenario,
        config: HiPpoConfig,
        out: Path,
        progress: Progress,
        stop: Stop,
        validation: PreparedScenario | None,
        others: Sequence[PreparedScenario],
        backend: TrainingBackend,
    ):
        self.config, self.out, self.progress, self.stop, self.backend = config, out, progress, stop, backend
        self.group: LearnerGroup = backend.group or SingleLearner()
        upper, lower = checkpoint.build(config)
        self.learner = PpoLearner(upper, lower, config, self.group)
        self.state = TrainingState()
        self.parent: str | None = None
        self.tasks = [
            prepare_task(setup, config, validation),
            *(prepare_task(other, config) for other in others),
        ]
        for number in range(config.rollout.random_clusters):
            try:
                self.tasks.append(prepare_task(random_task(config.seed, number), config))
            except InfeasibleError:
                continue  # some random clusters are too small for their model
        self.data = training_state.resume_key(
            [c.setup for c in self.tasks], validation, backend.logged_runs, self.group.size
        )
        self.workers = backend.make_workers(config, self.tasks)

    @property
    def first(self) -> bool:
        """True if this learner is the one that imitates, validates and writes."""
        return self.group.rank == 0

    def run(self) -> bool:
        """Runs imitation, PPO and selection; False when stopped before the end."""
        config, state = self.config, self.state
        imitation = config.imitation
        asked = imitation.lessons + imitation.searched + imitation.past
        total = asked + imitation.steps + config.iterations
        self.progress.start(total, "training", "steps")
        learned = 0 if state.imitated < imitation.steps else asked
        self.progress.advance(learned + state.imitated + state.iteration)
        imitated = state.imitated >= imitation.steps or not self.first or self._imitate()
        if not self.group.broadcast(imitated):
            return False
        self._synchronise()
        if state.best == -np.inf:
            self._select("imitation", state.imitated, {})
        while state.iteration < config.iterations:
            if self.group.broadcast(self.stop()):
                self.save()
                return False
            self._iterate()
        self.save()
        return True

    def _synchronise(self) -> None:
        """Copies the first learner's weights and optimisers to all learners."""
        learner, state = self.learner, self.state
        state_now = {
            "upper": learner.upper.state_dict(),
            "optimiser": learner.optimiser.state_dict(),
            "lower": learner.lower_weights(),
            "multipliers": learner.multipliers.values,
            "counts": (state.imitated, state.iteration, state.steps),
        }
        given = self.group.broadcast(state_now)
        if not self.first:
            learner.upper.load_state_dict(given["upper"])
            learner.optimiser.load_state_dict(given["optimiser"])
            learner.load_lower(given["lower"])
            learner.multipliers.values = dict(given["multipliers"])
            state.imitated, state.iteration, state.steps = given["counts"]

    # -- imitation

    def _imitate(self) -> bool:
        """Makes the imitation steps; demonstrations are equal after a resume."""
        config, learner = self.config, self.learner
        logged = self.backend.logged
        demonstrations = collect_demonstrations(
            self.tasks, config, logged, progress=self.progress, stop=self.stop
        )
        rates = [(learner.optimiser, config.ppo.lr), (learner.lower_optimiser, config.lower.lr)]
        for optimiser, _ in rates:
            optimiser.param_groups[0]["lr"] = config.imitation.lr
        while self.state.imitated < config.imitation.steps:
            if self.state.imitated % REPORT_EVERY == 0 and self.stop():
                self.save()
                return False
            value = imitation_step(learner, config, demonstrations, self.state.imitated)
            self.state.imitated += 1
            self.progress.advance(1, f"imitation loss {value:.3f}")
            if self.state.imitated % REPORT_EVERY == 0:
                self._report(LearningCurvePoint("imitation", self.state.imitated, 0, {"loss": value}))
        for optimiser, rate in rates:
            optimiser.param_groups[0]["lr"] = rate
        return True

    # -- PPO

    def _iterate(self) -> None:
        """One iteration: rollouts over a few tasks, one update, a validation every `evaluate_every`
        iterations."""
        config, state, number = self.config, self.state, self.state.iteration
        requests = self._requests(number)
        steps = requests[0].steps
        rollouts = self.workers.collect(self.learner, requests, self.group.early_stop(number, steps))
        self.group.mark_complete(number)
        self.group.average_lower(self.learner)
        metrics = self.learner.update(rollouts, generator(config.seed, f"update-{number}"))
        names = rollouts[0].metrics
        metrics |= {name: float(np.mean([r.metrics[name] for r in rollouts])) for name in names}
        metrics = self.group.mean(metrics)
        self.learner.multipliers.update({name: metrics[f"limited_{name}"] for name in CONSTRAINTS})
        metrics |= {f"multiplier_{name}": value for name, value in self.learner.multipliers.values.items()}
        state.iteration += 1
        state.steps += steps * config.rollout.environments * len(requests) * self.group.size
        if state.iteration % config.evaluate_every == 0 or state.iteration == config.iterations:
            self._select("ppo", state.iteration, metrics)
            self.save()
        else:
            self._report(LearningCurvePoint("ppo", state.iteration, state.steps, metrics))
        self.progress.advance(1, f"reward {metrics['reward']:.3f}")

    def _requests(self, number: int) -> list[RolloutRequest]:
        """Rollouts on the user's task and on up to two others, an episode each at most."""
        config, rank = self.config, self.group.rank
        name = f"rollout-{number}" if rank == 0 else f"rollout-{number}-learner-{rank}"
        tasks = [0, *range(1, len(self.tasks))]
        if len(tasks) > 3:
            others = generator(config.seed, f"courses-{number}").choice(len(tasks) - 1, 2, replace=False)
            tasks = [0, *sorted((others + 1).tolist())]
        steps = max(2, config.ppo.num_steps // config.rollout.environments // len(tasks))
        parts = max(1, steps // config.rollout.episode_steps)
        return [
            RolloutRequest(task, steps // parts, (config.seed, f"{name}-{task}-{part}"))
            for task in tasks
            for part in range(parts)
        ]

    def _select(self, stage: str, number: int, metrics: dict[str, float]) -> None:
        """Validates; keeps the weights if they are the best so far."""
        if not self.first:
            return
        upper, lower, state = self.learner.upper, self.learner.lower, self.state
        scores = [score(upper, lower, task, self.config) for task in self.tasks[:VALIDATION_TASKS]]
        metrics = metrics | {f"validation_{name}": scores[0][name] for name in scores[0]}
        mean = float(np.mean([one["score"] for one in scores]))
        metrics["validation_mean"] = mean
        self._report(LearningCurvePoint(stage, number, state.steps, metrics))
        if mean > state.best:
            state.best = mean
            state.best_upper = {name: t.clone() for name, t in upper.state_dict().items()}
            state.best_lower = {name: t.clone() for name, t in lower.state_dict().items()}

    # -- results

    def _report(self, update: LearningCurvePoint) -> None:
        self.state.curve.append(update)
        self.backend.on_update(update)

    def begin_with(self, start: Path, *, load: bool) -> None:
        """Notes the checkpoint that the training begins with; loads its weights if so asked."""
        path = checkpoint.locate(start)
        self.parent = checkpoint.digest(path)
        if not load:
            return
        earlier = checkpoint.load(path, self.config)
        self.learner.upper.load_state_dict(earlier.upper)
        self.learner.lower.load_state_dict(earlier.lower)

    def provenance(self) -> dict[str, Any]:
        """Returns the origin of the weights; JSON values."""
        return {
            "config": self.config.digest(),
            "code": checkpoint.code_version(),
            "data": self.data,
            "parent": self.parent,
            "seed": self.config.seed,
            "score": None if self.state.best == -np.inf else self.state.best,
            "iterations": self.state.iteration,
            "steps": self.state.steps,
        }

    def publish(self) -> Path:
        """Writes the selected weights under their digest."""
        state, learner = self.state, self.learner
        upper = state.best_upper or learner.upper.state_dict()
        lower = state.best_lower or learner.lower.state_dict()
        return checkpoint.publish(Checkpoint(self.config, upper, lower, self.provenance()), self.out)

    def save(self) -> None:
        """Writes the whole state."""
        if self.first:
            training_state.save(self.out, self.config, self.data, self.learner, self.state, self.provenance())

    def restore(self) -> None:
        """Restores the state of a stopped training."""
        if self.first:
            self.state = training_state.restore(self.out, self.config, self.data, self.learner)
