"""Files that were not read, in a dozen lines however many they are: what they look like, and the way out."""

from collections.abc import Sequence
from pathlib import Path

from ingest.core.errors import TwinError
from ingest.mapping import drafting
from ingest.mapping.sniffing import look
from ingest.parsing.source import from_file
from ingest.pipeline.ingest_report import FileResult
from ingest.readers.registry import UNKNOWN

MOST_LINES = 14
"""One less than a refusal may have: it has a line above."""
_KINDS = 4
"""Kinds of files that are described when one of them gets a mapping."""


def lines(skipped: Sequence[FileResult]) -> list[str]:
    """Returns what to say of files that were not read: kinds of files with the reason, then a mapping."""
    kinds: dict[str, list[FileResult]] = {}
    for result in skipped:
        kinds.setdefault(result.skipped_reason or "", []).append(result)
    ordered = sorted(kinds.items(), key=lambda kind: (UNKNOWN not in kind[0], -len(kind[1])))
    unknown = [held[0] for reason, held in ordered if UNKNOWN in reason]
    draft = _mapping(unknown[0].path) if unknown else []
    shown = ordered[: _KINDS if draft else MOST_LINES - 2]
    said = [_kind(reason, held) for reason, held in shown]
    left = [result for _, held in ordered[len(shown) :] for result in held]
    if left:
        said.append(
            f"and {len(left):,} more with {len(ordered) - len(shown):,} other reasons; --json lists all"
        )
    return [*said, *draft][:MOST_LINES]


def _kind(reason: str, held: Sequence[FileResult]) -> str:
    more = f" and {len(held) - 1:,} more files like it" if len(held) > 1 else ""
    return f"{held[0].path}{more}: {reason}"


def _mapping(path: str) -> list[str]:
    """A mapping for the file at this path, if it is a file of its own and its names say something."""
    try:
        source = from_file(Path(path), Path(path).name)
        seen = look(source.head, source.data() if source.small else None)
    except TwinError:  # a member of an archive, or gone by now: it is described without a mapping
        return []
    made = drafting.draft(seen) if seen.names else None
    if made is None:
        return []
    head = f"a dataset.toml to start from, for {Path(path).name} (its rows: twin ingest --explain FILE):"
    return [head, *(f"  {line}" for line in drafting.toml(seen, made, short=True))]
