"""The way back: one step to the champion before the present one, and a run that tells of it.

As with a promotion, the word is durable before the pointer moves: a rollback that was killed between the two
is put right by the next rollback or retraining.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core.durable import Lock
from replay.store import checkpoint_registry as champion, checkpoint_lineage as lineage, run_index as runs
from replay.store.run_header import Header, from_payload
from replay.log.run_log import RunReader, RunWriter
from replay.training.retrain import LOCK, RETRAIN, ROLLBACK, settle, step

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rollback:
    """A return to the champion before, and the run that tells of it."""

    active: str
    run_id: str | None

    def to_json(self) -> Json:
        """The object of `twin policies --rollback --json`."""
        return {"schema": "twin.rollback/1", "active": self.active, "run": self.run_id}


def rollback(store: Path) -> Rollback:
    """Return to the checkpoint that was active before and log it, in the world of the training that made one
    of the two; where no log tells of either there is nothing to add to, and `run_id` is None.

    Raises:
        NotFoundError: nothing was active before. DamageError: that checkpoint is damaged.
        LockedError: a retraining of this store is under way.
    """
    with Lock(store / LOCK):
        settle(store)
        new = champion.previous(store)
        old = champion.history(store)[-1]
        made = {record.checkpoint: record.run_id for record in lineage.records(store)}
        known = made.get(old) or made.get(new)
        if known is None:
            return Rollback(champion.rollback(store), None)
        told = from_payload(RunReader(runs.folder(store, known)).header())
        header = Header(told.world, RETRAIN, "kernel", old, False)
        run_id = runs.new_id(store, header.scenario().name, RETRAIN, header.seed, header.config_digest)
        with RunWriter.create(runs.folder(store, run_id)) as log:
            log.append(0, "run_started", header.payload())
            step(log, "due", {"cause": ROLLBACK, "from": old, "to": new})
            champion.rollback(store)
            step(log, "switched", {"from": old, "to": new})
            log.finish({"promoted": False})
        return Rollback(new, run_id)
