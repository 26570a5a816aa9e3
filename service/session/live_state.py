"""The state of a live run for those who ask, folded from its events; published when they are durable."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.core.units import NS_PER_S
from replay.log.events import Event
from replay.log.fold import Fold
from replay.metrics.kpis import KpiFold
from replay.metrics.prediction_accuracy import LinkErrors
from replay.store.decision_codec import plan_to_json
from twin.core.plan_text import with_names
from twin.world.observed_job import ObservedJob
from twin.world.observed_world import ObservedWorld

Json = dict[str, Any]
KEPT = 500
"""Decisions, orders and changes of mode that are kept at hand; `twin sql` has all."""
SAMPLES = 2_000
"""Samples of each link that are kept at hand."""
CHARGES = ("egress_usd", "gpu_usd", "energy_j", "tokens")
HOURS = 24 * 32
"""Hours whose charges are kept at hand: a month."""
STREAMED = frozenset(
    {
        "link_observed", "link_failed", "link_restored", "gpu_failed", "gpu_repaired", "domain_slowed",
        "decided", "order_given", "order_closed", "mode_changed", "rollback_requested", "plan_applied",
        "iteration_done", "message_quarantined", "job_submitted", "job_started", "job_preempted",
        "job_finished", "clock_jumped", "clock_settled", "jobs_changed",
    }
)  # fmt: skip
"""Types of events that the stream passes on."""


@dataclass(frozen=True, slots=True)
class PublishedJob:
    """A job after the last commit."""

    active: bool = True
    decision: Json | None = None  # the last one about it
    plan: Json | None = None  # in force
    virtual: bool = True  # the job has not said that it runs it
    order: Json | None = None  # that waits
    obstacle: str | None = None  # why no decision is made now


@dataclass(frozen=True, slots=True)
class Published:
    """The state after the last commit; every part of it is durable.

    `jobs` are those that were submitted, by name; "" is the only one of a scenario with one.
    """

    now_ns: int = 0
    mode: str = "shadow"
    events: int = 0
    decisions: int = 0
    decision: Json | None = None  # the last one
    tokens: int = 0
    jobs: Mapping[str, PublishedJob] = field(default_factory=dict)

    @property
    def only(self) -> PublishedJob:
        """The only job of a scenario with one; of one with several an empty one."""
        return self.jobs.get("", PublishedJob(virtual=False))

    @property
    def plan(self) -> Json | None:
        """Plan of the only job."""
        return self.only.plan

    @property
    def virtual(self) -> bool:
        """True where the only job has not said that it runs its plan."""
        return self.only.virtual

    @property
    def order(self) -> Json | None:
        """Order of the only job that waits."""
        return self.only.order

    @property
    def obstacle(self) -> str | None:
        """Reason for which nothing is decided about the only job."""
        return self.only.obstacle


class StreamEntries(Fold):
    """Events as the stream and the webhook pass them on: one JSON object each.

    `origin_epoch_ns` is the time 0 of the run, `run` its name.
    """

    def __init__(self, origin_epoch_ns: int, run: str = "") -> None:
        self.origin_epoch_ns, self.run = origin_epoch_ns, run
        self.fresh: list[Json] = []
        """Entries that have not been taken yet."""
        self.domains: tuple[str, ...] = ()
        self._trigger: Json = {}

    def add(self, event: Event) -> None:
        """Applies an event."""
        super().add(event)
        if event.type in STREAMED and event.type != "decided":
            self.fresh.append(self._entry(event, self._streamed(event)))

    def _streamed(self, event: Event) -> Json:
        """Returns what the stream says of an event: its payload, but of many changes their number alone."""
        if event.type == "jobs_changed":
            return {"client": event.payload["client"], "count": len(event.payload["changes"])}
        if event.type == "link_observed":
            return {**event.payload, "sampled_at": self.utc(event.payload["sampled_ns"])}
        return event.payload

    def utc(self, sim_ns: int) -> float:
        """Returns a time of the run as seconds since the epoch."""
        return round((self.origin_epoch_ns + sim_ns) / NS_PER_S, 3)

    def _entry(self, event: Event, payload: Json) -> Json:
        job = {"job": event.job} if event.job else {}
        return {"event": event.type, "seq": event.seq, "at": self.utc(event.sim_ns), **job, **payload}

    def _on_run_started(self, event: Event, started: Json) -> None:
        self.domains = tuple(domain["name"] for domain in started["scenario"]["cluster"]["domains"])

    def _on_triggered(self, event: Event, triggered: Json) -> None:
        self._trigger = triggered

    def _on_decided(self, event: Event, decided: Json) -> None:
        short = {
            name: decided[name]
            for name in ("number", "action", "plan", "reason", "predicted_iter_s", "fallback")
        }
        for name in ("reason", "fallback"):
            short[name] = short[name] and with_names(short[name], self.domains)
        trigger = {"trigger": self._trigger.get("trigger", ""), "reasons": self._trigger.get("reasons", {})}
        more = {**short, **trigger, "latency_s": event.wall.get("latency_s")}
        self.fresh.append(self._entry(event, more))


class LiveState(StreamEntries):
    """Counts and last events of a live run.

    `noise` is the deviation of the log of a telemetry sample.
    """

    def __init__(self, origin_epoch_ns: int, noise: float, run: str = "") -> None:
        super().__init__(origin_epoch_ns, run)
        self.events = 0
        self.decisions: deque[Json] = deque(maxlen=KEPT)
        self.happened: deque[Json] = deque(maxlen=KEPT)  # orders, modes, failures
        self.links: dict[tuple[int, int], deque[tuple[int, float, float]]] = {}
        self.steps: dict[str, deque[tuple[int, int, float]]] = {}
        """Steps by job."""
        self.decided: dict[str, Json] = {}
        """Last decision about each job."""
        self.latencies_s: deque[float] = deque(maxlen=KEPT)
        self.counts: dict[str, int] = {}
        self.step_count = self.fallbacks = 0
        self.coverage = LinkErrors(noise)
        self.figures = KpiFold()
        self.hours: dict[int, dict[str, float]] = {}
        """Charges by the hour of UTC (hours since the epoch) in which they became known."""
        self.last_period_ns = 0
        self.clock_problem = ""
        """Reason of the last jump of the clock that is not over."""

    def add(self, event: Event) -> None:
        """Applies an event."""
        self.events = event.seq + 1
        self.counts[event.type] = self.counts.get(event.type, 0) + 1
        self.coverage.add(event)
        self.figures.add(event)
        super().add(event)

    def _on_telemetry_received(self, event: Event, batch: Json) -> None:
        self.step_count += len(batch["steps"])
        for ns, number, seconds, *job in batch["steps"]:
            name = batch["jobs"][int(job[0])] if job else ""
            self.steps.setdefault(name, deque(maxlen=SAMPLES)).append((ns, number, seconds))

    def _on_link_observed(self, event: Event, observed: Json) -> None:
        for i, j, bandwidth_bps, latency_s in observed["samples"]:
            kept = self.links.setdefault((int(i), int(j)), deque(maxlen=SAMPLES))
            kept.append((observed["sampled_ns"], bandwidth_bps, latency_s))

    def _on_decision_requested(self, event: Event, requested: Json) -> None:
        if requested["by"] != "pull":
            self.last_period_ns = event.sim_ns

    def _on_message_quarantined(self, event: Event, message: Json) -> None:
        if message["kind"] == "decision_requested":  # the next one is due a period later
            self.last_period_ns = event.sim_ns
        self._happened(event, message)

    def _on_run_continued(self, event: Event, before: Json) -> None:
        self.last_period_ns = event.sim_ns
        self.hours = {int(hour): dict(zip(CHARGES, sums, strict=True)) for hour, *sums in before["hours"]}

    def _on_clock_jumped(self, event: Event, jumped: Json) -> None:
        self.clock_problem = jumped["reason"]
        self._happened(event, jumped)

    def _on_clock_settled(self, event: Event, settled: Json) -> None:
        self.clock_problem = ""
        self._happened(event, settled)

    def _on_decided(self, event: Event, decided: Json) -> None:
        super()._on_decided(event, decided)
        entry = self.fresh[-1]
        self.fallbacks += decided["fallback"] is not None
        self.decisions.append(entry)
        self.decided[event.job] = entry
        if (latency_s := entry["latency_s"]) is not None:
            self.latencies_s.append(latency_s)

    def _charged(self, event: Event, payload: Json) -> None:
        hour = self.hours.setdefault(int(self.utc(event.sim_ns) // 3600), dict.fromkeys(CHARGES, 0.0))
        for name in CHARGES:
            hour[name] += payload.get(name, 0)
        if len(self.hours) > HOURS:
            del self.hours[min(self.hours)]

    _on_iteration_done = _on_time_lost = _charged

    def _on_plan_applied(self, event: Event, applied: Json) -> None:
        self._charged(event, applied)
        self._happened(event, applied)

    def _happened(self, event: Event, payload: Json) -> None:
        self.happened.append(self._entry(event, payload))

    _on_order_given = _on_order_closed = _on_mode_changed = _on_rollback_requested = _happened
    _on_job_submitted = _on_job_started = _on_job_preempted = _on_job_finished = _happened
    _on_link_failed = _on_link_restored = _on_gpu_failed = _on_gpu_repaired = _happened


def published(state: LiveState, world: ObservedWorld) -> Published:
    """Returns what is published of a state and world whose events are durable."""
    return Published(
        now_ns=world.now_ns,
        mode=world.mode,
        events=state.events,
        decisions=len(state.decisions) and state.decisions[-1]["number"] + 1,
        decision=state.decisions[-1] if state.decisions else None,
        tokens=world.tokens,
        jobs={name: _published_job(state, world, job) for name, job in world.jobs.items()},
    )


def _published_job(state: LiveState, world: ObservedWorld, job: ObservedJob) -> PublishedJob:
    waiting = job.orders.waiting
    return PublishedJob(
        active=job.active,
        decision=state.decided.get(job.name),
        plan=plan_to_json(job.orders.in_force),
        virtual=job.orders.virtual,
        order=None
        if waiting is None
        else {"number": waiting.number, "plan": plan_to_json(waiting.plan), "reason": waiting.reason},
        obstacle=world.obstacle_of(job.name) if job.active else "the job has ended",
    )
