"""Paths into JSON documents: to the rows, and from a row to the values of its columns.

A path is names joined by dots. `[]` is every element of a list, `*` every value of an object, `[3]` or `3`
one element of a list; a name with dots in it stands in double quotes. A path that begins with a dot starts
at the top of the document and follows the row on its way: with rows at `links[].samples[]`, `.links[].src` is
the `src` of the link that the sample belongs to. `@` at the end is the name or number something lies under.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ingest.core.errors import UsageError

_TOKEN = re.compile(r'\.?(?:"(?P<quoted>[^"]+)"|\[(?P<index>\d*)\]|(?P<name>@|[^.\[\]"@]+))')
_EACH, _ANY, _KEY = "[]", "*", "@"
MISSING = object()
"""Where a path without a value leads."""
Steps = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JsonRow:
    """One row, with everything from the top of the document down to it, and the names it lies under."""

    chain: tuple[Any, ...]
    keys: tuple[Any, ...]

    @property
    def node(self) -> Any:
        """The row itself."""
        return self.chain[-1]


def steps(path: str) -> Steps:
    """Returns the steps of a path; the dot at the front of a path from the top is not one.

    Raises:
        UsageError: it is not written as a path is.
    """
    found, at = [], 0
    while at < len(path):
        token = _TOKEN.match(path, at)
        if token is None or token.end() == at:
            raise UsageError(
                f"path {path!r} cannot be read at {path[at:]!r}; write such as links[].samples[]"
            )
        index = token["index"]
        found.append(_EACH if index == "" else index or token["quoted"] or token["name"])
        at = token.end()
    return tuple(found)


def rows(document: Any, way: Steps) -> Iterator[JsonRow]:
    """Yields every row that the path to the rows leads to; an absent name leads to none."""
    yield from _below(JsonRow((document,), (None,)), way)


def _below(here: JsonRow, way: Steps) -> Iterator[JsonRow]:
    if not way:
        yield here
        return
    for key, value in _inside(here.node, way[0]):
        yield from _below(JsonRow((*here.chain, value), (*here.keys, key)), way[1:])


def _inside(node: Any, step: str) -> Iterator[tuple[Any, Any]]:
    if step == _EACH:
        yield from enumerate(node) if isinstance(node, list) else ()
    elif step == _ANY:
        yield from node.items() if isinstance(node, dict) else ()
    else:
        value = _one(node, step)
        if value is not MISSING:
            yield step, value


def _one(node: Any, step: str) -> Any:
    if isinstance(node, dict):
        return node.get(step, MISSING)
    if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
        return node[int(step)]
    return MISSING


class JsonColumn:
    """The way from a row to one of its values."""

    def __init__(self, path: str, way: Sequence[str]):
        own = steps(path.removeprefix("."))
        self._key = bool(own) and own[-1] == _KEY
        own = own[:-1] if self._key else own
        self.relative = not path.startswith(".")
        self._depth = len(way) if self.relative else _shared(own, way)
        self._rest = own if self.relative else own[self._depth :]

    def value(self, row: JsonRow) -> Any:
        """Returns the value for a row; `MISSING` if it has none."""
        if self._key and not self._rest:
            return row.keys[self._depth]
        node = row.chain[self._depth]
        for step in self._rest:
            node = _one(node, step)
            if node is MISSING:
                return MISSING
        return self._rest[-1] if self._key else node


def _shared(own: Sequence[str], way: Sequence[str]) -> int:
    """How many steps both have in common."""
    count = 0
    for mine, other in zip(own, way, strict=False):
        if mine != other:
            break
        count += 1
    return count
