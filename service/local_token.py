"""The token of a service without a token file: made once a store, readable by its owner alone.

`twin serve` keeps it at `STORE/service/token` (mode 0600), and notes for its port where that file is
(`~/.local/state/twin/services/PORT`, XDG_STATE_HOME). So the hook and other programs of the same user find it
by the address alone. Imports nothing heavy: it is part of the training process.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from ingest.core import durable
from ingest.core.durable import PRIVATE
from ingest.core.errors import ExistsError, TwinError

FOLDER = "service"
"""Folder of a store with what belongs to its service on this machine; backups leave it out."""
LONGEST = 4096
"""Bytes that are read of a file; a token has 43, a path is shorter, too."""


def path_of(store: Path) -> Path:
    """Returns where the token of a store is."""
    return store / FOLDER / "token"


def made(store: Path) -> str:
    """Returns the token of a store; makes one where there is none, or where others could have read it.

    Raises:
        StorageError: it cannot be written.
    """
    path = path_of(store)
    if (token := private_text(path)) is not None:
        return token
    token = secrets.token_urlsafe(32)
    try:
        if os.path.lexists(path):
            durable.replace(path, f"{token}\n".encode(), disk=PRIVATE)
        else:
            durable.put(path, f"{token}\n".encode(), disk=PRIVATE)
    except ExistsError:  # another service was faster
        return made(store)
    return token


def private_text(path: Path) -> str | None:
    """Returns the line of a file that nobody but its owner, who asks, can read or write; else None."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode) or state.st_mode & 0o077 or state.st_uid != os.geteuid():
            return None
        text = os.read(fd, LONGEST).decode().strip()
    except (OSError, ValueError):
        return None
    finally:
        os.close(fd)
    return text or None


@contextmanager
def announced(port: int, store: Path) -> Iterator[None]:
    """Notes for a port which token its service has, as long as the body runs.

    Where there is no home that can be written, programs look into the store alone.
    """
    note, token_file = _note(port), str(path_of(store).absolute())
    with suppress(TwinError):
        durable.replace(note, f"{token_file}\n".encode(), disk=PRIVATE)
    try:
        yield
    finally:
        if private_text(note) == token_file:
            with suppress(TwinError):
                durable.remove(note)


def _note(port: int) -> Path:
    state = os.path.expanduser(os.environ.get("XDG_STATE_HOME") or "~/.local/state")  # noqa: PTH111
    return Path(state) / "twin" / "services" / str(port)


def split(address: str) -> tuple[str, str]:
    """Returns an address without its query, and the token that it names (`?token=...`) or ""."""
    try:
        parts = urlsplit(address)
    except ValueError:  # an address that no request will reach either
        return address, ""
    token = dict(parse_qsl(parts.query)).get("token", "")
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")).rstrip("/"), token


def find(address: str) -> str:
    """Returns the token of the service at an address of this machine, if this user started it; else ""."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return ""
    if not is_loopback(host):
        return ""
    noted = private_text(_note(port))
    stores = path_of(Path(os.environ.get("TWIN_STORE") or ".twin"))
    places = [*([] if noted is None else [Path(noted)]), stores]
    return next((token for place in places if (token := private_text(place)) is not None), "")


def is_loopback(host: str) -> bool:
    """Returns True for a name or an address, without brackets, that only this machine itself can reach."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
