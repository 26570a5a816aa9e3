"""YAML as plain values, bounded: depth, number of values with aliases written out, no tags, no key twice.

Libraries that read YAML build what a file asks for: lists that double with every alias, calls that a tag
names. Here a file is measured while it is read, and nothing is made of it before it has passed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from ingest.core.errors import TwinError
from ingest.core.terminal import SENTENCE, clipped, shown

MOST_VALUES = 50_000
"""A scenario of 100 domains with a round trip for every pair has 20,000."""
MOST_DEPTH = 32
MOST_DIGITS = 400
"""The longest number that means anything is the least double, of some 330 letters."""
_NO_DIGITS = re.compile("[-+]?0[xb]_*")
KeyPath = tuple[str | int, ...]
"""Position of a value in a document: keys and list indices from the top."""

if TYPE_CHECKING or not yaml.__with_libyaml__:
    _Parts = yaml.SafeLoader
else:
    from yaml.cyaml import CParser

    class _Parts(Composer, CParser, SafeConstructor, Resolver):
        """The loader of PyYAML around the parser in C, with its own composer."""

        def __init__(self, text: str):
            CParser.__init__(self, text)
            for part in (Composer, SafeConstructor, Resolver):
                part.__init__(self)


class _Loader(_Parts):
    """Composes nodes while it counts them."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML has it
        first: [(tag, pattern) for tag, pattern in known if not tag.endswith((":timestamp", ":value"))]
        for first, known in Resolver.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str):
        super().__init__(text)
        self._count = self._depth = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        event, before = self.peek_event(), self._count  # type: ignore[no-untyped-call]
        anchor = event.anchor
        if isinstance(event, yaml.AliasEvent):
            if anchor in self.anchors and anchor not in self._sizes:
                raise _Refused(f"*{anchor} stands inside what it stands for; write it out", event.start_mark)
            self._count += self._sizes.get(anchor, 0)
        else:
            self._check(event)
            self._count += 1
        if self._count > MOST_VALUES:
            raise _Refused(
                f"more than {MOST_VALUES:,} values, aliases written out; split it", event.start_mark
            )
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if anchor is not None and not isinstance(event, yaml.AliasEvent):
            self._sizes[anchor] = self._count - before
        if isinstance(node, yaml.MappingNode) and not isinstance(event, yaml.AliasEvent):
            self._check_keys(node)
        return node

    def _check(self, event: Any) -> None:
        if self._depth >= MOST_DEPTH:
            raise _Refused(f"nested more than {MOST_DEPTH} levels deep; write it flatter", event.start_mark)
        if event.tag is not None and event.tag != "!":
            raise _Refused(f"the tag {shown(event.tag)} is not read; write the plain value", event.start_mark)
        if isinstance(event, yaml.ScalarEvent) and any("\ud800" <= c <= "\udfff" for c in event.value):
            raise _Refused(f"{shown(event.value)} holds half a letter (a surrogate)", event.start_mark)

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _Refused("a list or a mapping stands where a key should", key.start_mark)
            if key.value in seen and key.value != "<<":
                raise _Refused(f"the key {shown(key.value)} appears twice; keep one", key.start_mark)
            seen.add(key.value)

    def construct_scalar(self, node: Any) -> Any:
        text, number = node.value, node.tag.endswith((":int", ":float"))
        if number and (len(text) > MOST_DIGITS or ":" in text or _NO_DIGITS.fullmatch(text)):
            raise _Refused(
                f"{shown(text)} is no number (of at most {MOST_DIGITS} digits); put text in quotes",
                node.start_mark,
            )
        return super().construct_scalar(node)


class _Refused(yaml.MarkedYAMLError):
    """What is not read, and where it stands."""

    def __init__(self, problem: str, mark: Any):
        super().__init__(problem=problem, problem_mark=mark)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A document as plain values; None for an empty one."""

    value: Any
    node: yaml.Node | None

    def lines(self) -> dict[KeyPath, int]:
        """Returns the line, from 1, of every value below the top."""
        return {} if self.node is None else dict(_lines(self.node))


def parsed(path: Path, text: str, wrong: type[TwinError]) -> YamlDocument:
    """Returns the YAML `text` of `path`.

    Raises:
        `wrong`: it is not YAML, or holds what is not read; the message names file and line.
    """
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            return YamlDocument(None if node is None else loader.construct_document(node), node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        said = "" if isinstance(error, _Refused) else "not valid YAML: "
        problem = clipped(str(getattr(error, "problem", None) or error), SENTENCE)
        raise wrong(f"{where}: {said}{problem}") from error


def _lines(node: yaml.Node, at: KeyPath = ()) -> Iterator[tuple[KeyPath, int]]:
    """Line number (from 1) of every value below `node`."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*at, key.value), key.start_mark.line + 1
            yield from _lines(value, (*at, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*at, index), value.start_mark.line + 1
            yield from _lines(value, (*at, index))
