"""The SimPy world: links, telemetry, faults and jobs on one clock of integer nanoseconds.

A world yields what happens as facts, in order. At a `Trigger` it waits until `apply` has been called, which
takes no simulated time. No fact and no view depends on anything that happens later.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

from simpy import Environment, Event

from twin.core.clock import END, TRUTH, At
from twin.core.domain import Matrix, Pair
from twin.core.facts import Fact, Trigger
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.engines.engine import Engine, EngineName
from twin.engines.event_engine import EventEngine
from twin.engines.kernel_engine import KernelEngine
from twin.network.flows import Network
from twin.network.link_state import Links
from twin.scenario.fault_timeline import Fault, Machines, timeline
from twin.scenario.prepare import PreparedScenario
from twin.scenario.submission import Submission
from twin.world.gpu_allocator import GpuAllocator
from twin.world.job_runtime import JobRuntime, SharedResources
from twin.world.telemetry import Telemetry, present_links
from twin.world.totals import Totals

ENGINES: dict[EngineName, type[Engine]] = {"kernel": KernelEngine, "des": EventEngine}


class World:
    """One run of the jobs of `setup` over its window; iterate over it once.

    `engine`: `kernel` times an iteration by one kernel evaluation, `des` by its micro-batch events. `seed` is
    that of the telemetry noise. Jobs decide one after the other, at one instant in order of priority.
    """

    def __init__(self, setup: PreparedScenario, engine: EngineName = "kernel", seed: int = 0) -> None:
        scenario, self._env = setup.scenario, Environment()
        self._facts: deque[Fact] = deque()
        self._totals = Totals(setup.cluster.size)
        self._open_trigger: tuple[Trigger, JobRuntime] | None = None
        self._decisions = 0
        self._over = False
        self._jobs: list[JobRuntime] = []
        self._links = Links(self._env, setup.wan)
        self._links.on_dead, self._links.on_alive = self._link_died, self._link_revived
        network = Network(self._links, setup.cluster)
        faults = timeline(scenario, setup.wan.end_ns, setup.seed, setup.measured_faults)
        self._machines = Machines(self._env, setup.cluster, faults, self._machines_changed)
        self._allocator = GpuAllocator(lambda: self._machines.free_gpus, [])
        only = None if setup.jobs else Submission("", 0, 0, setup.job)
        telemetry = Telemetry(
            self._env,
            self._links,
            setup.link_filter(),
            scenario.telemetry,
            generator(seed, "telemetry"),
            self._emit,
            self._on_sample,
        )
        self._shared = SharedResources(
            self._env, setup, ENGINES[engine], network, self._machines, telemetry, self._allocator,
            self._emit, self._on_decision_due, self._on_gpus_freed,
        )  # fmt: skip
        if only is not None:
            self._admit(only, 0)
        for rank, job in enumerate(
            sorted(setup.jobs, key=lambda job: (-job.priority, job.submit_ns, job.name))
        ):
            self._expect(job, rank)
        At(self._env, setup.wan.end_ns, END).callbacks.append(self._finish)
        for pair in self._links.dead():
            self._link_died(pair)

    def __iter__(self) -> Iterator[Fact]:
        """Facts until `run_finished`; after a `Trigger` call `apply` before asking for the next one."""
        while True:
            while self._facts:
                fact = self._facts.popleft()
                yield fact
                if self._open_trigger is not None and fact is self._open_trigger[0]:
                    raise RuntimeError("a trigger must be answered with World.apply before the world goes on")
            if self._over:
                return
            self._env.step()

    def apply(self, plan: Plan | None) -> None:
        """Apply the decision about the last trigger: its job goes to `plan`, or keeps its own (None).

        Raises:
            ValueError: the plan is not legal now, or there is none to hold.
        """
        if self._open_trigger is None:
            raise RuntimeError("World.apply answers a trigger; none is open")
        self._open_trigger[1].apply(plan)
        self._open_trigger = None

    # -- jobs

    @property
    def _active(self) -> list[JobRuntime]:
        return [job for job in self._jobs if job.active]

    def _expect(self, submission: Submission, rank: int) -> None:
        At(self._env, submission.submit_ns, TRUTH).callbacks.append(lambda _: self._admit(submission, rank))

    def _admit(self, submission: Submission, rank: int) -> None:
        """Start a submitted job: it requests its first decision at once."""
        if submission.name:
            none = [0] * len(self._machines.free_gpus)
            payload = {"reason": "arrived", "gpus": none, "spec": submission.to_json()}
            self._emit("job_submitted", payload, submission.name)
        job = JobRuntime(self._shared, submission, rank)
        self._jobs.append(job)
        self._allocator.holders.append(job)

    def _on_gpus_freed(self, by: JobRuntime) -> None:
        """Request decisions of the jobs that stand still: `by` has given GPUs back."""
        if not by.active:
            self._allocator.holders.remove(by)
        for job in self._active:
            if job is not by and not job.execution.running:
                job.decision_trigger.request("repair", {"left_by": by.name})

    def _on_decision_due(self, job: JobRuntime, trigger: str, reasons: dict[str, list[Any]]) -> None:
        job.settle()
        view = job.view(trigger)
        self._emit("state_estimated", {"links": present_links(view.forecast)}, job.name)
        payload = {"number": self._decisions, "trigger": trigger, "reasons": reasons}
        trigger_fact = Trigger(self._env.now, "triggered", payload, job.name, view)
        self._open_trigger = trigger_fact, job
        self._decisions += 1
        self._facts.append(trigger_fact)

    def _on_sample(self, present: Matrix, alarms: list[list[int]]) -> None:
        for job in self._active:
            job.on_sample(present, alarms)

    def _request(self, trigger: str, detail: dict[str, Any]) -> None:
        for job in self._active:
            job.decision_trigger.request(trigger, detail)

    # -- facts

    def _emit(self, kind: str, payload: dict[str, Any], job: str = "") -> None:
        # Iterations are reported before whatever ends their batch; telemetry alone does not end one.
        if kind not in ("iteration_done", "link_observed"):
            for runtime in self._jobs:
                if job in ("", runtime.name):
                    runtime.settle()
        self._totals.add(kind, payload, job)
        self._facts.append(Fact(self._env.now, kind, payload, job))

    def _link_died(self, pair: Pair) -> None:
        self._emit("link_failed", {"src": pair[0], "dst": pair[1]})
        self._request("failure", {"link": list(pair)})

    def _link_revived(self, pair: Pair) -> None:
        self._emit("link_restored", {"src": pair[0], "dst": pair[1]})
        self._request("repair", {"link": list(pair)})

    def _machines_changed(self, fault: Fault) -> None:
        k = fault.domain
        match fault.kind:
            case "gpu_failed":
                losses = [(job, *job.interrupt("failure")) for job in self._hit_by_failure(k)]
                single = next((loss for loss in losses if not loss[0].name), (None, 0, 0))
                lost = {"lost_iterations": single[1], "lost_tokens": single[2]}
                self._emit("gpu_failed", {**self._gpus(fault), **lost})
                for job, iterations, tokens in losses:
                    if job.name:
                        lost = {"lost_iterations": iterations, "lost_tokens": tokens}
                        self._emit("work_lost", {"reason": "failure", **lost}, job.name)
                self._request("failure", {"domain": k})
            case "gpu_repaired":
                self._emit("gpu_repaired", self._gpus(fault))
                self._request("repair", {"domain": k})
            case _:
                for job in self._active:
                    job.execution.slowdown_changed()
                # Policies see it in the iterations that follow.
                self._emit("domain_slowed", {"domain": k, "factor": float(self._machines.slowdown[k])})

    def _hit_by_failure(self, domain: int) -> list[JobRuntime]:
        """Jobs that a fault in `domain` stops: they fall back to their last checkpoint."""
        if len(self._jobs) == 1 and not self._jobs[0].name:
            plan = self._jobs[0].execution.plan
            return self._jobs if plan is not None and domain in plan.order else []
        return [job for job in self._allocator.hit_by_failure(domain) if isinstance(job, JobRuntime)]

    def _gpus(self, fault: Fault) -> dict[str, int]:
        free = self._machines.free_gpus[fault.domain]
        return {"domain": fault.domain, "gpus": fault.gpus, "free": free}

    def _finish(self, _: Event) -> None:
        for job in self._jobs:
            job.end()
        self._emit("run_finished", {"totals": self._totals.payload()})
        self._over = True
