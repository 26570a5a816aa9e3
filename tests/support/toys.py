"""Runs of toy worlds in a store without a lake, in this process or in one of their own."""

import math
import os
import signal
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

from pytest import MonkeyPatch

from ingest.core import durable
from ingest.core.errors import NotFoundError
from policy.core import registry
from policy.core.protocol import Candidate, Context, Decision
from policy.core.reference_plan import base_plan
from replay.bench.bench import bench
from replay.bench.result import Bench
from replay.bench.world import BenchWorld
from replay.log.run_log import RunWriter
from replay.run import runner
from replay.run.runner import RunResult
from replay.store import event_sinks
from replay.training.retrain import RetrainResult
from tests.support.worlds import toy_scenario, toy_setup
from twin.core.view import View
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario, Scenario
from twin.settings.scenario_file import ObjectiveWeights

Steps = dict[tuple[int, int], list[tuple[float, float]]]
"""For each link when its bandwidth changes, s, and to what, bits/s."""

BPS = 2e10
STEPS: Steps = {(0, 1): [(200.0, 3e9), (400.0, 2e10)]}


def prepare(
    scenario: Scenario,
    store: Path,
    *,
    window: str = "test",
    dataset: Any = None,
    seed: Any = None,
    seen: Any = None,
) -> PreparedScenario:
    """Stands for `twin.scenario.prepare`: links that step at 200 s and 400 s instead of the lake's."""
    used = scenario.seed if seed is None else seed
    own = {"gpu_faults": scenario.gpu_faults, "link_changes": scenario.link_changes}
    setup = toy_setup(bps=BPS, latency_s=0.01, steps=STEPS, seed=used, **own)
    return replace(setup, scenario=scenario, window=window)


def without_lake(monkeypatch: MonkeyPatch) -> None:
    """Let every run of this test be of the toy world."""
    monkeypatch.setattr(scenarios, "prepare", prepare)


BENCHED = ("static", "single", "mpc")
"""Policies of `toy_bench`."""


def toy_bench(store: Path) -> Bench:
    """Two seeds of the toy world, and a front of two more weights."""
    weights = ((1.0, 0.0, 0.0), (0.25, 0.0, 0.75))
    grid = [ObjectiveWeights(efficiency=e, utilisation=u, cost=c) for e, u, c in weights]
    with MonkeyPatch.context() as patch:
        without_lake(patch)
        return bench(store, BENCHED, [BenchWorld.of(toy_scenario())], seeds=2, pareto=grid, jobs=1)


def toy_run(store: Path, policy: str = "greedy", **arguments: Any) -> RunResult:
    """A run of the toy world; `without_lake` must have been called."""
    return runner.run(store, policy=policy, scenario=toy_scenario(), **arguments)


class Threshold:
    """Uses domain 0 alone while the forecast of 0->1 is under `BOUND_BPS`, else equal cuts."""

    name = "threshold"
    BOUND_BPS = 1e10

    def reset(self, context: Context) -> None:
        self.estimator = context.estimator

    def decide(self, view: View) -> Decision:
        wide = view.forecast.bandwidth_bps[0, 0, 1] >= self.BOUND_BPS
        free = view.free_gpus if wide else (view.free_gpus[0], *[0] * (len(view.free_gpus) - 1))
        plan = base_plan(self.estimator, replace(view, free_gpus=free))
        return Decision(None if plan == view.plan else plan, "wide" if wide else "narrow")


class Coin:
    """Draws between equal cuts over all domains (`WIDE`) and domain 0 alone, and says with what chance."""

    name = "coin"
    WIDE = 0.8

    def reset(self, context: Context) -> None:
        self.estimator, self.rng = context.estimator, context.rng

    def decide(self, view: View) -> Decision:
        lone = (view.free_gpus[0], *[0] * (len(view.free_gpus) - 1))
        plans = [base_plan(self.estimator, replace(view, free_gpus=free)) for free in (view.free_gpus, lone)]
        chances = [self.WIDE, 1 - self.WIDE]
        drawn = int(self.rng.random() >= self.WIDE)
        candidates = tuple(Candidate(plan, 0.0, 1.0, 0.5, 0.0) for plan in plans if plan is not None)
        plan = candidates[drawn].plan
        return Decision(
            None if plan == view.plan else plan,
            "drawn",
            candidates,
            log_probability=math.log(chances[drawn]),
            extra={"probabilities": chances},
        )


class Peeking(Threshold):
    """Knows what no policy may know: whether the world's trace is the one it was told of."""

    name = "peeking"
    future: Any = None

    def decide(self, view: View) -> Decision:
        later = Peeking.future.series[0, 1].bandwidth_bps[-1]
        return replace(super().decide(view), reason=f"it will be {later:.0f}")


class FromCheckpoint:
    """A learned policy of the simplest kind: its checkpoint names the baseline that it is."""

    name = "hippo"

    def __init__(self, checkpoint: Path) -> None:
        self.inner = registry.create(checkpoint.read_text())

    def reset(self, context: Context) -> None:
        self.inner.reset(context)

    def decide(self, view: View) -> Decision:
        return self.inner.decide(view)


def register(monkeypatch: MonkeyPatch, name: str, target: str, learned: bool = False) -> None:
    """Make a policy of this file known under `name`."""
    entry = registry.PolicyEntry(f"tests.support.toys:{target}", "for tests", learned)
    monkeypatch.setitem(registry.POLICIES, name, entry)


def toy_checkpoint(folder: Path, kind: str) -> str:
    """Store a checkpoint of `FromCheckpoint`; its digest."""
    digest = sha256(kind.encode()).hexdigest()
    durable.put(folder / digest / f"hippo-{digest}.pt", kind.encode(), idempotent=True)
    return digest


class Dying:
    """Progress that kills its process, without a farewell, at a share of the run."""

    def __init__(self, permille: int) -> None:
        self.left = permille

    def start(self, total: int | None, what: str, unit: str = "") -> None:
        """Nothing is drawn."""

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.left -= steps
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


CALLED: list[tuple[Any, ...]] = []
RUNNING = Event()


def task(*arguments: Any) -> None:
    """What a schedule calls: notes the call and stays until it is told to end."""
    CALLED.append(arguments)
    RUNNING.wait(10)


def refused(*_: Any) -> None:
    """What a schedule calls while something is missing."""
    raise NotFoundError("no lake: run `twin ingest`")


def broken(*_: Any) -> float:
    """What a schedule calls if a mistake of ours is in it."""
    return 1 / 0


FOUND = RetrainResult("run", None, "ab" * 32, False, "not shown to be better", (), "cd" * 32)


def retrained(*_: Any) -> RetrainResult:
    """What a schedule calls: a retraining that rejects its challenger."""
    return FOUND


class SmallSegments:
    """A `RunWriter` class that commits every 7 events, so that a short run has many segments."""

    @staticmethod
    def create(run_dir: Path) -> RunWriter:
        return RunWriter.create(run_dir, flush_events=7)


if __name__ == "__main__":  # STORE POLICY[,POLICY...] [PERMILLE]: run, and die on the way if a share is given
    scenarios.prepare = prepare  # type: ignore[assignment]
    event_sinks.RunWriter = SmallSegments  # type: ignore[misc,assignment]
    dying = {"progress": Dying(int(sys.argv[3]))} if len(sys.argv) > 3 else {}
    for policy in sys.argv[2].split(","):
        print(toy_run(Path(sys.argv[1]), policy, **dying).digest)
