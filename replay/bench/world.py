"""The world of a comparison: everything a run depends on but the policy."""

from dataclasses import dataclass
from pathlib import Path

from ingest.core.progress import SILENT, Progress
from replay.run import runner
from replay.run.runner import RunResult
from replay.store.run_index import BENCH
from twin.engines.engine import EngineName
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario, Scenario, Window
from twin.traces.time_range import TimeRange


@dataclass(frozen=True, slots=True)
class BenchWorld:
    """All inputs of a run but the policy.

    `dataset` None stands for the scenario's own. `clip` is the level of added noise, `load` the factor on the
    arrival rate of jobs; None: unchanged.
    """

    scenario: Scenario
    dataset: str | None
    window: Window | TimeRange
    engine: EngineName
    seed: int
    clip: float | None = None
    load: float | None = None

    @property
    def plain(self) -> bool:
        """True where neither noise nor load was changed."""
        return self.clip is None and self.load is None

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        dataset: str | None = None,
        window: Window | TimeRange = "test",
        engine: EngineName = "kernel",
        seed: int | None = None,
    ) -> "BenchWorld":
        """Returns the world of a scenario, with its own seed unless another is given."""
        return cls(scenario, dataset, window, engine, scenario.seed if seed is None else seed)

    def prepare(self, store: Path) -> PreparedScenario:
        """Loads links and jobs of this world; see `twin.scenario.prepare`."""
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
        """Runs `policy` in this world; see `replay.run.runner.run`."""
        return runner.run(
            store, policy=policy, scenario=self.scenario, dataset=self.dataset, window=self.window,
            engine=self.engine, seed=self.seed, checkpoint=checkpoint, reuse=reuse, made_by=BENCH,
            progress=progress,
        )  # fmt: skip
