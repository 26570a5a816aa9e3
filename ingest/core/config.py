"""Typed configuration of YAML and TOML files: an error names file, line (of YAML), key and the likely key."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from ingest.core.errors import TwinError, UsageError

Path_ = tuple[str | int, ...]
"""Position of a value in the document: keys and list indices from the top."""


class Config(BaseModel):
    """Base of every configuration object: frozen, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


C = TypeVar("C", bound=Config)


@dataclass(frozen=True, slots=True)
class Expected:
    """Annotation of a field: what it takes, in words. An error then reads `VALUE is not WORDS`."""

    words: str


def load(cls: type[C], path: Path) -> C:
    """Reads a YAML file as a `cls`.

    Raises:
        UsageError: the file is unreadable, is not YAML, or does not fit `cls`; every fault is listed
            as `file:line key: what is wrong`.
    """
    node, document = composed(path, read_text(path), UsageError)
    lines = dict(_lines(node)) if node is not None else {}
    return parse(cls, document, source=str(path), lines=lines)


def composed(path: Path, text: str, wrong: type[TwinError]) -> tuple[yaml.Node | None, Any]:
    """Returns the YAML `text` of `path` as nodes, which know their lines, and as plain values.

    Raises:
        `wrong`: the text is not YAML.
    """
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise wrong(f"{where}: not valid YAML: {getattr(error, 'problem', error)}") from error


def parse(cls: type[C], document: Any, *, source: str, lines: Mapping[Path_, int] | None = None) -> C:
    """Returns `document` (plain dicts and lists) as a `cls`.

    Raises:
        UsageError: it does not fit `cls`; every fault is listed with `source`, line if known, and key.
    """
    if not isinstance(document, dict):
        found = "nothing" if document is None else f"a {type(document).__name__}"
        raise UsageError(f"{source}: expected lines `key: value`, found {found}")
    try:
        return cls.model_validate(document)
    except ValidationError as error:
        faults = [
            _fault(cls, fault, document, source, lines or {}) for fault in error.errors(include_url=False)
        ]
        raise UsageError("\n".join(dict.fromkeys(faults))) from error


def suggestion(word: str, known: Iterable[str]) -> str:
    """Returns `; did you mean X?` when a known word is close, else the list of known words."""
    words = sorted(known)
    close = get_close_matches(word, words, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(words)}"


def read_text(path: Path) -> str:
    """Returns the text of a file.

    Raises:
        UsageError: it cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def _lines(node: yaml.Node, at: Path_ = ()) -> Iterable[tuple[Path_, int]]:
    """Line number (from 1) of every value below `node`."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*at, key.value), key.start_mark.line + 1
            yield from _lines(value, (*at, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*at, index), value.start_mark.line + 1
            yield from _lines(value, (*at, index))


def _fault(
    cls: type[Config], fault: ErrorDetails, document: Any, source: str, lines: Mapping[Path_, int]
) -> str:
    loc = fault["loc"]
    of_key = loc[-1:] == ("[key]",)
    loc = loc[:-1] if of_key else loc
    line = next((lines[loc[:n]] for n in range(len(loc), 0, -1) if loc[:n] in lines), None)
    where = f"{source}:{line}" if line else source
    key = ".".join(map(str, loc))
    if fault["type"] == "extra_forbidden":
        owner = _owner(cls, loc[:-1])
        hint = suggestion(str(loc[-1]), owner.model_fields) if owner else ""
        return f"{where} {key}: unknown key{hint}"
    if fault["type"] not in ("missing", "value_error"):
        for end in range(len(loc), 0, -1):
            if (expected := _expected(cls, loc[:end])) is not None:
                value = reduce(lambda part, name: part[name], loc[:end], document)
                return f"{where} {'.'.join(map(str, loc[:end]))}: {value!r} is not {expected.words}"
    message = fault["msg"].removeprefix("Value error, ")
    if not of_key and isinstance(fault["input"], str | int | float) and repr(fault["input"]) not in message:
        message += f", not {fault['input']!r}"
    return f"{where} {key}: {message}" if key else f"{where}: {message}"


def _expected(cls: type[Config], loc: Path_) -> Expected | None:
    """The annotation of the field at `loc`; None if there is none."""
    owner = _owner(cls, loc[:-1])
    field = owner.model_fields.get(str(loc[-1])) if owner else None
    return next((m for m in field.metadata if isinstance(m, Expected)), None) if field else None


def _owner(annotation: Any, loc: Path_) -> type[Config] | None:
    """The configuration class that the value at `loc` should have been, found by walking annotations."""
    if isinstance(annotation, type) and issubclass(annotation, Config):
        if not loc:
            return annotation
        field = annotation.model_fields.get(str(loc[0]))
        return _owner(field.annotation, loc[1:]) if field else None
    for inner in get_args(annotation):
        # A container consumes one step of the path, an optional or annotated type none.
        for rest in (loc[1:], loc):
            found = _owner(inner, rest)
            if found is not None:
                return found
    return None
