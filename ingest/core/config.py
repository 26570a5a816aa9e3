"""Typed configuration of YAML and TOML files: an error names file, line (of YAML), key and the likely key."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from ingest.core import safe_yaml, text_files
from ingest.core.errors import UsageError
from ingest.core.safe_yaml import KeyPath
from ingest.core.terminal import LONGEST, clipped, in_line, shown

MOST_FAULTS = 3
"""Lines of a message; further faults are counted."""
MOST_WORDS = 60
"""Known words that a message lists."""


class Config(BaseModel):
    """Base of every configuration object: frozen, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Message(Config):
    """Base of what other programs send: as `Config`, and no value is converted to the type of its field."""

    model_config = ConfigDict(strict=True)


C = TypeVar("C", bound=Config)


@dataclass(frozen=True, slots=True)
class Expected:
    """Annotation of a field: what it takes, in words. An error then reads `VALUE is not WORDS`."""

    words: str


def load(cls: type[C], path: Path) -> C:
    """Reads a YAML file as a `cls`.

    Raises:
        UsageError: the file is unreadable, is not YAML, or does not fit `cls`; up to three faults are
            listed as `file:line key: what is wrong`.
    """
    document = safe_yaml.parsed(path, text_files.read(path), UsageError)
    return parse(cls, document.value, source=str(path), lines=document.lines)


def parse(
    cls: type[C],
    document: Any,
    *,
    source: str,
    lines: Callable[[], Mapping[KeyPath, int]] = dict,
) -> C:
    """Returns `document` (plain dicts and lists) as a `cls`.

    Raises:
        UsageError: it does not fit `cls`; up to three faults are listed with `source`, line if known, and
            key.
    """
    if not isinstance(document, dict):
        found = "nothing" if document is None else f"a {type(document).__name__}"
        raise UsageError(f"{source}: expected lines `key: value`, found {found}")
    try:
        return cls.model_validate(document)
    except ValidationError as error:
        known = lines()
        faults: dict[str, None] = {}
        for fault in error.errors(include_url=False):
            faults[_fault(cls, fault, document, source, known)] = None
            if len(faults) == MOST_FAULTS:
                break
        listed, more = list(faults), error.error_count() - MOST_FAULTS
        if more > 0:
            listed[-1] += f" (and {more:,} more)"
        raise UsageError("\n".join(listed)) from error


def suggestion(word: str, known: Iterable[str]) -> str:
    """Returns `; did you mean X?` when a known word is close, else the list of known words, or its begin."""
    words = sorted(known)
    close = get_close_matches(word[:LONGEST], words, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    more = f" and {len(words) - MOST_WORDS:,} more" if len(words) > MOST_WORDS else ""
    return f"; known: {', '.join(words[:MOST_WORDS])}{more}"


def _fault(
    cls: type[Config], fault: ErrorDetails, document: Any, source: str, lines: Mapping[KeyPath, int]
) -> str:
    loc = fault["loc"]
    of_key = loc[-1:] == ("[key]",)
    loc = loc[:-1] if of_key else loc
    line = next((lines[loc[:n]] for n in range(len(loc), 0, -1) if loc[:n] in lines), None)
    where = f"{source}:{line}" if line else source
    if fault["type"] == "extra_forbidden":
        owner = _owner(cls, loc[:-1])
        hint = suggestion(str(loc[-1]), owner.model_fields) if owner else ""
        return f"{where} {_key(loc)}: unknown key{hint}"
    if fault["type"] not in ("missing", "value_error"):
        for end in range(len(loc), 0, -1):
            if (expected := _expected(cls, loc[:end])) is not None:
                value = shown(_value(document, loc[:end]))
                return f"{where} {_key(loc[:end])}: {value} is not {expected.words}"
    message = in_line(fault["msg"].removeprefix("Value error, "))
    if not of_key and isinstance(fault["input"], str | int | float) and shown(fault["input"]) not in message:
        message += f", not {shown(fault['input'])}"
    return f"{where} {_key(loc)}: {message}" if loc else f"{where}: {message}"


def _key(loc: KeyPath) -> str:
    """The keys on the way to a value, joined by dots, short enough to be read."""
    return ".".join(clipped(str(part)) for part in loc)


def _value(document: Any, loc: KeyPath) -> Any:
    """The value at `loc`; pydantic writes keys that are no text as text."""
    for name in loc:
        if isinstance(document, dict):
            document = next(
                (value for key, value in document.items() if key == name or str(key) == name), None
            )
        else:
            document = document[name]
    return document


def _expected(cls: type[Config], loc: KeyPath) -> Expected | None:
    """The annotation of the field at `loc`; None if there is none."""
    owner = _owner(cls, loc[:-1])
    field = owner.model_fields.get(str(loc[-1])) if owner else None
    return next((m for m in field.metadata if isinstance(m, Expected)), None) if field else None


def _owner(annotation: Any, loc: KeyPath) -> type[Config] | None:
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
