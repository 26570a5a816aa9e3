"""Small text files that people write, bounded: UTF-8 or UTF-16, any line ends, no larger than a file of
settings can be."""

import codecs
import re
from pathlib import Path

from ingest.core.errors import TwinError, UsageError

MOST_BYTES = 1024**2
"""Settings of hundreds of domains fill a tenth of it."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def encoding_of(head: bytes) -> str:
    """Returns the encoding that the byte order mark at the beginning of a file states; UTF-8 without one."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), "utf-8")


def is_file(name: str) -> bool:
    """Returns True if a file lies there; False also where no file can have such a name."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def read(path: Path, wrong: type[TwinError] = UsageError, most_bytes: int = MOST_BYTES) -> str:
    """Returns the text of a file, every line end a line feed, without a byte order mark.

    Raises:
        `wrong`: it cannot be read, is larger than `most_bytes`, or no text; the message says what to do.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(most_bytes + 1)
    except OSError as error:
        raise wrong(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > most_bytes:
        raise wrong(
            f"{path}: larger than {most_bytes / 1024**2:g} MiB; split it, or take out what is not needed"
        )
    encoding = encoding_of(data)
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise wrong(
            f"{path}: not a text file ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from error
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if found := _CONTROL.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise wrong(f"{path}:{line}: holds the control character {found[0]!r}; save it as UTF-8 text")
    return text
