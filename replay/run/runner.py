"""Runs of a policy through a scenario: prepared, run in the simulated world, resumed, read from the log."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ingest.core.durable import DISK
from ingest.core.errors import InfeasibleError, Interrupted, NotFoundError, TwinError, UsageError
from ingest.core.progress import SILENT, Progress
from policy.baselines.kept import Kept
from policy.core import registry
from policy.core.protocol import Context, Policy
from replay.log.compaction import tidy
from replay.log.events import Event, canonical
from replay.log.fold import Fold
from replay.log.run_log import RunReader, RunWriter
from replay.metrics.kpis import Kpis, of_events
from replay.run import observed
from replay.run.decision_guard import LATE, DecisionGuard
from replay.run.loop import play
from replay.run.scripted_decisions import DecisionSource, Scripted
from replay.sql import query
from replay.store import checkpoint_registry, run_index, world_reconstruction
from replay.store.decision_codec import plan_in_force, plan_to_json
from replay.store.event_sinks import Compare, LogSink, Reached, Sink, Totals, Watched
from replay.store.run_header import Header, code_version, from_payload, unfinished
from replay.store.run_kind import require_plans
from twin.core.plan import Plan
from twin.core.plan_text import with_names
from twin.core.seeds import generator
from twin.engines.engine import EngineName
from twin.scenario import prepare
from twin.scenario.prepare import PreparedScenario, Scenario
from twin.settings.window import Window
from twin.traces.time_range import TimeRange
from twin.world.world import World

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run ready to go: its header, its scenario, and the source of decisions of each job, by name.

    `context` and `policy` are those of the first job, `by_job` has them of every one.
    """

    header: Header
    setup: PreparedScenario
    context: Context
    policy: Policy
    decision_sources: Mapping[str, DecisionSource]
    by_job: Mapping[str, tuple[Context, Policy]]


def simulate(
    prepared: PreparedRun, sink: Sink, progress: Progress = SILENT, watch: Fold | None = None
) -> Totals:
    """Runs the loop of a prepared run in its simulated world; `watch` sees every event.

    Raises:
        InfeasibleError: no plan can start the run; the message has the names of the sites.
    """
    sink = sink if watch is None else Watched(sink, watch)
    world = World(prepared.setup, engine=prepared.header.engine, seed=prepared.header.seed)
    try:
        return play(world, prepared.header, prepared.decision_sources, sink, progress)
    except InfeasibleError as error:
        names = [domain.name for domain in prepared.setup.cluster.domains]
        raise InfeasibleError(with_names(str(error), names)) from error


def execute_again(
    prepared: PreparedRun,
    stored: Iterable[Event],
    compare: Compare,
    progress: Progress = SILENT,
    watch: Fold | None = None,
) -> None:
    """Runs a logged run again to the end of what `compare` compares.

    A simulated world is made again from its trace; that of a service takes the facts from outside that its
    log, `stored`, holds.

    Raises:
        DivergenceError: the first event that differs, or the message from outside that breaks the run.
    """
    with suppress(Reached):
        if prepared.header.live is None:
            simulate(prepared, compare, progress, watch)
            return
        facts = observed.LoggedFacts(stored)
        world = observed.world_of(prepared.header, prepared.setup, facts)
        sink = compare if watch is None else Watched(compare, watch)
        try:
            play(world, prepared.header, prepared.decision_sources, sink, progress)
        except (TwinError, Reached):
            raise
        except Exception as error:  # what a message breaks may be of any kind
            raise facts.broken(compare.run, error) from error


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished run."""

    run_id: str
    digest: str
    chain_head: str
    kpis: Kpis
    notes: tuple[str, ...]

    def to_json(self) -> Json:
        """The object of `twin replay --json`."""
        return {
            "schema": "twin.replay/1",
            "run": self.run_id,
            "digest": self.digest,
            "chain_head": self.chain_head,
            "kpis": self.kpis.to_json(),
            "notes": list(self.notes),
        }


def run(
    store: Path,
    *,
    policy: str,
    scenario: Scenario,
    dataset: str | None = None,
    window: Window | TimeRange = "test",
    engine: EngineName = "kernel",
    seed: int | None = None,
    checkpoint: str | None = None,
    enforce_deadline: bool = False,
    reuse: bool = False,
    plan: Plan | None = None,
    part_of: str | None = None,
    made_by: str | None = None,
    progress: Progress = SILENT,
    watch: Fold | None = None,
) -> RunResult:
    """Runs `policy` through a window or a time range of the scenario's trace and logs it as a new run.

    `checkpoint` is the digest of one in the store, by default the active one. With `enforce_deadline` a
    decision later than the scenario's deadline is replaced; without it lateness is only recorded. With
    `reuse` a run of the store with the same header is returned instead, finished first if it was killed.
    With `plan` the run keeps that plan, and `policy` is `KEPT`.
    `part_of` names the retraining that this run is an evaluation of, `made_by` the command that it serves.
    `watch` is shown every event when it is logged.

    Raises:
        UsageError, NotFoundError: no such policy, data set or checkpoint.
        InfeasibleError: the policy cannot place the model. The store is as it was.
    """
    digest_ = None if plan is not None else checkpoint_registry.resolve(store, policy, checkpoint)
    setup = prepare.prepare(scenario, store, window=window, dataset=dataset, seed=seed)
    header = Header(
        setup.header(), policy, engine, digest_, enforce_deadline, plan=plan_to_json(plan), part_of=part_of,
        made_by=made_by,
    )  # fmt: skip
    if reuse and (known := same_header(store, header)) is not None:
        return resume(store, known, progress=progress, watch=watch)
    prepared = prepare_run(header, setup, lambda: load_policy(store, header))
    run_id = run_index.new_id(store, scenario.name, policy, header.seed, header.config_digest)
    DISK.foretell((run_index.folder(store, run_id), f"log of a run of {policy} in {scenario.name}"))
    log = LogSink(run_index.folder(store, run_id))
    with resumable(store, run_id):
        try:
            simulate(prepared, log, progress, watch)
        finally:
            log.close()
    _compact(store, run_id)
    return result(store, run_id, *_unpractised(prepared))


def _unpractised(prepared: PreparedRun) -> tuple[str, ...]:
    """Returns a note if the weights of the run never practised on its links."""
    setup, checkpoint = prepared.setup, prepared.header.checkpoint
    links = getattr(prepared.policy, "practised_on", None)  # of policies with weights alone
    if checkpoint is None or links is None or (setup.scenario.name, setup.trace_digest) in links:
        return ()
    own = setup.scenario.wan.dataset  # None: composed of several sets
    dataset = "" if own is None else f" --dataset {own}"
    note = f"the weights {checkpoint[:8]} have not practised on these links;"
    return (f"{note} `twin train --scenario {setup.scenario.name}{dataset}` does that on their past",)


def same_header(store: Path, header: Header) -> str | None:
    """Returns a run of the store with exactly this header, a finished one if there is one."""
    same = []
    for run in run_index.same_config(
        store, header.scenario().name, header.policy, header.seed, header.config_digest
    ):
        reader = RunReader(run_index.folder(store, run))
        if reader.manifests() and canonical(reader.header()) == canonical(header.payload()):
            same.append((not reader.finished, run))
    return min(same)[1] if same else None


def resume(store: Path, run_id: str, *, progress: Progress = SILENT, watch: Fold | None = None) -> RunResult:
    """Finishes a run that was killed: recomputes it, compares the stored events, writes the missing ones.

    Raises:
        NotFoundError: no such run. LockedError: another process writes it.
        DamageError: the log is damaged, or the computation does not reproduce it.
        TwinError: the code or the traces are not those that the run was started with.
    """
    reader = RunReader(run_index.folder(store, run_id))
    header = from_payload(reader.header())
    require_plans(run_id, header, "--resume")
    if header.live is not None:
        raise UsageError(f"{run_id} is the log of a service: `twin serve` goes on with it")
    if reader.finished:
        return result(store, run_id, "the run was complete already; nothing was written")
    prepared, differences = prepare_rerun(store, header, reader.events())
    if differences:
        raise TwinError(
            f"{run_id} cannot be resumed: {differences[0]}; start it again, or restore what it was made with"
        )
    DISK.foretell((reader.run_dir, "the rest of its log"))
    with resumable(store, run_id), RunWriter.open(reader.run_dir) as writer:
        simulate(prepared, writer, progress, watch)
    _compact(store, run_id)
    return result(store, run_id, "resumed; every stored event was computed again and compared")


@contextmanager
def resumable(store: Path, run_id: str) -> Iterator[None]:
    """Names the run in what Ctrl-C raises in the body, once something of it is stored.

    Raises:
        Interrupted: Ctrl-C, with the command that finishes the run.
    """
    try:
        yield
    except KeyboardInterrupt as pressed:
        if run_index.folder(store, run_id).is_dir():
            raise Interrupted(f"`twin replay --resume {run_id}` finishes the run") from pressed
        raise


def _compact(store: Path, run_id: str) -> None:
    """Merges the segments of a run that has just ended and writes the rows that SQL reads."""
    tidy(run_index.folder(store, run_id))
    query.keep(store, run_id)


def prepare_run(
    header: Header,
    setup: PreparedScenario,
    policy: Callable[[], Policy],
    missed: dict[int, str] | None = None,
    script: Mapping[int, Json] | None = None,
) -> PreparedRun:
    """Creates a policy for every job of a prepared scenario; `missed` are deadline misses recorded earlier.

    `script` holds recorded `decided` payloads by number; the policy decides from the next one on.

    Raises:
        InfeasibleError: the policy cannot plan one of the jobs.
    """
    jobs: dict[str, tuple[Context, Policy, DecisionSource]] = {}
    for name in [job.name for job in setup.jobs] or [""]:
        context = context_of(header, setup, name)
        if header.plan is None:
            registry.check_schedule(header.policy, context.estimator.job.schedule)
        own = policy()
        own.reset(context)
        source: DecisionSource = DecisionGuard(
            own,
            context,
            deadline_s=setup.scenario.control.deadline_s,
            enforce=header.enforce_deadline,
            missed=missed,
            may_wait=bool(name),
        )
        if script:
            source = Scripted(script, own, source)
        jobs[name] = (context, own, source)
    context, first, _ = next(iter(jobs.values()))
    sources = {name: source for name, (_, _, source) in jobs.items()}
    by_job = {name: (own, of) for name, (own, of, _) in jobs.items()}
    return PreparedRun(header, setup, context, first, sources, by_job)


def context_of(header: Header, setup: PreparedScenario, job: str = "") -> Context:
    """Returns the context in which the policy of `job` is reset, with a new generator at each call."""
    specs = {submission.name: submission.spec for submission in setup.jobs}
    estimator = cache(setup.estimator)  # jobs of one kind share one
    return Context(
        estimator=estimator(specs.get(job, setup.job)),
        period_s=setup.scenario.control.period_s,
        restart_s=setup.scenario.moving.restart_s,
        weights=setup.scenario.weights.vector,
        rng=generator(header.seed, f"policy/{header.policy}" + (f"/{job}" if job else "")),
        history=setup.history,
        adaptive=setup.scenario.weights.adaptive,
        estimator_of=lambda other: estimator(specs[other]),
    )


def prepare_rerun(
    store: Path, header: Header, stored: Iterable[Event]
) -> tuple[PreparedRun, tuple[str, ...]]:
    """Prepares a logged run again, and lists where the present code and lake differ from those of the run.

    Raises:
        NotFoundError: its data set or checkpoint is no longer in the store.
        UsageError: it is the log of a training or a promotion, in which no policy decided.
    """
    if header.policy in registry.OPERATIONS:
        raise UsageError(
            f"this is a log of {header.policy}: no policy decided in it, and there is no world to compute "
            "again; `twin report` shows it, `twin audit` checks it"
        )
    setup = world_reconstruction.prepare(store, header)
    differences = [f"the {name} trace has changed" for name in world_reconstruction.changed(setup, header)]
    if dict(header.code) != code_version():
        differences.insert(0, f"its code was {_short(header.code)}, this is {_short(code_version())}")
    kept = 0 if header.branch is None else int(header.branch["decision"])
    missed, script = inputs(stored, kept)
    return prepare_run(header, setup, lambda: load_policy(store, header), missed, script), tuple(differences)


def inputs(stored: Iterable[Event], kept: int) -> tuple[dict[int, str], dict[int, Json]]:
    """Returns what a re-execution takes from the log: decision number -> fallback of the late decisions, and
    number -> payload of the first `kept` ones, which another run had made."""
    missed: dict[int, str] = {}
    script: dict[int, Json] = {}
    for event in stored:
        if event.type == "decided":
            number, fallback = event.payload["number"], event.payload["fallback"] or ""
            if fallback.startswith(LATE):
                missed[number] = fallback
            if number < kept:
                script[number] = event.payload
    return missed, script


def load_policy(store: Path, header: Header) -> Policy:
    """Creates the policy that a header names, with its weights."""
    if header.plan is not None:
        return Kept(plan_in_force(dict(header.plan)))
    checkpoint = None if header.checkpoint is None else checkpoint_registry.path_of(store, header.checkpoint)
    return registry.create(header.policy, checkpoint=checkpoint)


def result(store: Path, run_id: str, *notes: str) -> RunResult:
    """Reads the result of a finished run from its log."""
    reader = RunReader(run_index.folder(store, run_id))
    header = from_payload(reader.header())
    if not reader.finished:
        raise NotFoundError(unfinished(header, run_id))
    notes = (header.world["note"], *header.scenario().weights.note, *notes)
    return RunResult(run_id, reader.digest(), reader.chain_head(), of_events(reader.events()), notes)


def _short(code: Any) -> str:
    return f"{code['version']} ({code['sources'][:12]})"
