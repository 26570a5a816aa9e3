"""What may be asked of a live run from any thread; an answer comes when what it says is durable."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ingest.core.errors import NotFoundError, UsageError
from ingest.core.terminal import clipped, shown
from service.session.inbox import Inbox, Request
from service.session.intake import Intake
from service.session.job_book import JobBook
from service.session.job_roll import JobRoll
from service.session.live_state import LiveState, Published
from service.session.observation import Batch
from twin.core.facts import Fact
from twin.scenario.prepare import PreparedScenario
from twin.world.observed_world import ObservedWorld

Json = dict[str, Any]


class SessionRequests:
    """Requests to a session; every one becomes at most one fact of its world."""

    inbox: Inbox
    intake: Intake
    jobs: JobBook | JobRoll
    published: Published
    renewals: "list[Future[Json]]"
    setup: PreparedScenario
    state: LiveState
    world: ObservedWorld

    def observe(self, batch: Batch) -> "Future[Json]":
        """Returns what is accepted of a batch, when that is durable: `accepted`, `refused`, `duplicate`."""
        found: list[Json] = []

        def fact(now_ns: int) -> Fact | None:
            known = self.intake.answer(batch.key)
            if known is not None:
                found.append(known)
                return None
            taken = self.intake.fact(batch, now_ns)
            if self.intake.accepted_in(taken.payload) == 0:  # nothing to keep: it costs no event
                found.append(self.intake.refuse(taken.payload))
                return None
            return taken

        def answer() -> Json:
            if found:
                return found[0]
            known = self.intake.answer(batch.key)
            assert known is not None
            return {**known, "duplicate": False}

        return self.inbox.put(Request(fact, answer, batch.reported_time()))

    def change_jobs(self, items: list[Any], client: str = "") -> "Future[Json]":
        """Returns what became of changes of the queue, when they are durable: `accepted`, `unchanged`,
        `refused`.
        """
        found: list[Json] = []

        def fact(now_ns: int) -> Fact | None:
            changes, answer = self.jobs.judged(items, self.intake.epoch_ns(now_ns))
            found.append(answer)
            return Fact(now_ns, "jobs_changed", {"client": client, "changes": changes}) if changes else None

        return self.inbox.put(Request(fact, lambda: found[0]))

    def decide(self, client: str = "", job: str = "") -> "Future[Json]":
        """Returns the decision that is made now, or why none is: `made`, `decision`, `obstacle`.

        Of several jobs `job` is asked about, or all are, and the last decision is returned.
        """
        before: list[Json | None] = []

        def last() -> Json | None:
            decided = self.state.decided
            return decided.get(job) if job or "" in self.world.jobs else self.published.decision

        def fact(now_ns: int) -> Fact:
            self.check_job(job, may_be_all=True)
            before.append(last())
            named = {"job": job} if job else {}
            return Fact(now_ns, "decision_requested", {"by": "pull", "client": client, **named})

        def answer() -> Json:
            found, earlier = last(), before[0]
            made = found is not None and (earlier is None or found["number"] != earlier["number"])
            return {"made": made, "decision": found, "obstacle": None if made else self._obstacle(job)}

        return self.inbox.put(Request(fact, answer))

    def change_mode(self, mode: str, reason: str, client: str = "") -> "Future[Json]":
        """Changes between shadow, active and hold; returns the mode, and the order that waits."""
        payload = {"mode": mode, "client": client, "reason": reason}
        return self.inbox.put(Request(lambda now: Fact(now, "mode_changed", payload), self._order_answer))

    def roll_back(self, reason: str, client: str = "", job: str = "") -> "Future[Json]":
        """Orders the plan that was in force before; the answer fails where the job ran no other, or where
        others hold its GPUs."""
        payload = {"client": client, "reason": reason, **({"job": job} if job else {})}

        def fact(now_ns: int) -> Fact:
            self.check_job(job)
            if self.world.mode != "active":
                raise UsageError("only an active service orders; `POST /v1/mode` promotes it")
            if not self.world.jobs[job].orders.earlier:
                raise NotFoundError("the job has reported no plan before the present one")
            if self.world.earlier_plan(job) is None:
                raise UsageError("other jobs hold GPUs of the plan before the present one")
            return Fact(now_ns, "rollback_requested", payload)

        return self.inbox.put(Request(fact, lambda: self._order_answer(job)))

    def check_job(self, name: str, *, may_be_all: bool = False) -> None:
        """Refuses the name of a job that is not there.

        Raises:
            NotFoundError: no such job was submitted, or it has ended. UsageError: none of several is named.
        """
        there = [job.name for job in self.world.active]
        if name in there or (not name and may_be_all):
            return
        named = ", ".join(there) or "none"
        if not name:
            raise UsageError(f"the scenario has several jobs, name one; in the run now: {named}")
        if not self.setup.jobs:
            raise NotFoundError("the scenario has one job, without a name")
        raise NotFoundError(f"no job {shown(clipped(name, 60))} is in the run now: {named}")

    def _obstacle(self, job: str) -> str | None:
        """Returns why nothing was decided about a job; of several without a name, about each."""
        jobs = self.published.jobs
        if job or "" in jobs:
            return jobs[job].obstacle
        found = [f"{name}: {one.obstacle}" for name, one in jobs.items() if one.active and one.obstacle]
        return "; ".join(found) or "no job is in the run"

    def renew(self, reason: str, client: str = "") -> "Future[Json]":
        """Ends the run and goes on in a new one; returns both, `ended` and `run`, when that is durable.

        It fails while an order waits for its job.
        """
        payload = {"client": client, "reason": reason}
        begun: Future[Json] = Future()

        def fact(now_ns: int) -> Fact:
            changing = next((job for job in self.world.active if not job.preemptible), None)
            if changing is not None:
                raise UsageError(f"{changing.obstacle}; ask again when it is answered or over")
            return Fact(now_ns, "renewal_requested", payload)

        def asked(done: "Future[Any]") -> None:
            if (error := done.exception()) is None:
                self.renewals.append(begun)
            elif begun.set_running_or_notify_cancel():
                begun.set_exception(error)

        self.inbox.put(Request(fact, lambda: None)).add_done_callback(asked)
        return begun

    def ask(self, question: Callable[[], Any]) -> "Future[Any]":
        """Returns what a question finds that is asked between two facts; it must change nothing."""
        found: list[Any] = []

        def fact(now_ns: int) -> None:
            found.append(question())

        return self.inbox.put(Request(fact, lambda: found[0]))

    def _order_answer(self, job: str = "") -> Json:
        found = self.published.jobs.get(job, self.published.only)
        return {"mode": self.published.mode, "order": found.order, "plan": found.plan}
