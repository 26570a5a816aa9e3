"""Key figures of a run, computed from its events alone; every other module takes them from here."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from replay.log.events import Event, Json
from replay.log.fold import Fold, fold
from replay.metrics.cost_inputs import CostInputs, cost_inputs
from replay.metrics.percentile_billing import BillingMeter
from replay.store.run_header import NO_WORLD, QUEUE
from twin.estimation.training_cost import TrainingCost


@dataclass(frozen=True, slots=True)
class Kpis:
    """Key figures of one run; None where it has no value, for example where no token was trained."""

    wall_s: float
    tokens: int  # of complete iterations
    progress_tokens: float  # with the share done of the iteration under way at the end; ratios are over these
    iterations: int
    time_per_token_s: float | None  # moving and waiting included
    mean_iteration_s: float | None
    utilisation: float | None  # compute seconds / wall seconds of the domains while in the plan
    utilisation_owned: float | None  # GPU compute seconds / wall seconds of every GPU of the cluster
    egress_usd: float
    usd_per_token: float | None  # egress alone; `total_usd_per_token` counts the GPUs, too
    gpu_usd: float  # rent of the GPUs that plans held
    energy_j: float
    joule_per_token: float | None
    wan_bytes: int  # between domains, for training
    moved_bytes: int  # between domains, for changes of plan
    wan_p95_bps: float  # 95th percentile over five-minute intervals, summed over sending domains
    decisions: int
    moves: int  # changes of plan after the first, with a pause
    turns: int  # changes of free knobs, without a pause
    fallbacks: int
    late: int  # decisions over the deadline
    paused_s: float  # pauses for changes of plan
    lost_s: float  # abandoned, failed, waiting, or unfinished at the horizon
    present_s: float  # from submission to the end, summed over jobs; the run for a job alone
    queued_s: float  # from submission to the first GPUs, summed over jobs; 0 for a job alone
    load_stability: float  # 1 - seconds without progress caused by the scheduler / seconds of jobs in the run
    decision_p50_s: float | None
    decision_p99_s: float | None
    decision_max_s: float | None
    coordination_max_s: float | None  # trigger to validated plan, control plane
    tokens_per_s: float | None = None  # pauses and waiting included
    mfu: float | None = None  # model FLOPs / peak FLOPs of the GPUs that plans held; None: model not known
    total_usd: float = 0.0  # rent and egress
    total_usd_per_token: float | None = None
    rent_usd_per_token: float | None = None
    unpriced: tuple[str, ...] = ()  # sites in plans whose GPUs have no price: totals leave out their rent

    def to_json(self) -> Json:
        """Returns all figures by name."""
        return {**asdict(self), "unpriced": list(self.unpriced)}

    def numbers(self) -> dict[str, float | None]:
        """Returns the figures that are numbers by name: those that two runs can be subtracted in."""
        return {name: value for name, value in asdict(self).items() if name != "unpriced"}


def of_events(events: Iterable[Event]) -> Kpis:
    """Returns the key figures of a run from its events."""
    return fold(events, KpiFold()).kpis()


SCHEDULER_REASONS = frozenset({"abandoned", "moving", "preempted"})
"""Reasons of `time_lost` that the scheduler causes, unlike failures and the horizon. Waiting counts after a
preemption; before the first GPUs it is `queued_s`."""


class KpiFold(Fold):
    """Sums over the events of a run; memory grows with decisions only."""

    def __init__(self) -> None:
        self._gpus_owned = 0
        self._in_plan: dict[str, tuple[int, ...]] = {}  # of each job
        self._since_ns: dict[str, int] = {}  # submission of the jobs in the run
        self._preempted: set[str] = set()
        self._present_ns = self._queued_ns = 0
        self._iterations = self._tokens = self._training_ns = 0
        self._part_tokens = 0.0
        self._compute_ns = self._gpu_compute_ns = self._active_ns = 0
        self._paused_ns = self._lost_ns = self._scheduler_ns = 0
        self._wan_bytes = self._moved_bytes = 0
        self._egress_usd = self._gpu_usd = self._energy_j = 0.0
        self._prices: CostInputs | None = None
        self._held_sites: set[int] = set()
        self._peak_flop_s: dict[str, float] = {}  # mean peak of a GPU of each job's plan
        self._model_flops = self._peak_flops = 0.0
        self._rates = BillingMeter()
        self._decisions = self._moves = self._turns = self._fallbacks = self._late = 0
        self._latency_s: list[float] = []
        self._coordination_s: list[float] = []

    def _on_run_started(self, event: Event, started: Json) -> None:
        if started["policy"] == QUEUE:
            raise UsageError(NO_WORLD)
        domains = started["scenario"]["cluster"]["domains"]
        self._gpus_owned = sum(domain["gpus"] for domain in domains)
        self._prices = cost_inputs(started["scenario"])

    def _on_job_submitted(self, event: Event, submitted: Json) -> None:
        self._since_ns[event.job] = event.sim_ns

    def _on_job_preempted(self, event: Event, preempted: Json) -> None:
        self._preempted.add(event.job)

    def _on_job_finished(self, event: Event, finished: Json) -> None:
        self._present_ns += event.sim_ns - self._since_ns.pop(event.job)

    def _on_decided(self, event: Event, decided: Json) -> None:
        self._decisions += 1
        self._fallbacks += decided["fallback"] is not None
        self._late += bool(event.wall.get("late"))
        if "latency_s" in event.wall:
            self._latency_s.append(event.wall["latency_s"])
            self._coordination_s.append(event.wall["coordination_s"])

    def _on_plan_applied(self, event: Event, applied: Json) -> None:
        if event.job in self._in_plan:
            self._moves += applied["pause_ns"] > 0
            self._turns += applied["pause_ns"] == 0
        self._in_plan[event.job] = tuple(share["domain"] for share in applied["plan"]["shares"])
        self._held_sites.update(self._in_plan[event.job])
        if self._prices is not None:
            held = self._prices.held(applied["plan"]["shares"])
            self._peak_flop_s[event.job] = self._prices.mean_peak(held)
        self._preempted.discard(event.job)
        self._paused_ns += applied["pause_ns"]
        self._scheduler_ns += applied["pause_ns"]
        self._active_ns += applied["pause_ns"] * len(self._in_plan[event.job])
        self._moved_bytes += _bytes(applied["moved_bytes"])
        self._charge(event.job, applied)
        self._rates.add(applied["started_ns"], event.sim_ns, applied["moved_bytes"])

    def _on_iteration_done(self, event: Event, done: Json) -> None:
        length_ns = sum(count * ns for count, ns in done["durations"])
        self._iterations += done["count"]
        self._tokens += done["tokens"]
        self._training_ns += length_ns
        self._compute_ns += sum(done["compute_ns"])
        self._gpu_compute_ns += done["gpu_compute_ns"]
        self._active_ns += sum(done["active_ns"])
        self._wan_bytes += _bytes(done["wan_bytes"])
        self._train(event.job, done["tokens"])
        self._charge(event.job, done)
        self._rates.add(done["start_ns"], done["start_ns"] + length_ns, done["wan_bytes"])

    def _on_time_lost(self, event: Event, lost: Json) -> None:
        end_ns = lost["start_ns"] + lost["lost_ns"]
        self._lost_ns += lost["lost_ns"]
        self._part_tokens += lost.get("part_tokens", 0.0)
        self._train(event.job, lost.get("part_tokens", 0.0))
        waited = lost["lost_ns"] if lost["reason"] == "waiting" else 0
        self._queued_ns += waited if event.job and event.job not in self._in_plan else 0
        self._scheduler_ns += waited if event.job in self._preempted else 0
        self._scheduler_ns += lost["lost_ns"] if lost["reason"] in SCHEDULER_REASONS else 0
        self._active_ns += lost["lost_ns"] * len(self._in_plan.get(event.job, ()))
        self._wan_bytes += _bytes(lost["wan_bytes"])
        self._moved_bytes += _bytes(lost["moved_bytes"])
        self._charge(event.job, lost)
        self._rates.add(lost["start_ns"], end_ns, [*lost["wan_bytes"], *lost["moved_bytes"]])

    def _on_state_copied(self, event: Event, copied: Json) -> None:
        self._moved_bytes += _bytes(copied["moved_bytes"])
        self._charge(event.job, copied)
        self._rates.add(copied["start_ns"], copied["start_ns"] + copied["copied_ns"], copied["moved_bytes"])

    def _on_work_lost(self, event: Event, lost: Json) -> None:
        self._tokens -= lost["lost_tokens"]  # trained again later: not counted twice
        self._train(event.job, -lost["lost_tokens"])

    _on_gpu_failed = _on_work_lost

    def _train(self, job: str, tokens: float) -> None:
        if self._prices is not None:
            self._model_flops += tokens * self._prices.flops_per_token(job)

    def _charge(self, job: str, payload: Json) -> None:
        peak = self._peak_flop_s.get(job, 0.0)
        if self._prices is not None and "gpus" in payload:  # of a plan that is not in force yet
            peak = self._prices.mean_peak(payload["gpus"])
        self._peak_flops += payload.get("gpu_ns", 0) / NS_PER_S * peak
        self._egress_usd += payload["egress_usd"]
        self._gpu_usd += payload["gpu_usd"]
        self._energy_j += payload["energy_j"]

    def kpis(self) -> Kpis:
        """Returns the figures so far."""
        wall_s = self.end_ns / NS_PER_S
        latency_s = np.array(self._latency_s)
        progress = self._tokens + self._part_tokens
        known = self._prices is not None
        cost = TrainingCost(
            progress, wall_s, self._gpu_usd, self._egress_usd, self._energy_j,
            self._model_flops if known else None, self._peak_flops if known else None,
            self._prices.unpriced(self._held_sites) if self._prices else (),
        )  # fmt: skip
        return Kpis(
            wall_s=wall_s,
            tokens=self._tokens,
            progress_tokens=progress,
            iterations=self._iterations,
            time_per_token_s=_ratio(wall_s, progress),
            mean_iteration_s=_ratio(self._training_ns / NS_PER_S, self._iterations),
            utilisation=_ratio(self._compute_ns, self._active_ns),
            utilisation_owned=_ratio(self._gpu_compute_ns, self._gpus_owned * self.end_ns),
            egress_usd=self._egress_usd,
            usd_per_token=_ratio(self._egress_usd, progress),
            gpu_usd=self._gpu_usd,
            energy_j=self._energy_j,
            joule_per_token=_ratio(self._energy_j, progress),
            wan_bytes=self._wan_bytes,
            moved_bytes=self._moved_bytes,
            wan_p95_bps=self._rates.p95_bps(self.end_ns),
            decisions=self._decisions,
            moves=self._moves,
            turns=self._turns,
            fallbacks=self._fallbacks,
            late=self._late,
            paused_s=self._paused_ns / NS_PER_S,
            lost_s=self._lost_ns / NS_PER_S,
            present_s=self._job_ns() / NS_PER_S,
            queued_s=self._queued_ns / NS_PER_S,
            load_stability=1.0 - (_ratio(self._scheduler_ns, self._job_ns()) or 0.0),
            decision_p50_s=_quantile(latency_s, 0.50),
            decision_p99_s=_quantile(latency_s, 0.99),
            decision_max_s=_quantile(latency_s, 1.0),
            coordination_max_s=_quantile(np.array(self._coordination_s), 1.0),
            tokens_per_s=cost.tokens_per_s,
            mfu=cost.mfu,
            total_usd=cost.total_usd,
            total_usd_per_token=_ratio(cost.total_usd, progress),
            rent_usd_per_token=_ratio(cost.rent_usd, progress),
            unpriced=cost.unpriced,
        )

    def _job_ns(self) -> int:
        """Returns the time of jobs in the run, from submission to their end; for a job alone, the run."""
        if not self._since_ns and not self._present_ns:
            return self.end_ns
        return self._present_ns + sum(self.end_ns - since for since in self._since_ns.values())


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0 else None


def _quantile(values: NDArray[np.float64], q: float) -> float | None:
    return float(np.quantile(values, q)) if len(values) else None


def _bytes(links: list[list[int]]) -> int:
    return sum(size for _, _, size in links)
