"""Training: offline first (decisions already made), then online (PPO in many twins), then selection.

Every random number comes from a generator named by (seed, phase, number), and training is saved at the end of
a phase step, so a resumed training is the uninterrupted one, weight for weight. Who collects the rollouts
(`policy.hippo.crew`) changes nothing; who else learns (`policy.hippo.distributed`) changes what is learned.
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
from policy.hippo.networks import checkpoint as checkpoints
from policy.hippo.training import training_state as standing
from policy.hippo.networks.checkpoint import Checkpoint
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.env.training_task import Course, invented, prepared
from policy.hippo.training.rollout_workers import Crew, Here
from policy.hippo.env.vector_env import CONSTRAINTS
from policy.hippo.training.imitation import Logged
from policy.hippo.training.warm_start import followed, gathered
from policy.hippo.training.learner import Alone, Peers, Practice
from policy.hippo.training.rollout import Task, score
from policy.hippo.training.training_state import Standing, Update
from twin.scenario.prepare import Setup
from twin.core.seeds import generator

REPORT_EVERY = 50
"""Imitation steps between two points of the curve, and between two looks at `stop`."""
VALIDATED = 8
"""Courses that selection looks at, the user's first."""
Never = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Where the selected checkpoint lies and how it was learned. `finished` is False after a stop.

    Of several learners only the first one writes: the others' digest is empty.
    """

    checkpoint_path: Path
    digest: str
    curve: tuple[Update, ...]
    seconds: float
    score: float
    finished: bool


@dataclass(frozen=True, slots=True)
class Company:
    """With whom to train: who collects rollouts, who else learns, what was logged before (and the digests of
    the runs that it was logged in), who is told."""

    crew: Callable[[HiPpoConfig, Sequence[Course]], Crew] = Here
    peers: Peers | None = None
    logged: Sequence[Logged] = ()
    lessons: Sequence[str] = ()
    tell: Callable[[Update], None] = lambda update: None


def train(
    setup: Setup,
    *,
    config: HiPpoConfig,
    out: Path,
    resume: bool = False,
    progress: Progress = SILENT,
    stop: Never = lambda: False,
    validation: Setup | None = None,
    others: Sequence[Setup] = (),
    start: Path | None = None,
    company: Company | None = None,
) -> TrainResult:
    """Train on the window of `setup` (and of `others`, and on made-up clusters if the configuration says so).

    Checkpoints go to `out`: the selected one as `<digest>/hippo-<digest>.pt`, the state for `resume`
    beside. `stop` is asked between steps; True (for good) saves the state and returns the best so far.
    `start` is a checkpoint to go on from (its weights only). `validation` is the window
    for selection; without it the end of that of `setup` is held out.

    Raises:
        UsageError: nothing to resume, or made with another configuration, other data, lessons or learners.
        InfeasibleError: the model or the static plan does not fit.
    """
    torch.set_num_threads(1)  # small tensors; and sums in a fixed order
    began = perf_counter()
    training = _Training(setup, config, out, progress, stop, validation, others, company or Company())
    try:
        if resume:
            training.restore()
        elif start is not None:
            training.begin_from(start)
        finished = training.run()
    finally:
        training.crew.close()
    path = training.publish() if training.first else out
    digest = checkpoints.digest(path) if training.first else ""
    state, seconds = training.state, perf_counter() - began
    return TrainResult(path, digest, tuple(state.curve), seconds, state.best, finished)


class _Training:
    """One training run; `run` is its loop."""

    def __init__(
        self,
        setup: Setup,
        config: HiPpoConfig,
        out: Path,
        progress: Progress,
        stop: Never,
        validation: Setup | None,
        others: Sequence[Setup],
        company: Company,
    ):
        self.config, self.out, self.progress, self.stop, self.company = config, out, progress, stop, company
        self.peers: Peers = company.peers or Alone()
        upper, lower = checkpoints.build(config)
        self.practice = Practice(upper, lower, config, self.peers)
        self.state = Standing()
        self.courses = [prepared(setup, config, validation), *(prepared(other, config) for other in others)]
        for number in range(config.rollout.random_clusters):
            try:
                self.courses.append(prepared(invented(config.seed, number), config))
            except InfeasibleError:
                continue  # some made-up models do not fit their made-up clusters; the others suffice
        self.data = standing.origin(
            [c.setup for c in self.courses], validation, company.lessons, self.peers.size
        )
        self.crew = company.crew(config, self.courses)

    @property
    def first(self) -> bool:
        """Of all learners the one that imitates, validates and writes."""
        return self.peers.rank == 0

    def run(self) -> bool:
        """Imitate, practise, keep the best; False when stopped before the end."""
        config, state = self.config, self.state
        imitation = config.imitation
        total = imitation.lessons + imitation.searched + imitation.steps + config.iterations
        self.progress.start(total, "training")
        learned = 0 if state.imitated < imitation.steps else imitation.lessons + imitation.searched
        self.progress.advance(learned + state.imitated + state.iteration)
        whole = state.imitated >= imitation.steps or not self.first or self._imitate()
        if not self.peers.agree(whole):
            return False
        self._begin_together()
        if state.best == -np.inf:
            self._select("imitation", state.imitated, {})
        while state.iteration < config.iterations:
            if self.peers.agree(self.stop()):
                self.save()
                return False
            self._iterate()
        self.save()
        return True

    def _begin_together(self) -> None:
        """Everybody has the first learner's weights and optimisers."""
        practice, state = self.practice, self.state
        mine = {
            "upper": practice.upper.state_dict(),
            "optimiser": practice.optimiser.state_dict(),
            "lower": practice.lower_weights(),
            "multipliers": practice.multipliers.values,
            "counts": (state.imitated, state.iteration, state.steps),
        }
        given = self.peers.agree(mine)
        if not self.first:
            practice.upper.load_state_dict(given["upper"])
            practice.optimiser.load_state_dict(given["optimiser"])
            practice.take_lower(given["lower"])
            practice.multipliers.values = dict(given["multipliers"])
            state.imitated, state.iteration, state.steps = given["counts"]

    # -- offline

    def _imitate(self) -> bool:
        """Follow the teachers for the configured number of steps; lessons are the same after a resume."""
        config, practice = self.config, self.practice
        logged = self.company.logged
        material = gathered(self.courses, config, logged, progress=self.progress, stop=self.stop)
        rates = [(practice.optimiser, config.ppo.lr), (practice.lower_optimiser, config.lower.lr)]
        for optimiser, _ in rates:
            optimiser.param_groups[0]["lr"] = config.imitation.lr
        while self.state.imitated < config.imitation.steps:
            if self.state.imitated % REPORT_EVERY == 0 and self.stop():
                self.save()
                return False
            value = followed(practice, config, material, self.state.imitated)
            self.state.imitated += 1
            self.progress.advance(1, f"imitation loss {value:.3f}")
            if self.state.imitated % REPORT_EVERY == 0:
                self._tell(Update("imitation", self.state.imitated, 0, {"loss": value}))
        for optimiser, rate in rates:
            optimiser.param_groups[0]["lr"] = rate
        return True

    # -- online

    def _iterate(self) -> None:
        """One rollout over a few courses, one update, now and then a validation."""
        config, state, number = self.config, self.state, self.state.iteration
        tasks = self._tasks(number)
        steps = tasks[0].steps
        rollouts = self.crew.collect(self.practice, tasks, self.peers.enough(number, steps))
        self.peers.complete(number)
        self.peers.mean_lower(self.practice)
        metrics = self.practice.update(rollouts, generator(config.seed, f"update-{number}"))
        names = rollouts[0].metrics
        metrics |= {name: float(np.mean([r.metrics[name] for r in rollouts])) for name in names}
        metrics = self.peers.mean(metrics)
        self.practice.multipliers.update({name: metrics[f"limited_{name}"] for name in CONSTRAINTS})
        metrics |= {f"multiplier_{name}": value for name, value in self.practice.multipliers.values.items()}
        state.iteration += 1
        state.steps += steps * config.rollout.environments * len(tasks) * self.peers.size
        if state.iteration % config.evaluate_every == 0 or state.iteration == config.iterations:
            self._select("ppo", state.iteration, metrics)
            self.save()
        else:
            self._tell(Update("ppo", state.iteration, state.steps, metrics))
        self.progress.advance(1, f"reward {metrics['reward']:.3f}")

    def _tasks(self, number: int) -> list[Task]:
        """Rollouts on the user's course every time and on up to two others, an episode each at most."""
        config, rank = self.config, self.peers.rank
        name = f"rollout-{number}" if rank == 0 else f"rollout-{number}-learner-{rank}"
        courses = [0, *range(1, len(self.courses))]
        if len(courses) > 3:
            others = generator(config.seed, f"courses-{number}").choice(len(courses) - 1, 2, replace=False)
            courses = [0, *sorted((others + 1).tolist())]
        steps = max(2, config.ppo.num_steps // config.rollout.environments // len(courses))
        parts = max(1, steps // config.rollout.episode_steps)
        return [
            Task(course, steps // parts, (config.seed, f"{name}-{course}-{part}"))
            for course in courses
            for part in range(parts)
        ]

    def _select(self, stage: str, number: int, metrics: dict[str, float]) -> None:
        """Validate; remember the weights if they are the best so far."""
        if not self.first:
            return
        upper, lower, state = self.practice.upper, self.practice.lower, self.state
        judged = [score(upper, lower, course, self.config) for course in self.courses[:VALIDATED]]
        metrics = metrics | {f"validation_{name}": judged[0][name] for name in judged[0]}
        mean = float(np.mean([one["score"] for one in judged]))
        metrics["validation_mean"] = mean
        self._tell(Update(stage, number, state.steps, metrics))
        if mean > state.best:
            state.best = mean
            state.best_upper = {name: t.clone() for name, t in upper.state_dict().items()}
            state.best_lower = {name: t.clone() for name, t in lower.state_dict().items()}

    # -- keeping

    def _tell(self, update: Update) -> None:
        self.state.curve.append(update)
        self.company.tell(update)

    def begin_from(self, start: Path) -> None:
        """Take the weights of an earlier checkpoint."""
        earlier = checkpoints.load(checkpoints.locate(start), self.config)
        self.practice.upper.load_state_dict(earlier.upper)
        self.practice.lower.load_state_dict(earlier.lower)

    def provenance(self) -> dict[str, Any]:
        """Where the weights come from; JSON values."""
        return {
            "config": self.config.digest(),
            "code": checkpoints.code_version(),
            "data": self.data,
            "seed": self.config.seed,
            "score": None if self.state.best == -np.inf else self.state.best,
            "iterations": self.state.iteration,
            "steps": self.state.steps,
        }

    def publish(self) -> Path:
        """Write the selected weights under their digest."""
        state, practice = self.state, self.practice
        upper = state.best_upper or practice.upper.state_dict()
        lower = state.best_lower or practice.lower.state_dict()
        return checkpoints.publish(Checkpoint(self.config, upper, lower, self.provenance()), self.out)

    def save(self) -> None:
        """Write the whole state."""
        if self.first:
            standing.save(self.out, self.config, self.data, self.practice, self.state, self.provenance())

    def restore(self) -> None:
        """Go on where a stopped training left off."""
        if self.first:
            self.state = standing.restore(self.out, self.config, self.data, self.practice)
