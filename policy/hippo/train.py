"""Training: offline first (imitation of the planner), then online (PPO in many twins), then selection.

Every random number comes from a generator named by (seed, phase, number), and training is saved at the end
of a phase step, so a resumed training is the uninterrupted one, weight for weight.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from ingest import durable
from ingest.errors import InfeasibleError, UsageError
from ingest.progress import SILENT, Progress
from policy.hippo import checkpoint as checkpoints
from policy.hippo.agent import HiPpo
from policy.hippo.checkpoint import Checkpoint
from policy.hippo.config import CoordinatorConfig, HiPpoConfig
from policy.hippo.course import Course, invented, prepared
from policy.hippo.imitation import Lessons, batch_loss, draw, lessons, taught
from policy.hippo.rollout import Practice, score
from policy.mpc import Mpc
from policy.protocol import Policy
from twin.scenario import Setup
from twin.seeds import generator

POINTER = "training.json"
STATES = ".training"
REPORT_EVERY = 50
"""Imitation steps between two points of the curve, and between two looks at `stop`."""
SEARCH = CoordinatorConfig(proposals=8, rounds=16, wide_rounds=16)
"""The teacher that needs no planner: many proposals of an untrained network, refined to the end."""
Never = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Update:
    """One point of the learning curve."""

    stage: str  # imitation, ppo
    update: int
    steps: int  # decisions practised so far
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Where the selected checkpoint lies and how it was learned. `finished` is False after a stop."""

    checkpoint_path: Path
    digest: str
    curve: tuple[Update, ...]
    seconds: float
    score: float
    finished: bool


@dataclass
class _State:
    """Where training stands; everything that a resume needs besides the agents."""

    imitated: int = 0
    iteration: int = 0
    steps: int = 0
    best: float = -np.inf
    best_upper: dict[str, Any] = field(default_factory=dict)
    best_lower: dict[str, Any] = field(default_factory=dict)
    curve: list[Update] = field(default_factory=list)


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
) -> TrainResult:
    """Train on the window of `setup` (and of `others`, and on made-up clusters if the configuration says so).

    Checkpoints go to `out`: the selected one as `<digest>/hippo-<digest>.pt`, the state for `resume`
    beside. `stop` is asked between steps; True (for good) saves the state and returns the best so far.
    `start` is a checkpoint to go on from (its weights only). `validation` replaces the held-out end of the
    window for selection.

    Raises:
        UsageError: nothing to resume, or made with another configuration or other data.
        InfeasibleError: the model or the static plan does not fit.
    """
    torch.set_num_threads(1)  # small tensors; and sums in a fixed order
    began = perf_counter()
    training = _Training(setup, config, out, progress, stop, validation, others)
    if resume:
        training.restore()
    elif start is not None:
        training.begin_from(start)
    finished = training.run()
    path = training.publish()
    digest = checkpoints.digest(path)
    state = training.state
    return TrainResult(path, digest, tuple(state.curve), perf_counter() - began, state.best, finished)


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
    ):
        self.config, self.out, self.progress, self.stop = config, out, progress, stop
        upper, lower = checkpoints.build(config)
        self.practice = Practice(upper, lower, config)
        self.state = _State()
        self.courses = [prepared(setup, config, validation), *(prepared(other, config) for other in others)]
        for number in range(config.rollout.random_clusters):
            try:
                self.courses.append(prepared(invented(config.seed, number), config))
            except InfeasibleError:
                continue  # some made-up models do not fit their made-up clusters; the others suffice
        self.data = [[c.setup.scenario.name, c.setup.trace_digest, c.setup.window] for c in self.courses]

    def run(self) -> bool:
        """Imitate, practise, keep the best; False when stopped before the end."""
        config, state = self.config, self.state
        imitation = config.imitation
        total = imitation.lessons + imitation.searched + imitation.steps + config.iterations
        self.progress.start(total, "training")
        learned = 0 if state.imitated < imitation.steps else imitation.lessons + imitation.searched
        self.progress.advance(learned + state.imitated + state.iteration)
        if state.imitated < config.imitation.steps and not self._imitate():
            return False
        if state.best == -np.inf:
            self._select("imitation", state.imitated, {})
        while state.iteration < config.iterations:
            if self.stop():
                self.save()
                return False
            self._iterate()
        self.save()
        return True

    # -- offline

    def _imitate(self) -> bool:
        """Follow the teacher for the configured number of steps; lessons are the same after a resume."""
        config, practice = self.config, self.practice
        material = self._lessons()
        rates = [(practice.optimiser, config.ppo.lr), (practice.lower_optimiser, config.lower.lr)]
        for optimiser, _ in rates:
            optimiser.param_groups[0]["lr"] = config.imitation.lr
        while self.state.imitated < config.imitation.steps:
            if self.state.imitated % REPORT_EVERY == 0 and self.stop():
                self.save()
                return False
            value = self._imitation_step(material)
            self.state.imitated += 1
            self.progress.advance(1, f"imitation loss {value:.3f}")
            if self.state.imitated % REPORT_EVERY == 0:
                self.state.curve.append(Update("imitation", self.state.imitated, 0, {"loss": value}))
        for optimiser, rate in rates:
            optimiser.param_groups[0]["lr"] = rate
        return True

    def _imitation_step(self, material: list[Lessons]) -> float:
        rng = generator(self.config.seed, f"imitation-{self.state.imitated}")
        lesson = material[int(rng.integers(len(material)))]
        practice, config = self.practice, self.config.imitation
        total = batch_loss(
            practice.upper, practice.lower, lesson, draw(lesson, config.batch, rng), config.entropy_coef
        )
        practice.lower_optimiser.zero_grad(set_to_none=True)
        practice.step(practice.optimiser, total, practice.upper)
        practice.lower_optimiser.step()
        return float(total.detach())

    def _lessons(self) -> list[Lessons]:
        """Answers of `mpc` on the user's own course, and of the agent's own search on all of them.

        The search (random proposals, many rounds of refinement in the twin) judges by the same horizon and
        objective as `mpc` and is a hundred times cheaper, so it can be asked everywhere.
        """
        config = self.config
        # New networks, not the learner's: after a resume the lessons must be the same.
        search = HiPpo.of(*checkpoints.build(config), SEARCH)
        share = -(-config.imitation.searched // len(self.courses))
        asked: list[tuple[Course, Policy, int]] = [(self.courses[0], Mpc(), config.imitation.lessons)]
        asked += [(course, search, share) for course in self.courses]
        found = [
            lessons(course, teacher, config, count, self.progress, self.stop)
            for course, teacher, count in asked
            if count and not self.stop()
        ]
        return taught([lesson for lesson in found if lesson is not None])

    # -- online

    def _iterate(self) -> None:
        """One rollout over a few courses, one update, now and then a validation."""
        config, state, number = self.config, self.state, self.state.iteration
        rng = generator(config.seed, f"rollout-{number}")
        chosen = self._chosen(rng)
        steps = max(2, config.ppo.num_steps // config.rollout.environments // len(chosen))
        rollouts = [self.practice.collect(course, steps, rng) for course in chosen]
        metrics = self.practice.update(rollouts, generator(config.seed, f"update-{number}"))
        names = rollouts[0].violations
        means = {name: float(np.mean([r.violations[name] for r in rollouts])) for name in names}
        self.practice.multipliers.update(means)
        state.iteration += 1
        state.steps += steps * config.rollout.environments * len(chosen)
        metrics |= {
            "reward": float(np.mean([r.reward for r in rollouts])),
            "moves": float(np.mean([r.moves for r in rollouts])),
            "lower_reward": float(np.mean([r.lower for r in rollouts])),
        }
        metrics |= {f"violation_{name}": value for name, value in means.items()}
        metrics |= {f"multiplier_{name}": value for name, value in self.practice.multipliers.values.items()}
        if state.iteration % config.evaluate_every == 0 or state.iteration == config.iterations:
            self._select("ppo", state.iteration, metrics)
            self.save()
        else:
            state.curve.append(Update("ppo", state.iteration, state.steps, metrics))
        self.progress.advance(1, f"reward {metrics['reward']:.3f}")

    def _chosen(self, rng: np.random.Generator) -> list[Course]:
        """The user's course every time, and up to two others."""
        others = self.courses[1:]
        if len(others) <= 2:
            return self.courses
        return [self.courses[0], *(others[i] for i in sorted(rng.choice(len(others), 2, replace=False)))]

    def _select(self, stage: str, number: int, metrics: dict[str, float]) -> None:
        """Validate; remember the weights if they are the best so far."""
        upper, lower, state = self.practice.upper, self.practice.lower, self.state
        judged = [score(upper, lower, course, self.config) for course in self.courses[:8]]
        metrics = metrics | {f"validation_{name}": judged[0][name] for name in judged[0]}
        mean = float(np.mean([one["score"] for one in judged]))
        metrics["validation_mean"] = mean
        state.curve.append(Update(stage, number, state.steps, metrics))
        if mean > state.best:
            state.best = mean
            state.best_upper = {name: t.clone() for name, t in upper.state_dict().items()}
            state.best_lower = {name: t.clone() for name, t in lower.state_dict().items()}

    # -- keeping

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
        """Write the whole state, then point to it; the state before is deleted last."""
        state, practice = self.state, self.practice
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
        whole = Checkpoint(self.config, *weights, self.provenance(), training)
        before = self._pointed()
        path = checkpoints.save(whole, self.out / STATES)
        pointer = {"state": path.name, "config": self.config.digest(), "data": self.data}
        durable.replace(self.out / POINTER, json.dumps(pointer, sort_keys=True).encode())
        if before is not None and before["state"] != path.name:
            durable.remove(self.out / STATES / before["state"])

    def restore(self) -> None:
        """Go on where a stopped training left off."""
        pointer = self._pointed()
        if pointer is None:
            raise UsageError(f"{self.out}: no training to resume here; start one without --resume")
        if pointer["config"] != self.config.digest() or pointer["data"] != self.data:
            raise UsageError(
                f"{self.out}: the training there was started with another configuration or other data; "
                "resume it with those, or start a new one without --resume"
            )
        loaded = checkpoints.load(self.out / STATES / pointer["state"], self.config)
        assert loaded.training is not None
        training, practice, state = loaded.training, self.practice, self.state
        practice.upper.load_state_dict(loaded.upper)
        practice.lower.load_state_dict(loaded.lower)
        practice.optimiser.load_state_dict(training["optimiser"])
        practice.lower_optimiser.load_state_dict(training["lower_optimiser"])
        practice.multipliers.values = dict(training["multipliers"])
        state.imitated, state.iteration, state.steps = training["counts"]
        state.best, state.best_upper = training["best"], training["best_upper"]
        state.best_lower = training["best_lower"]
        state.curve = [Update(*point) for point in json.loads(training["curve"])]

    def _pointed(self) -> dict[str, Any] | None:
        path = self.out / POINTER
        return dict(json.loads(path.read_text())) if path.exists() else None
