"""The state of a run, folded from its events: as they are written, or read from the log by another process.

    state = RunState()
    fold(RunReader(folder).events(), state)
    state.latest                                    # a `RunSnapshot`

While a run goes on its thread makes the snapshots, so that readers in other threads need no lock: they take
the newest one, a value.
"""

from collections import deque
from collections.abc import Callable
from time import perf_counter

from ingest.core.units import NS_PER_S
from replay.live.run_snapshot import DecisionNow, LinkNow, PlanNow, RunSnapshot, ShareNow
from replay.log.events import Event, Json
from replay.log.fold import Fold
from replay.metrics.kpis import KpiFold
from replay.store.decision_codec import plan_in_force

EVERY_S = 0.5
"""Seconds between two snapshots of a run that goes on."""
COST = 0.02
"""Share of the time that snapshots may take: a long run has them less often."""
DECISIONS = 8
"""Last decisions that are kept."""


class RunState(Fold):
    """Folds events and keeps `latest`, the newest snapshot; None before the run has begun."""

    def __init__(self, every_s: float = EVERY_S, clock: Callable[[], float] = perf_counter) -> None:
        self.latest: RunSnapshot | None = None
        self._every_s, self._clock = every_s, clock
        self._due_s = clock()
        self._figures = KpiFold()
        self._started: Json = {}
        self._sites: tuple[str, ...] = ()
        self._observed: dict[tuple[int, int], tuple[float, float]] = {}
        self._view: Json = {}
        self._failed: set[tuple[int, int]] = set()
        self._carrying: dict[str, set[tuple[int, int]]] = {}  # links with traffic in the last iteration
        self._plans: dict[str, tuple[Json, int]] = {}
        self._triggers: dict[int, str] = {}
        self._decisions: deque[DecisionNow] = deque(maxlen=DECISIONS)
        self._finished = False

    def add(self, event: Event) -> None:
        """Applies an event; makes a snapshot where one is due."""
        self._figures.add(event)
        super().add(event)
        began_s = self._clock()
        if began_s >= self._due_s or self._finished:
            self.latest = self.snapshot()
            ended_s = self._clock()
            self._due_s = ended_s + max(self._every_s, (ended_s - began_s) / COST)

    def snapshot(self) -> RunSnapshot:
        """Returns the run as it is now."""
        started = self._started
        horizons = self._view.get("horizons_s", ())
        return RunSnapshot(
            scenario=started["scenario"]["name"],
            policy=started["policy"],
            seed=started["seed"],
            engine=started["engine"],
            now_s=self.end_ns / NS_PER_S,
            end_s=started["end_ns"] / NS_PER_S,
            horizon_s=horizons[-1] if horizons else None,
            links=tuple(self._links()),
            plans=tuple(self._plan(job, *entry) for job, entry in self._plans.items()),
            decisions=tuple(self._decisions),
            kpis=self._figures.kpis(),
            finished=self._finished,
        )

    def _on_run_started(self, event: Event, started: Json) -> None:
        self._started = started
        self._sites = tuple(domain["name"] for domain in started["scenario"]["cluster"]["domains"])

    def _on_link_observed(self, event: Event, observed: Json) -> None:
        for src, dst, bandwidth_bps, latency_s in observed["samples"]:
            self._observed[int(src), int(dst)] = bandwidth_bps, latency_s

    def _on_triggered(self, event: Event, triggered: Json) -> None:
        self._triggers = {triggered["number"]: triggered["trigger"]}

    def _on_decided(self, event: Event, decided: Json) -> None:
        self._view = decided["observation"]
        number = decided["number"]
        decision = DecisionNow(
            number,
            event.sim_ns / NS_PER_S,
            event.job,
            trigger=self._triggers.get(number, ""),
            action=decided["action"],
            reason=decided["fallback"] or decided["reason"],
            latency_s=event.wall.get("latency_s"),
        )
        self._decisions.append(decision)

    def _on_plan_applied(self, event: Event, applied: Json) -> None:
        self._plans[event.job] = applied["plan"], event.sim_ns
        self._carrying.pop(event.job, None)

    def _on_iteration_done(self, event: Event, done: Json) -> None:
        self._carrying[event.job] = {(src, dst) for src, dst, size in done["wan_bytes"] if size}

    def _on_link_failed(self, event: Event, link: Json) -> None:
        self._failed.add((link["src"], link["dst"]))

    def _on_link_restored(self, event: Event, link: Json) -> None:
        self._failed.discard((link["src"], link["dst"]))

    def _without_plan(self, event: Event, changed: Json) -> None:
        self._plans.pop(event.job, None)
        self._carrying.pop(event.job, None)

    _on_job_finished = _on_job_failed = _on_job_preempted = _without_plan

    def _on_run_finished(self, event: Event, finished: Json) -> None:
        self._finished = True

    def _links(self) -> list[LinkNow]:
        used = set().union(*self._carrying.values())
        rates = self._view.get("bandwidth_bps")
        return [
            LinkNow(
                self._sites[src], self._sites[dst], observed_bps=bandwidth_bps,
                estimated_bps=None if rates is None else rates[0][src][dst],
                forecast_bps=None if rates is None else rates[-1][src][dst],
                latency_s=latency_s, failed=(src, dst) in self._failed, used=(src, dst) in used,
            )
            for (src, dst), (bandwidth_bps, latency_s) in sorted(self._observed.items())
        ]  # fmt: skip

    def _plan(self, job: str, logged: Json, since_ns: int) -> PlanNow:
        plan = plan_in_force(logged)
        shares = tuple(
            ShareNow(self._sites[share.domain], share.layers, share.pp, share.tp, len(share.gpus))
            for share in plan.shares
        )
        return PlanNow(job, shares, plan.pipelines, plan.schedule, since_ns / NS_PER_S)
