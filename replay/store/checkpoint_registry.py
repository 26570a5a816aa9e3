"""Checkpoints of a store: files named by their digests, and a pointer to the active one.

`<store>/active.json` is the pointer. A copy beside the checkpoints is written after it and removed before it:
a copy without a pointer shows that the pointer went away, not that nothing was promoted. Of a store in a
bucket the pointer is in the bucket alone, and has an empty history after a rollback of the only promotion.
"""

import re
from pathlib import Path
from typing import NamedTuple

import policy.hippo
from ingest.core import durable, integrity, safe_json, text_files
from ingest.core.errors import DamageError, NotFoundError
from ingest.core.terminal import clipped
from policy.core import registry
from policy.hippo.networks import checkpoint_file
from replay.store import checkpoint_objects
from replay.store.checkpoint_objects import CheckpointObjects
from replay.store.layout import CHECKPOINTS

POINTER = checkpoint_objects.POINTER
SCHEMA = "twin.active/1"
TYPES = {"checkpoint": str | None, "history": list[str]}
DIGEST = re.compile(r"[0-9a-f]{8,64}")
FILE = re.compile(r"hippo-([0-9a-f]{8,64})\.pt")


class _Pointer(NamedTuple):
    """Every promoted checkpoint, oldest first, and the tag of the pointer in a bucket."""

    history: tuple[str, ...] = ()
    tag: str | None = None


def active(store: Path) -> str | None:
    """Returns the digest of the promoted checkpoint; None before the first promotion."""
    return next(reversed(history(store)), None)


def in_use(store: Path) -> str | None:
    """Returns the digest of the checkpoint that runs take by default: the promoted one, else the one that
    comes with the project; None where there is neither.

    Raises:
        DamageError, InputError: it is not what its name says.
    """
    current, kept = active(store), that_ships(store)
    if current is not None:
        return verified(path_of(store, current))
    return None if kept is None else verified(kept)


def history(store: Path) -> tuple[str, ...]:
    """Returns the digests of every promoted checkpoint, oldest first; the last one is active."""
    return _pointer(store).history


def promote(store: Path, digest: str) -> None:
    """Makes a stored checkpoint the active one, atomically, after checking its bytes; an active one stays.

    Raises:
        NotFoundError: the store does not hold it. DamageError: it is not what was written.
    """
    digest = keep(store, digest)
    found = _pointer(store)
    if found.history[-1:] != (digest,):
        _point(store, found, (*found.history, digest))


def keep(store: Path, digest: str) -> str:
    """Puts a checkpoint of a store in a bucket there, after checking its bytes; returns its whole digest.

    Raises:
        NotFoundError: the store does not hold it. DamageError: it is not what was written.
    """
    path = path_of(store, digest)
    whole = verified(path)
    if path != that_ships(store) and (held := CheckpointObjects.of(store)) is not None:
        held.keep(path)
    return whole


def previous(store: Path) -> str:
    """Returns the digest of the checkpoint in use before the active one, after checking its bytes: the one
    promoted before it, else the one that comes with the project.

    Raises:
        NotFoundError: nothing was promoted, or none comes with the project. DamageError: it is damaged.
    """
    promoted = history(store)
    if not promoted:
        raise NotFoundError(
            f"{store / POINTER}: no checkpoint was promoted, nothing to go back to; "
            "`twin policies` lists what is there"
        )
    before = path_of(store, promoted[-2]) if len(promoted) > 1 else that_ships(store)
    if before is None:
        raise NotFoundError(f"{store / POINTER}: nothing was in use before, nothing to go back to")
    return verified(before)


def replaced(store: Path) -> str | None:
    """Returns the digest that `rollback` would return to; None where there is none."""
    try:
        return previous(store)
    except NotFoundError:
        return None


def rollback(store: Path) -> str:
    """Returns to the checkpoint in use before, atomically, and returns its digest. The checkpoint that comes
    with the project needs no pointer: it is in use where nothing was promoted.

    Raises:
        NotFoundError, DamageError: as `previous`.
    """
    digest, found = previous(store), _pointer(store)
    past = found.history[:-1]
    if past or found.tag:
        _point(store, found, past)
    else:
        if (copy := _copy(store)).exists():
            durable.remove(copy)
        durable.remove(store / POINTER)
    return digest


def stored(store: Path, beginning: str = "") -> tuple[Path, ...]:
    """Returns the checkpoint files of the store, then the one that comes with the project.

    beginning: of a store in a bucket only those with such digests are brought from there.
    """
    if (held := CheckpointObjects.of(store)) is not None:
        held.fetch(beginning)
    kept = store / CHECKPOINTS
    folders = sorted(kept.iterdir()) if kept.is_dir() else []
    folders = [folder for folder in folders if folder.is_dir() and DIGEST.fullmatch(folder.name)]
    shipped = Path(policy.hippo.__file__).with_name("shipped")
    return _files([*folders, *([shipped] if shipped.is_dir() else [])])


def _files(folders: list[Path]) -> tuple[Path, ...]:
    found = (path for folder in folders for path in sorted(folder.iterdir()))
    return tuple(path for path in found if FILE.fullmatch(path.name))


def path_of(store: Path, digest: str) -> Path:
    """Returns the checkpoint file with this digest or a unique beginning of it.

    Raises:
        NotFoundError: none or more than one fits.
    """
    named = [(path, FILE.fullmatch(path.name)) for path in stored(store, digest)]
    fitting = {m[1]: path for path, m in reversed(named) if m and _same(m[1], digest)}
    longest = max(fitting, key=len, default="")
    # A file may be named by a shorter digest than another copy of it, or than the one that a log recorded.
    if not fitting or not all(longest.startswith(name) for name in fitting):
        many = f"{len(fitting)} checkpoints begin so" if fitting else "no such checkpoint"
        raise NotFoundError(
            f"{store / CHECKPOINTS}: {clipped(digest)}: {many}; `twin policies` lists what is there"
        )
    return fitting[longest]


def resolve(store: Path, name: str, checkpoint: str | None) -> str | None:
    """Returns the digest of the checkpoint that a run of policy `name` uses; None for a policy without one.

    `checkpoint` is a digest, a beginning of one, or a file, which is copied into the store; by default the
    active one is taken, else the one that comes with the project.

    Raises:
        NotFoundError: there is none. DamageError, InputError: it is not what its name says.
    """
    if not registry.entry(name).learned:
        return None
    if checkpoint is not None:
        path = Path(checkpoint)
        return (
            _installed(store, path)
            if text_files.is_file(checkpoint)
            else verified(path_of(store, checkpoint))
        )
    used = in_use(store)
    if used is None:
        raise NotFoundError(f"{store} has no active checkpoint, and none comes with it: run `twin train`")
    return used


def verified(path: Path) -> str:
    """Returns the digest of a checkpoint file after checking its bytes against its name.

    Raises:
        DamageError, InputError, NotFoundError: see `policy.hippo.networks.checkpoint_file`.
    """
    return checkpoint_file.digest(path)


def that_ships(store: Path) -> Path | None:
    """Returns the checkpoint that comes with the project."""
    shipped = Path(policy.hippo.__file__).with_name("shipped")
    return next(iter(_files([shipped])), None) if shipped.is_dir() else None


def _same(name: str, digest: str) -> bool:
    return name.startswith(digest) or digest.startswith(name)


def _installed(store: Path, path: Path) -> str:
    """Copies a checkpoint into the store, so that its runs can be recomputed."""
    digest = checkpoint_file.install(path, store / CHECKPOINTS)
    if (held := CheckpointObjects.of(store)) is not None:
        held.keep(store / CHECKPOINTS / digest / f"hippo-{digest}.pt")
    return digest


def _pointer(store: Path) -> _Pointer:
    if (held := CheckpointObjects.of(store)) is not None:
        found = held.active()
        return (
            _Pointer() if found is None else _Pointer(_parsed(found.data, held.title, "delete it"), found.tag)
        )
    path, copy = store / POINTER, _copy(store)
    restore = f"copy {copy} over it, or delete both" if copy.exists() else "delete it"
    data = integrity.read_optional(path)
    if data is None:
        if copy.exists():
            raise DamageError(f"{path}: missing, though a checkpoint was promoted; {restore}")
        return _Pointer()
    history = _parsed(data, str(path), restore)
    if not history:
        raise DamageError(
            f"{path}: damaged (it names no checkpoint); {restore} and promote a checkpoint again"
        )
    return _Pointer(history)


def _parsed(data: bytes, title: str, restore: str) -> tuple[str, ...]:
    """The history in the bytes of a pointer."""
    try:
        value = safe_json.parsed(data)
        unsealed = integrity.unsealed(data, SCHEMA, TYPES) if "check" in value else value
        if unsealed is None or unsealed.keys() != {"schema", "checkpoint", "history"}:
            raise ValueError("not what was written")
        if value["schema"] != SCHEMA or value["checkpoint"] != (value["history"] or [None])[-1]:
            raise ValueError("not an active-checkpoint pointer")
        if not all(DIGEST.fullmatch(digest) for digest in value["history"]):
            raise ValueError("it holds what is no digest")
    except (ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise DamageError(f"{title}: damaged ({error}); {restore} and promote a checkpoint again") from error
    return tuple(value["history"])


def copy_fault(store: Path) -> str | None:
    """Returns how the copy of the pointer is damaged; None: it is whole, or absent."""
    path = _copy(store)
    try:
        data = integrity.read_optional(path)
    except DamageError as error:
        return str(error)
    whole = data is None or integrity.unsealed(data, SCHEMA, TYPES) is not None
    return (
        None
        if whole
        else f"{path}: its bytes are not those that were written; copy {store / POINTER} over it"
    )


def _copy(store: Path) -> Path:
    return store / CHECKPOINTS / POINTER


def _point(store: Path, found: _Pointer, past: tuple[str, ...]) -> None:
    """Makes `past` the history in place of the one that was found."""
    last = past[-1] if past else None
    value = integrity.sealed({"schema": SCHEMA, "checkpoint": last, "history": list(past)})
    if (held := CheckpointObjects.of(store)) is not None:
        held.point(value, found.tag)
        return
    durable.replace(store / POINTER, value)
    durable.replace(_copy(store), value)
