"""Standard streams whose failures every command reports in the same way, wherever it prints.

A full or closed standard output is a `StorageError`: one line, exit code 1. A reader that has gone (`| head`)
ends the command silently. What cannot be written to standard error is dropped: notes decide nothing.
"""

import io
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from ingest.core.errors import StorageError

CLOSED = "standard output is closed; direct it to a file or a program"


class ReaderGoneError(Exception):
    """The program that read standard output has ended.

    No `OSError`, as rich and click would take a broken pipe for a failure of theirs.
    """


class _Output(io.RawIOBase):
    """The bytes of a standard stream; `target` is the stream as Python opened it, None: closed."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._target is not None and bool(self._target.isatty())

    def fileno(self) -> int:
        if self._target is None:
            raise io.UnsupportedOperation("standard output is closed")
        return int(self._target.fileno())

    def write(self, data: Any) -> int:
        """Writes some of the bytes and returns how many.

        Raises:
            ReaderGoneError, StorageError.
        """
        if self._target is None:
            raise StorageError(CLOSED)
        try:
            while (written := self._target.write(data)) is None:  # a pipe that does not block, and is full
                select.select([], [self._target], [])
            self._target.flush()
        except BrokenPipeError:
            raise ReaderGoneError from None
        except OSError as error:
            raise StorageError(
                f"standard output: cannot be written ({error.strerror}); free space, or direct it elsewhere"
            ) from error
        return int(written)


class _Notes(_Output):
    """Standard error: what it does not take is dropped."""

    def write(self, data: Any) -> int:
        """Writes the bytes, or drops them; returns how many there were."""
        with suppress(ReaderGoneError, StorageError):
            return super().write(data)
        return len(memoryview(data).cast("B"))


@contextmanager
def reported() -> Iterator[None]:
    """Replaces `sys.stdout` and `sys.stderr` in the body by streams that report their failures as above."""
    plain = sys.stdout, sys.stderr
    for stream in plain:
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    # A text stream without bytes behind it (of a notebook, of a test) is left as it is.
    if plain[0] is None or hasattr(plain[0], "buffer"):
        sys.stdout = _text(plain[0], _Output)
    if hasattr(plain[1], "buffer"):
        sys.stderr = _text(plain[1], _Notes)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with suppress(ReaderGoneError, StorageError, ValueError):
                    stream.flush()
        sys.stdout, sys.stderr = plain


def _text(plain: Any, kind: type[_Output]) -> io.TextIOWrapper:
    if plain is None:
        return io.TextIOWrapper(io.BufferedWriter(kind(None)), "utf-8")
    bytes_ = getattr(plain.buffer, "raw", plain.buffer)
    return io.TextIOWrapper(
        io.BufferedWriter(cast(io.RawIOBase, kind(bytes_))), plain.encoding, plain.errors,
        line_buffering=getattr(plain, "line_buffering", False),
    )  # fmt: skip
