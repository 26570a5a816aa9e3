"""The SimPy world: links, telemetry, faults, the job and its controller on one clock of integer nanoseconds.

A world tells what happens as facts, in order. At a `Trigger` it stands still until `apply` has answered; the
answer takes no simulated time. Nothing that has not happened yet can be seen from a fact or a view.
"""

from collections import deque
from collections.abc import Generator, Iterator
from typing import Any, Literal

from simpy import Environment, Event

from ingest.units import to_ns, to_s
from twin.clock import END, At
from twin.controller import Controller
from twin.estimate import Estimator
from twin.event_training import MicrobatchTraining
from twin.execution import Execution
from twin.facts import Fact, Trigger
from twin.faults import Fault, Machines, timeline
from twin.kalman import pairs
from twin.ledger import Ledger
from twin.links import Links, Pair
from twin.network import Network
from twin.plan import Plan
from twin.scenario import Setup
from twin.seeds import generator
from twin.telemetry import Telemetry
from twin.totals import Totals
from twin.training import RateTraining
from twin.view import Forecast, View

Engine = Literal["kernel", "des"]
ENGINES: dict[Engine, type[RateTraining] | type[MicrobatchTraining]] = {
    "kernel": RateTraining,
    "des": MicrobatchTraining,
}


class World:
    """One run of one job over the window of `setup`; iterate over it once.

    `engine`: `kernel` times an iteration by one kernel evaluation, `des` by its micro-batch events. `seed`
    draws the telemetry noise.
    """

    def __init__(self, setup: Setup, engine: Engine = "kernel", seed: int = 0) -> None:
        scenario, self._env = setup.scenario, Environment()
        self._facts: deque[Fact] = deque()
        self._totals = Totals(setup.cluster.size)
        self._asked: Trigger | None = None
        self._decisions = 0
        self._over = False
        self._links = Links(self._env, setup.wan)
        self._links.dies, self._links.revives = self._link_died, self._link_revived
        faults = timeline(scenario, setup.wan.end_ns, setup.seed)
        self._machines = Machines(self._env, setup.cluster, faults, self._machines_changed)
        self._network = Network(self._links, setup.cluster)
        estimator = Estimator(setup.cluster, setup.job)
        self._ledger = Ledger(estimator, self._emit)
        self._controller = Controller(self._env, to_ns(scenario.control.period_s), self._decide)
        training = ENGINES[engine](self._network, estimator, self._machines.slowdown, self._ledger.iterated)
        self._job = Execution(
            self._env,
            self._network,
            self._machines,
            estimator,
            training,
            self._ledger,
            to_ns(scenario.moving.restart_s),
        )
        self._telemetry = Telemetry(
            self._env,
            self._links,
            setup.link_filter(),
            scenario.telemetry,
            scenario.control.change_threshold,
            generator(seed, "telemetry"),
            self._emit,
            self._controller.request,
        )
        self._env.process(self._checkpoint(to_ns(scenario.moving.checkpoint_s)))
        At(self._env, setup.wan.end_ns, END).callbacks.append(self._finish)
        for pair in self._links.dead():
            self._link_died(pair)

    def __iter__(self) -> Iterator[Fact]:
        """Facts until `run_finished`; after a `Trigger` call `apply` before asking for the next one."""
        while True:
            while self._facts:
                fact = self._facts.popleft()
                yield fact
                if self._asked is not None and fact is self._asked:
                    raise RuntimeError("a trigger must be answered with World.apply before the world goes on")
            if self._over:
                return
            self._env.step()

    def apply(self, plan: Plan | None) -> None:
        """Answer the last trigger: go to `plan`, or hold (None).

        Raises:
            ValueError: the plan is not legal now, or there is none to hold.
        """
        if self._asked is None:
            raise RuntimeError("World.apply answers a trigger; none is open")
        goal = self._job.goal(plan)
        self._asked = None
        if goal is not None:
            self._controller.hold()
            self._env.process(self._follow(goal))

    def _follow(self, goal: Plan) -> Generator[Event, Any, None]:
        yield from self._job.switch(goal)
        self._controller.release()

    def _decide(self, trigger: str, reasons: dict[str, list[Any]]) -> None:
        forecast = self._telemetry.forecast()
        self._telemetry.decided_on(forecast)
        self._emit("state_estimated", {"links": _present(forecast)})
        payload = {"number": self._decisions, "trigger": trigger, "reasons": reasons}
        self._asked = Trigger(self._env.now, "triggered", payload, self._view(trigger, forecast))
        self._decisions += 1
        self._facts.append(self._asked)

    def _view(self, trigger: str, forecast: Forecast) -> View:
        return View(
            now_ns=self._env.now,
            trigger=trigger,
            forecast=forecast,
            plan=self._job.plan,
            free_gpus=self._machines.free_gpus,
            slowdown=self._machines.slowdown.copy(),
            since_move_s=to_s(self._env.now - self._job.applied_ns),
            tokens=float(self._ledger.tokens),
        )

    def _emit(self, kind: str, payload: dict[str, Any]) -> None:
        # Iterations are told before whatever ends their batch; telemetry alone does not end one.
        if kind not in ("iteration_done", "link_observed"):
            self._job.settle()
        self._totals.add(kind, payload)
        self._facts.append(Fact(self._env.now, kind, payload))

    def _link_died(self, pair: Pair) -> None:
        self._emit("link_failed", {"src": pair[0], "dst": pair[1]})
        self._controller.request("failure", {"link": list(pair)})

    def _link_revived(self, pair: Pair) -> None:
        self._emit("link_restored", {"src": pair[0], "dst": pair[1]})
        self._controller.request("repair", {"link": list(pair)})

    def _machines_changed(self, fault: Fault) -> None:
        k = fault.domain
        match fault.kind:
            case "gpu_failed":
                iterations, tokens = self._lose_work(k)
                losses = {"lost_iterations": iterations, "lost_tokens": tokens}
                self._emit("gpu_failed", {**self._gpus(fault), **losses})
                self._controller.request("failure", {"domain": k})
            case "gpu_repaired":
                self._emit("gpu_repaired", self._gpus(fault))
                self._controller.request("repair", {"domain": k})
            case _:
                self._job.slowed()
                self._emit("domain_slowed", {"domain": k, "factor": float(self._machines.slowdown[k])})
                self._controller.request("change", {"domain": k})

    def _gpus(self, fault: Fault) -> dict[str, int]:
        free = self._machines.free_gpus[fault.domain]
        return {"domain": fault.domain, "gpus": fault.gpus, "free": free}

    def _lose_work(self, domain: int) -> tuple[int, int]:
        """A fault takes GPUs that are in use first: the job stops and falls back to its last checkpoint."""
        plan = self._job.plan
        if plan is None or domain not in plan.order:
            return 0, 0
        self._job.interrupt()
        return self._ledger.roll_back()

    def _checkpoint(self, period_ns: int) -> Generator[Event, Any, None]:
        while True:
            yield self._env.timeout(period_ns)
            self._job.checkpoint()

    def _finish(self, _: Event) -> None:
        self._job.settle()
        self._job.end()
        self._emit("run_finished", {"totals": self._totals.payload()})
        self._over = True


def _present(forecast: Forecast) -> list[list[float]]:
    """[[i, j, bandwidth_bps, sd_log, latency_s], ...] of the filter's present."""
    i, j = pairs(len(forecast.latency_s))
    values = (forecast.bandwidth_bps[0, i, j], forecast.sd_log[0, i, j], forecast.latency_s[i, j])
    return [list(row) for row in zip(*(column.tolist() for column in (i, j, *values)), strict=True)]
