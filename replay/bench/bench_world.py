"""A world that policies are compared in."""

from dataclasses import dataclass
from pathlib import Path

from ingest.core.progress import SILENT, Progress
from replay.run import runner
from replay.store.run_header import Engine
from replay.run.runner import RunResult
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import Scenario, Setup, Window


@dataclass(frozen=True, slots=True)
class World:
    """What a run needs to be told besides the policy.

    Without `dataset` that of the scenario. `clip` is the level of added noise, `load` how many times as fast
    the jobs of the scenario come; None without.
    """

    scenario: Scenario
    dataset: str | None
    window: Window
    engine: Engine
    seed: int
    clip: float | None = None
    load: float | None = None

    @property
    def plain(self) -> bool:
        """The scenario as it is."""
        return self.clip is None and self.load is None

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        dataset: str | None = None,
        window: Window = "test",
        engine: Engine = "kernel",
        seed: int | None = None,
    ) -> "World":
        """The world of a scenario, with its own seed unless another is given."""
        return cls(scenario, dataset, window, engine, scenario.seed if seed is None else seed)

    def prepare(self, store: Path) -> Setup:
        """The truth of this world; see `twin.scenario.prepare`."""
        return scenarios.prepare(
            self.scenario, store, window=self.window, dataset=self.dataset, seed=self.seed
        )

    def run(
        self,
        store: Path,
        policy: str,
        checkpoint: str | None = None,
        *,
        reuse: bool = False,
        progress: Progress = SILENT,
    ) -> RunResult:
        """Run `policy` here; see `replay.runner.run`."""
        return runner.run(
            store, policy=policy, scenario=self.scenario, dataset=self.dataset, window=self.window,
            engine=self.engine, seed=self.seed, checkpoint=checkpoint, reuse=reuse, progress=progress,
        )  # fmt: skip
