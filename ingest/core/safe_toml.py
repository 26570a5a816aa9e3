"""TOML as plain values, bounded: depth of keys and values; no fault of a file is anything but a message."""

import re
import tomllib
from pathlib import Path
from typing import Any

from ingest.core import text_files
from ingest.core.errors import UsageError
from ingest.core.terminal import SENTENCE, clipped

MOST_DEPTH = 32
_KEY = re.compile(r"^[ \t]*(?:\[.*|[^=\n]*=)", re.MULTILINE)


def load(path: Path) -> dict[str, Any]:
    """Returns the content of a TOML file.

    Raises:
        UsageError: it cannot be read, is not TOML, or is nested too deeply; the message names the file.
    """
    text = text_files.read(path)
    deep = f"{path}: nested more than {MOST_DEPTH} levels deep; write it flatter"
    for key in _KEY.finditer(text):  # the parser walks every key from the top: long ones take it hours
        if key[0].count(".") > MOST_DEPTH * 4:
            raise UsageError(f"{path}:{text.count(chr(10), 0, key.start()) + 1}: {deep.partition(': ')[2]}")
    try:
        found = tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(deep) from error
    except ValueError as error:  # of the parser, or of Python for a number of thousands of digits
        raise UsageError(f"{path}: not valid TOML: {clipped(str(error), SENTENCE)}") from error
    if _deeper(found, MOST_DEPTH):
        raise UsageError(deep)
    return found


def _deeper(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_deeper(part, depth - 1) for part in inner)
