"""Names that users type and that become files: one pattern. Labels of data are freer, but can be read."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from ingest.core.errors import UsageError
from ingest.core.terminal import shown

PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
RULE = f"a name has 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit: {PATTERN}"
STORED = "stored"
"""Context of validation for what a store holds: versions before the pattern took any name and number."""
MOST_LABEL, MOST_TEXT = 200, 10_000
"""Letters of a label of data, and of sentences."""
_NAME = re.compile(PATTERN)
Value = TypeVar("Value")


def is_name(text: object) -> bool:
    """Returns True if `text` fits the pattern."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def checked(text: str, what: str) -> str:
    """Returns `text`, the name of a `what`.

    Raises:
        UsageError: it does not fit the pattern.
    """
    if not is_name(text):
        raise UsageError(f"{what} {shown(text)}: {RULE}")
    return text


def unknown(what: str, name: str, known: Iterable[str], listed: Sequence[str] = ()) -> str:
    """Returns the words for a name that no `what` has: the nearest known, then all, or those `listed`."""
    every = list(known)
    close = get_close_matches(name[:MOST_LABEL], every, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown {what} {shown(name)}: {hint}known are {', '.join(listed or every)}"


def chosen(table: Mapping[str, Value], name: str, what: str) -> Value:
    """Returns the value of `name` in a registry of `what`.

    Raises:
        UsageError: there is none; it names the nearest.
    """
    if name in table:
        return table[name]
    raise UsageError(unknown(what, name, table))


def inside(folder: Path, entry: str) -> Path:
    """Returns the path of `entry`, a file or folder directly inside `folder`, whatever its letters.

    Raises:
        UsageError: `entry` leads elsewhere.
    """
    if entry in ("", ".", "..") or "/" in entry or "\0" in entry:
        raise UsageError(f"{shown(entry)} is not the name of something inside {folder}; {RULE}")
    return folder / entry
