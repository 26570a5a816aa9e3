"""Load: the same jobs at another arrival rate, other jobs with each seed, and the load stability."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ingest.core.errors import UsageError
from replay.metrics.kpis import Kpis
from replay.metrics.paired_comparison import PairedDifference, student
from twin.scenario.prepare import Scenario

Json = dict[str, Any]


def next_jobs(scenario: Scenario, number: int) -> Scenario:
    """Returns the scenario with the jobs `number` draws later in the trace, if it draws them from one."""
    if scenario.arrivals is None:
        return scenario
    skip = scenario.arrivals.skip + number * scenario.arrivals.count
    return scenario.model_copy(update={"arrivals": scenario.arrivals.model_copy(update={"skip": skip})})


def scenario_at_load(scenario: Scenario, load: float) -> Scenario:
    """Returns the scenario with the same jobs, submitted `load` times as fast.

    Raises:
        UsageError: its jobs arrive at the times of the trace, or there is only one.
    """
    if scenario.jobs:
        jobs = tuple(job.model_copy(update={"submit_s": job.submit_s / load}) for job in scenario.jobs)
        return scenario.model_copy(update={"jobs": jobs})
    if scenario.arrivals is None or scenario.arrivals.spread_s is None:
        raise UsageError(
            f"--load: {scenario.name} has no jobs whose pace could change: take a scenario with `jobs` or"
            " with `arrivals.spread_s`, such as queue"
        )
    spread = scenario.arrivals.spread_s / load
    return scenario.model_copy(update={"arrivals": scenario.arrivals.model_copy(update={"spread_s": spread})})


@dataclass(frozen=True, slots=True)
class LoadStability:
    """Load stability of one policy at one load, over worlds; shares of 1."""

    policy: str
    load: float
    worlds: int
    stability: PairedDifference  # `Kpis.load_stability`, with its interval over worlds
    worst: float
    queued: float  # of the jobs' time, before their first GPUs
    utilisation_owned: float  # of all GPUs

    def to_json(self) -> Json:
        """Returns all fields by name."""
        return asdict(self)


def load_stability(policy: str, load: float, kpis: Sequence[Kpis]) -> LoadStability:
    """Aggregates the key figures of one policy at one load, one `Kpis` a world."""
    values = np.array([k.load_stability for k in kpis])
    return LoadStability(
        policy,
        load,
        len(kpis),
        student("load_stability", values),
        float(values.min()),
        float(np.mean([k.queued_s / k.present_s for k in kpis])),
        float(np.mean([k.utilisation_owned or 0.0 for k in kpis])),
    )
