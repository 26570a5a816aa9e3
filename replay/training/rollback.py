"""Rollback: returns to the champion before the active one and logs it as a run.

As with a promotion, the log is durable before the pointer moves: a rollback that was killed in between is
completed by the next rollback or retraining.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core.durable import DISK, Lock
from replay.log.run_log import RunReader, RunWriter
from replay.store import checkpoint_lineage, checkpoint_registry, run_index
from replay.store.run_header import Header, from_payload
from replay.training.retrain import LOCK, RETRAIN, ROLLBACK, settle, step

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rollback:
    """Checkpoint that is active after a rollback, and the run that logs it."""

    active: str
    run_id: str | None

    def to_json(self) -> Json:
        """The object of `twin policies --rollback --json`."""
        return {"schema": "twin.rollback/1", "active": self.active, "run": self.run_id}


def rollback(store: Path) -> Rollback:
    """Returns to the checkpoint that was active before and logs it, in the world of the training that made
    one of the two; where no log has either, nothing is logged and `run_id` is None.

    Raises:
        NotFoundError: nothing was active before. DamageError: that checkpoint is damaged.
        LockedError: a retraining of this store is under way.
    """
    with Lock(store / LOCK):
        settle(store)
        new = checkpoint_registry.previous(store)
        old = checkpoint_registry.history(store)[-1]
        DISK.foretell((store / checkpoint_registry.POINTER, f"{new} in use, in place of {old}"))
        made = {record.checkpoint: record.run_id for record in checkpoint_lineage.records(store)}
        known = made.get(old) or made.get(new)
        if known is None:
            return Rollback(checkpoint_registry.rollback(store), None)
        world = from_payload(RunReader(run_index.folder(store, known)).header()).world
        header = Header(world, RETRAIN, "kernel", old, False)
        run_id = run_index.new_id(store, header.scenario().name, RETRAIN, header.seed, header.config_digest)
        with RunWriter.create(run_index.folder(store, run_id)) as log:
            log.append(0, "run_started", header.payload())
            step(log, "due", {"cause": ROLLBACK, "from": old, "to": new})
            checkpoint_registry.rollback(store)
            step(log, "switched", {"from": old, "to": new})
            log.finish({"promoted": False})
        return Rollback(new, run_id)
