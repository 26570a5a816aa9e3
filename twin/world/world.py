"""The SimPy world: links, telemetry, faults, jobs and their controllers on one clock of integer nanoseconds.

A world tells what happens as facts, in order. At a `Trigger` it stands still until `apply` has answered; the
answer takes no simulated time. Nothing that has not happened yet can be seen from a fact or a view.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Literal

from simpy import Environment, Event

from twin.core.clock import END, TRUTH, At
from twin.core.domain import Matrix
from twin.engines.event_engine import MicrobatchTraining
from twin.core.facts import Fact, Trigger
from twin.scenario.fault_timeline import Fault, Machines, timeline
from twin.world.gpu_allocator import Floor
from twin.filters.link_filter import pairs
from twin.network.link_state import Links, Pair
from twin.network.flows import Network
from twin.core.plan import Plan
from twin.engines.kernel_engine import RateTraining
from twin.scenario.prepare import Setup
from twin.core.seeds import generator
from twin.scenario.submission import Submission
from twin.world.telemetry import Telemetry
from twin.world.job_runtime import Surroundings, Tenant
from twin.world.totals import Totals
from twin.engines.engine import Training
from twin.core.view import Forecast

Engine = Literal["kernel", "des"]
ENGINES: dict[Engine, type[Training]] = {"kernel": RateTraining, "des": MicrobatchTraining}


class World:
    """One run of the jobs of `setup` over its window; iterate over it once.

    `engine`: `kernel` times an iteration by one kernel evaluation, `des` by its micro-batch events. `seed`
    draws the telemetry noise. Jobs decide one after the other, at the same instant the most urgent first.
    """

    def __init__(self, setup: Setup, engine: Engine = "kernel", seed: int = 0) -> None:
        scenario, self._env = setup.scenario, Environment()
        self._facts: deque[Fact] = deque()
        self._totals = Totals(setup.cluster.size)
        self._asked: tuple[Trigger, Tenant] | None = None
        self._decisions = 0
        self._over = False
        self._tenants: list[Tenant] = []
        self._links = Links(self._env, setup.wan)
        self._links.dies, self._links.revives = self._link_died, self._link_revived
        network = Network(self._links, setup.cluster)
        faults = timeline(scenario, setup.wan.end_ns, setup.seed, setup.measured_faults)
        self._machines = Machines(self._env, setup.cluster, faults, self._machines_changed)
        self._floor = Floor(lambda: self._machines.free_gpus, [])
        only = None if setup.jobs else Submission("", 0, 0, setup.job)
        telemetry = Telemetry(
            self._env,
            self._links,
            setup.link_filter(),
            scenario.telemetry,
            generator(seed, "telemetry"),
            self._tell,
            self._sensed,
        )
        self._around = Surroundings(
            self._env, setup, ENGINES[engine], network, self._machines, telemetry, self._floor,
            self._tell, self._ask, self._gpus_left,
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
                if self._asked is not None and fact is self._asked[0]:
                    raise RuntimeError("a trigger must be answered with World.apply before the world goes on")
            if self._over:
                return
            self._env.step()

    def apply(self, plan: Plan | None) -> None:
        """Answer the last trigger: its job goes to `plan`, or holds (None).

        Raises:
            ValueError: the plan is not legal now, or there is none to hold.
        """
        if self._asked is None:
            raise RuntimeError("World.apply answers a trigger; none is open")
        self._asked[1].apply(plan)
        self._asked = None

    # -- jobs

    @property
    def _active(self) -> list[Tenant]:
        return [tenant for tenant in self._tenants if tenant.active]

    def _expect(self, job: Submission, rank: int) -> None:
        At(self._env, job.submit_ns, TRUTH).callbacks.append(lambda _: self._admit(job, rank))

    def _admit(self, job: Submission, rank: int) -> None:
        """The job is here: it asks for its first plan at once."""
        if job.name:
            none = [0] * len(self._machines.free_gpus)
            self._tell("job_submitted", {"reason": "arrived", "gpus": none, "spec": job.to_json()}, job.name)
        tenant = Tenant(self._around, job, rank)
        self._tenants.append(tenant)
        self._floor.holders.append(tenant)

    def _gpus_left(self, by: Tenant) -> None:
        """GPUs have become free: whoever stands still may want them."""
        if not by.active:
            self._floor.holders.remove(by)
        for tenant in self._active:
            if tenant is not by and not tenant.execution.running:
                tenant.controller.request("repair", {"left_by": by.name})

    def _ask(self, tenant: Tenant, trigger: str, reasons: dict[str, list[Any]]) -> None:
        tenant.settle()
        view = tenant.view(trigger)
        self._tell("state_estimated", {"links": _present(view.forecast)}, tenant.name)
        payload = {"number": self._decisions, "trigger": trigger, "reasons": reasons}
        asked = Trigger(self._env.now, "triggered", payload, tenant.name, view)
        self._asked = asked, tenant
        self._decisions += 1
        self._facts.append(asked)

    def _sensed(self, present: Matrix, alarms: list[list[int]]) -> None:
        for tenant in self._active:
            tenant.sensed(present, alarms)

    def _request(self, trigger: str, detail: dict[str, Any]) -> None:
        for tenant in self._active:
            tenant.controller.request(trigger, detail)

    # -- facts

    def _tell(self, kind: str, payload: dict[str, Any], job: str = "") -> None:
        # Iterations are told before whatever ends their batch; telemetry alone does not end one.
        if kind not in ("iteration_done", "link_observed"):
            for tenant in self._tenants:
                if job in ("", tenant.name):
                    tenant.settle()
        self._totals.add(kind, payload, job)
        self._facts.append(Fact(self._env.now, kind, payload, job))

    def _link_died(self, pair: Pair) -> None:
        self._tell("link_failed", {"src": pair[0], "dst": pair[1]})
        self._request("failure", {"link": list(pair)})

    def _link_revived(self, pair: Pair) -> None:
        self._tell("link_restored", {"src": pair[0], "dst": pair[1]})
        self._request("repair", {"link": list(pair)})

    def _machines_changed(self, fault: Fault) -> None:
        k = fault.domain
        match fault.kind:
            case "gpu_failed":
                losses = [(tenant, *tenant.interrupt("failure")) for tenant in self._struck(k)]
                single = next((loss for loss in losses if not loss[0].name), (None, 0, 0))
                lost = {"lost_iterations": single[1], "lost_tokens": single[2]}
                self._tell("gpu_failed", {**self._gpus(fault), **lost})
                for tenant, iterations, tokens in losses:
                    if tenant.name:
                        lost = {"lost_iterations": iterations, "lost_tokens": tokens}
                        self._tell("work_lost", {"reason": "failure", **lost}, tenant.name)
                self._request("failure", {"domain": k})
            case "gpu_repaired":
                self._tell("gpu_repaired", self._gpus(fault))
                self._request("repair", {"domain": k})
            case _:
                for tenant in self._active:
                    tenant.execution.slowed()
                # Controllers learn of it from the iterations that follow.
                self._tell("domain_slowed", {"domain": k, "factor": float(self._machines.slowdown[k])})

    def _struck(self, domain: int) -> list[Tenant]:
        """The jobs that a fault in `domain` stops: they fall back to their last checkpoint."""
        if len(self._tenants) == 1 and not self._tenants[0].name:
            plan = self._tenants[0].execution.plan
            return self._tenants if plan is not None and domain in plan.order else []
        return [tenant for tenant in self._floor.struck(domain) if isinstance(tenant, Tenant)]

    def _gpus(self, fault: Fault) -> dict[str, int]:
        free = self._machines.free_gpus[fault.domain]
        return {"domain": fault.domain, "gpus": fault.gpus, "free": free}

    def _finish(self, _: Event) -> None:
        for tenant in self._tenants:
            tenant.end()
        self._tell("run_finished", {"totals": self._totals.payload()})
        self._over = True


def _present(forecast: Forecast) -> list[list[float]]:
    """[[i, j, bandwidth_bps, sd_log, latency_s], ...] of the filter's present."""
    i, j = pairs(len(forecast.latency_s))
    values = (forecast.bandwidth_bps[0, i, j], forecast.sd_log[0, i, j], forecast.latency_s[i, j])
    return [list(row) for row in zip(*(column.tolist() for column in (i, j, *values)), strict=True)]
