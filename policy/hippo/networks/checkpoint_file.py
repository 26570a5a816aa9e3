"""Checkpoint files as files: names, digests, copies, and what their headers say; torch is not imported.

A file is named `hippo-<digest>.pt` by its SHA-256, so that damage is found before anything reads the content.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

from ingest.core import durable, safe_json
from ingest.core.errors import DamageError, InputError, NotFoundError
from ingest.core.terminal import SENTENCE, clipped, shown
from policy.hippo.networks import checkpoint_content

SCHEMA = "twin.hippo/1"
NAME = re.compile(r"hippo-([0-9a-f]{8,64})\.pt")
ANOTHER = "take one that `twin train` made"


def install(path: Path, out: Path) -> str:
    """Copies a checkpoint file into `out` under its whole digest, unless it is there; returns the digest."""
    name, data = verified(path)
    durable.put(out / name / f"hippo-{name}.pt", data, idempotent=True)
    return name


def locate(path: Path) -> Path:
    """Returns the checkpoint file at `path`: itself, or the one inside a folder that `publish` made.

    Raises:
        NotFoundError: no such file, or not exactly one in the folder.
    """
    if not path.is_dir():
        return path
    found = sorted(path.glob("hippo-*.pt"))
    if len(found) != 1:
        raise NotFoundError(
            f"{path}: expected one checkpoint hippo-<digest>.pt, found {len(found)}; name the file itself"
        )
    return found[0]


def digest(path: Path) -> str:
    """Returns the SHA-256 (hex) of a checkpoint file, checked against its name.

    Raises:
        NotFoundError: no such file. InputError: no digest in the name. DamageError: another content than the
        name says.
    """
    return verified(path)[0]


def verified(path: Path) -> tuple[str, bytes]:
    """Returns the digest of a checkpoint file and its bytes, read once.

    Raises:
        NotFoundError, InputError, DamageError: as `digest`.
    """
    if not path.is_file():
        raise NotFoundError(f"checkpoint {path} does not exist: run `twin train`, or name another file")
    named = NAME.fullmatch(path.name)
    if not named:
        raise InputError(
            f"{path}: a checkpoint is named hippo-<digest>.pt, so that damage is detected; rename it back"
        )
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if not found.startswith(named.group(1)):
        raise DamageError(
            f"{path}: damaged: its digest is {found[:16]}..., its name says {named.group(1)[:16]}...; "
            "restore the file or train again"
        )
    return found, data


def header(path: Path, data: bytes) -> dict[str, Any]:
    """Returns configuration, architecture and provenance of the file `path`, whose bytes are `data`.

    The weights are not looked at: whether they fit their network is seen when they are loaded.

    Raises:
        InputError: not a checkpoint, or of another format.
    """
    try:
        payload = checkpoint_content.plain(data)
    except ValueError as error:
        raise InputError(
            f"{path}: not a Hi-PPO checkpoint: {clipped(str(error), SENTENCE)}; {ANOTHER}"
        ) from error
    parts = ("header", "upper", "lower", "training")
    if not isinstance(payload, dict) or not all(name in payload for name in parts):
        raise InputError(f"{path}: not a Hi-PPO checkpoint: it lacks one of {', '.join(parts)}; {ANOTHER}")
    try:
        found = safe_json.parsed(payload["header"])
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{path}: not a Hi-PPO checkpoint: its header is no JSON: {clipped(str(error), SENTENCE)}; "
            f"{ANOTHER}"
        ) from error
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != SCHEMA:
        raise InputError(
            f"{path}: checkpoint format {shown(schema)}, this version reads {SCHEMA!r}; train again"
        )
    wanted = ("config", "architecture", "provenance")
    if missing := [name for name in wanted if not isinstance(found.get(name), dict)]:
        raise InputError(
            f"{path}: not a Hi-PPO checkpoint: its header lacks {', '.join(missing)}; train again"
        )
    return dict(found)
