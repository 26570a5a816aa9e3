"""Retraining: trains a challenger from the champion, compares both on the newest window, promotes or rejects.

Every step is an event of a run of its own, so that the store shows when and why the active checkpoint
changed: due, collected, (curve) trained, evaluated, promoted or rejected, switched. The promotion is durable
in the log before the pointer moves; a retraining that was killed in between is completed by the next one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ingest.core.durable import DISK, Lock
from ingest.core.errors import DamageError, NotFoundError
from ingest.core.progress import SILENT, Progress
from replay.log.events import Event
from replay.log.run_log import RunReader, RunWriter
from replay.metrics import paired_comparison
from replay.metrics.paired_comparison import PairedDifference
from replay.run import runner
from replay.run.runner import RunResult
from replay.store import checkpoint_registry, run_index
from replay.store.run_header import Header, opening
from replay.store.run_index import CHECKPOINTS
from replay.training import train as training_run
from twin.scenario import prepare
from twin.scenario.prepare import PreparedScenario, Scenario

Json = dict[str, Any]

POLICY = "hippo"
RETRAIN = "retrain"
"""Policy named in the header of a retraining's run."""
ROLLBACK = "rollback"
"""Cause of a run that reverted a promotion."""
WORK = "retraining"
LOCK = "retrain.lock"
ASKED: Mapping[str, Any] = {"cause": "asked for"}
INCUMBENT = "static"
"""Policy that takes the place of the champion where no checkpoint is in use."""
EVALUATION_SEEDS = (101, 102, 103)
"""Seeds of the telemetry noise of the paired evaluation worlds; training uses none of them."""


@dataclass(frozen=True, slots=True)
class LoggedUpdate:
    """One point of a training curve."""

    stage: str
    update: int
    steps: int
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Trained:
    """A checkpoint that training left in the store."""

    digest: str
    updates: tuple[LoggedUpdate, ...]


class Trainer(Protocol):
    """Trains a challenger from a checkpoint (None: from scratch) and stores it under `out`."""

    def __call__(
        self,
        setup: PreparedScenario,
        validation: PreparedScenario | None,
        start: Path | None,
        out: Path,
        progress: Progress,
    ) -> Trained:
        """Trains on the window of `setup` and selects on `validation`, if there is one."""
        ...


@dataclass(frozen=True, slots=True)
class RetrainResult:
    """Result of a retraining, with its reason."""

    run_id: str
    champion: str | None
    challenger: str
    promoted: bool
    reason: str
    verdicts: tuple[PairedDifference, ...]
    chain_head: str

    def to_json(self) -> Json:
        """The object of `twin retrain --once --json`."""
        return {
            "schema": "twin.retrain/1",
            "run": self.run_id,
            "champion": self.champion,
            "challenger": self.challenger,
            "promoted": self.promoted,
            "reason": self.reason,
            "verdicts": [{"kpi": v.kpi, "mean": v.mean, "low": v.low, "high": v.high} for v in self.verdicts],
            "chain_head": self.chain_head,
        }


def retrain(
    store: Path,
    scenario: Scenario,
    *,
    dataset: str | None = None,
    trainer: Trainer | None = None,
    seeds: Sequence[int] = EVALUATION_SEEDS,
    cause: Mapping[str, Any] = ASKED,
    progress: Progress = SILENT,
) -> RetrainResult:
    """Trains a challenger on everything before the newest window and compares it with the champion there.

    Promotion needs the whole 95 % interval of the paired difference in tokens above zero, and neither
    utilisation nor egress per token worse. Before the first promotion the champion is the checkpoint that
    comes with the project. `cause` is logged.

    Raises:
        LockedError: a retraining of this store is under way. NotFoundError: the data set is not in the lake.
    """
    with Lock(store / LOCK):
        settle(store)
        job = _RetrainJob(store, scenario, dataset, seeds, progress)
        incumbent = checkpoint_registry.in_use(store)
        header = Header(job.window("test").header(), RETRAIN, "kernel", incumbent, False)
        run_id = run_index.new_id(store, scenario.name, RETRAIN, header.seed, header.config_digest)
        DISK.foretell(
            (store / CHECKPOINTS, "weights of the challenger, in use if it wins"),
            (run_index.folder(store, run_id), "log of the retraining"),
        )
        with RunWriter.create(run_index.folder(store, run_id)) as log:
            log.append(0, "run_started", header.payload(), wall=opening())
            step(log, "due", dict(cause))
            return _steps(job, trainer or hippo_trainer, log, incumbent)


@dataclass(frozen=True, slots=True)
class _RetrainJob:
    """Inputs of a retraining: a scenario on links, evaluated with `seeds`."""

    store: Path
    scenario: Scenario
    dataset: str | None
    seeds: Sequence[int]
    progress: Progress

    def window(self, name: prepare.Window) -> PreparedScenario:
        """Prepares one window of the links."""
        return prepare.prepare(self.scenario, self.store, window=name, dataset=self.dataset)

    def evaluate(self, log: RunWriter, role: str, checkpoint: str | None) -> list[RunResult]:
        """Runs a checkpoint, or `INCUMBENT` for none, on the newest held-out window; each evaluation is
        durable before the next begins."""
        policy, results = POLICY if checkpoint else INCUMBENT, []
        for seed in self.seeds:
            one = runner.run(
                self.store, policy=policy, scenario=self.scenario, dataset=self.dataset, window="test",
                seed=seed, checkpoint=checkpoint, part_of=log.run_dir.name, progress=self.progress,
            )  # fmt: skip
            log.append(0, "policy_evaluated", _evaluated(role, checkpoint or policy, one))
            log.flush()
            results.append(one)
        return results


def _steps(job: _RetrainJob, trainer: Trainer, log: RunWriter, incumbent: str | None) -> RetrainResult:
    """Trains, evaluates, compares, promotes or rejects; each step is durable before the next begins."""
    past, store = job.window("train"), job.store
    collected = ("dataset", "window", "origin_epoch_ns", "end_ns", "traces")
    step(log, "collected", {name: past.header()[name] for name in collected})
    start = None if incumbent is None else checkpoint_registry.path_of(store, incumbent)
    held_out = training_run.validation_window(store, job.scenario, job.dataset)
    trained = trainer(past, held_out, start, store / CHECKPOINTS, job.progress)
    for update in trained.updates:
        log.append(0, "policy_updated", asdict(update))
    checkpoint_registry.keep(store, trained.digest)
    step(log, "trained", {"checkpoint": trained.digest, "parent": incumbent})
    old = job.evaluate(log, "champion", incumbent)
    new = job.evaluate(log, "challenger", trained.digest)
    verdicts = paired_comparison.judge(_blocks(store, old), _blocks(store, new))
    promoted, reason = promotion_decision(verdicts)
    judged = {
        "checkpoint": trained.digest,
        "champion": incumbent,
        "reason": reason,
        "interval": [verdicts[0].low, verdicts[0].high],
    }
    log.append(0, "policy_promoted" if promoted else "policy_rejected", judged)
    log.flush()  # the reason is on the disk before the pointer moves
    if promoted:
        checkpoint_registry.promote(store, trained.digest)
        step(log, "switched", {"from": incumbent, "to": trained.digest})
    _, head = log.finish({"promoted": promoted, "evaluations": len(old) + len(new)})
    return RetrainResult(log.run_dir.name, incumbent, trained.digest, promoted, reason, verdicts, head)


def step(log: RunWriter, name: str, details: Json) -> None:
    """Logs one step, durable on return."""
    log.append(0, "retraining_step", {"step": name, "details": details})
    log.flush()


def settle(store: Path) -> tuple[str, ...]:
    """Ends every retraining that was killed and returns their runs.

    If one had logged a promotion, and no other was promoted since, the pointer is moved now; else only its
    log is closed. The caller holds the lock of retrainings.

    Raises:
        DamageError: the log of a retraining is damaged.
    """
    ended = []
    for run_id in run_index.all_ids(store):
        reader = RunReader(run_index.folder(store, run_id))
        if not reader.manifests() or reader.finished:
            continue
        events = list(reader.events())
        if events[0].payload["policy"] == RETRAIN:
            _end(store, reader.run_dir, events)
            ended.append(run_id)
    return tuple(ended)


def _end(store: Path, run_dir: Path, events: Sequence[Event]) -> None:
    with RunWriter.open(run_dir) as log:
        for event in events:
            log.append(event.sim_ns, event.type, event.payload, job=event.job)
        switch = _pending_switch(events)
        moved, problem = False, None
        if switch is not None:
            old, new, move = switch
            try:
                if old in (checkpoint_registry.active(store), checkpoint_registry.in_use(store)):
                    move(store)
                moved = checkpoint_registry.active(store) == new
            except (DamageError, NotFoundError) as error:
                problem = str(error)  # the champion stays: an unverified checkpoint is never used
            if moved and not any(event.payload.get("step") == "switched" for event in events):
                step(log, "switched", {"from": old, "to": new})
        promoted = moved and any(event.type == "policy_promoted" for event in events)
        step(log, "interrupted", {"after": events[-1].type, "promoted": promoted, "problem": problem})
        log.finish({"promoted": promoted, "interrupted": True})


def _pending_switch(events: Sequence[Event]) -> tuple[str | None, str, Callable[[Path], object]] | None:
    """Returns (active before, active after, function that switches) once logged; None before."""
    for event in events:
        if event.type == "policy_promoted":
            old, new = event.payload["champion"], event.payload["checkpoint"]
            return old, new, partial(checkpoint_registry.promote, digest=new)
        details = event.payload.get("details", {})  # of a step
        if details.get("cause") == ROLLBACK:
            return details["from"], details["to"], checkpoint_registry.rollback
    return None


def hippo_trainer(
    setup: PreparedScenario,
    validation: PreparedScenario | None,
    start: Path | None,
    out: Path,
    progress: Progress,
) -> Trained:
    """Trains `hippo` on the own past of the links, from the champion's weights where there is one.

    Its state has its own folder, so that an interrupted `twin train` can still be resumed.
    """
    from policy.hippo.networks import checkpoint, hippo_config
    from policy.hippo.training import train  # imports torch

    work, config = out.parent / WORK, hippo_config.shipped("own")
    if start is not None:  # weights fit the architecture that they were trained in only
        config = config.model_copy(update={"gnn": checkpoint.load(start).config.gnn})
    done = train.train(
        setup,
        config=config,
        out=work,
        start=start,
        validation=validation,
        progress=progress,
    )
    checkpoint.install(done.checkpoint_path, out)
    updates = tuple(
        LoggedUpdate(point.stage, point.update, point.steps, _finite(point.metrics)) for point in done.curve
    )
    return Trained(done.digest, updates)


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Leaves out metrics that are not finite, which events do not hold."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def promotion_decision(verdicts: Sequence[PairedDifference]) -> tuple[bool, str]:
    """Returns (promote, reason) from the paired differences, of which the first is the main one."""
    main, *others = verdicts
    if not main.better:
        return False, f"not shown to be better: {main}"
    worse = [str(verdict) for verdict in others if verdict.worse]
    if worse:
        return False, f"better ({main}), but worse in {'; '.join(worse)}"
    return True, f"better: {main}"


def _evaluated(role: str, checkpoint: str, result: RunResult) -> Json:
    scores = {name: None if value is None else float(value) for name, value in result.kpis.numbers().items()}
    wall = {name for name in scores if name.startswith(("decision_", "coordination_", "late"))}
    kept = {name: value for name, value in scores.items() if name not in wall}
    return {"role": role, "checkpoint": checkpoint, "window": "test", "run": result.run_id, "scores": kept}


def _blocks(store: Path, results: Sequence[RunResult]) -> list[paired_comparison.TimeBlocks]:
    found = []
    for one in results:
        reader = RunReader(run_index.folder(store, one.run_id))
        found.append(paired_comparison.blocks_of(reader.events(), reader.header()["end_ns"]))
    return found
