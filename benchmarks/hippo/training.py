"""How fast training is: environment steps, PPO steps beside stable-baselines3's, time to the planners'
scores.

    nice python -m benchmarks.hippo.training stepping | ppo | quality [--minutes 4] [--store DIR] [--dataset
    SET]

`stepping`  the Gymnasium environment alone, K = 4 (quad-70b), 1,024 twins, actions drawn beforehand.
`ppo`       our PPO and stable-baselines3's on the same environment with the same networks (PPO learns both
            levels in both), the same epochs and minibatches, no early stopping; in turns, so that a busy
            machine hurts both.
`quality`   validation scores of baselines that keep their plan and of mpc; then, from scratch, when Hi-PPO's
            network alone (with and without warm start) and sb3-contrib's MaskablePPO pass the best of them,
            on the same environment.

Wall seconds and CPU seconds; on a busy machine only the second says something. One thread throughout. Needs
the extra `bench`.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from benchmarks.hippo.sb3 import SameNetworks, Wrapped
from ingest.core import resources
from ingest.core.errors import UsageError
from ingest.core.units import to_ns
from ingest.pipeline.ingest import ingest
from policy.control.knobs import default_knobs
from policy.core import registry
from policy.core.protocol import Context, Policy
from policy.hippo.decoding import action_encoding
from policy.hippo.decoding.sampling import sample
from policy.hippo.env.gym import PlanVectorEnv, observed
from policy.hippo.env.training_task import TrainingTask, prepare_task
from policy.hippo.networks import checkpoint
from policy.hippo.networks.hippo_config import HiPpoConfig, shipped
from policy.hippo.tables.features import Situation
from policy.hippo.training.learner import PpoLearner
from policy.hippo.training.rollout import collect, evaluate
from policy.hippo.training.state import LearningCurvePoint
from policy.hippo.training.train import TrainingBackend, train
from twin.core.plan import Plan
from twin.core.view import Forecast, View
from twin.scenario import prepare
from twin.scenario.prepare import PreparedScenario

SCENARIO, STEPPED, TURNS = "quad-70b", 1024, 3
FIXED = ("static", "single", "megatron", "mast", "hyperion", "atlas", "sailor", "alpa", "dtfm")
"""Baselines that keep their plan while it can go on."""
LEARNERS = {"warm": "Hi-PPO, warm start", "cold": "Hi-PPO, PPO alone", "maskable": "MaskablePPO"}


@dataclass
class Clock:
    """Wall and CPU seconds of parts, summed."""

    wall: float = 0.0
    cpu: float = 0.0

    def time(self, part: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        result = part()
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu
        return result


def setup_of(store: Path | None, dataset: str) -> PreparedScenario:
    """The training window of the scenario; shipped traces are ingested on the way."""
    folder = store or Path(tempfile.mkdtemp())
    if dataset.startswith("synthetic"):
        ingest([resources.traces()], folder)
    return prepare.prepare(prepare.load(SCENARIO), folder, window="train", dataset=dataset)


def with_twins(config: HiPpoConfig, size: int) -> HiPpoConfig:
    return config.model_copy(update={"rollout": config.rollout.model_copy(update={"environments": size})})


# -- stepping


def stepping(setup: PreparedScenario) -> None:
    """Steps per second of `PlanVectorEnv`: anything at all, and legal plans of an untrained agent."""
    config = with_twins(HiPpoConfig(), STEPPED)
    task = prepare_task(setup, config)
    env = PlanVectorEnv(task.twins(config))
    upper, lower = checkpoint.build(config)
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    env.action_space.seed(0)
    uniform = [env.action_space.sample() for _ in range(8)]
    legal = []
    for _ in range(8):
        seen = task.features.observe(env.twins.situation())
        drawn = rng.random((STEPPED, 2 + 3 * task.problem.k))
        answers = sample(upper, lower, task.problem, seen, drawn).actions
        legal.append(action_encoding.actions_to_rows(answers, task.problem.masks))
    print(f"environment alone, K = {task.problem.k}, N = {task.problem.n}, {STEPPED} twins")
    for name, rows in (("uniform, mended to the nearest legal plan", uniform), ("legal plans", legal)):
        for row in rows[:3]:
            env.step(row)
        best = []
        for _ in range(5):
            clock = Clock()
            clock.time(lambda rows=rows: [env.step(rows[i % 8]) for i in range(32)])
            best.append((32 * STEPPED / clock.wall, 32 * STEPPED / clock.cpu))
        wall, cpu = np.median(best, axis=0)
        print(f"  {name:42} {wall:9,.0f} steps/s wall {cpu:9,.0f} steps/s CPU (median of 5)", flush=True)


# -- steps of training


def compared(setup: PreparedScenario) -> None:
    """Steps of training a second, ours and stable-baselines3's, in turns."""
    for name, epochs in (("tuned", 4), ("design", 10)):
        config = with_twins(shipped(name), 64)  # type: ignore[arg-type]
        ppo = config.ppo.model_copy(update={"update_epochs": epochs, "target_kl": 1e9})
        parts = config.parts.model_copy(update={"hierarchy": False})
        config = config.model_copy(update={"ppo": ppo, "parts": parts})
        task, steps = prepare_task(setup, config), ppo.num_steps // 64
        learners = {
            "ours": ours_of(task, config, steps),
            "stable-baselines3": theirs_of(task, config, steps, plain=False),
            "the same, network in plain form": theirs_of(task, config, steps, plain=True),
        }
        clocks = {who: Clock() for who in learners}
        for turn in range(TURNS + 1):
            for who, learn in learners.items():
                (clocks[who] if turn else Clock()).time(learn)  # the first turn compiles and allocates
        done, width = TURNS * ppo.num_steps, config.gnn.hidden_dim
        print(f"{name}: {width} wide, {epochs} epochs, minibatches of {ppo.minibatch_size}")
        for who, clock in clocks.items():
            wall, cpu = (getattr(clock, c) / getattr(clocks["ours"], c) for c in ("wall", "cpu"))
            print(
                f"  {who:32} {done / clock.wall:6,.0f} steps/s wall {done / clock.cpu:6,.0f} steps/s CPU; "
                f"ours is {wall:.2f} x (wall), {cpu:.2f} x (CPU) as fast", flush=True,
            )  # fmt: skip


def ours_of(task: TrainingTask, config: HiPpoConfig, steps: int) -> Callable[[], None]:
    """One rollout and its epochs."""
    learner, rng = PpoLearner(*checkpoint.build(config), config), np.random.default_rng(0)

    def learn() -> None:
        learner.update([collect(learner, task, steps, rng)], rng)

    return learn


def theirs_of(task: TrainingTask, config: HiPpoConfig, steps: int, *, plain: bool) -> Callable[[], Any]:
    """One rollout and its epochs."""
    ppo = config.ppo
    model = PPO(
        SameNetworks, Wrapped(PlanVectorEnv(task.twins(config))), ppo.lr, steps, ppo.minibatch_size,
        ppo.update_epochs, ppo.gamma, ppo.gae_lambda, ppo.clip_range, ppo.value_clip,
        ent_coef=ppo.entropy_coef, vf_coef=ppo.value_coef, max_grad_norm=ppo.max_grad_norm, seed=0,
        policy_kwargs={"task": task, "config": config, "plain": plain}, device="cpu",
    )  # fmt: skip
    return lambda: model.learn(ppo.num_steps, reset_num_timesteps=False)


# -- time to quality


def planner(task: TrainingTask, name: str) -> Callable[[Situation], np.ndarray]:
    """A planner of each twin, called at every period as in the world."""
    policies: list[Policy] = []
    control, scenario = task.setup.scenario.control, task.setup.scenario

    def answer(seen: Situation) -> np.ndarray:
        size = len(seen.has_plan)
        while len(policies) < size:
            policies.append(registry.create(name))
            policies[-1].reset(
                Context(
                    task.problem.estimator, control.period_s, task.features.restart_s,
                    scenario.weights.vector, np.random.default_rng(0),
                )
            )  # fmt: skip
        rows = [one(policies[twin], seen, twin) for twin in range(size)]
        answer.periods += 1  # type: ignore[attr-defined]
        return np.stack(rows)

    def one(policy: Policy, seen: Situation, twin: int) -> np.ndarray:
        running = task.problem.plan(seen.plan, twin) if seen.has_plan[twin] else None
        view = View(
            now_ns=to_ns(answer.periods * control.period_s),  # type: ignore[attr-defined]
            trigger="start" if running is None else "period",
            forecast=Forecast(
                seen.horizons_s, seen.bandwidth_bps[twin], seen.sd_log[twin], seen.latency_s[twin]
            ),
            plan=running, free_gpus=task.problem.free, slowdown=np.ones(task.problem.k),
            since_move_s=float(seen.since_move_s[twin]), tokens=0.0,
        )  # fmt: skip
        return row_of(task, policy.decide(view).plan, seen, twin)

    answer.periods = 0  # type: ignore[attr-defined]
    return answer


def row_of(task: TrainingTask, plan: Plan | None, seen: Situation, twin: int) -> np.ndarray:
    # Twins turn the knobs themselves.
    codes = task.problem.encode(default_knobs(task.problem.estimator.job, plan)) if plan is not None else None
    if plan is not None and codes is None:
        raise UsageError(f"{plan} is not among the plans of the environment")
    go = np.array([codes is not None])
    given = codes if codes is not None else seen.plan.take(np.array([twin]))
    return action_encoding.plans_to_rows(given, go, task.problem.masks)[0]


def quality(setup: PreparedScenario, minutes: float, learners: list[str]) -> None:
    """Who passes which planner's validation score, and when."""
    config = shipped("tuned")
    task = prepare_task(setup, config)
    scores = {}
    for name in (*FIXED, "mpc"):
        clock = Clock()
        try:
            found = clock.time(lambda name=name: evaluate(task, config, planner(task, name))).means()
        except UsageError as error:
            print(f"{name:10} {error}", flush=True)
            continue
        scores[name] = found["score"]
        print(f"{name:10} validation {found['score']:.4f} ({clock.wall:.0f} s of decisions)", flush=True)
    best = max(scores.keys() - {"mpc"}, key=lambda name: scores[name])
    marks = {"static": scores["static"], f"every fixed baseline ({best})": scores[best]}
    marks |= {"95 % of mpc": 0.95 * scores["mpc"], "mpc": scores["mpc"]}
    cold = config.imitation.model_copy(update={"steps": 0, "lessons": 0, "searched": 0})
    for learner in learners:
        if learner == "maskable":
            curve = maskable_curve(task, config, minutes)
        else:
            imitation = config.imitation if learner == "warm" else cold
            curve = ours_curve(setup, config.model_copy(update={"imitation": imitation}), minutes)
        report(LEARNERS[learner], curve, marks)


Curve = list[tuple[float, float, float]]
"""(wall s, CPU s, validation score) of each look."""


def ours_curve(setup: PreparedScenario, config: HiPpoConfig, minutes: float) -> Curve:
    curve: Curve = []
    began, cpu = time.perf_counter(), time.process_time()

    def on_update(update: LearningCurvePoint) -> None:
        if "validation_score" in update.metrics:
            score = update.metrics["validation_score"]
            curve.append((time.perf_counter() - began, time.process_time() - cpu, score))

    many = config.model_copy(update={"iterations": 100_000, "evaluate_every": 2})
    with tempfile.TemporaryDirectory() as out:
        train(
            setup, config=many, out=Path(out), backend=TrainingBackend(on_update=on_update),
            stop=lambda: time.process_time() - cpu > 60 * minutes,
        )  # fmt: skip
    return curve


def maskable_curve(task: TrainingTask, config: HiPpoConfig, minutes: float) -> Curve:
    """sb3-contrib's MaskablePPO with its own network and its own settings, on the same environment."""
    from sb3_contrib import MaskablePPO

    env = Wrapped(PlanVectorEnv(task.twins(config)))
    curve: Curve = []
    began, cpu = time.perf_counter(), time.process_time()
    steps = config.ppo.num_steps // config.rollout.environments
    model = MaskablePPO("MultiInputPolicy", env, n_steps=steps, batch_size=256, seed=0, device="cpu")

    def answer(seen: Situation) -> np.ndarray:
        masks = action_encoding.entry_masks(seen.may_hold, task.problem.masks)
        found, _ = model.predict(observed(task.features, seen), deterministic=True, action_masks=masks)
        return np.asarray(found)

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return time.process_time() - cpu < 60 * minutes

        def _on_rollout_start(self) -> None:
            if self.num_timesteps // config.ppo.num_steps % 2 == 0:
                score = evaluate(task, config, answer).means()["score"]
                curve.append((time.perf_counter() - began, time.process_time() - cpu, score))

    model.learn(10**9, callback=Look())
    return curve


def report(name: str, curve: Curve, marks: dict[str, float]) -> None:
    best = max(score for _, _, score in curve)
    wall, cpu, _ = curve[-1]
    print(f"{name}: best validation {best:.4f} within {wall:.0f} s ({cpu:.0f} s CPU)")
    for mark, value in marks.items():
        passed = [(w, c) for w, c, score in curve if score >= value]
        when = f"after {passed[0][0]:.0f} s ({passed[0][1]:.0f} s CPU)" if passed else "never"
        print(f"  passes {mark} ({value:.4f}): {when}", flush=True)
    looks = curve[:: max(1, len(curve) // 8)]
    print("  curve: " + ", ".join(f"{wall:.0f} s {score:.3f}" for wall, _, score in looks), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["stepping", "ppo", "quality"])
    parser.add_argument("--minutes", type=float, default=4.0, help="CPU minutes of each learner of `quality`")
    parser.add_argument("--learners", default=",".join(LEARNERS), help="of `quality`")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--dataset", default="synthetic-quad")
    options = parser.parse_args()
    torch.set_num_threads(1)
    setup = setup_of(options.store, options.dataset)
    print(f"{SCENARIO} on {options.dataset}, load average {os.getloadavg()[0]:.1f}")
    if options.part == "stepping":
        stepping(setup)
    elif options.part == "ppo":
        compared(setup)
    else:
        quality(setup, options.minutes, options.learners.split(","))


if __name__ == "__main__":
    main()
