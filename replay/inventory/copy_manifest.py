"""The manifest of a copy, `backup.json`: every file with its size, its SHA-256 and the tag of its place.

A copy may come from anywhere, so nothing in its manifest is trusted: it is bounded before it is parsed, fits
a typed model, and its names lead nowhere but to files that `twin backup` would have copied.
"""

import time
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ingest.core.errors import DamageError, UsageError
from ingest.core.terminal import SENTENCE, clipped, shown
from ingest.objects import working_copy

NAME = "backup.json"
SCHEMA = "twin.backup/1"
DERIVED = frozenset({"cache", "reports", "fetched", "quarantine", "service", NAME})
"""What is of no use in a copy, or is made again; so are locks and hidden files. `service` has the token of a
service on this machine, which no copy may have."""
MAX_BYTES = 1 << 26
"""Bytes of a manifest; a file takes some 200 of them."""
MAX_FILES = 250_000
MAX_NAME_BYTES, MAX_PART_BYTES, MAX_DEPTH = 900, 255, 16
"""Of a name, of one part of it (as file systems take them), and its folders."""
MAX_FILE_BYTES = 1 << 44
_CONTROL = frozenset(map(chr, [*range(32), 127]))


class CopiedFile(NamedTuple):
    """A file of a copy: its size, its SHA-256 (hex), and the tag that the place gave it."""

    size_bytes: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    tag: Annotated[str, Field(max_length=200)]


class CopyManifest(BaseModel):
    """What a copy holds, and whether the backup that wrote it ended."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    schema_name: Literal["twin.backup/1"] = Field(SCHEMA, alias="schema")
    at_epoch_s: Annotated[int, Field(ge=0, le=1 << 53)]
    complete: bool
    files: Annotated[dict[str, CopiedFile], Field(max_length=MAX_FILES)]

    @model_validator(mode="after")
    def _names(self) -> Self:
        if (fault := names_fault(self.files)) is not None:
            raise ValueError(fault)
        return self


def names_fault(names: Iterable[str]) -> str | None:
    """Returns the first fault of the names of a copy; None: each is that of a file which a copy may hold."""
    names = set(names)
    for name in names:
        if (fault := name_fault(name)) is not None:
            return f"the name {shown(name)} {fault}"
        folder = next((str(above) for above in PurePosixPath(name).parents if str(above) in names), None)
        if folder is not None:
            return f"{shown(folder)} is both a file and the folder of {shown(name)}"
    return None


def name_fault(name: str) -> str | None:
    """Returns why a file of this name is in no copy; None: it may be."""
    parts = name.split("/")
    if {"", ".", ".."} & set(parts) or "\\" in name:
        return "leads out of the store"
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return "is no text"
    if _CONTROL & set(name):
        return "holds control characters"
    if max(sizes) > MAX_PART_BYTES or len(name.encode()) > MAX_NAME_BYTES or len(parts) > MAX_DEPTH:
        return "is too long"
    if parts[0] in DERIVED or name == working_copy.MARK or any(map(is_passed_over, parts)):
        return "is of a file that no copy holds"
    return None


def is_passed_over(part: str) -> bool:
    """True for the name of a hidden file or a lock, which no copy has."""
    return part.startswith(".") or part.endswith("lock")


def parsed(title: str, data: bytes) -> CopyManifest:
    """Returns the manifest in the bytes of the file; `title` names the copy in messages.

    Raises:
        DamageError: `twin backup` did not write it; the message says what is wrong first.
    """
    if len(data) > MAX_BYTES or data.count(b":") > 2 * MAX_FILES or data.count(b",") > 4 * MAX_FILES:
        raise _refused(title, f"larger than that of {MAX_FILES:,} files")
    try:
        return CopyManifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        at = ".".join(clipped(str(part), 40) for part in first["loc"])
        what = clipped(first["msg"].removeprefix("Value error, "), SENTENCE)
        raise _refused(title, f"{at}: {what}" if at else what) from None


def encoded(files: Mapping[str, CopiedFile], *, complete: bool) -> bytes:
    """Returns the bytes of a manifest that is written now.

    Raises:
        UsageError: there are more files than a manifest lists.
    """
    if len(files) > MAX_FILES:
        raise UsageError(
            f"a copy has at most {MAX_FILES:,} files, not {len(files):,}; merge those of finished runs "
            "(`twin compact`), or copy runs into several stores (`twin sync`)"
        )
    manifest = CopyManifest.model_construct(
        schema_name=SCHEMA, at_epoch_s=int(time.time()), complete=complete, files=dict(sorted(files.items()))
    )
    return manifest.model_dump_json(by_alias=True).encode() + b"\n"


def _refused(title: str, problem: str) -> DamageError:
    return DamageError(
        f"{title}/{NAME}: not what `twin backup` writes ({problem}); take another copy, or remove it and run "
        "`twin backup` again"
    )
