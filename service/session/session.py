"""A live run: one thread plays it, requests come through an inbox, the log makes it durable.

    session = Session(store, scenario, policy="hippo")
    session.start()
    session.observe(batch).result()     # {"accepted": 3, "refused": [], "duplicate": false}, now durable
    session.published.decision          # the last decision
    session.close()

The thread runs the loop of every replay (`replay.run.loop.play`) in a world that takes its facts from the
inbox. A run of the store that was left unfinished, by a kill or by `close`, is gone on with: its events are
computed again from the facts in its log, compared, and new ones follow. Recorded decisions are taken as they
were recorded, none is made twice. From time to time a run ends and another takes its place (`renewal`), so
that a restart stays short.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Signal
from threading import Thread
from typing import Any

from ingest.core.errors import StorageError
from ingest.core.units import NS_PER_S, to_ns
from replay.log.events import Event
from replay.log.run_log import RunReader, RunWriter
from replay.run import observed, runner
from replay.run.loop import play
from replay.store import checkpoint_registry, run_index
from replay.store.event_sinks import LogSink, Watched
from replay.store.run_header import Header
from service.session import renewal, resumption
from service.session.account_book import AccountBook
from service.session.clock import LiveClock, wall_ns
from service.session.clock_watch import DOWNTIME_NS, STEP_NS, ClockWatch
from service.session.inbox import Closed, Inbox, QuarantinedError, StoppedError
from service.session.intake import Intake, set_aside
from service.session.job_book import JobBook
from service.session.job_roll import JobRoll
from service.session.live_state import LiveState, Published, published
from service.session.observation import ItemReader
from service.session.reported_time import ReportedTime
from service.session.requests import SessionRequests
from service.session.work_log import BrokenBy, WorkLog
from twin.core.facts import Fact
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario, Scenario
from twin.world.observed_world import ObservedWorld

Json = dict[str, Any]
ORDER_S = 600.0
"""Seconds for which an order waits for the job, by default."""
RENEW_S = 86_400.0
"""Age at which a run is renewed, by default."""
RETRY_S = 2.0
"""Seconds after which a log that could not be written is tried again."""
Listener = Callable[[list[Json]], None]


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Policy, data set and times of a session; `mode` is that of a new run. After `renew_s` a run is renewed,
    0: never. `synthetic` says what of the telemetry is made up: `links`, `job`."""

    policy: str = "hippo"
    dataset: str | None = None
    mode: str = "shadow"
    order_s: float = ORDER_S
    renew_s: float = RENEW_S
    synthetic: tuple[str, ...] = ()


class Session(SessionRequests):
    """Serves one scenario; all methods but `close` may be called from any thread.

    A scenario that lists several jobs has them from their submission (`change_jobs`) to their end.

    Raises:
        UsageError, NotFoundError: no such policy or data set.
    """

    def __init__(self, store: Path, scenario: Scenario, settings: SessionSettings) -> None:
        self.store, self.settings = store, settings
        digest = checkpoint_registry.resolve(store, settings.policy, None)
        setup = scenarios.prepare(scenario, store, dataset=settings.dataset)
        header = _header(setup, settings, digest, wall_ns())
        self._resumed = resumption.found(store, header, setup)
        self.run_id, self.header, self.setup, self.notes, *_ = self._resumed
        self._before: Json | None = None
        """What the run before has handed over to this one."""
        self._queued, self._mode = list[Json](), settings.mode
        """Changes of the queue that the first facts of a renewed run repeat, and its mode."""
        self._renewal: Json | None = None  # that was asked for
        self.renewals: list[Future[Json]] = []
        """Answered when the new run has begun."""
        jobs = {one.name: one.spec for one in self.setup.jobs} or {"": self.setup.job}
        self.reader = ItemReader({name: self.setup.estimator(spec) for name, spec in jobs.items()})
        self.published = Published()
        self._committed: tuple[str, int] = "", 0
        self.problem = ""
        """Reason for which the log cannot be written at the moment; empty: it can."""
        self.inbox = Inbox(to_ns(scenario.control.period_s))
        self._clock: LiveClock | None = None  # until the log has been read
        self.clock_watch = ClockWatch(lambda: self.intake.newest_epoch_ns())
        self.listeners: list[Listener] = []
        self.on_end: list[Callable[[], None]] = []
        """Called in the session's thread when it has ended."""
        self._began, self._ended = Signal(), Signal()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._serve, name="twin-session", daemon=True)
        self._prepare()

    # -- life

    def start(self) -> None:
        """Begins or goes on with the run; returns when the first decision is durable.

        Raises:
            TwinError: the policy cannot place the model, or the log cannot be gone on with.
        """
        self._thread.start()
        while not self._began.wait(0.05):
            if self._ended.is_set():
                raise self._failure or StoppedError("the session ended before it began")

    def close(self) -> None:
        """Answers what waits, makes it durable and ends; the run stays unfinished, to be gone on with."""
        self.inbox.close()
        self._thread.join()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the session; None: it runs, or was closed."""
        return self._failure

    @property
    def run_dir(self) -> Path:
        """Folder of the run's log."""
        return run_index.folder(self.store, self.run_id)

    def utc(self, sim_ns: int) -> float:
        """Returns a time of the run as seconds since the epoch."""
        return self.state.utc(sim_ns)

    def now_epoch_ns(self) -> int:
        """Returns the time of the run now, nanoseconds since the epoch."""
        return wall_ns() if self._clock is None else self._clock.epoch_ns()

    def next_period_s(self) -> float:
        """Returns the seconds to the next periodic decision."""
        now_ns = self.now_epoch_ns() - self.state.origin_epoch_ns
        left_ns = self.state.last_period_ns + self.inbox.period_ns - now_ns
        return max(0.0, left_ns / NS_PER_S)

    # -- the thread

    def _serve(self) -> None:
        """Plays the run until it is closed; a log that cannot be written is tried again from its end."""
        try:
            while True:
                try:
                    if self._play():
                        self._renew()
                    else:
                        self._prepare()
                except Closed:
                    return
                except StorageError as error:
                    if not self._began.is_set():
                        raise
                    self.problem = str(error)
                    self.inbox.fail(self.problem)
                    if self.inbox.closed(RETRY_S):
                        return
                    self._prepare()
        except BaseException as error:  # noqa: BLE001 - raised by `start`, or by who waits for the end
            self._failure = error
        finally:
            self.inbox.end("the service is shutting down" if self._failure is None else str(self._failure))
            self._ended.set()
            for begun in self.renewals:
                if begun.set_running_or_notify_cancel():
                    begun.set_exception(StoppedError("the service is shutting down"))
            for call in self.on_end:
                call()

    def _prepare(self) -> None:
        """Makes state, world and order of observations anew, as they are before the first event."""
        live, telemetry = self.header.live, self.setup.scenario.telemetry
        assert live is not None
        origin_ns = int(live["origin_epoch_ns"])
        self.state = LiveState(origin_ns, telemetry.noise, self.run_id)
        self.world: ObservedWorld = observed.world_of(self.header, self.setup, self._outside())
        self.jobs: JobBook | JobRoll
        if self.setup.jobs:
            self.jobs = roll = JobRoll(self.setup.jobs, self.world.jobs, self.setup.cluster)
            self.intake = Intake(origin_ns, tuple(roll.listed), roll.out_of_run)
        else:
            self.intake = Intake(origin_ns)
            self.jobs = JobBook({one.name: one.gpus for one in self.setup.cluster.domains})
        self.accounts = AccountBook(origin_ns)

    def _renew(self) -> None:
        """Lets a new run take the place of one that has ended, with the weights that are active now."""
        live, requested = self.header.live, self._renewal
        assert live is not None and requested is not None
        ended_ns = int(live["origin_epoch_ns"])
        now_ns = self._begin_epoch_ns(ended_ns + self.world.now_ns)
        origin_ns = renewal.origin_epoch_ns(ended_ns, now_ns)
        self._clock = LiveClock(origin_ns, now_ns - origin_ns)
        self._before = renewal.handed_over(
            self.run_id, requested, self.world, self.state, self.accounts, self.intake,
            origin_ns - ended_ns, now_ns - origin_ns,
        )  # fmt: skip
        self._queued, self._mode = renewal.dated(self.jobs.carried(), now_ns), self.world.mode
        digest = checkpoint_registry.resolve(self.store, self.settings.policy, None)
        self.header = _header(self.setup, self.settings, digest, origin_ns)
        new = resumption.new_id(self.store, self.header, self.setup)
        self._resumed = resumption.FoundRun(new, self.header, self.setup, ())
        self.run_id, self.problem = new, ""
        self._publish()
        self.inbox.settle()  # answers that rest on the run that has ended
        self._prepare()

    def _begin_epoch_ns(self, ended_ns: int) -> int:
        """Returns the time at which a new run begins; the one before has ended at `ended_ns`."""
        if self._clock is None:  # the service was down since: a wrong clock is for the new run to notice
            return wall_ns() if -STEP_NS <= wall_ns() - ended_ns <= DOWNTIME_NS else ended_ns
        if self.clock_watch.renews:
            self.clock_watch.begin()
            return self._clock.wall_ns()
        return self._clock.epoch_ns()

    def _watched(self, reported: ReportedTime | None) -> Iterator[Fact]:
        """Yields what is to be logged of the clock; a batch that was here before says nothing about it."""
        assert self._clock is not None
        known = reported is not None and self.intake.knows(reported.key)
        return self.clock_watch.facts(self._clock, None if known else reported)

    def _play(self) -> bool:
        """Plays the run to its end; False: a message broke it and was set aside, so that it begins again."""
        folder = run_index.folder(self.store, self.run_id)
        exists = folder.is_dir()
        script = {e.payload["number"]: e.payload for e in self._stored() if e.type == "decided"}
        prepared = runner.prepare_run(
            self.header, self.setup, lambda: runner.load_policy(self.store, self.header), script=script
        )
        self.context, self.by_job = prepared.context, prepared.by_job
        self._sink: LogSink | RunWriter = (
            RunWriter.open(folder) if exists else LogSink(folder, begins_at_flush=True)
        )
        self._work = WorkLog(self._sink)
        events = Watched(Watched(self._work, self.accounts), self.state)
        try:
            play(self.world, self.header, prepared.decision_sources, events)
        except Exception as error:  # what a message breaks may be of any kind
            broken = self._work.broken_by(error)
            if broken is None:
                raise
            self._quarantine(broken)
            return False
        finally:
            self._sink.close()
        return True

    def _quarantine(self, broken: BrokenBy) -> None:
        """Sets a message aside, durably: the run is computed again without it."""
        payload = broken.fact.payload
        client, key = payload.get("client", ""), payload.get("key", "")
        self._sink.quarantine(
            broken.first, kind=broken.fact.type, client=client, key=key, reason=broken.reason
        )
        self._sink.flush()
        self.inbox.turn_away(QuarantinedError(set_aside(broken.reason)))

    def _outside(self) -> Iterator[Fact]:
        """Yields the facts of the log, then the present ones."""
        live = self.header.live
        assert live is not None
        last_ns, last_seq, opened_ns = 0, -1, -1
        for event in self._stored():
            last_ns, last_seq = event.sim_ns, event.seq
            self._remember(Fact(event.sim_ns, event.type, event.payload))
        for seq, fact in observed.logged(self._stored()):
            opened_ns = fact.sim_ns if opened_ns < 0 else opened_ns
            yield self._work.take(fact, seq)
            self._work.rest()
        if self._clock is None:
            self._clock = LiveClock(int(live["origin_epoch_ns"]), last_ns)
            self.clock_watch.problem = self.state.clock_problem
        clock = self._clock
        published = self._committed[1] if self._committed[0] == self.run_id else last_seq + 1
        self.state.fresh = [one for one in self.state.fresh if one["seq"] >= published]  # the rest is no news
        if opened_ns < 0:
            opened_ns = clock.now_ns()
            yield from self._openings(clock)
        for fact in self.inbox.facts(clock, self.state.last_period_ns, self._commit, self._watched):
            self._remember(fact)
            yield self._work.take(fact)
            self._work.rest()
            if self._is_old(fact.sim_ns - opened_ns):
                due = Fact(clock.now_ns(), "renewal_requested", {"client": "", "reason": "its age"})
                self._remember(due)
                yield due

    def _is_old(self, age_ns: int) -> bool:
        """True if the run is to be renewed; while an order waits for its job, none is."""
        limit_s = self.settings.renew_s
        return 0 < to_ns(limit_s) <= age_ns and all(job.preemptible for job in self.world.active)

    def _remember(self, fact: Fact) -> None:
        """Takes what clients said, as it is in the log or will be."""
        if fact.type == "telemetry_received":
            self.intake.remember(fact)
        elif fact.type == "jobs_changed":
            self.jobs.take(fact.payload["changes"])
        elif fact.type == "run_continued":
            self.intake.take_over(fact.payload)
        elif fact.type == "message_quarantined":
            self.intake.quarantine(fact.payload)
        elif fact.type == "renewal_requested":
            self._renewal = fact.payload

    def _openings(self, clock: LiveClock) -> Iterator[Fact]:
        """Yields the first facts of a new run: what the run before knew; its jobs go on waiting."""
        queued, left = self._queued, self._resumed.left
        if self._before is None:
            before = [] if left is None else list(RunReader(run_index.folder(self.store, left)).events())
            queued = renewal.dated(self.jobs.opening(before, clock.epoch_ns()), clock.epoch_ns())
            self.jobs.take(queued)  # none is later than now, whatever the clock of that run was
            if left is not None:
                names = [change["id"] for change in queued] if self.setup.jobs else [""]
                orders = renewal.next_orders(before, names)
                gpus = [domain.gpus for domain in self.setup.cluster.domains]
                self._before = renewal.left_behind(left, self.notes[0], orders, gpus)
        else:
            self.jobs.take(queued)
        if self._before is None:
            yield Fact(clock.now_ns(), "decision_requested", {"by": "start", "client": ""})
        else:
            known = Fact(clock.now_ns(), "run_continued", self._before)
            self._remember(known)
            yield known
        if queued and not (self.setup.jobs and self._before):  # such jobs were handed over
            yield Fact(clock.now_ns(), "jobs_changed", {"client": "", "changes": queued})
        if self._mode != "shadow":
            renewed = self._before is not None and left is None
            reason = "as before" if renewed else "the service was started so"
            yield Fact(clock.now_ns(), "mode_changed", {"mode": self._mode, "client": "", "reason": reason})

    def _stored(self) -> Iterator[Event]:
        folder = run_index.folder(self.store, self.run_id)
        return RunReader(folder).events() if folder.is_dir() else iter(())

    def _commit(self) -> None:
        """Makes the events so far durable, then publishes them."""
        place = self.run_id, self.state.events
        if place == self._committed and self._began.is_set() and not self.problem:
            return
        self._sink.flush()
        self.problem, self._committed = "", place
        self._publish()
        self._began.set()
        renewals, self.renewals = self.renewals, []
        for begun in renewals:
            if begun.set_running_or_notify_cancel():  # who asked may be gone
                begun.set_result({"ended": self._before and self._before["after"], "run": self.run_id})

    def _publish(self) -> None:
        """Shows what is durable to those who ask and listen."""
        self.published = published(self.state, self.world)
        fresh, self.state.fresh = self.state.fresh, []
        for listener in tuple(self.listeners) if fresh else ():
            listener(fresh)


def _header(setup: PreparedScenario, settings: SessionSettings, digest: str | None, origin_ns: int) -> Header:
    """Header of a run that begins."""
    live = {"origin_epoch_ns": origin_ns, "order_s": settings.order_s}
    return Header(setup.header(), settings.policy, "kernel", digest, True, live=live, made_by="service")
