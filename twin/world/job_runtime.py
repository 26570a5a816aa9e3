"""One job in the world, from submission to the last token: its plan, its decisions, its ledger."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simpy import Environment, Event

from ingest.core.units import to_ns, to_s
from twin.core.clock import WORK, At
from twin.core.domain import Matrix
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.core.view import OtherJob, View
from twin.engines.engine import Engine, EngineContext
from twin.filters.slowdown_filter import SlowdownFilter
from twin.network.flows import Network
from twin.scenario.fault_timeline import Machines
from twin.scenario.prepare import PreparedScenario
from twin.scenario.step_jitter import Jitter
from twin.scenario.submission import Submission
from twin.settings.scenario_file import Scenario
from twin.world.decision_trigger import DecisionTrigger
from twin.world.gpu_allocator import Counts, GpuAllocator, at_least, counts
from twin.world.ledger import Ledger
from twin.world.plan_execution import Execution
from twin.world.telemetry import Telemetry, moved_links

Emit = Callable[[str, dict[str, Any], str], None]
"""Called with a fact: type, payload, job."""


@dataclass(frozen=True, slots=True)
class SharedResources:
    """The parts of a world that all its jobs use."""

    env: Environment
    setup: PreparedScenario
    engine: type[Engine]
    network: Network
    machines: Machines
    telemetry: Telemetry
    allocator: GpuAllocator
    emit: Emit
    on_decision_due: Callable[["JobRuntime", str, dict[str, list[Any]]], None]
    on_gpus_freed: Callable[["JobRuntime"], None]  # a job has given GPUs back

    @property
    def scenario(self) -> Scenario:
        """The scenario of the world."""
        return self.setup.scenario


class JobRuntime:
    """A submitted job; its `decision_trigger` requests decisions until the job is done."""

    def __init__(self, shared: SharedResources, submission: Submission, rank: int) -> None:
        self._shared = shared
        self._env = shared.env
        self.submission = submission
        self.name = submission.name
        self.priority = submission.priority
        self.active = True
        self._bandwidth_at_decision: Matrix | None = None
        self._reserved: Counts = (0,) * shared.setup.cluster.size
        self._target: Plan | None = None  # of the last decision that changed the plan
        scenario, cluster = shared.scenario, shared.setup.cluster
        self.estimator = shared.setup.estimator(submission.spec)
        jitter = shared.setup.jitter
        self._slowdown_filter = SlowdownFilter(
            cluster.size, 0.0 if jitter is None else float(np.std(np.log(jitter)))
        )
        self.ledger = Ledger(self.estimator, self._emit, self._on_compute_times)
        period_ns = to_ns(scenario.control.period_s)
        self.decision_trigger = DecisionTrigger(self._env, period_ns, self._decide, rank)
        slowdown = shared.machines.slowdown
        self._engine = shared.engine(
            EngineContext(
                shared.network, self.estimator, slowdown, self.ledger.add_iterations, self._jitter()
            )
        )
        self.execution = Execution(
            self._env, shared.network, self.free_gpus, self.estimator, self._engine, self.ledger,
            scenario.moving, slowdown=slowdown, may_wait=bool(self.name),
        )  # fmt: skip
        self._env.process(self._checkpoint(to_ns(scenario.moving.checkpoint_s)))
        if submission.tokens is not None:
            self._env.process(self._until_done(submission.tokens))

    # -- GPUs

    @property
    def held(self) -> Counts:
        """GPUs (K,) that no job of the same priority may take."""
        return self._reserved

    @property
    def preemptible(self) -> bool:
        """False while state is being moved."""
        return not self.execution.moving

    def free_gpus(self) -> Counts:
        """GPUs per domain (K,) that this job could use, its own included."""
        return self._shared.allocator.free_for(self)

    # -- decisions

    def view(self, trigger: str) -> View:
        """The view of a decision now."""
        forecast = self._shared.telemetry.forecast()
        self._bandwidth_at_decision = forecast.bandwidth_bps[0]
        return View(
            now_ns=self._env.now,
            trigger=trigger,
            forecast=forecast,
            plan=self.execution.plan,
            free_gpus=self.free_gpus(),
            slowdown=self._slowdown_filter.factor(self._env.now),
            since_move_s=to_s(self._env.now - self.execution.applied_ns),
            tokens=float(self.ledger.tokens),
            job=self.name,
            others=tuple(
                other.as_seen_by_others()
                for other in self._shared.allocator.holders
                if isinstance(other, JobRuntime) and other is not self
            ),
        )

    def as_seen_by_others(self) -> OtherJob:
        """Returns what the views of other jobs show of this one."""
        plan = self._target if any(self._reserved) else None
        return OtherJob(self.name, plan)

    def apply(self, decision: Plan | None) -> None:
        """Apply a decision: go to a plan, or keep the present one (None).

        Raises:
            ValueError: the plan is not legal now, or there is none to hold.
        """
        target = self.execution.requested_plan(decision)
        if target is None:
            return
        size = self._shared.setup.cluster.size
        need = counts(target, size)
        for victim in self._shared.allocator.to_preempt(self, need):
            assert isinstance(victim, JobRuntime)
            victim.preempt(self.name)
        self._reserved, self._target = at_least(self._reserved, need), target
        self.decision_trigger.hold()
        self._env.process(self._switch_to(target))

    def on_sample(self, present: Matrix, alarms: list[list[int]]) -> None:
        """Request decisions that a telemetry sample calls for; `present` (K, K) is the filtered bandwidth."""
        if alarms:
            self.decision_trigger.request("alarm", alarms)
        changed = moved_links(
            self._bandwidth_at_decision, present, self._shared.scenario.control.change_threshold
        )
        if changed:
            self.decision_trigger.request("change", [list(pair) for pair in changed])
        self._engine.settle()
        self.ledger.measure()
        slow = self._slowdown_filter.moved(self._env.now, self._shared.scenario.control.change_threshold)
        if slow:
            self.decision_trigger.request("change", {"domains": slow})

    def _on_compute_times(self, pace: NDArray[np.float64]) -> None:
        self._slowdown_filter.observe(self._env.now, pace)

    def _decide(self, trigger: str, reasons: dict[str, list[Any]]) -> None:
        # One of several jobs that has no GPU and could get none has nothing to decide until GPUs become free
        # or the period is over.
        if self.active and (not self.name or self.execution.running or any(self.free_gpus())):
            self._shared.on_decision_due(self, trigger, reasons)

    def _switch_to(self, target: Plan) -> Generator[Event, Any, None]:
        if self.name and self.execution.plan is None:
            self._emit("job_started", {"reason": "placed", "gpus": list(self._reserved)})
        yield from self.execution.switch(target)
        if self.active:
            before = self._reserved
            running = self.execution.plan if self.execution.running else None
            self._target = self.execution.plan
            self._reserved = counts(running, self._shared.setup.cluster.size)
            if self._reserved != before:
                self._shared.on_gpus_freed(self)
        self.decision_trigger.release()

    # -- events

    def interrupt(self, reason: str) -> tuple[int, int]:
        """Stop at once and fall back to the last checkpoint. Returns: iterations and tokens lost."""
        self.execution.interrupt(reason)
        if not self.execution.moving:
            self._reserved = (0,) * len(self._reserved)
        return self.ledger.roll_back()

    def preempt(self, by: str) -> None:
        """Stop for a job of higher priority, which takes the GPUs."""
        iterations, tokens = self.interrupt("preempted")
        losses = {"reason": "preempted", "lost_iterations": iterations, "lost_tokens": tokens}
        self._emit("work_lost", losses)
        self._emit("job_preempted", {"reason": f"for {by}", "gpus": list(self._reserved)})
        self.decision_trigger.request("failure", {"preempted_by": by})

    def settle(self) -> None:
        """Report every iteration that was complete by now."""
        if self.active:
            self.execution.settle()

    def end(self) -> None:
        """Account for what is under way at the end of the run."""
        if self.active:
            self.execution.settle()
            self.execution.end()

    def _finish(self) -> None:
        self.execution.close()
        self._reserved = (0,) * len(self._reserved)
        self._emit("job_finished", {"reason": "all tokens trained", "gpus": list(self._reserved)})
        self.active = False
        self.decision_trigger.stop()
        self._shared.on_gpus_freed(self)

    def _until_done(self, tokens: int) -> Generator[Event, Any, None]:
        """End the job with the iteration in which `tokens` are trained."""
        while True:
            self._engine.settle()
            remaining = -(-(tokens - self.ledger.tokens) // self.ledger.tokens_per_iteration)
            if remaining <= 0:
                # After everything else of this instant: an iteration may also end the wait of a switch.
                yield At(self._env, 0, WORK)
                return self._finish()
            eta_ns = self._engine.eta_ns(remaining)
            rescheduled = self._engine.rescheduled
            yield rescheduled if eta_ns is None else self._env.timeout(eta_ns) | rescheduled

    def _checkpoint(self, period_ns: int) -> Generator[Event, Any, None]:
        while self.active:
            yield self._env.timeout(period_ns)
            if self.active:
                self.execution.checkpoint()

    def _emit(self, kind: str, payload: dict[str, Any]) -> None:
        self._shared.emit(kind, payload, self.name)

    def _jitter(self) -> Jitter | None:
        setup = self._shared.setup
        if setup.jitter is None:
            return None
        return Jitter(setup.jitter, setup.cluster.size, generator(setup.seed, f"jitter:{self.name}"))
