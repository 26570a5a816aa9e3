"""One job in the world: its plan, its decisions, its accounts; from submission to the last token."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simpy import Environment, Event

from ingest.core.units import to_ns, to_s
from twin.core.clock import WORK, At
from twin.world.decision_trigger import Controller
from twin.core.domain import Matrix
from twin.world.plan_execution import Execution
from twin.scenario.fault_timeline import Machines
from twin.world.gpu_allocator import Counts, Floor, at_least, counts
from twin.scenario.step_jitter import Jitter
from twin.world.ledger import Ledger
from twin.network.flows import Network
from twin.core.plan import Plan
from twin.scenario.prepare import Setup
from twin.core.seeds import generator
from twin.settings.scenario_file import Scenario
from twin.filters.slowdown_filter import Slowness
from twin.scenario.submission import Submission
from twin.world.telemetry import Telemetry, moved_links
from twin.engines.engine import Site, Training
from twin.core.view import View

Tell = Callable[[str, dict[str, Any], str], None]
"""Takes a fact: type, payload, job."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all jobs of a world share."""

    env: Environment
    setup: Setup
    training: type[Training]
    network: Network
    machines: Machines
    telemetry: Telemetry
    floor: Floor
    tell: Tell
    ask: Callable[["Tenant", str, dict[str, list[Any]]], None]
    left: Callable[["Tenant"], None]  # a job has given GPUs back

    @property
    def scenario(self) -> Scenario:
        """The scenario of the world."""
        return self.setup.scenario


class Tenant:
    """A job that has been submitted. Its controller asks for decisions until the job is done."""

    def __init__(self, around: Surroundings, submission: Submission, rank: int) -> None:
        self._around = around
        self._env = around.env
        self.submission = submission
        self.name = submission.name
        self.priority = submission.priority
        self.active = True
        self._decided: Matrix | None = None
        self._claim: Counts = (0,) * around.setup.cluster.size
        scenario, cluster = around.scenario, around.setup.cluster
        self.estimator = around.setup.estimator(submission.spec)
        jitter = around.setup.jitter
        self._slowness = Slowness(cluster.size, 0.0 if jitter is None else float(np.std(np.log(jitter))))
        self.ledger = Ledger(self.estimator, self._tell, self._computed)
        period_ns = to_ns(scenario.control.period_s)
        self.controller = Controller(self._env, period_ns, self._decide, rank)
        slowdown = around.machines.slowdown
        self._training = around.training(
            Site(around.network, self.estimator, slowdown, self.ledger.iterated, self._jitter())
        )
        self.execution = Execution(
            self._env, around.network, self.free_gpus, self.estimator, self._training, self.ledger,
            scenario.moving, slowdown=slowdown, may_wait=bool(self.name),
        )  # fmt: skip
        self._env.process(self._checkpoint(to_ns(scenario.moving.checkpoint_s)))
        if submission.tokens is not None:
            self._env.process(self._until_done(submission.tokens))

    # -- GPUs

    @property
    def held(self) -> Counts:
        """GPUs that no equally urgent job may take."""
        return self._claim

    @property
    def displaceable(self) -> bool:
        """Not while state is on its way."""
        return not self.execution.moving

    def free_gpus(self) -> Counts:
        """GPUs per domain that this job could use, its own included."""
        return self._around.floor.free_for(self)

    # -- decisions

    def view(self, trigger: str) -> View:
        """What the controller is shown now."""
        forecast = self._around.telemetry.forecast()
        self._decided = forecast.bandwidth_bps[0]
        return View(
            now_ns=self._env.now,
            trigger=trigger,
            forecast=forecast,
            plan=self.execution.plan,
            free_gpus=self.free_gpus(),
            slowdown=self._slowness.factor(self._env.now),
            since_move_s=to_s(self._env.now - self.execution.applied_ns),
            tokens=float(self.ledger.tokens),
            job=self.name,
        )

    def apply(self, answer: Plan | None) -> None:
        """Follow the answer of the controller.

        Raises:
            ValueError: the plan is not legal now, or there is none to hold.
        """
        goal = self.execution.goal(answer)
        if goal is None:
            return
        size = self._around.setup.cluster.size
        need = counts(goal, size)
        for victim in self._around.floor.in_the_way(self, need):
            assert isinstance(victim, Tenant)
            victim.preempt(self.name)
        self._claim = at_least(self._claim, need)
        self.controller.hold()
        self._env.process(self._follow(goal))

    def sensed(self, present: Matrix, alarms: list[list[int]]) -> None:
        """A telemetry sample has reached the filter, whose present is `present` (K, K)."""
        if alarms:
            self.controller.request("alarm", alarms)
        changed = moved_links(self._decided, present, self._around.scenario.control.change_threshold)
        if changed:
            self.controller.request("change", [list(pair) for pair in changed])
        self._training.settle()
        self.ledger.measure()
        slow = self._slowness.moved(self._env.now, self._around.scenario.control.change_threshold)
        if slow:
            self.controller.request("change", {"domains": slow})

    def _computed(self, pace: NDArray[np.float64]) -> None:
        self._slowness.observe(self._env.now, pace)

    def _decide(self, trigger: str, reasons: dict[str, list[Any]]) -> None:
        # One of several jobs that has no GPU and could have none has nothing to decide; it is asked when GPUs
        # become free, and each period.
        if self.active and (not self.name or self.execution.running or any(self.free_gpus())):
            self._around.ask(self, trigger, reasons)

    def _follow(self, goal: Plan) -> Generator[Event, Any, None]:
        if self.name and self.execution.plan is None:
            self._tell("job_started", {"reason": "placed", "gpus": list(self._claim)})
        yield from self.execution.switch(goal)
        if self.active:
            before = self._claim
            running = self.execution.plan if self.execution.running else None
            self._claim = counts(running, self._around.setup.cluster.size)
            if self._claim != before:
                self._around.left(self)
        self.controller.release()

    # -- what happens to it

    def interrupt(self, reason: str) -> tuple[int, int]:
        """Stop at once and fall back to the last checkpoint. Returns: iterations and tokens lost."""
        self.execution.interrupt(reason)
        if not self.execution.moving:
            self._claim = (0,) * len(self._claim)
        return self.ledger.roll_back()

    def preempt(self, by: str) -> None:
        """A more urgent job takes the GPUs."""
        iterations, tokens = self.interrupt("preempted")
        losses = {"reason": "preempted", "lost_iterations": iterations, "lost_tokens": tokens}
        self._tell("work_lost", losses)
        self._tell("job_preempted", {"reason": f"for {by}", "gpus": list(self._claim)})
        self.controller.request("failure", {"preempted_by": by})

    def settle(self) -> None:
        """Report every iteration that was complete by now."""
        if self.active:
            self.execution.settle()

    def end(self) -> None:
        """The run is over."""
        if self.active:
            self.execution.settle()
            self.execution.end()

    def _finish(self) -> None:
        self.execution.close()
        self._claim = (0,) * len(self._claim)
        self._tell("job_finished", {"reason": "all tokens trained", "gpus": list(self._claim)})
        self.active = False
        self.controller.stop()
        self._around.left(self)

    def _until_done(self, tokens: int) -> Generator[Event, Any, None]:
        """Ends the job when `tokens` are trained, at the end of that iteration."""
        while True:
            self._training.settle()
            left = -(-(tokens - self.ledger.tokens) // self.ledger.tokens_per_iteration)
            if left <= 0:
                # After everything else of this instant: an iteration may end a decision's wait as well.
                yield At(self._env, 0, WORK)
                return self._finish()
            eta_ns = self._training.eta_ns(left)
            disturbed = self._training.disturbed
            yield disturbed if eta_ns is None else self._env.timeout(eta_ns) | disturbed

    def _checkpoint(self, period_ns: int) -> Generator[Event, Any, None]:
        while self.active:
            yield self._env.timeout(period_ns)
            if self.active:
                self.execution.checkpoint()

    def _tell(self, kind: str, payload: dict[str, Any]) -> None:
        self._around.tell(kind, payload, self.name)

    def _jitter(self) -> Jitter | None:
        setup = self._around.setup
        if setup.jitter is None:
            return None
        return Jitter(setup.jitter, setup.cluster.size, generator(setup.seed, f"jitter:{self.name}"))
