"""Totals over the facts of a run, for `run_finished` and for its check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]


@dataclass
class Totals:
    """Totals of a run. Integers add up exactly; USD and J are added in the order of the facts.

    `durations + pauses + losses = horizon`: `iteration_ns + pause_ns + lost_ns` is the length of the run.
    `turns` counts the `plans` for which training did not pause: changes of knobs that move no state.
    Lists are indexed by domain; links are keyed "i>j". `tokens` and `iterations` are net of what failures
    lost. `jobs` holds the totals of each job where there are several.
    """

    domains: int
    iterations: int = 0
    tokens: int = 0
    lost_iterations: int = 0
    lost_tokens: int = 0
    iteration_ns: int = 0
    pause_ns: int = 0
    lost_ns: int = 0
    stalled_ns: int = 0
    plans: int = 0
    turns: int = 0
    gpu_ns: int = 0
    egress_usd: float = 0.0
    gpu_usd: float = 0.0
    energy_j: float = 0.0
    compute_ns: list[int] = field(default_factory=list)
    active_ns: list[int] = field(default_factory=list)
    gpu_compute_ns: int = 0
    wan_bytes: dict[str, int] = field(default_factory=dict)
    moved_bytes: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, "Totals"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.compute_ns = self.compute_ns or [0] * self.domains
        self.active_ns = self.active_ns or [0] * self.domains

    def add(self, kind: str, payload: Json, job: str = "") -> None:
        """Add one fact; kinds that carry no sum change nothing."""
        own = self.jobs.setdefault(job, Totals(self.domains)) if job else self
        turned = kind == "plan_applied" and own.plans > 0 and payload["pause_ns"] == 0
        if job:
            own.add(kind, payload)
        match kind:
            case "iteration_done":
                self._iterations(payload)
            case "plan_applied":
                self.pause_ns += payload["pause_ns"]
                self.plans += 1
                self.turns += turned
            case "time_lost":
                self.lost_ns += payload["lost_ns"]
                self.stalled_ns += payload["stalled_ns"]
            case "gpu_failed" | "work_lost":
                self._take_back(payload)
        if kind in ("iteration_done", "plan_applied", "time_lost", "state_copied"):
            self._charges(payload)

    def payload(self) -> dict[str, Any]:
        """All totals as JSON, links in order; `jobs` only where there are any."""
        fields = dict(vars(self))
        jobs = fields.pop("jobs")
        if jobs:
            fields["jobs"] = {name: jobs[name].payload() for name in sorted(jobs)}
        for name in ("wan_bytes", "moved_bytes"):
            fields[name] = dict(sorted(fields[name].items()))
        for name in ("compute_ns", "active_ns"):
            fields[name] = list(fields[name])
        return fields

    def _iterations(self, payload: Json) -> None:
        self.iterations += payload["count"]
        self.tokens += payload["tokens"]
        self.iteration_ns += sum(count * ns for count, ns in payload["durations"])
        self.stalled_ns += payload["stalled_ns"]
        self.gpu_compute_ns += payload["gpu_compute_ns"]
        for k in range(self.domains):
            self.compute_ns[k] += payload["compute_ns"][k]
            self.active_ns[k] += payload["active_ns"][k]

    def _take_back(self, payload: Json) -> None:
        self.iterations -= payload["lost_iterations"]
        self.tokens -= payload["lost_tokens"]
        self.lost_iterations += payload["lost_iterations"]
        self.lost_tokens += payload["lost_tokens"]

    def _charges(self, payload: Json) -> None:
        self.gpu_ns += payload["gpu_ns"]
        self.egress_usd += payload["egress_usd"]
        self.gpu_usd += payload["gpu_usd"]
        self.energy_j += payload["energy_j"]
        for name, sums in (("wan_bytes", self.wan_bytes), ("moved_bytes", self.moved_bytes)):
            for i, j, size in payload.get(name, ()):
                sums[f"{i}>{j}"] = sums.get(f"{i}>{j}", 0) + size
