"""The world of jobs that run outside: links and steps as they are reported, triggers as in a simulation.

It takes facts from outside in the order of time (`OUTSIDE`), yields each and what follows from it: filtered
samples, failures, triggers, orders. It is a pure function of them, of the scenario and of the decisions, so
that a service that was killed goes on, and an audit makes a run again, by taking the same facts once more.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import to_ns
from twin.core.domain import LinkState, Pair
from twin.core.facts import Fact, Trigger
from twin.core.plan import Plan
from twin.core.view import View
from twin.scenario.prepare import PreparedScenario
from twin.scenario.submission import Submission
from twin.world.gpu_allocator import GpuAllocator
from twin.world.job_orders import JobOrders
from twin.world.observed_job import ObservedJob
from twin.world.reports import ReportedStep, reports
from twin.world.sample_rounds import rounds
from twin.world.telemetry import moved_links, present_links
from twin.world.totals import Totals

OUTSIDE = (
    "telemetry_received", "decision_requested", "mode_changed", "rollback_requested", "jobs_changed",
    "renewal_requested", "run_continued", "message_quarantined", "clock_jumped", "clock_settled",
)  # fmt: skip
"""Types of the facts that come from outside; all others follow from them."""
Json = dict[str, Any]


class ObservedWorld:
    """The jobs of `setup`, observed; iterate over it once, and call `apply` after each `Trigger`.

    Time 0 is the beginning of the service; the filters begin with what the recorded past has taught them.
    `order_s`: seconds for which an order waits for its job. `plan_of` reads a plan that a job reports.
    Decisions for links that moved keep the distance of a telemetry period; failures and requests do not wait.
    While an order waits, reasons for decisions of its job are collected.

    A scenario without a list of jobs has one, without a name, from the start on. One of several is there from
    its submission (`jobs_changed`) until it is said to have ended, or has trained all its tokens. Jobs decide
    one after the other, at one instant in order of priority.
    """

    def __init__(
        self, setup: PreparedScenario, outside: Iterable[Fact], *, order_s: float,
        plan_of: Callable[[Json], Plan],
    ) -> None:  # fmt: skip
        self._setup, self._outside, self._plan_of = setup, outside, plan_of
        self._order_ns = to_ns(order_s)
        self.mode = "shadow"
        self.link_filter = setup.link_filter()
        self._threshold = setup.scenario.control.change_threshold
        telemetry = setup.scenario.telemetry
        self._gap_ns = to_ns(min(telemetry.period_s, setup.scenario.control.period_s))
        self._gpus = [domain.gpus for domain in setup.cluster.domains]
        self.free_gpus = list(self._gpus)
        """GPUs of each domain that are alive."""
        self._facts: deque[Fact] = deque()
        self._totals = Totals(setup.cluster.size)
        self._decisions = 0
        self._open: tuple[Trigger, ObservedJob] | None = None
        self.now_ns = 0
        self.jobs: dict[str, ObservedJob] = {}
        """Jobs by name that were submitted, those that have ended included."""
        self._allocator = GpuAllocator(lambda: tuple(self.free_gpus), [])
        self._orders = JobOrders(self.jobs, self._allocator, self._emit)
        self._listed = {one.name: one for one in setup.jobs}
        if not setup.jobs:
            self._admit(Submission("", 0, 0, setup.job))

    def __iter__(self) -> Iterator[Fact]:
        """Yields every fact from outside and what follows from it."""
        for fact in self._outside:
            self.now_ns = self._orders.now_ns = fact.sim_ns
            yield fact
            if fact.type == "message_quarantined":  # of what is no part of the run nothing follows
                continue
            self._orders.expire()
            getattr(self, f"_on_{fact.type}")(fact.payload)
            yield from self._following()
            for job in self.active:
                self._decide_if_due(job)
                yield from self._following()

    def _following(self) -> Iterator[Fact]:
        while self._facts:
            following = self._facts.popleft()
            yield following
            if self._open is not None and following is self._open[0]:
                raise RuntimeError("a trigger must be answered with `apply` before the world goes on")

    def apply(self, plan: Plan | None) -> None:
        """Takes the decision about the last trigger: an order to its job if the mode is active.

        In shadow mode a plan becomes the virtual one while the job reports none that it runs.
        """
        if self._open is None:
            raise RuntimeError("`apply` answers a trigger; none is open")
        (_, job), self._open, number = self._open, None, self._decisions - 1
        self._orders.decided(job, plan, number, active=self.mode == "active")

    @property
    def active(self) -> list[ObservedJob]:
        """Jobs that were submitted and have not ended, in the order in which they decide."""
        return sorted((job for job in self.jobs.values() if job.active), key=lambda job: job.rank)

    @property
    def tokens(self) -> int:
        """Tokens of all steps that were reported."""
        return sum(job.tokens for job in self.jobs.values())

    def glimpse(self, job: str = "") -> View:
        """Returns the view that a decision about a job would have now; nothing changes by it."""
        return self._view(self.jobs[job], "period", self.glimpse_slowdown(job))

    def glimpse_slowdown(self, job: str = "") -> NDArray[np.float64]:
        """Returns (K,) computing time over nominal that a view would show now; nothing changes by it."""
        return deepcopy(self.jobs[job].slowdown_filter).factor(self.now_ns)

    def _view(self, job: ObservedJob, trigger: str, slowdown: NDArray[np.float64]) -> View:
        return View(
            now_ns=self.now_ns,
            trigger=trigger,
            forecast=self.link_filter.forecast(self.now_ns),
            plan=job.orders.in_force,
            free_gpus=self._allocator.free_for(job),
            slowdown=slowdown,
            since_move_s=job.since_move_s(self.now_ns),
            tokens=float(job.tokens),
            job=job.name,
            others=tuple(other.as_seen_by_others() for other in self._submitted() if other is not job),
        )

    def _submitted(self) -> list[ObservedJob]:
        """Active jobs in the order of arrival."""
        return [job for job in self.jobs.values() if job.active]

    def earlier_plan(self, job: str = "") -> Plan | None:
        """Returns the plan that a rollback of a job would order; None: there is none that fits."""
        return self._orders.earlier(self.jobs[job])

    def obstacle_of(self, job: str = "") -> str | None:
        """Returns why no decision about a job is made now, whatever is asked; None: nothing stands against
        one."""
        if self.mode == "hold":
            return "the service is on hold; `POST /v1/mode` with shadow or active ends that"
        there = self.jobs[job]
        if job and there.orders.in_force is None and not any(self._allocator.free_for(there)):
            return "it waits for GPUs, which others hold"
        return there.obstacle

    # -- jobs

    def _admit(self, submission: Submission) -> None:
        name = submission.name
        job = ObservedJob(
            submission, self._setup.estimator(submission.spec), self.now_ns, self._order_ns,
            lambda kind, payload: self._emit(kind, payload, name),
        )  # fmt: skip
        self.jobs[name] = job
        self._allocator.holders.append(job)
        if name:
            payload = {"reason": "arrived", "gpus": [0] * len(self._gpus), "spec": submission.to_json()}
            self._emit("job_submitted", payload, name)
            job.request("start")

    def _leave(self, job: ObservedJob, reason: str) -> None:
        """Takes that a job has ended: what it holds is free for others."""
        self._orders.leave(job)
        job.accounts.stop(self.now_ns)
        job.active, job.ended_ns = False, self.now_ns
        self._allocator.holders.remove(job)
        self._emit("job_finished", {"reason": reason, "gpus": [0] * len(self._gpus)}, job.name)
        for other in self._submitted():
            if other.orders.in_force is None:
                other.request("repair", {"left_by": job.name})

    # -- facts from outside

    def _on_decision_requested(self, requested: Json) -> None:
        by, only = requested["by"], requested.get("job", "")
        details = [] if by != "pull" else [{"pull": requested["client"]}]
        for job in self._submitted():
            if only in ("", job.name) and not (by == "start" and job.name):  # those begin when submitted
                job.request("start" if by == "start" else "period", *details)

    def _on_mode_changed(self, changed: Json) -> None:
        self.mode = changed["mode"]
        for job in self.active:
            self._orders.mode_changed(job, self.mode, changed["reason"])

    def _on_clock_jumped(self, jumped: Json) -> None:
        """Does nothing: the time of the run goes on as it did."""

    _on_clock_settled = _on_clock_jumped

    def _on_rollback_requested(self, requested: Json) -> None:
        job = self.jobs.get(requested.get("job", ""))
        if job is not None and job.active:
            self._orders.roll_back(job, requested["reason"])

    def _on_jobs_changed(self, changed: Json) -> None:
        """Takes submissions and ends of listed jobs; from changes of a queue beside one job nothing
        follows."""
        for change in changed["changes"] if self._listed else ():
            job = self.jobs.get(change["id"])
            if change["kind"] == "submit":
                self._admit(self._listed[change["id"]])
            elif job is not None and job.active:
                self._leave(job, "cancelled" if change["kind"] == "cancel" else "its end was reported")

    def _on_renewal_requested(self, requested: Json) -> None:
        """Ends the run; the one that takes its place begins with `run_continued`."""
        for job in self._submitted():
            self._orders.withdraw(job, requested["reason"])
            job.reasons, job.ahead = {}, None
        self._emit("run_finished", {"totals": self._totals.payload()})

    def _on_run_continued(self, before: Json) -> None:
        """Takes what the run before knew at its end, then asks for the first decisions."""
        self._take_links(before["links"])
        self._take_machines([[k, self.now_ns, alive] for k, alive in enumerate(before["gpus"])], [])
        for one in before["jobs"]:
            self._take_over(one)
        for job in self._submitted():
            job.reasons = {}
            job.request("start", {"after": before["after"]})

    def _take_over(self, known: Json) -> None:
        """Takes what is known of a job of the run before."""
        name, plan = known["name"], known["plan"]
        if name not in self.jobs:
            self._admit(self._listed[name])
        job = self.jobs[name]
        job.tokens = known["tokens"]
        if known["ended"]:
            self._leave(job, "it ended in the run before")
            return
        job.orders.take_over(known["next_order"], [self._plan_of(one) for one in known["earlier"]])
        slow = {k: factor for k, factor in enumerate(known["slowdowns"]) if factor != 1.0}
        if slow:
            self._observe_slowdown(job, slow)
        begin_ns = self.now_ns if name else known["accounted_ns"]
        job.accounts.begin(begin_ns)
        if plan is not None and known["virtual"]:
            job.orders.run(self.now_ns, self._plan_of(plan), virtual=True)
        elif plan is not None:
            links = LinkState(self.link_filter.present_bps(self.now_ns), np.zeros((len(self._gpus),) * 2))
            self._orders.runs(job, begin_ns, self._plan_of(plan), 0.0, links)
        job.orders.since_ns = self.now_ns - known["since_ns"]

    def _on_telemetry_received(self, batch: Json) -> None:
        self._take_links(batch["links"])
        self._take_machines(batch["gpus"], batch["slowdowns"])
        for ns, name, seen in reports(batch):
            job = self.jobs.get(name)
            if job is None or not job.active:
                continue  # it ended by an earlier report of this batch
            if isinstance(seen, ReportedStep):
                self._take_step(job, ns, seen)
            else:
                self._take_plan(job, ns, seen)
        for job in self._submitted():
            job.accounts.flush()

    # -- telemetry

    def _take_links(self, samples: list[list[float]]) -> None:
        size = self.link_filter.size
        for sampled_ns, state in rounds(samples, size, self._gap_ns):
            before = self.link_filter.dead.copy()
            rows, columns = self.link_filter.rows, self.link_filter.columns
            seen = np.flatnonzero(~np.isnan(state.bandwidth_bps[rows, columns]))
            links = rows[seen], columns[seen]
            fields = (*links, state.bandwidth_bps[links], state.latency_s[links])
            taken = [list(row) for row in zip(*(column.tolist() for column in fields), strict=True)]
            self._emit("link_observed", {"sampled_ns": sampled_ns, "samples": taken})
            alarms = self.link_filter.observe(sampled_ns, state)
            if alarms:
                self._request("alarm", [list(pair) for pair in alarms])
            for link in np.flatnonzero(before != self.link_filter.dead):
                self._link_changed((int(rows[link]), int(columns[link])), bool(self.link_filter.dead[link]))
        if samples:
            present = self.link_filter.present_bps(self.now_ns)
            for job in self._submitted():
                if moved := moved_links(job.bandwidth_at_decision, present, self._threshold):
                    job.request("change", [list(pair) for pair in moved])

    def _link_changed(self, pair: Pair, dead: bool) -> None:
        self._emit("link_failed" if dead else "link_restored", {"src": pair[0], "dst": pair[1]})
        self._request("failure" if dead else "repair", {"link": list(pair)})

    def _take_machines(self, gpus: list[list[int]], slowdowns: list[list[float]]) -> None:
        for domain, _, alive in gpus:
            lost, self.free_gpus[domain] = self.free_gpus[domain] - alive, alive
            if lost > 0:
                losses = {"lost_iterations": 0, "lost_tokens": 0}
                self._emit("gpu_failed", {"domain": domain, "gpus": lost, "free": alive, **losses})
                self._request("failure", {"domain": domain})
            elif lost < 0:
                self._emit("gpu_repaired", {"domain": domain, "gpus": -lost, "free": alive})
                self._request("repair", {"domain": domain})
        for slowed, _, factor in slowdowns:
            self._emit("domain_slowed", {"domain": int(slowed), "factor": float(factor)})
            for job in self._submitted():
                self._observe_slowdown(job, {int(slowed): float(factor)})

    def _take_step(self, job: ObservedJob, ns: int, seen: ReportedStep) -> None:
        plan = job.orders.in_force
        job.tokens += job.estimator.tokens_per_iteration if plan is None else job.estimator.tokens(plan)
        if pace := job.accounts.step(ns, seen.seconds, seen.computed_s):
            self._observe_slowdown(job, pace)
        wanted = job.submission.tokens
        if wanted is not None and job.tokens >= wanted:
            self._leave(job, "all tokens trained")

    def _observe_slowdown(self, job: ObservedJob, factors: dict[int, float]) -> None:
        ratio = np.full(len(self._gpus), np.nan)
        for domain, factor in factors.items():
            ratio[domain] = factor
        job.slowdown_filter.observe(self.now_ns, ratio)
        if slow := job.slowdown_filter.moved(self.now_ns, self._threshold):
            job.request("change", {"domains": slow})

    def _take_plan(self, job: ObservedJob, ns: int, seen: Json) -> None:
        """Takes a report of a job: that it runs a plan, or what became of an order."""
        waiting, state = job.orders.waiting, seen["state"]
        links = LinkState(self.link_filter.present_bps(self.now_ns), np.zeros((len(self._gpus),) * 2))
        if state == "running":
            self._orders.runs(job, ns, self._plan_of(seen["plan"]), 0.0, links)
        elif waiting is not None and seen["order"] == waiting.number:
            self._orders.answered(job, ns, seen, links)

    def _request(self, trigger: str, *details: Any) -> None:
        for job in self._submitted():
            job.request(trigger, *details)

    # -- decisions

    def _decide_if_due(self, job: ObservedJob) -> None:
        """Makes one trigger of all reasons of a job, unless something stands against a decision now."""
        urgent = job.reasons.keys() - {"alarm", "change"}
        early = job.decided_ns is not None and self.now_ns - job.decided_ns < self._gap_ns
        if not job.active or not job.reasons or self.obstacle_of(job.name) is not None:
            return
        if early and not urgent:
            return
        reasons = job.taken_reasons()
        trigger = next(iter(reasons))
        view = self._view(job, trigger, job.slowdown_filter.factor(self.now_ns))
        job.bandwidth_at_decision = view.forecast.bandwidth_bps[0]
        self._emit("state_estimated", {"links": present_links(view.forecast)}, job.name)
        payload = {"number": self._decisions, "trigger": trigger, "reasons": reasons}
        fact = Trigger(self.now_ns, "triggered", payload, job.name, view)
        self._open = fact, job
        self._facts.append(fact)
        self._decisions, job.decided_ns, job.decision = self._decisions + 1, self.now_ns, self._decisions

    def _emit(self, kind: str, payload: Json, job: str = "") -> None:
        self._totals.add(kind, payload, job)
        self._facts.append(Fact(self.now_ns, kind, payload, job))
