"""Orders to jobs that run outside, and who stops for whom: a plan is ordered when its GPUs are free."""

from collections.abc import Callable, Mapping
from typing import Any

from twin.core.domain import LinkState
from twin.core.plan import Plan, to_json
from twin.world.gpu_allocator import GpuAllocator, counts
from twin.world.observed_job import ObservedJob, PlanAhead

Json = dict[str, Any]


class JobOrders:
    """Gives and closes the orders of `jobs`; `emit` is called with type, payload and job of each fact.

    A job of lower priority whose GPUs a plan needs is ordered to stop (an order without a plan), and the plan
    waits until it has. A plan that is virtual is stopped at once: nobody runs it.
    """

    def __init__(
        self, jobs: Mapping[str, ObservedJob], allocator: GpuAllocator, emit: Callable[[str, Json, str], None]
    ) -> None:
        self._jobs, self._allocator, self._emit = jobs, allocator, emit
        self.now_ns = 0

    def decided(self, job: ObservedJob, plan: Plan | None, number: int, *, active: bool) -> None:
        """Takes decision `number`: an order if the mode is active, else what would be in force."""
        target = plan or (job.orders.in_force if job.orders.virtual else None)
        if active and target is not None:
            self._go(job, target, number)
        elif plan is not None and job.orders.virtual:
            self._suppose(job, plan)

    def mode_changed(self, job: ObservedJob, mode: str, reason: str) -> None:
        """Withdraws what waits unless the mode is active; then a virtual plan is ordered."""
        if mode != "active":
            self.withdraw(job, f"mode is {mode}")
            job.ahead = None
            return
        plan = job.orders.in_force
        if job.obstacle is None and job.orders.virtual and plan is not None:
            self._order(job, plan, job.decision, f"promoted: {reason}")

    def roll_back(self, job: ObservedJob, reason: str) -> None:
        """Orders the plan before the one in force, if it fits; an order that waits is withdrawn."""
        self.withdraw(job, "rollback")
        job.ahead = None
        if self.earlier(job) is not None:
            self._order(job, self.earlier(job), None, f"rollback: {reason}")

    def earlier(self, job: ObservedJob) -> Plan | None:
        """Returns the plan that a job ran before the present one; None: there is none, or others hold its
        GPUs."""
        if not job.orders.earlier:
            return None
        plan = job.orders.earlier[-1]
        free = self._allocator.free_for(job)
        fits = all(n <= left for n, left in zip(counts(plan, len(free)), free, strict=True))
        return plan if fits or not job.name else None

    def expire(self) -> None:
        """Closes the orders that have waited for too long."""
        for job in self._jobs.values():
            if job.active and job.orders.expired(self.now_ns):
                self._drop(job, "expired", "the job said nothing in time")

    def answered(self, job: ObservedJob, ns: int, seen: Json, links: LinkState) -> None:
        """Takes what a job said of the order that waits: `applied` or `refused`."""
        order = job.orders.waiting
        assert order is not None
        if seen["state"] != "applied":
            self._drop(job, seen["state"], seen["reason"])
            return
        self._close(job, seen["state"], seen["reason"])
        if order.plan is None:
            self._stopped(job, ns, order.reason)
            self._released(job)
        else:
            self.runs(job, ns, order.plan, seen["pause_s"], links)

    def runs(self, job: ObservedJob, ns: int, plan: Plan, pause_s: float, links: LinkState) -> None:
        """Takes that a job runs a plan from `ns` on."""
        self._started(job, plan)
        job.accounts.run(ns, plan, pause_s, links)
        job.orders.run(self.now_ns, plan, virtual=False)

    def leave(self, job: ObservedJob) -> None:
        """Takes that a job has ended: what waits for it to stop waits no more."""
        if job.orders.waiting is not None:
            self._close(job, "withdrawn", "the job has ended")
        job.ahead = None
        job.orders.stop(self.now_ns)
        self._released(job)

    def _go(self, job: ObservedJob, plan: Plan, number: int) -> None:
        """Orders a plan, or first those to stop that hold its GPUs."""
        stopping = set[str]()
        for other in self._in_the_way(job, plan):
            if other.orders.virtual:
                self._stopped(other, self.now_ns, f"for {job.name}")
            else:
                self._order(other, None, number, f"for {job.name}")
                stopping.add(other.name)
        if stopping:
            job.ahead = PlanAhead(plan, number, stopping)
        else:
            self._order(job, plan, number, "decided")

    def _suppose(self, job: ObservedJob, plan: Plan) -> None:
        """Puts a plan in force that nobody runs; not where a job that really runs would have to stop."""
        others = self._in_the_way(job, plan)
        if any(not other.orders.virtual for other in others):
            return
        for other in others:
            self._stopped(other, self.now_ns, f"for {job.name}")
        self._started(job, plan)
        job.orders.run(self.now_ns, plan, virtual=True)

    def _in_the_way(self, job: ObservedJob, plan: Plan) -> list[ObservedJob]:
        need = counts(plan, len(self._allocator.alive()))
        return [one for one in self._allocator.to_preempt(job, need) if isinstance(one, ObservedJob)]

    def _started(self, job: ObservedJob, plan: Plan) -> None:
        if job.started_ns is None:
            job.started_ns = self.now_ns
        if job.name and job.orders.in_force is None:
            gpus = list(counts(plan, len(self._allocator.alive())))
            self._emit("job_started", {"reason": "placed", "gpus": gpus}, job.name)

    def _stopped(self, job: ObservedJob, ns: int, reason: str) -> None:
        """Takes that a job has given its GPUs to another one."""
        job.accounts.stop(ns)
        job.orders.stop(self.now_ns)
        gpus = [0] * len(self._allocator.alive())
        self._emit("job_preempted", {"reason": reason, "gpus": gpus}, job.name)
        job.request("failure", {"preempted": reason})

    def _released(self, job: ObservedJob) -> None:
        """Orders the plans for which all that had to stop have."""
        for other in self._jobs.values():
            if other.ahead is None or job.name not in other.ahead.until:
                continue
            other.ahead.until.discard(job.name)
            if not other.ahead.until:
                ahead, other.ahead = other.ahead, None
                self._order(other, ahead.plan, ahead.decision, "decided")

    def withdraw(self, job: ObservedJob, reason: str) -> None:
        """Closes the order that waits for a job; no-op if none does."""
        if job.orders.waiting is not None:
            self._drop(job, "withdrawn", reason)

    def _drop(self, job: ObservedJob, state: str, reason: str) -> None:
        """Closes an order that is not carried out; the plan that waited for it to stop is given up."""
        order = job.orders.waiting
        self._close(job, state, reason)
        if order is not None and order.plan is None:
            for other in self._jobs.values():
                if other.ahead is not None and job.name in other.ahead.until:
                    other.ahead = None

    def _order(self, job: ObservedJob, plan: Plan | None, decision: int | None, reason: str) -> None:
        order = job.orders.give(self.now_ns, plan, decision, reason)
        written = None if plan is None else to_json(plan)
        payload = {"number": order.number, "decision": decision, "plan": written, "reason": reason}
        self._emit("order_given", payload, job.name)

    def _close(self, job: ObservedJob, state: str, reason: str) -> None:
        payload = {"number": job.orders.close().number, "state": state, "reason": reason}
        self._emit("order_closed", payload, job.name)
