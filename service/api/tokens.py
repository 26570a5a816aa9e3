"""Tokens with roles: those of a file of hashes, or the one of the store.

A line of the file is `NAME ROLES SHA256 [UNTIL]`: roles with commas, the SHA-256 of the token in hex, and the
UTC date or time at which it expires. `#` begins a comment. The file is read again when it has changed.
"""

import hmac
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from ingest.core import text_files
from ingest.core.errors import InputError, TwinError
from ingest.core.terminal import shown

ROLES = ("read", "push", "decide", "admin")
"""read: state and decisions; push: observations and orders of the job; decide: ask for decisions, and read;
admin: everything, and mode and rollback."""
IMPLIED = {"decide": {"read"}, "admin": {"read", "push", "decide"}}
_HASH = re.compile("[0-9a-f]{64}")
_NAME = re.compile("[A-Za-z0-9._-]{1,64}")
LOOK_S = 1.0
"""Seconds after which the file's time is looked at again."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client and its roles."""

    name: str
    roles: frozenset[str]


ANONYMOUS = Client("anonymous", frozenset({"read"}))
"""A client without a token, where there is no file of tokens: a program on this machine, which may look."""
OWNER = Client("owner", frozenset(ROLES))
"""The client with the token of the store."""


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """One line of the file."""

    client: Client
    digest: str
    until_s: float | None


class Tokens:
    """The tokens of a file; without one `own`, the token of the store, which has all roles.

    Without a file a client that shows no token is `ANONYMOUS`, which only a loopback address should offer.

    Raises:
        InputError: a line cannot be read.
    """

    def __init__(self, path: Path | None, own: str = "") -> None:
        self._path = path
        self._entries: tuple[TokenEntry, ...] = ()
        self._stamp, self._looked_s = 0, 0.0
        self.problem = ""
        """Fault of the file since the start; the tokens before it stay valid."""
        if path is not None:
            self._stamp = path.stat().st_mtime_ns if path.is_file() else 0
            self._entries = parsed(path)
        elif own:
            self._entries = (TokenEntry(OWNER, sha256(own.encode()).hexdigest(), None),)

    def client(self, token: str | None) -> Client | None:
        """Returns whose token it is; None: nobody's, or an expired one. Takes the same time for all."""
        if not token and self._path is None:
            return ANONYMOUS
        self._refresh()
        given = sha256((token or "").encode(errors="surrogateescape")).hexdigest()
        found = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, given):
                found = entry
        if found is None or (found.until_s is not None and time.time() >= found.until_s):
            return None
        return found.client

    def _refresh(self) -> None:
        """Reads the file again if it has changed; a faulty one is reported and changes nothing."""
        if self._path is None or time.monotonic() - self._looked_s < LOOK_S:
            return
        self._looked_s = time.monotonic()
        try:
            stamp = self._path.stat().st_mtime_ns
            if stamp != self._stamp:
                self._entries, self._stamp, self.problem = parsed(self._path), stamp, ""
        except (OSError, TwinError) as error:
            self.problem = str(error)


def parsed(path: Path) -> tuple[TokenEntry, ...]:
    """Returns the entries of a file.

    Raises:
        InputError: it is not there, or a line cannot be read.
    """
    lines = text_files.read(path, InputError).splitlines()
    kept = ((number, line.split("#")[0].split()) for number, line in enumerate(lines, 1))
    return tuple(_entry(words, f"{path}:{number}") for number, words in kept if words)


def _entry(words: list[str], where: str) -> TokenEntry:
    if len(words) not in (3, 4) or not _NAME.fullmatch(words[0]) or not _HASH.fullmatch(words[2]):
        raise InputError(
            f"{where}: a line is NAME ROLES SHA256 [UNTIL]; `twin serve --help` shows how to make one"
        )
    roles = set(words[1].split(","))
    if strange := sorted(roles - set(ROLES)):
        raise InputError(f"{where}: no role {shown(strange[0])}; there are {', '.join(ROLES)}")
    return TokenEntry(Client(words[0], frozenset(with_implied(roles))), words[2], _until(words[3:], where))


def with_implied(roles: Iterable[str]) -> set[str]:
    """Returns these roles and those that they bring with them."""
    return set(roles).union(*(IMPLIED.get(role, set()) for role in roles))


def _until(words: list[str], where: str) -> float | None:
    if not words:
        return None
    try:
        moment = datetime.fromisoformat(words[0])
    except ValueError:
        raise InputError(
            f"{where}: {shown(words[0])} is no date like 2027-01-31 or 2027-01-31T12:00"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
