"""A run at one moment, as values that do not change: what the screen and the metrics show."""

from dataclasses import dataclass

from replay.metrics.kpis import Kpis


@dataclass(frozen=True, slots=True)
class LinkNow:
    """One directed link: newest measurement, filtered estimate and forecast; None: not yet known."""

    src: str
    dst: str
    observed_bps: float | None  # 0: dead
    estimated_bps: float | None = None  # at the last decision
    forecast_bps: float | None = None  # for the farthest horizon of the last decision
    latency_s: float | None = None
    failed: bool = False
    used: bool = False  # carried training traffic in the last iterations


@dataclass(frozen=True, slots=True)
class ShareNow:
    """The part of a plan at one site, in pipeline order."""

    site: str
    layers: int
    stages: int
    tensor: int
    gpus: int


@dataclass(frozen=True, slots=True)
class PlanNow:
    """The plan in force of a job ("" for a job alone)."""

    job: str
    shares: tuple[ShareNow, ...]
    pipelines: int
    schedule: str
    since_s: float


@dataclass(frozen=True, slots=True)
class DecisionNow:
    """One of the last decisions, with its reason."""

    number: int
    at_s: float
    job: str
    trigger: str
    action: str
    reason: str
    latency_s: float | None


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """Everything that is shown of a run."""

    scenario: str
    policy: str
    seed: int
    engine: str
    now_s: float
    end_s: float
    horizon_s: float | None  # how far ahead `forecast_bps` looks
    links: tuple[LinkNow, ...]
    plans: tuple[PlanNow, ...]
    decisions: tuple[DecisionNow, ...]  # oldest first
    kpis: Kpis
    finished: bool
