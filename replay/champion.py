"""Which checkpoint is in use: they lie in the store under their digests, one pointer names the active one."""

import json
from pathlib import Path
from typing import Any

from ingest import durable
from ingest.errors import DamageError, NotFoundError
from policy import registry
from replay.events import canonical
from replay.runs import CHECKPOINTS

POINTER = "active.json"
SCHEMA = "twin.active/1"


def active(store: Path) -> str | None:
    """Digest of the promoted checkpoint; None before the first promotion."""
    return _pointer(store).get("checkpoint")


def history(store: Path) -> tuple[str, ...]:
    """Digests of every promoted checkpoint, the oldest first; the last one is active."""
    return tuple(_pointer(store).get("history", ()))


def promote(store: Path, digest: str) -> None:
    """Make a stored checkpoint the active one, atomically.

    Raises:
        NotFoundError: the store does not hold it.
    """
    folder(store, digest)
    _point(store, (*history(store), digest))


def rollback(store: Path) -> str:
    """Return to the checkpoint that was active before; returns its digest.

    Raises:
        NotFoundError: nothing was active before.
    """
    past = history(store)[:-1]
    if not past:
        raise NotFoundError(
            f"{store / POINTER}: no earlier checkpoint was promoted; there is nothing to go back to"
        )
    folder(store, past[-1])
    _point(store, past)
    return past[-1]


def folder(store: Path, digest: str) -> Path:
    """Directory of the stored checkpoint that `digest`, or a unique beginning of it, names.

    Raises:
        NotFoundError: none or more than one fits.
    """
    parent = store / CHECKPOINTS
    fitting = sorted(path for path in parent.glob(f"{digest}*") if path.is_dir()) if parent.is_dir() else []
    if len(fitting) != 1:
        many = f"{len(fitting)} checkpoints begin so" if fitting else "no such checkpoint"
        raise NotFoundError(f"{parent / digest}: {many}; `twin policies` lists those of this store")
    return fitting[0]


def resolve(store: Path, policy: str, checkpoint: str | None) -> str | None:
    """Digest of the checkpoint that a run of `policy` uses: the named or the active one; None if not learned.

    Raises:
        NotFoundError: a learned policy has no checkpoint.
    """
    entry = registry.POLICIES.get(policy)
    if entry is None or not entry.learned:
        return None
    if checkpoint is not None:
        return folder(store, checkpoint).name
    current = active(store)
    if current is None:
        raise NotFoundError(
            f"policy {policy!r} needs a trained checkpoint and {store} has no active one: `twin train`"
        )
    return current


def _pointer(store: Path) -> dict[str, Any]:
    path = store / POINTER
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_bytes())
        if value["schema"] != SCHEMA or value["checkpoint"] != value["history"][-1]:
            raise ValueError("not an active-checkpoint pointer")
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise DamageError(f"{path}: damaged ({error}); delete it and promote a checkpoint again") from error
    return dict(value)


def _point(store: Path, past: tuple[str, ...]) -> None:
    value = {"schema": SCHEMA, "checkpoint": past[-1], "history": list(past)}
    durable.replace(store / POINTER, canonical(value).encode())
