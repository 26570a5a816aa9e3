"""Load: the same jobs at another pace, other jobs with each seed, and how steadily they train."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ingest.core.errors import UsageError
from replay.metrics.paired_comparison import Verdict, student
from replay.metrics.kpis import Kpis
from twin.scenario.prepare import Scenario

if TYPE_CHECKING:
    from replay.bench.result import Chapter

Json = dict[str, Any]


def next_jobs(scenario: Scenario, number: int) -> Scenario:
    """The same scenario with the jobs `number` draws later in the trace, if it takes them from one."""
    if scenario.arrivals is None:
        return scenario
    skip = scenario.arrivals.skip + number * scenario.arrivals.count
    return scenario.model_copy(update={"arrivals": scenario.arrivals.model_copy(update={"skip": skip})})


def loaded(scenario: Scenario, load: float) -> Scenario:
    """The same jobs, submitted `load` times as fast.

    Raises:
        UsageError: its jobs arrive as the trace has them, or there is one alone.
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
class Steadiness:
    """How one policy keeps jobs training at one load: figures over worlds, shares of 1."""

    policy: str
    load: float
    worlds: int
    stability: Verdict  # of spec 6.2, with its interval over worlds
    worst: float
    queued: float  # of the time of jobs, before their first GPUs
    utilisation_owned: float  # of all GPUs

    def to_json(self) -> Json:
        """All fields by name."""
        return asdict(self)


def steadiness(chapter: "Chapter") -> list[Steadiness]:
    """A row a load and policy that ran, the lightest load first; none where the load was not varied."""
    if not chapter.loads:
        return []
    return [
        _steady(policy, load, kpis)
        for load, played in sorted({1.0: chapter.worlds, **chapter.loads}.items())
        for policy in chapter.policies
        if (kpis := [outcome.kpis for outcome in chapter.of(policy, played) if outcome.kpis])
    ]


def _steady(policy: str, load: float, kpis: Sequence[Kpis]) -> Steadiness:
    values = np.array([k.load_stability for k in kpis])
    return Steadiness(
        policy,
        load,
        len(kpis),
        student("load_stability", values),
        float(values.min()),
        float(np.mean([k.queued_s / k.present_s for k in kpis])),
        float(np.mean([k.utilisation_owned or 0.0 for k in kpis])),
    )
