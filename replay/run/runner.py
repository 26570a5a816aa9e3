"""The loop of a run: next fact, view, policy, decision, log. The rest of this file prepares or repeats it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ingest.core.errors import NotFoundError, TwinError, UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S
from policy.core import registry
from policy.core.protocol import Context, Decision, Policy
from replay.store import (
    checkpoint_registry as champion,
    world_reconstruction as past_world,
    run_index as runs,
)
from replay.sql import query as sql
from replay.log.compaction import tidy
from replay.run.decision_guard import LATE, Coordinator
from replay.log.events import Event, canonical
from replay.store.run_header import Engine, Header, code_version, from_payload, opening
from replay.metrics.kpis import Kpis, of_events
from replay.log.run_log import RunReader, RunWriter
from replay.store.decision_codec import decision_to_json, digest, view_to_json
from replay.run.scripted_decisions import Answers, Scripted
from replay.store.event_sinks import Record, Sink, Totals
from twin.scenario import prepare as scenarios
from twin.world.world import World
from twin.traces.time_range import Cut
from twin.core.facts import Trigger
from twin.costs.migration import needs_restart
from twin.core.plan import Plan
from twin.scenario.prepare import Scenario, Setup
from twin.core.seeds import generator
from twin.core.view import View
from twin.settings.window import Window

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """A run ready to go: how it was made, what its world is made from, and who answers it.

    Of several jobs `coordinators` names who answers for each; `policy` and `coordinator` are those of the
    first.
    """

    header: Header
    setup: Setup
    context: Context
    policy: Policy
    coordinator: Answers
    coordinators: Mapping[str, Answers]


def play(stage: Stage, sink: Sink, progress: Progress = SILENT) -> Totals:
    """The whole run: each fact is logged, each trigger is answered, the answer is logged and applied."""
    world = World(stage.setup, engine=stage.header.engine, seed=stage.header.seed)
    shown = _Shown(progress, stage.setup.wan.end_ns, stage.header.policy)
    sink.append(0, "run_started", stage.header.payload(), wall=opening())
    number = 0
    for fact in world:
        shown.at(fact.sim_ns)
        if fact.type == "run_finished":
            return sink.finish(fact.payload["totals"], sim_ns=fact.sim_ns)
        sink.append(fact.sim_ns, fact.type, fact.payload, job=fact.job)
        if isinstance(fact, Trigger):
            assert fact.view is not None
            decision, wall = stage.coordinators[fact.job].answer(number, fact.view)
            payload = decided(number, fact.view, decision)
            sink.append(fact.sim_ns, "decided", payload, job=fact.job, wall=wall)
            world.apply(decision.plan)
            number += 1
    raise AssertionError("a world ends with run_finished")


def decided(number: int, view: View, decision: Decision) -> Json:
    """Payload of `decided`: the observation itself is in it, so that the decision can be made again alone."""
    observation = view_to_json(view)
    return {
        "number": number,
        "action": action(view.plan, decision.plan),
        **decision_to_json(decision),
        "observation_digest": digest(observation),
        "observation": observation,
    }


def action(running: Plan | None, answer: Plan | None) -> Literal["hold", "turn", "move"]:
    """What an answer asks for: to hold, to turn free knobs, which stops nothing that runs, or to move."""
    if answer is None or answer == running:
        return "hold"
    return "turn" if running is not None and not needs_restart(running, answer) else "move"


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
    window: Window | Cut = "test",
    engine: Engine = "kernel",
    seed: int | None = None,
    checkpoint: str | None = None,
    enforce_deadline: bool = False,
    reuse: bool = False,
    part_of: str | None = None,
    progress: Progress = SILENT,
) -> RunResult:
    """Run `policy` through a window or a cut of the scenario's trace and log all in a new run of the store.

    `checkpoint` is the digest of one in the store, by default the active one. With `enforce_deadline` an
    answer later than the scenario's deadline is replaced; without it lateness is only recorded. With `reuse`
    a run of the store that has the same header stands for the new one; if it was killed, it is finished.
    `part_of` names the retraining that this run is an evaluation of.

    Raises:
        UsageError, NotFoundError: no such policy, data set or checkpoint.
        InfeasibleError: the policy cannot place the model. The store is as it was.
    """
    digest_ = champion.resolve(store, policy, checkpoint)
    setup = scenarios.prepare(scenario, store, window=window, dataset=dataset, seed=seed)
    header = Header(setup.header(), policy, engine, digest_, enforce_deadline, part_of=part_of)
    if reuse and (known := same_header(store, header)) is not None:
        return resume(store, known, progress=progress)
    prepared = stage(header, setup, lambda: load_policy(store, header))
    run_id = runs.new_id(store, scenario.name, policy, header.seed, header.config_digest)
    record = Record(runs.folder(store, run_id))
    try:
        play(prepared, record, progress)
    finally:
        record.close()
    _put_in_order(store, run_id)
    return result(store, run_id)


def same_header(store: Path, header: Header) -> str | None:
    """A run of the store that was started with exactly this header, a finished one if there is one."""
    same = []
    for run in runs.same_config(
        store, header.scenario().name, header.policy, header.seed, header.config_digest
    ):
        reader = RunReader(runs.folder(store, run))
        if reader.manifests() and canonical(reader.header()) == canonical(header.payload()):
            same.append((not reader.finished, run))
    return min(same)[1] if same else None


def resume(store: Path, run_id: str, *, progress: Progress = SILENT) -> RunResult:
    """Finish a run that was killed: compute it again, compare with what is stored, write what is missing.

    Raises:
        NotFoundError: no such run. LockedError: another process writes it.
        DamageError: the log is damaged, or the computation does not reproduce it.
        TwinError: the code or the traces are not those that the run was started with.
    """
    reader = RunReader(runs.folder(store, run_id))
    header = from_payload(reader.header())
    if reader.finished:
        return result(store, run_id, "the run was complete already; nothing was written")
    prepared, differences = restage(store, header, reader.events())
    if differences:
        raise TwinError(
            f"{run_id} cannot be resumed: {differences[0]}; start it again, or restore what it was made with"
        )
    with RunWriter.open(reader.run_dir) as writer:
        play(prepared, writer, progress)
    _put_in_order(store, run_id)
    return result(store, run_id, "resumed; every stored event was computed again and compared")


def _put_in_order(store: Path, run_id: str) -> None:
    """Leave a run that has just ended in few files, and beside it what questions are answered from."""
    tidy(runs.folder(store, run_id))
    sql.keep(store, run_id)


def stage(
    header: Header,
    setup: Setup,
    policy: Callable[[], Policy],
    missed: dict[int, str] | None = None,
    script: Mapping[int, Json] | None = None,
) -> Stage:
    """Put a policy before every job of a prepared world; `missed` are deadline misses recorded earlier.

    `script` holds `decided` payloads that stand, by number: the policy is asked from the next one on.

    Raises:
        InfeasibleError: the policy cannot plan one of the jobs.
    """
    answering: dict[str, tuple[Context, Policy, Answers]] = {}
    for name in [job.name for job in setup.jobs] or [""]:
        context = context_of(header, setup, name)
        registry.check_schedule(header.policy, context.estimator.job.schedule)
        player = policy()
        player.reset(context)
        coordinator: Answers = Coordinator(
            player,
            context,
            deadline_s=setup.scenario.control.deadline_s,
            enforce=header.enforce_deadline,
            missed=missed,
            may_wait=bool(name),
        )
        if script:
            coordinator = Scripted(script, player, coordinator)
        answering[name] = (context, player, coordinator)
    first = next(iter(answering.values()))
    return Stage(header, setup, *first, {name: entry[2] for name, entry in answering.items()})


def context_of(header: Header, setup: Setup, job: str = "") -> Context:
    """What the policy of `job` is given at the start of this run; each call has a generator of its own."""
    spec = next((submission.spec for submission in setup.jobs if submission.name == job), setup.job)
    return Context(
        estimator=setup.estimator(spec),
        period_s=setup.scenario.control.period_s,
        restart_s=setup.scenario.moving.restart_s,
        weights=setup.scenario.weights.vector,
        rng=generator(header.seed, f"policy/{header.policy}" + (f"/{job}" if job else "")),
    )


def restage(store: Path, header: Header, stored: Iterable[Event]) -> tuple[Stage, tuple[str, ...]]:
    """The stage of a logged run, and in what the present code and lake differ from those it was made with.

    Raises:
        NotFoundError: its data set or checkpoint is no longer in the store.
        UsageError: it is the log of a training or a promotion, in which no policy decided.
    """
    if header.policy not in registry.POLICIES:
        raise UsageError(
            f"this is a log of {header.policy}: no policy decided in it, and there is no world to compute "
            "again; `twin report` shows it, `twin audit` checks it"
        )
    setup = past_world.prepare(store, header)
    differences = [f"the {name} trace has changed" for name in past_world.changed(setup, header)]
    if dict(header.code) != code_version():
        differences.insert(0, f"its code was {_short(header.code)}, this is {_short(code_version())}")
    kept = 0 if header.branch is None else int(header.branch["decision"])
    missed, script = inputs(stored, kept)
    return stage(header, setup, lambda: load_policy(store, header), missed, script), tuple(differences)


def inputs(stored: Iterable[Event], kept: int) -> tuple[dict[int, str], dict[int, Json]]:
    """What a re-execution takes from the log: decision number -> fallback of those that came too late, and
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
    """The policy that a header names, with its weights."""
    checkpoint = None if header.checkpoint is None else champion.path_of(store, header.checkpoint)
    return registry.create(header.policy, checkpoint=checkpoint)


def result(store: Path, run_id: str, *notes: str) -> RunResult:
    """What a finished run amounts to, read from its log."""
    reader = RunReader(runs.folder(store, run_id))
    if not reader.finished:
        raise NotFoundError(f"{run_id}: the run is not finished; `twin replay --resume {run_id}` goes on")
    header = from_payload(reader.header())
    told = (header.world["note"], *header.scenario().weights.note, *notes)
    return RunResult(run_id, reader.digest(), reader.chain_head(), of_events(reader.events()), told)


def _short(code: Any) -> str:
    return f"{code['version']} ({code['sources'][:12]})"


class _Shown:
    """Tells how far the simulated time is, in steps of a thousandth: drawing must not slow a fast run."""

    STEPS = 1000

    def __init__(self, progress: Progress, end_ns: int, what: str) -> None:
        self._progress = progress
        self._end_ns = max(end_ns, 1)
        self._done = 0
        progress.start(self.STEPS, what)

    def at(self, now_ns: int) -> None:
        """The world is at `now_ns`."""
        step = min(self.STEPS, now_ns * self.STEPS // self._end_ns)
        if step > self._done:
            self._progress.advance(step - self._done, f"{now_ns / NS_PER_S / 3600:.1f} h")
            self._done = step
