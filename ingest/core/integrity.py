"""Stored files checked by content: regular files only, hashed before anything else reads them.

A disk can return other bytes than were written while size, times and inode stay. So no process trusts what
another one checked: each hashes a file the first time it is needed (`fault`), and again after `TRUSTED_S`
seconds or when its status has changed. Small records carry a digest of themselves (`sealed`).
"""

import hashlib
import json
import os
import stat
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ingest.core import durable
from ingest.core.errors import DamageError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

TRUSTED_S = 3600.0
"""Seconds for which a file whose status stays is not hashed again by the process that hashed it."""

MAX_FILE_BYTES = 1 << 31
"""Bytes of a stored file that is read at once: far above any segment and lake part that a writer makes."""

Status = tuple[int, int, int, int]
_checked: dict[Path, tuple[Status, str, float]] = {}


def fault(path: Path, size_bytes: int, sha256: str) -> str | None:
    """Returns how a file differs from the one that was written; None: it does not.

    The content is hashed once per process and `TRUSTED_S`.
    """
    now = time.monotonic()
    known = _checked.get(path)
    try:
        status = _status(path)
        if known is not None and known[:2] == (status, sha256) and now - known[2] < TRUSTED_S:
            return None
        _checked.pop(path, None)
        problem = content_fault(path, size_bytes, sha256)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if problem is None:
        _checked[path] = status, sha256, now
    return problem


def content_fault(path: Path, size_bytes: int, sha256: str) -> str | None:
    """Returns how the content of a file differs from what was written; reads it whatever was checked before.

    Raises:
        OSError: it cannot be read.
    """
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if status.st_size != size_bytes:
        return f"{status.st_size} bytes, not the {size_bytes} that were written"
    with path.open("rb", buffering=0) as stream:
        same = hashlib.file_digest(stream, "sha256").hexdigest() == sha256
    return None if same else "its bytes are not those that were written"


class IrregularFileError(Exception):
    """A link, a directory, a FIFO, a device, or a file larger than any that is read at once."""


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file for reading; follows no link, and waits for no FIFO and no device.

    Raises:
        IrregularFileError: it is something else. OSError: it cannot be opened.
    """
    if not stat.S_ISREG(path.lstat().st_mode):  # a device is not even opened: that may have an effect
        raise IrregularFileError("not a regular file")
    stream = durable.open_to_read(path)
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):  # replaced between the two calls
        stream.close()
        raise IrregularFileError("not a regular file")
    return stream


def content(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Returns the content of a regular file.

    Raises:
        IrregularFileError: it is something else, or has more than `max_bytes`. OSError: it cannot be read.
    """
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > max_bytes:
            raise IrregularFileError(f"{size:,} bytes, and at most {max_bytes:,} are read at once")
        return stream.read()


def read_regular(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Returns the content of a regular file; a link, a directory or a device in its place is damage.

    Raises:
        FileNotFoundError: nothing has this name.
        DamageError: it is no regular file, is larger than `max_bytes`, or the disk cannot read it.
    """
    try:
        return content(path, max_bytes)
    except FileNotFoundError:
        raise
    except IrregularFileError as error:
        raise DamageError(f"{path}: {error}; move it away and restore the file") from None
    except OSError as error:
        raise DamageError(f"{path}: cannot be read ({error.strerror}); restore it") from error


def read_optional(path: Path) -> bytes | None:
    """Returns the content of a regular file; None: nothing has this name.

    Raises:
        DamageError: it is no regular file, or the disk cannot read it.
    """
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None


def sealed(fields: dict[str, Any]) -> bytes:
    """Returns the only bytes that a record of these fields may have: JSON with the digest of the rest."""
    return _text({**fields, "check": hashlib.sha256(_text(fields)).hexdigest()})


def unsealed(data: bytes, schema: str, types: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the fields of a record that `sealed` made; None: a byte of it was changed, or no version wrote
    it: it lacks one of these fields, or has a value of another type there.
    """
    try:
        fields = json.loads(data)
        del fields["check"]
        same = fields["schema"] == schema and sealed(fields) == data
        for name, kind in types.items() if same else ():
            _validator(kind).validate_json(json.dumps(fields[name]), strict=True)
    except (ValueError, KeyError, TypeError, RecursionError):  # a fault of validation is a ValueError
        return None
    return fields if same else None


@cache
def _validator(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter  # takes a tenth of a second that commands without records save

    return TypeAdapter(kind)


def _text(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _status(path: Path) -> Status:
    found = path.lstat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
