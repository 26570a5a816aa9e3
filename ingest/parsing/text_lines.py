"""The lines of a text file, one at a time, whatever its size."""

from collections.abc import Iterator

from ingest.core.errors import InputError
from ingest.parsing.source import BOM, Source

LIMIT_BYTES = 1024**2
"""A longer line is no record of a log."""


def numbered(source: Source) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, without their ends, numbered from 1 with the blank ones counted.

    Bytes that are no UTF-8 become U+FFFD.

    Raises:
        InputError: a line is absurdly long.
    """
    with source.open() as stream:
        number = 0
        while line := stream.readline(LIMIT_BYTES + 1):
            number += 1
            if len(line) > LIMIT_BYTES:
                raise InputError(f"{source.shown}:{number}: a line longer than 1 MiB; not a log")
            text = (line.removeprefix(BOM) if number == 1 else line).decode("utf-8", "replace").strip()
            if text:
                yield number, text
