"""A line a command in a log file, for those who look for what went wrong later."""

import os
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ingest.core.terminal import without_keys

MOST_BYTES = 1 << 20
"""Of a log file; the oldest lines go first."""
KIB = 1024
SCHEMA = "twin.log/1"
_BEGINS = f'{{"schema": "{SCHEMA}"'.encode()
"""How every line of such a file begins."""


class RunRecord:
    """Record of a command and of its end: words, exit code, seconds, memory, notes, error."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.notes: list[str] = []
        self._began, self._clock = time.time(), time.monotonic()

    def ended(self, code: int, error: BaseException | None) -> dict[str, Any]:
        """Returns the record as JSON values; of an error with Python's traceback."""
        import traceback

        text = "" if error is None else "".join(traceback.format_exception(error))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else KIB)
        return {
            "schema": SCHEMA,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began)),
            "words": [without_keys(word) for word in self.words],
            "exit_code": code,
            "seconds": round(time.monotonic() - self._clock, 3),
            "peak_bytes": peak,
            "notes": [without_keys(note) for note in self.notes],
            "error": without_keys(text) or None,
        }


def append(path: Path, record: dict[str, Any]) -> None:
    """Adds a record to a log file, which is replaced whole: no reader sees half a line. Of two commands that
    end at one instant one record may be lost. To a device, a FIFO or a terminal the line is written.

    Raises:
        UsageError: another file lies there; it stays as it is.
        StorageError: the file cannot be written.
    """
    import json

    from ingest.core import durable
    from ingest.core.errors import UsageError

    line = json.dumps(record).encode() + b"\n"
    if durable.written_in_place(path):  # never read: /dev/full has no end
        durable.write_output(path, line)
        return
    head, before, start = b"", b"", 0
    with suppress(FileNotFoundError), path.open("rb") as log:
        head = log.read(len(_BEGINS))
        start = max(0, log.seek(0, os.SEEK_END) - MOST_BYTES)
        log.seek(start)
        before = log.read(MOST_BYTES)
    if head and head != _BEGINS:
        raise UsageError(f"{path}: a file that is no log of twin; name another one")
    if start:
        before = before[before.find(b"\n") + 1 :]
    durable.write_output(path, before + line)
