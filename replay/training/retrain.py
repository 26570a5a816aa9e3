"""Retraining: train from the champion, let both meet on the newest window, promote only what is better.

Every step is an event of a run of its own, so the store tells when and why the active checkpoint changed:
due, collected, (curve) trained, evaluated, promoted or rejected, switched. The word of promotion is durable
before the pointer moves; a retraining that was killed between the two is put right by the next one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ingest.core.durable import Lock
from ingest.core.errors import DamageError, NotFoundError
from ingest.core.progress import SILENT, Progress
from replay.store import checkpoint_registry as champion, run_index as runs
from replay.metrics import paired_comparison as judge
from replay.run import runner
from replay.training import training_run as training
from replay.log.events import Event
from replay.store.run_header import Header, opening
from replay.metrics.paired_comparison import Verdict
from replay.log.run_log import RunReader, RunWriter
from replay.run.runner import RunResult
from replay.store.run_index import CHECKPOINTS
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import Scenario, Setup

Json = dict[str, Any]

POLICY = "hippo"
RETRAIN = "retrain"
"""Stands for the policy in the header of a retraining's run."""
ROLLBACK = "rollback"
"""The cause of a run that took a promotion back."""
WORK = "retraining"
LOCK = "retrain.lock"
ASKED: Mapping[str, Any] = {"cause": "asked for"}
INCUMBENT = "static"
"""Stands for the champion where no checkpoint is in use: what is done without any model."""
EVALUATION_SEEDS = (101, 102, 103)
"""Seeds of the telemetry noise of the paired evaluation worlds; none of them is used in training."""


@dataclass(frozen=True, slots=True)
class Update:
    """One point of a training curve."""

    stage: str
    update: int
    steps: int
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Trained:
    """A checkpoint that training left in the store."""

    digest: str
    updates: tuple[Update, ...]


class Trainer(Protocol):
    """Trains a challenger from a checkpoint (None: from scratch) and stores it under `out`."""

    def __call__(
        self, setup: Setup, validation: Setup | None, start: Path | None, out: Path, progress: Progress
    ) -> Trained:
        """Train on the window of `setup` and select on `validation`, if there is one."""
        ...


@dataclass(frozen=True, slots=True)
class RetrainResult:
    """What a retraining decided, and why."""

    run_id: str
    champion: str | None
    challenger: str
    promoted: bool
    reason: str
    verdicts: tuple[Verdict, ...]
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


def once(
    store: Path,
    scenario: Scenario,
    *,
    dataset: str | None = None,
    trainer: Trainer | None = None,
    seeds: Sequence[int] = EVALUATION_SEEDS,
    cause: Mapping[str, Any] = ASKED,
    progress: Progress = SILENT,
) -> RetrainResult:
    """Train a challenger on everything before the newest window and let it meet the champion there.

    Promotion needs the whole 95 % interval of the paired difference in tokens above zero, and neither
    utilisation nor egress per token worse. Before the first promotion the champion is the checkpoint that
    comes with the project. `cause` is kept in the log.

    Raises:
        LockedError: a retraining of this store is under way. NotFoundError: the data set is not in the lake.
    """
    with Lock(store / LOCK):
        settle(store)
        asked = _Asked(store, scenario, dataset, seeds, progress)
        incumbent = champion.in_use(store)
        header = Header(asked.window("test").header(), RETRAIN, "kernel", incumbent, False)
        run_id = runs.new_id(store, scenario.name, RETRAIN, header.seed, header.config_digest)
        with RunWriter.create(runs.folder(store, run_id)) as log:
            log.append(0, "run_started", header.payload(), wall=opening())
            step(log, "due", dict(cause))
            return _steps(asked, trainer or hippo_trainer, log, incumbent)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a retraining is of: a scenario on links, judged with `seeds`."""

    store: Path
    scenario: Scenario
    dataset: str | None
    seeds: Sequence[int]
    progress: Progress

    def window(self, name: scenarios.Window) -> Setup:
        """One window of the links."""
        return scenarios.prepare(self.scenario, self.store, window=name, dataset=self.dataset)

    def meet(self, log: RunWriter, role: str, checkpoint: str | None) -> list[RunResult]:
        """A checkpoint's runs on the newest held-out window, or those of who stands for none; each evaluation
        is durable before the next begins."""
        policy, played = POLICY if checkpoint else INCUMBENT, []
        for seed in self.seeds:
            one = runner.run(
                self.store, policy=policy, scenario=self.scenario, dataset=self.dataset, window="test",
                seed=seed, checkpoint=checkpoint, part_of=log.run_dir.name, progress=self.progress,
            )  # fmt: skip
            log.append(0, "policy_evaluated", _evaluated(role, checkpoint or policy, one))
            log.flush()
            played.append(one)
        return played


def _steps(asked: _Asked, trainer: Trainer, log: RunWriter, incumbent: str | None) -> RetrainResult:
    """Train, evaluate, judge, promote or reject; each step is durable before the next begins."""
    past, store = asked.window("train"), asked.store
    collected = ("dataset", "window", "origin_epoch_ns", "end_ns", "traces")
    step(log, "collected", {name: past.header()[name] for name in collected})
    start = None if incumbent is None else champion.path_of(store, incumbent)
    held_out = training.selecting(store, asked.scenario, asked.dataset)
    trained = trainer(past, held_out, start, store / CHECKPOINTS, asked.progress)
    for update in trained.updates:
        log.append(0, "policy_updated", asdict(update))
    step(log, "trained", {"checkpoint": trained.digest, "parent": incumbent})
    old = asked.meet(log, "champion", incumbent)
    new = asked.meet(log, "challenger", trained.digest)
    verdicts = judge.judge(_blocks(store, old), _blocks(store, new))
    promoted, reason = ruling(verdicts)
    judged = {
        "checkpoint": trained.digest,
        "champion": incumbent,
        "reason": reason,
        "interval": [verdicts[0].low, verdicts[0].high],
    }
    log.append(0, "policy_promoted" if promoted else "policy_rejected", judged)
    log.flush()  # the reason is on the disk before the pointer moves
    if promoted:
        champion.promote(store, trained.digest)
        step(log, "switched", {"from": incumbent, "to": trained.digest})
    _, head = log.finish({"promoted": promoted, "evaluations": len(old) + len(new)})
    return RetrainResult(log.run_dir.name, incumbent, trained.digest, promoted, reason, verdicts, head)


def step(log: RunWriter, name: str, details: Json) -> None:
    """One step, durable before the next begins."""
    log.append(0, "retraining_step", {"step": name, "details": details})
    log.flush()


def settle(store: Path) -> tuple[str, ...]:
    """Bring every retraining that was killed to its end, and return their runs.

    If it had decided to promote, and nobody else did meanwhile, the pointer is moved now; else nothing is
    left to do but to say so. The caller holds the lock of retrainings.

    Raises:
        DamageError: the log of a retraining is damaged.
    """
    ended = []
    for run_id in runs.all_ids(store):
        reader = RunReader(runs.folder(store, run_id))
        if not reader.manifests() or reader.finished:
            continue  # nothing durable, or nothing to do
        events = list(reader.events())
        if events[0].payload["policy"] == RETRAIN:
            _end(store, reader.run_dir, events)
            ended.append(run_id)
    return tuple(ended)


def _end(store: Path, run_dir: Path, events: Sequence[Event]) -> None:
    with RunWriter.open(run_dir) as log:
        for event in events:
            log.append(event.sim_ns, event.type, event.payload, job=event.job)
        decided = _decided(events)
        moved, problem = False, None
        if decided is not None:
            old, new, move = decided
            try:
                if old in (champion.active(store), champion.in_use(store)):
                    move(store)
                moved = champion.active(store) == new
            except (DamageError, NotFoundError) as error:
                problem = str(error)  # the old champion stays: what cannot be verified is never used
            if moved and not any(event.payload.get("step") == "switched" for event in events):
                step(log, "switched", {"from": old, "to": new})
        promoted = moved and any(event.type == "policy_promoted" for event in events)
        step(log, "interrupted", {"after": events[-1].type, "promoted": promoted, "problem": problem})
        log.finish({"promoted": promoted, "interrupted": True})


def _decided(events: Sequence[Event]) -> tuple[str | None, str, Callable[[Path], object]] | None:
    """(active before, active after, how to get there), once that is durable; None before."""
    for event in events:
        if event.type == "policy_promoted":
            old, new = event.payload["champion"], event.payload["checkpoint"]
            return old, new, partial(champion.promote, digest=new)
        details = event.payload.get("details", {})  # of a step
        if details.get("cause") == ROLLBACK:
            return details["from"], details["to"], champion.rollback
    return None


def hippo_trainer(
    setup: Setup, validation: Setup | None, start: Path | None, out: Path, progress: Progress
) -> Trained:
    """Train `hippo` with the tuned configuration, from the champion's weights where there is one.

    Its working state lies in a folder of its own, so that an interrupted `twin train` can still be resumed.
    """
    from policy.hippo.networks import checkpoint, hippo_config as config
    from policy.hippo.training import train  # imports torch

    work = out.parent / WORK
    done = train.train(
        setup, config=config.shipped("tuned"), out=work, start=start, validation=validation, progress=progress
    )
    checkpoint.install(done.checkpoint_path, out)
    updates = tuple(
        Update(point.stage, point.update, point.steps, _finite(point.metrics)) for point in done.curve
    )
    return Trained(done.digest, updates)


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Events hold no NaN: a metric without a value is left out."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def ruling(verdicts: Sequence[Verdict]) -> tuple[bool, str]:
    """Whether the challenger is promoted, and why; the first verdict is the main one."""
    main, *others = verdicts
    if not main.better:
        return False, f"not shown to be better: {main}"
    worse = [str(verdict) for verdict in others if verdict.worse]
    if worse:
        return False, f"better ({main}), but worse in {'; '.join(worse)}"
    return True, f"better: {main}"


def _evaluated(role: str, checkpoint: str, played: RunResult) -> Json:
    scores = {name: None if value is None else float(value) for name, value in played.kpis.to_json().items()}
    wall = {name for name in scores if name.startswith(("decision_", "coordination_", "late"))}
    kept = {name: value for name, value in scores.items() if name not in wall}
    return {"role": role, "checkpoint": checkpoint, "window": "test", "run": played.run_id, "scores": kept}


def _blocks(store: Path, played: Sequence[RunResult]) -> list[judge.Blocks]:
    found = []
    for one in played:
        reader = RunReader(runs.folder(store, one.run_id))
        found.append(judge.blocks_of(reader.events(), reader.header()["end_ns"]))
    return found
